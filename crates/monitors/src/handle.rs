//! What the rest of a node holds: accounts, monitors and servers can be changed and looked at.

use crate::metrics::MonitorsMetrics;
use crate::model::{
    self, Account, AssignmentRow, Entity, HistoryRow, Monitor, NewAccount, NewMonitor, NewServer,
    Problem, SampleRow, Server,
};
use crate::news::News;
use crate::options::MonitorsOptions;
use crate::roster::Book;
use crate::store::{
    self, Fleet, HistoryOf, Imported, Limits, Listed, MonitorFilter, Page, ServerFilter,
};
use crate::tally::{FleetPoint, Tally};
use serde_json::Value;
use skep_policy::monitors::{Flaw, GlobalStatus, Settings};
use skep_store::{Database, StoreError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The monitors of an installation, as one node deals with them. Clones are the same.
#[derive(Clone)]
pub struct Monitors {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) db: Database,
    /// This node's name, for claims.
    pub(crate) node: String,
    pub(crate) options: MonitorsOptions,
    pub(crate) metrics: MonitorsMetrics,
    pub(crate) tally: Tally,
    pub(crate) news: Mutex<News>,
    /// Something may be due.
    pub(crate) due: Notify,
    /// Something was changed.
    pub(crate) changed: Notify,
    clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    book: Mutex<Option<Arc<Book>>>,
    /// Held by the one who reads the monitors again.
    reading: tokio::sync::Mutex<()>,
}

/// What somebody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noun {
    /// An account.
    Account,
    /// A monitor.
    Monitor,
    /// A server.
    Server,
}

impl Noun {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Noun::Account => "account",
            Noun::Monitor => "monitor",
            Noun::Server => "server",
        }
    }
}

/// Why something was not changed. Nothing was, unless the store does not know.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// What was given is none.
    #[error("{}", Problem::all(.1))]
    Bad(Noun, Vec<Problem>),
    /// It cannot be, beside what there is.
    #[error(transparent)]
    Refused(#[from] store::ChangeError),
}

