//! What a queue's owner can set, and what a node's operator can.

use serde::{Deserialize, Serialize};
use skep_policy::Time;
use skep_policy::queues::{Limit, Limits, Rate, Rules};
use std::time::Duration;

/// The options of one queue, as they are kept. Outside they have the names and units of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueOptions {
    /// Higher is served first, where a pop names no queue.
    pub priority: i32,
    /// Seconds that a lease holds.
    pub lease_time: u32,
    /// So many failures bring a message back; the next one makes it a dead letter.
    pub retry_limit: u32,
    /// Milliseconds to wait after the first failure; doubled with each.
    pub retry_delay: u32,
    /// Milliseconds that a wait after a failure takes at most.
    pub retry_delay_max: u32,
    /// Seconds after which a message is no longer handed out; `None` is never.
    pub ttl: Option<u32>,
    /// Kept and echoed: dead letters are always kept.
    pub dead_letter_queue: bool,
    /// Kept and echoed: see `dead_letter_queue`.
    pub dlq_after_max_retries: bool,
    /// Seconds after its push before a message is handed out.
    pub delayed_processing: u32,
    /// Seconds after the last push before a partition is handed out.
    pub window_buffer: u32,
    /// Seconds after which messages are deleted, consumed or not; 0 is never.
    pub retention_seconds: u32,
    /// Seconds after which messages are deleted that every group has consumed; 0 is never.
    pub completed_retention_seconds: u32,
    /// Whether anything is deleted for its age.
    pub retention_enabled: bool,
    /// Whether payloads are encrypted.
    pub encryption_enabled: bool,
    /// Seconds that a message may wait for a consumer before it is passed over; 0 is for ever.
    pub max_wait_time_seconds: u32,
    /// Messages that may wait for the slowest group; 0 is any number.
    pub max_size: u64,
    /// Seconds in which a transaction id is known again.
    pub dedup_window_seconds: u32,
    /// Messages that a group may have been handed and not settled; 0 is any number.
    pub max_in_flight: u32,
    /// Messages that a group may be handed in `rate_period_seconds`; 0 is any number.
    pub rate_limit: u32,
    /// See `rate_limit`.
    pub rate_period_seconds: u32,
    /// Like `max_in_flight`, of each key.
    pub key_max_in_flight: u32,
    /// Messages of one key that a group may be handed in `key_rate_period_seconds`; 0 is any
    /// number.
    pub key_rate_limit: u32,
    /// See `key_rate_limit`.
    pub key_rate_period_seconds: u32,
    /// A key is what stands before the first of these in the name of a partition; the whole name,
    /// if this is empty.
    pub limit_key_separator: String,
}

impl Default for QueueOptions {
    fn default() -> Self {
        QueueOptions {
            priority: 0,
            lease_time: 300,
            retry_limit: 3,
            retry_delay: 1_000,
            retry_delay_max: 3_600_000,
            ttl: None,
            dead_letter_queue: false,
            dlq_after_max_retries: false,
            delayed_processing: 0,
            window_buffer: 0,
            retention_seconds: 0,
            completed_retention_seconds: 0,
            retention_enabled: false,
            encryption_enabled: false,
            max_wait_time_seconds: 0,
            max_size: 0,
            dedup_window_seconds: 3_600,
            max_in_flight: 0,
            rate_limit: 0,
            rate_period_seconds: 1,
            key_max_in_flight: 0,
            key_rate_limit: 0,
            key_rate_period_seconds: 1,
            limit_key_separator: String::new(),
        }
    }
}

impl QueueOptions {
    /// The part that decides about claims and settlements, but for when the queue was cleared.
    pub fn rules(&self) -> Rules {
        let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
        let millis = |millis: u32| Duration::from_millis(u64::from(millis));
        let wait = (self.max_wait_time_seconds > 0).then_some(self.max_wait_time_seconds);
        let lifetime = self.ttl.into_iter().chain(wait).min();
        Rules {
            lease: seconds(self.lease_time),
            retry_limit: self.retry_limit,
            retry_delay: millis(self.retry_delay),
            retry_delay_max: millis(self.retry_delay_max),
            delay: seconds(self.delayed_processing),
            window: seconds(self.window_buffer),
            lifetime: lifetime.map(seconds),
            floor: Time::ZERO,
        }
    }

    /// What a group may have at once, and how fast.
    pub fn limits(&self) -> Limits {
        let some = |count: u32| (count > 0).then_some(count);
        let limit = |in_flight: u32, count: u32, seconds: u32| Limit {
            in_flight: some(in_flight),
            rate: some(count).map(|count| {
                let per = Duration::from_secs(u64::from(seconds.max(1)));
                Rate { count, per }
            }),
        };
        Limits {
            queue: limit(self.max_in_flight, self.rate_limit, self.rate_period_seconds),
            key: limit(self.key_max_in_flight, self.key_rate_limit, self.key_rate_period_seconds),
            separator: self.limit_key_separator.clone(),
        }
    }

    /// How long a transaction id is known again.
    pub fn dedup_window(&self) -> Duration {
        Duration::from_secs(u64::from(self.dedup_window_seconds))
    }
}

/// What a node's operator can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuesOptions {
    /// Requests that may wait for the store; more are refused.
    pub waiting_max: usize,
    /// Bytes of messages that may wait for the store; pushes beyond are refused.
    pub waiting_bytes_max: usize,
    /// Pops that may be parked.
    pub parked_max: usize,
    /// Bytes of messages kept in memory for the next pop.
    pub cache_bytes: usize,
    /// Bytes of memory for transaction ids that may come again: about 20,000 messages a MiB.
    pub dedup_bytes: usize,
    /// What the leases of this process have in them, so that others can see whose they are: see
    /// [`lease_tag`](crate::lease_tag).
    pub lease_tag: u16,
}

impl Default for QueuesOptions {
    fn default() -> Self {
        QueuesOptions {
            waiting_max: 4_096,
            waiting_bytes_max: 64 << 20,
            parked_max: 20_000,
            cache_bytes: 32 << 20,
            dedup_bytes: 64 << 20,
            lease_tag: 0,
        }
    }
}
