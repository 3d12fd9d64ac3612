//! The access log: each request that was answered, kept in the database, in a file, or in both.
//!
//! Whoever answers requests only leaves an entry. It is written in batches by the pools, the
//! database and the file each at its own pace: one that is away costs the other nothing.

use super::access_file::AccessFile;
use super::access_query::AccessFilter;
use super::access_store;
use super::{when_ready, written};
use crate::node::State;
use crate::settings::AccessLogSettings;
use serde::{Deserialize, Serialize};
use skep_pools::{Batch, BatchOptions, BatchTotals, Batcher, Failure, Pools, Tier};
use skep_store::{Database, StoreError, Stores};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;

/// Entries of one transaction when many have piled up: committing costs more than writing them.
const AT_ONCE: usize = 5_000;

/// So much of a path is kept.
pub const PATH_BYTES_MAX: usize = 512;
/// So much of every other text that comes from outside is kept.
const TEXT_BYTES_MAX: usize = 256;
/// Entries that somebody who follows the log may be behind before they miss some.
const FOLLOWERS_BEHIND_MAX: usize = 4_096;

/// A request that was answered.
///
/// Made for each request, so that what many have in common is shared and not copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AccessEntry {
    /// Grows with each entry of the database; absent from one that is not there yet.
    #[serde(default, skip_serializing_if = "is_not_stored")]
    pub id: i64,
    /// When it was answered, in milliseconds since 1970.
    pub at_ms: i64,
    /// The node that answered; set when the entry is noted.
    #[schema(value_type = String)]
    pub node: Arc<str>,
    /// The route it was proxied by; empty for the node's own API.
    #[schema(value_type = String)]
    pub route: Arc<str>,
    /// The host it was meant for.
    pub host: String,
    /// Its method.
    #[schema(value_type = String)]
    pub method: Cow<'static, str>,
    /// Its path, without what is behind the question mark.
    pub path: String,
    /// The answer's status.
    pub status: i64,
    /// In microseconds: from its head to the head of the answer, or to its end over a route.
    pub duration_us: i64,
    /// Where it came from.
    pub address: String,
    /// Who asked; `-` if nobody in particular.
    pub actor: String,
    /// The id in the answer's `X-Request-Id`.
    pub request_id: String,
    /// The upstream that was asked last; empty if none was.
    #[schema(value_type = String)]
    pub upstream: Arc<str>,
    /// Bytes of its body.
    pub bytes_in: i64,
    /// Bytes of the answer's body; 0 where they were not known in advance.
    pub bytes_out: i64,
    /// How many upstreams were asked until one answered.
    pub tries: i64,
    /// `1.0`, `1.1` or `2`.
    #[schema(value_type = String)]
    pub protocol: Cow<'static, str>,
    /// What went wrong, in a word such as `slow` or `closed`; empty if nothing did.
    #[schema(value_type = String)]
    pub error: Cow<'static, str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_not_stored(id: &i64) -> bool {
    *id == 0
}

impl AccessEntry {
    /// Shortens what a client can make as long as it likes, so that a limited number of entries
    /// is a limited amount of memory.
    fn bound(&mut self) {
        shorten(&mut self.path, PATH_BYTES_MAX);
        for text in [&mut self.host, &mut self.address, &mut self.actor, &mut self.request_id] {
            shorten(text, TEXT_BYTES_MAX);
        }
    }
}

fn shorten(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
    }
}

/// An entry on its way to several places.
pub type Noted = Arc<AccessEntry>;

/// Takes entries and sees that they are written.
pub struct AccessLog {
    node: Arc<str>,
    database: Option<Batcher<Noted>>,
    file: Option<FileLog>,
    followers: Followers,
}

struct FileLog {
    file: Arc<AccessFile>,
    batches: Batcher<Noted>,
}

/// What has become of the entries so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessTotals {
    /// Of those for the database.
    pub database: BatchTotals,
    /// Of those for the file. What the file did not take counts as written here.
    pub file: BatchTotals,
    /// Bytes that were written to the file.
    pub file_bytes: u64,
    /// Attempts to write to the file, or to make room for it, that failed.
    pub file_errors: u64,
    /// Entries that are not in the file because of that.
    pub file_lost: u64,
}

impl AccessLog {
    /// A log as it is set; `None` if it would be kept nowhere.
    pub fn start(
        node: &str,
        pools: &Pools,
        settings: &AccessLogSettings,
        stores: &Stores,
        state: &watch::Receiver<State>,
    ) -> Option<Arc<Self>> {
        let node = node.into();
        let capacity = settings.waiting_max;
        let database = settings.enabled.then(|| to_database(pools, capacity, stores, state));
        let file = settings.file.as_ref().map(|path| {
            let file = AccessFile::new(path, settings.file_max.0, settings.files);
            let file = Arc::new(file);
            FileLog { batches: to_file(pools, capacity, &file), file }
        });
        let followers = Followers::default();
        let is_kept = database.is_some() || file.is_some();
        is_kept.then(|| Arc::new(AccessLog { node, database, file, followers }))
    }