/// Why nothing was imported, unless the store does not know.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Lines are wrong: all of them, with what is wrong there.
    #[error("{} lines are wrong", .0.len())]
    Lines(Vec<(usize, Vec<Problem>)>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Lines of an import that are read before others may work on this thread.
const LINES_AT_ONCE: usize = 256;

impl Monitors {
    /// The monitors that `db` holds. They are reviewed when the service runs. `clock` gives
    /// milliseconds since 1970, alike on all nodes.
    pub fn new(
        db: Database,
        node: &str,
        options: MonitorsOptions,
        metrics: MonitorsMetrics,
        clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    ) -> Self {
        let inner = Inner {
            db,
            node: node.to_owned(),
            options,
            metrics,
            tally: Tally::default(),
            news: Mutex::default(),
            due: Notify::new(),
            changed: Notify::new(),
            clock,
            book: Mutex::new(None),
            reading: tokio::sync::Mutex::new(()),
        };
        Monitors { inner: Arc::new(inner) }
    }

    /// Now, in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        (self.inner.clock)()
    }

    /// By which numbers monitors are selected.
    pub fn settings(&self) -> &Settings {
        &self.inner.options.policy
    }

    fn limits(&self) -> Limits {
        let MonitorsOptions { monitors_max, servers_max, .. } = self.inner.options;
        Limits { monitors_max, servers_max }
    }

    /// Adds an account.
    pub async fn create_account(&self, value: &Value) -> Result<Account, ChangeError> {
        let new = NewAccount::parse(value).map_err(|flaws| bad(Noun::Account, flaws))?;
        Ok(store::create_account(&self.inner.db, new, self.now_ms()).await?)
    }

    /// Replaces an account.
    pub async fn replace_account(&self, value: &Value) -> Result<Account, ChangeError> {
        let new = NewAccount::parse(value).map_err(|flaws| bad(Noun::Account, flaws))?;
        let account = store::replace_account(&self.inner.db, new, self.now_ms()).await?;
        self.inner.due.notify_one();
        Ok(account)
    }

    /// Deletes an account that has nothing.
    pub async fn delete_account(&self, id: &str) -> Result<(), ChangeError> {
        Ok(store::delete_account(&self.inner.db, id).await?)
    }

    /// One account.
    pub async fn account(&self, id: &str) -> Result<Option<Account>, StoreError> {
        store::account(&self.inner.db, id).await
    }

    /// Accounts by id.
    pub async fn accounts(&self, page: Page) -> Result<Listed<Account>, StoreError> {
        store::accounts(&self.inner.db, page).await
    }

    /// Adds a monitor, without a key.
    pub async fn create_monitor(&self, value: &Value) -> Result<Monitor, ChangeError> {
        let new = NewMonitor::parse(value).map_err(|flaws| bad(Noun::Monitor, flaws))?;
        let (db, limits) = (&self.inner.db, self.limits());
        let monitor = store::create_monitor(db, new, None, limits, self.now_ms()).await?;
        self.inner.due.notify_one();
        Ok(monitor)
    }

    /// Replaces a monitor.
    pub async fn replace_monitor(&self, value: &Value) -> Result<Monitor, ChangeError> {
        let new = NewMonitor::parse(value).map_err(|flaws| bad(Noun::Monitor, flaws))?;
        let monitor = store::replace_monitor(&self.inner.db, new, self.now_ms()).await?;
        self.inner.due.notify_one();
        Ok(monitor)
    }

    /// Sets what the network as a whole thinks of a monitor.
    pub async fn set_monitor_status(
        &self,
        id: &str,
        status: GlobalStatus,
    ) -> Result<Monitor, ChangeError> {
        let (db, now_ms) = (&self.inner.db, self.now_ms());
        let monitor = store::set_monitor_status(db, id, status, now_ms).await?;
        self.inner.due.notify_one();
        Ok(monitor)
    }

    /// Gives a monitor another key, or none; the one it had.
    pub async fn set_monitor_key(
        &self,
        id: &str,
        key: Option<String>,
    ) -> Result<Option<String>, ChangeError> {
        Ok(store::set_monitor_key(&self.inner.db, id, key, self.now_ms()).await?)
    }

    /// Deletes a monitor: its servers are reviewed soon, and then it is gone. As it was.
    pub async fn delete_monitor(&self, id: &str) -> Result<Monitor, ChangeError> {
        let monitor = store::delete_monitor(&self.inner.db, id, self.now_ms()).await?;
        self.inner.due.notify_one();
        Ok(monitor)
    }

    /// One monitor; not one that was deleted.
    pub async fn monitor(&self, id: &str) -> Result<Option<Monitor>, StoreError> {
        store::monitor(&self.inner.db, id).await
    }

    /// The monitor that reports with this key.
    pub async fn monitor_of_key(&self, key: &str) -> Result<Option<Monitor>, StoreError> {
        store::monitor_of_key(&self.inner.db, key).await
    }

    /// Monitors by id.
    pub async fn monitors(
        &self,
        page: Page,
        filter: MonitorFilter,
    ) -> Result<Listed<Monitor>, StoreError> {
        store::monitors(&self.inner.db, page, filter).await
    }

    /// What a monitor is to its servers, by their ids.
    pub async fn assignments_of(
        &self,
        monitor: i64,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<(Server, AssignmentRow)>, StoreError> {
        store::assignments_of_monitor(&self.inner.db, monitor, after, limit).await
    }

    /// Adds a server.
    pub async fn create_server(&self, value: &Value) -> Result<Server, ChangeError> {
        let new = NewServer::parse(value).map_err(|flaws| bad(Noun::Server, flaws))?;
        let (db, limits) = (&self.inner.db, self.limits());
        let server = store::create_server(db, new, limits, self.now_ms()).await?;
        self.inner.due.notify_one();
        Ok(server)
    }

    /// Replaces a server.
    pub async fn replace_server(&self, value: &Value) -> Result<Server, ChangeError> {
        let new = NewServer::parse(value).map_err(|flaws| bad(Noun::Server, flaws))?;
        let server = store::replace_server(&self.inner.db, new, self.now_ms()).await?;
        self.inner.due.notify_one();
        Ok(server)
    }

    /// Leaves a server alone, or watches it again.
    pub async fn set_server_paused(&self, id: &str, paused: bool) -> Result<Server, ChangeError> {
        let (db, now_ms) = (&self.inner.db, self.now_ms());
        let server = store::set_server_paused(db, id, paused, now_ms).await?;
        self.inner.due.notify_one();
        Ok(server)
    }

    /// Makes a server due now.
    pub async fn review_soon(&self, id: &str) -> Result<Server, ChangeError> {
        let server = store::review_now(&self.inner.db, id, self.now_ms()).await?;
        self.inner.due.notify_one();
        Ok(server)
    }

    /// Deletes a server with everything known about it.
    pub async fn delete_server(&self, id: &str) -> Result<(), ChangeError> {
        Ok(store::delete_server(&self.inner.db, id).await?)
    }

    /// One server.
    pub async fn server(&self, id: &str) -> Result<Option<Server>, StoreError> {
        store::server(&self.inner.db, id).await
    }

    /// Servers by id.
    pub async fn servers(
        &self,
        page: Page,
        filter: ServerFilter,
    ) -> Result<Listed<Server>, StoreError> {
        store::servers(&self.inner.db, page, filter).await
    }

    /// The scores of these servers, in their order.
    pub async fn scores(&self, servers: Vec<i64>) -> Result<Vec<Option<f64>>, StoreError> {
        let found = store::scores(&self.inner.db, servers.clone()).await?;
        Ok(servers.iter().map(|number| found.get(number).copied()).collect())
    }

    /// What was measured at a server, the newest first.
    pub async fn samples(
        &self,
        server: i64,
        monitor: Option<i64>,
        before_ms: Option<i64>,
        limit: u32,
    ) -> Result<Vec<SampleRow>, StoreError> {
        let before_ms = before_ms.unwrap_or(i64::MAX);
        store::samples(&self.inner.db, server, monitor, before_ms, limit).await
    }

    /// What changed and why, the newest first.
    pub async fn history(
        &self,
        of: HistoryOf,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<HistoryRow>, StoreError> {
        store::history(&self.inner.db, of, before, limit).await
    }

    /// Changes since then, in pieces of time.
    pub async fn churn(
        &self,
        since_ms: i64,
        bucket_ms: i64,
    ) -> Result<Vec<(i64, u64)>, StoreError> {
        store::churn(&self.inner.db, since_ms, bucket_ms).await
    }

    /// How many there are of everything.
    pub async fn fleet(&self) -> Result<Fleet, StoreError> {
        store::fleet(&self.inner.db, self.settings().target_active, self.now_ms()).await
    }

    /// Adds or replaces many things, one line of JSON each: all or nothing.
    pub async fn import(&self, text: &[u8], dry_run: bool) -> Result<Imported, ImportError> {
        let (mut wrong, mut good): (Vec<_>, Vec<(usize, Entity)>) = (Vec::new(), Vec::new());
        for (count, (line, parsed)) in (1_usize..).zip(model::import(text)) {
            match parsed {
                Ok(entity) => good.push((line, entity)),
                Err(problems) => wrong.push((line, problems)),
            }
            if count.is_multiple_of(LINES_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
        if !wrong.is_empty() {
            return Err(ImportError::Lines(wrong));
        }
        let (lines, entities): (Vec<usize>, Vec<Entity>) = good.into_iter().unzip();
        let (db, limits, now_ms) = (&self.inner.db, self.limits(), self.now_ms());
        let done = store::import(db, entities, limits, now_ms, dry_run).await;
        self.inner.due.notify_one();
        done.map_err(|error| match error {
            store::ImportError::At { position, cause: store::ChangeError::Store(error) } => {
                tracing::debug!(position, "the database failed in the middle of an import");
                ImportError::Store(error)
            }
            store::ImportError::At { position, cause } => {
                let line = lines.get(position).copied().unwrap_or_default();
                let problem = Problem::at("line", "was refused", cause.to_string());
                ImportError::Lines(vec![(line, vec![problem])])
            }
            store::ImportError::Store(error) => ImportError::Store(error),
        })
    }

    /// Reviews of this node that came to an end, and those that failed.
    pub fn reviews(&self) -> (u64, u64) {
        self.inner.tally.reviews()
    }

    /// How the fleet was lately, as this node saw it.
    pub fn points(&self) -> Vec<FleetPoint> {
        self.inner.tally.points()
    }

    /// Changes after the one with this id that anybody made lately, and the newest id.
    pub fn news_after(&self, id: i64) -> (Vec<HistoryRow>, i64) {
        self.news().after(id)
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.inner.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what changed since the last time.
    pub(crate) async fn read_news(&self) -> Result<(), StoreError> {
        let limit = News::MAX as u32;
        let newest = store::history(&self.inner.db, HistoryOf::All, None, limit).await?;
        self.news().take(newest);
        Ok(())
    }

    /// Removes some of what is past its time; how many rows, as many as allowed if there is more.
    pub async fn tidy(&self, rows: u32) -> Result<u64, StoreError> {
        let ago = |span: std::time::Duration| {
            let span = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
            self.now_ms().saturating_sub(span)
        };
        let (db, options) = (&self.inner.db, &self.inner.options);
        let (samples, history) = (ago(options.samples_keep), ago(options.history_keep));
        let tidied = store::tidy(db, samples, history, rows).await?;
        let purged = store::purge(db, rows).await?;
        Ok(tidied.max(purged))
    }

    /// Brings the gauges up to date, before a scrape.
    pub fn refresh_metrics(&self) {
        let longest = self.settings().review_changed.max(self.settings().review_unchanged);
        let longest = i64::try_from(2 * longest.as_millis()).unwrap_or(i64::MAX);
        let held = self.inner.tally.held(self.now_ms().saturating_sub(longest));
        self.inner.metrics.set_held(&held);
    }

    fn known_book(&self) -> Option<Arc<Book>> {
        self.inner.book.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All monitors, as of this version or as they are now.
    pub(crate) async fn book(&self, version: i64) -> Result<Arc<Book>, StoreError> {
        let fresh = |book: &Arc<Book>| book.version == version;
        if let Some(book) = self.known_book().filter(fresh) {
            return Ok(book);
        }
        let _alone = self.inner.reading.lock().await;
        if let Some(book) = self.known_book().filter(fresh) {
            return Ok(book);
        }
        let facts = store::roster(&self.inner.db).await?;
        // The settings were checked when the node started, and ids are unique in the database.
        let book = Book::new(&facts, *self.settings()).map_err(unfit)?;
        let book = Arc::new(book);
        *self.inner.book.lock().unwrap_or_else(PoisonError::into_inner) = Some(book.clone());
        Ok(book)
    }

    /// All monitors, as they are now.
    pub async fn latest_book(&self) -> Result<Arc<Book>, StoreError> {
        let version = store::roster_version(&self.inner.db).await?;
        self.book(version).await
    }
}

/// Monitors of the database that cannot be selected from.
pub(crate) fn unfit(flaw: Flaw) -> StoreError {
    StoreError::Refused { store: "the selection", cause: flaw.to_string() }
}

fn bad(noun: Noun, flaws: Vec<Problem>) -> ChangeError {
    ChangeError::Bad(noun, flaws)
}
