//! Groups: how far each is, and where it begins.

use super::browse::{BrowseError, read_token, token};
use super::either::either;
use super::{QueueStore, Sought};
use skep_policy::Time;
use skep_policy::queues::Start;
use skep_store::StoreError;
use std::sync::Arc;

/// Groups in one page at most.
const GROUPS_PAGE_MAX: u32 = 1_000;
/// Lanes of a group that are counted at most.
pub(super) const COUNT_MAX: u32 = 1_000;
/// Lanes in which the oldest message is looked for.
pub(super) const OLDEST_LANES: u32 = 200;

/// Which groups.
#[derive(Clone, Debug, Default)]
pub struct GroupFilter {
    /// Of this name.
    pub group: Option<Arc<str>>,
    /// Of this queue.
    pub queue: Option<Arc<str>>,
    /// Where the page before said that it goes on.
    pub after: Option<String>,
    /// At most so many, and at most a thousand.
    pub limit: u32,
}

/// A page of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupsPage {
    /// Those of one queue by their names, otherwise by their age.
    pub groups: Vec<GroupRow>,
    /// Where to go on, if there may be more.
    pub next: Option<String>,
}

/// A group of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// Of which queue.
    pub queue: Arc<str>,
    /// Its name.
    pub group: Arc<str>,
    /// Messages that it has not settled. One that was taken out ahead of it counts until it has
    /// passed it.
    pub pending: u64,
    /// Partitions that somebody works on; counted up to a thousand.
    pub leased_lanes: u64,
    /// Partitions that it has looked at; counted up to a thousand.
    pub lanes: u64,
    /// Partitions that have something for it, now or later, and that nobody works on; counted up to
    /// a thousand.
    pub waiting_lanes: u64,
    /// Whether one of the counts is a thousand because counting ended there.
    pub more_lanes: bool,
    /// When the oldest message was pushed that it has not settled, among the two hundred partitions
    /// that wait longest and the first that it has not looked at.
    pub oldest: Option<Time>,
    /// It reads what was pushed at this time or later; `None` is everything.
    pub start: Option<Time>,
    /// When it was first seen, or last moved.
    pub created_at: Time,
}

impl QueueStore {
    /// Groups, and how far they are.
    pub async fn groups(&self, filter: GroupFilter) -> Result<GroupsPage, BrowseError> {
        either!(self, store => store.groups(filter).await)
    }

    /// Sets where a group begins in partitions that it has not looked at; without a queue in all
    /// its queues, and in those that it comes to later. A group of a named queue that was never
    /// seen is made. Tells in how many queues it is now there with this beginning.
    pub async fn subscribe(
        &self,
        group: &str,
        queue: Option<&str>,
        start: Start,
    ) -> Result<Sought, StoreError> {
        either!(self, store => store.subscribe(group, queue, start).await)
    }

    /// Forgets a group, of one queue or all. Tells how many partitions it had read. With
    /// `keep_start` only how far it was is forgotten: it is still there, and begins anew where it
    /// once began.
    pub async fn delete_group(
        &self,
        group: &str,
        queue: Option<&str>,
        keep_start: bool,
    ) -> Result<u64, StoreError> {
        either!(self, store => store.delete_group(group, queue, keep_start).await)
    }
}

/// Where a list goes on that is by age: behind the group with this number.
const BY_NUMBER: char = 'g';
/// Where a list goes on that is by name: behind this one.
const BY_NAME: &str = "n.";

impl GroupFilter {
    pub(super) fn most(&self) -> u32 {
        self.limit.clamp(1, GROUPS_PAGE_MAX)
    }

    /// Whether the list is by name.
    fn by_name(&self) -> bool {
        self.queue.is_some() && self.group.is_none()
    }

    /// Where the list goes on: a number, or a name.
    pub(super) fn place(&self) -> Result<(i64, &str), BrowseError> {
        match &self.after {
            None => Ok((0, "")),
            Some(text) if self.by_name() => match text.strip_prefix(BY_NAME) {
                Some(name) => Ok((0, name)),
                None => Err(BrowseError::Token { token: text.clone() }),
            },
            Some(text) => Ok((read_token::<1>(BY_NUMBER, text)?[0], "")),
        }
    }

    /// Where it goes on behind a group, if the page is full.
    pub(super) fn next(&self, length: usize, last: Option<(i64, &str)>) -> Option<String> {
        let (number, name) = last.filter(|_| length >= self.most() as usize)?;
        Some(match self.by_name() {
            true => format!("{BY_NAME}{name}"),
            false => token(BY_NUMBER, &[number]),
        })
    }
}

/// A count that ended at [`COUNT_MAX`], and whether there are more.
pub(super) fn counted(count: u64) -> (u64, bool) {
    let most = u64::from(COUNT_MAX);
    (count.min(most), count > most)
}