    /// Takes an entry of this node. Never waits: where too many wait to be written it is dropped
    /// and counted.
    pub fn note(&self, mut entry: AccessEntry) {
        entry.node = self.node.clone();
        entry.bound();
        let entry = Arc::new(entry);
        self.followers.tell(&entry);
        if let Some(file) = &self.file {
            file.batches.push_or_drop(entry.clone());
        }
        if let Some(database) = &self.database {
            database.push_or_drop(entry);
        }
    }

    /// Follows the entries of this node from now on.
    pub fn follow(&self) -> Follower {
        self.followers.count.fetch_add(1, Ordering::Relaxed);
        Follower {
            entries: self.followers.entries.subscribe(),
            count: self.followers.count.clone(),
        }
    }

    /// What has become of the entries so far.
    pub fn totals(&self) -> AccessTotals {
        let file = self.file.as_ref();
        AccessTotals {
            database: self.database.as_ref().map(Batcher::totals).unwrap_or_default(),
            file: file.map(|one| one.batches.totals()).unwrap_or_default(),
            file_bytes: file.map_or(0, |one| one.file.bytes()),
            file_errors: file.map_or(0, |one| one.file.errors()),
            file_lost: file.map_or(0, |one| one.file.lost()),
        }
    }

    /// Writes what waits, whatever its age, and returns when that is done.
    pub async fn flush(&self) {
        if let Some(file) = &self.file {
            file.batches.flush().await;
        }
        if let Some(database) = &self.database {
            database.flush().await;
        }
    }

    /// How many entries wait.
    pub fn waiting(&self) -> u64 {
        let totals = self.totals();
        totals.database.waiting + totals.file.waiting
    }

    /// Writes what still waits after the pools have ended.
    pub async fn write_left(&self, database: &Database) -> Result<(), StoreError> {
        if let Some(file) = &self.file {
            file.file.append(&file.batches.take_left());
        }
        let left = self.database.as_ref().map(Batcher::take_left).unwrap_or_default();
        access_store::write(database, left).await
    }
}

fn to_database(
    pools: &Pools,
    capacity: usize,
    stores: &Stores,
    state: &watch::Receiver<State>,
) -> Batcher<Noted> {
    let (stores, state) = (stores.clone(), state.clone());
    let write = move |batch: Batch<Noted>| {
        let (stores, state) = (stores.clone(), state.clone());
        async move {
            when_ready(&state)?;
            written(access_store::write(stores.database(), batch.to_vec()).await)
        }
    };
    let give_up = {
        let pools = pools.clone();
        move |entry: &Noted, failure: &Failure| {
            let payload = serde_json::to_vec(entry).ok();
            pools.bury(Tier::High, "access-entry", &failure.message, payload);
        }
    };
    let options =
        BatchOptions { capacity, entries_max: AT_ONCE, ..BatchOptions::new("access-log") };
    Batcher::new(pools, options, write, give_up)
}

/// A line that the file does not take is lost and counted there: trying again would only hold up
/// the next ones.
fn to_file(pools: &Pools, capacity: usize, file: &Arc<AccessFile>) -> Batcher<Noted> {
    let file = file.clone();
    let write = move |batch: Batch<Noted>| {
        file.append(&batch);
        std::future::ready(Ok(()))
    };
    let options = BatchOptions { capacity, ..BatchOptions::new("access-file") };
    let give_up = |entry: &Noted, failure: &Failure| {
        tracing::error!(
            id = entry.request_id,
            error = failure.message,
            "an entry is not in the file of the access log"
        );
    };
    Batcher::new(pools, options, write, give_up)
}

/// Those who watch entries come.
struct Followers {
    /// Known without a lock, because mostly there are none.
    count: Arc<AtomicUsize>,
    entries: broadcast::Sender<Noted>,
}

impl Default for Followers {
    fn default() -> Self {
        Followers { count: Arc::default(), entries: broadcast::channel(FOLLOWERS_BEHIND_MAX).0 }
    }
}

impl Followers {
    fn tell(&self, entry: &Noted) {
        if self.count.load(Ordering::Relaxed) > 0 {
            // They may have left since.
            let _ = self.entries.send(entry.clone());
        }
    }
}

/// Somebody who watches entries come.
pub struct Follower {
    entries: broadcast::Receiver<Noted>,
    count: Arc<AtomicUsize>,
}

/// What a follower hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// An entry that was asked for.
    Entry(Noted),
    /// So many entries came faster than they were taken and are gone, those that nobody asked for
    /// included.
    Missed(u64),
}

impl Follower {
    /// The next entry that the filter lets through; `None` when there will be no more.
    pub async fn next(&mut self, filter: &AccessFilter) -> Option<Heard> {
        loop {
            match self.entries.recv().await {
                Ok(entry) if filter.lets_through(&entry) => return Some(Heard::Entry(entry)),
                Ok(_) => {}
                Err(RecvError::Lagged(count)) => return Some(Heard::Missed(count)),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
