//! Partitions of a queue, kinds of queues, and the sums of everything.

use super::QueueStore;
use super::either::either;
use crate::ids::PartitionId;
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;

/// Partitions in one page at most.
pub(super) const PARTITIONS_PAGE_MAX: u32 = 1_000;
/// Groups that are told of with each partition.
pub(super) const LANES_MAX: u32 = 20;
/// Namespaces that are told of, and tasks.
pub(super) const KINDS_MAX: u32 = 1_000;

/// A partition of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRow {
    /// Its number.
    pub id: PartitionId,
    /// Its name.
    pub name: Arc<str>,
    /// Which of the levels of its name it is.
    pub level: u8,
    /// Messages that ever came.
    pub pushed: u64,
    /// Messages since the oldest that is kept; those that were taken out between count too.
    pub kept: u64,
    /// When it was last pushed to.
    pub last_push: Option<Time>,
    /// When it was made.
    pub created_at: Time,
    /// How far groups are that have looked at it, by their names; of many groups the first twenty.
    pub lanes: Vec<PartitionLane>,
}

/// How far a group is in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionLane {
    /// Which group.
    pub group: Arc<str>,
    /// Messages that are kept and that it has not settled.
    pub pending: u64,
    /// Until when somebody works on it, if somebody does.
    pub leased_until: Option<Time>,
}

/// A namespace or a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name; empty for queues that have none.
    pub name: Arc<str>,
    /// How many queues it has.
    pub queues: u64,
}

/// The sums of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Queues.
    pub queues: u64,
    /// Partitions.
    pub partitions: u64,
    /// Messages that are kept.
    pub messages: u64,
    /// Messages that the slowest group of their queue has not settled.
    pub pending: u64,
    /// Dead letters.
    pub dead: u64,
    /// Messages that wait for their time.
    pub later: u64,
    /// Groups, each counted in each of its queues.
    pub groups: u64,
}

impl QueueStore {
    /// Partitions of a queue after `after`, `limit` and a thousand at most: by their age, or by
    /// their names if these shall begin with something.
    pub async fn partitions(
        &self,
        queue: &str,
        after: Option<PartitionId>,
        name_prefix: Option<&str>,
        limit: u32,
    ) -> Result<Vec<PartitionRow>, StoreError> {
        let limit = limit.clamp(1, PARTITIONS_PAGE_MAX);
        either!(self, store => store.partitions(queue, after, name_prefix, limit).await)
    }

    /// Namespaces with their queues, by name, a thousand at most.
    pub async fn namespaces(&self) -> Result<Vec<Kind>, StoreError> {
        either!(self, store => store.namespaces().await)
    }

    /// Tasks with their queues, by name, a thousand at most.
    pub async fn tasks(&self) -> Result<Vec<Kind>, StoreError> {
        either!(self, store => store.tasks().await)
    }

    /// The sums of everything, without looking at any message.
    pub async fn overview(&self) -> Result<Overview, StoreError> {
        either!(self, store => store.overview().await)
    }
}

/// The first text after all those that begin with `prefix`; `None` if nothing is after them.
pub(super) fn after_all(prefix: &str) -> Option<String> {
    let mut letters: Vec<char> = prefix.chars().collect();
    while let Some(last) = letters.pop() {
        // What cannot be a letter by itself lies before U+E000.
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            letters.push(next);
            return Some(letters.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_begins_with_it_is_before_what_follows_all(
            prefix in "\\PC{1,5}", rest in "\\PC{0,5}", other in "\\PC{0,8}"
        ) {
            let end = after_all(&prefix).unwrap();
            let inside = |text: &str| text >= &*prefix && text < &*end;
            let longer = format!("{prefix}{rest}");
            prop_assert!(inside(&longer));
            prop_assert_eq!(inside(&other), other.starts_with(&prefix));
        }
    }

    #[test]
    fn nothing_follows_the_last_letter_there_is() {
        assert_eq!(after_all("\u{10ffff}"), None);
        assert_eq!(after_all("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(after_all("\u{d7ff}").as_deref(), Some("\u{e000}"));
    }
}
