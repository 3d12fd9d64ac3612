//! The settings of queues.

use super::hours;
use super::section::section;
use super::value::{ByteSize, Value};
use skep_queues::QueuesOptions;
use skep_queues::cipher::{Cipher, parse_key};
use std::fmt;
use std::time::Duration;

section! {
    /// Queues.
    pub struct QueuesSettings in "queues" {
        /// Requests of one kind that may wait for the store; more are refused with 429.
        waiting_max: usize = QueuesOptions::default().waiting_max, in 16..=1_000_000;
        /// Bytes of messages that may wait for the store; pushes beyond are refused with 429.
        waiting_bytes_max: ByteSize = bytes(QueuesOptions::default().waiting_bytes_max),
            in ByteSize(1 << 20)..=ByteSize(1 << 40);
        /// Pops that may wait for messages; more are refused with 429.
        parked_max: usize = QueuesOptions::default().parked_max, in 1..=1_000_000;
        /// Memory for messages that will be popped soon.
        cache_size: ByteSize = bytes(QueuesOptions::default().cache_bytes),
            in ByteSize(0)..=ByteSize(1 << 40);
        /// Memory for transaction ids that may come again: about 20,000 messages a MiB. Those of
        /// more messages than fit are not known again.
        dedup_size: ByteSize = bytes(QueuesOptions::default().dedup_bytes),
            in ByteSize(1 << 20)..=ByteSize(1 << 40);
        /// The key of queues whose payloads are encrypted: 32 bytes as 64 hexadecimal digits or
        /// in base64; the same on all nodes. `openssl rand -hex 32` makes one.
        encryption_key: Option<EncryptionKey> = None;
        /// Where a group begins that is seen for the first time and does not say: `all`, with the
        /// first message that is kept, or `new`, with what is pushed from then on.
        default_subscription: Subscription = Subscription::All;
        /// Whether pushes are kept in a file of this node while PostgreSQL is away, and pushed
        /// when it is back; otherwise they are refused with 503.
        buffer: bool = false;
        /// The largest that this file may get; pushes beyond are refused with 503. Pushes that an
        /// operator holds back are kept in it too.
        buffer_max: ByteSize = ByteSize(1 << 30), in ByteSize(1 << 20)..=ByteSize(1 << 44);
        /// How long it is kept what happened in each queue, by the minute.
        stats_keep: Duration = hours(7 * 24), in hours(1)..=hours(10 * 365 * 24);
        /// How long it is kept what consumers told about messages.
        traces_keep: Duration = hours(30 * 24), in hours(1)..=hours(10 * 365 * 24);
    }
}

const fn bytes(count: usize) -> ByteSize {
    ByteSize(count as u64)
}

impl QueuesSettings {
    /// What the queues of a node are told.
    pub fn options(&self) -> QueuesOptions {
        let size = |size: ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        QueuesOptions {
            waiting_max: self.waiting_max,
            waiting_bytes_max: size(self.waiting_bytes_max),
            parked_max: self.parked_max,
            cache_bytes: size(self.cache_size),
            dedup_bytes: size(self.dedup_size),
            ..QueuesOptions::default()
        }
    }

    /// What payloads are encrypted with, if there is a key.
    pub fn cipher(&self) -> Option<Cipher> {
        self.encryption_key.as_ref().map(|key| Cipher::new(&key.0))
    }
}

/// A key that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct EncryptionKey([u8; 32]);

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKey")
    }
}

impl Value for EncryptionKey {
    const SECRET: bool = true;

    fn expected() -> String {
        "32 bytes as 64 hexadecimal digits or in base64".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        parse_key(text).map(EncryptionKey).map_err(|error| error.to_string())
    }

    fn show(&self) -> String {
        "(set)".to_owned()
    }
}

/// Where a new group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscription {
    /// With the first message that is kept.
    All,
    /// With what is pushed from then on.
    New,
}

impl Value for Subscription {
    fn expected() -> String {
        "all or new".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Subscription::All),
            "new" => Ok(Subscription::New),
            _ => Err(String::new()),
        }
    }

    fn show(&self) -> String {
        match self {
            Subscription::All => "all".to_owned(),
            Subscription::New => "new".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Layers, resolve};

    fn layers(key: &'static str, value: &str) -> Layers {
        let mut layers = Layers::default();
        layers.add_flag("--set", key, value);
        layers
    }

    #[test]
    fn the_key_is_never_shown_not_even_a_wrong_one() {
        let key = "0123456789abcdef".repeat(4);
        let loaded = resolve(layers("queues.encryption_key", &key)).expect("is a key");
        assert!(loaded.settings.queues.cipher().is_some());
        let shown = format!("{:?} {:?}", loaded.settings.queues, loaded.settings.effective);
        assert!(shown.contains("(set)") && !shown.contains("0123456789"), "{shown}");
        let wrong = resolve(layers("queues.encryption_key", &key[1..])).expect_err("is too short");
        let told = wrong.to_string();
        assert!(told.contains("queues.encryption_key") && told.contains("64 hex"), "{told}");
        assert!(!told.contains("0123456789") && !told.contains("123456789a"), "{told}");
    }

    #[test]
    fn limits_reach_the_queues_and_nonsense_is_refused() {
        let some = resolve(layers("queues.waiting_bytes_max", "2MiB")).expect("is a size");
        assert_eq!(some.settings.queues.options().waiting_bytes_max, 2 << 20);
        let defaults = resolve(Layers::default()).expect("is valid").settings.queues;
        assert_eq!(defaults.options(), QueuesOptions::default());
        for (key, value) in [
            ("queues.default_subscription", "some"),
            ("queues.parked_max", "0"),
            ("queues.buffer", "maybe"),
            ("queues.buffer_max", "1B"),
        ] {
            let told = resolve(layers(key, value)).expect_err("is wrong").to_string();
            assert!(told.contains(key) && told.contains("must be"), "{told}");
        }
    }
}
