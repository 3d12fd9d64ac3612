//! What is it that a pop asks for, as one key?

use super::Options;
use crate::rendezvous::hash_of;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// What a pop asks for.
///
/// A separator within a name can make two keys the same text. They then share an owner, which
/// costs nothing but evenness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// Anything of a queue.
    Queue {
        /// The queue's name.
        queue: &'a str,
        /// The consumer group.
        group: &'a str,
    },
    /// One partition of a queue.
    Partition {
        /// The queue's name.
        queue: &'a str,
        /// The partition's name.
        partition: &'a str,
        /// The consumer group.
        group: &'a str,
    },
    /// Any queue of a namespace and a task.
    Task {
        /// The namespace; may be empty.
        namespace: &'a str,
        /// The task; may be empty.
        task: &'a str,
        /// The consumer group.
        group: &'a str,
    },
}

/// Keys up to this length are put together on the stack.
const SHORT: usize = 256;

impl<'a> Ask<'a> {
    /// `queue:group`, `queue:partition:group` or `namespace:task:group`; only `queue` where the
    /// queue has more than [`Options::groups_max`] groups, because one node then asks the store
    /// once for all of them.
    pub fn key(&self, groups: u32, options: &Options) -> String {
        let (parts, count) = self.parts(groups, options);
        parts[..count].join(":")
    }

    /// [`hash_of`] the key, without making it.
    pub fn hash(&self, groups: u32, options: &Options) -> u64 {
        let (parts, count) = self.parts(groups, options);
        let parts = &parts[..count];
        if let [whole] = parts {
            return hash_of(whole);
        }
        let mut buffer = [0_u8; SHORT];
        let mut length = 0;
        for (position, part) in parts.iter().enumerate() {
            let begin = length + usize::from(position > 0);
            let end = begin + part.len();
            if end > SHORT {
                return hash_of_long(parts);
            }
            if position > 0 {
                buffer[length] = b':';
            }
            buffer[begin..end].copy_from_slice(part.as_bytes());
            length = end;
        }
        xxh3_64(&buffer[..length])
    }

    fn parts(&self, groups: u32, options: &Options) -> ([&'a str; 3], usize) {
        let many = groups > options.groups_max;
        match *self {
            Ask::Queue { queue, .. } | Ask::Partition { queue, .. } if many => ([queue, "", ""], 1),
            Ask::Queue { queue, group } => ([queue, group, ""], 2),
            Ask::Partition { queue, partition, group } => ([queue, partition, group], 3),
            Ask::Task { namespace, task, group } => ([namespace, task, group], 3),
        }
    }
}

fn hash_of_long(parts: &[&str]) -> u64 {
    let mut hasher = Xxh3::new();
    for (position, part) in parts.iter().enumerate() {
        if position > 0 {
            hasher.update(b":");
        }
        hasher.update(part.as_bytes());
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_have_the_documented_forms_and_a_queue_of_many_groups_is_one_key() {
        let options = Options::default();
        let queue = Ask::Queue { queue: "orders", group: "mail" };
        let partition = Ask::Partition { queue: "orders", partition: "7", group: "mail" };
        let task = Ask::Task { namespace: "shop", task: "bill", group: "mail" };
        for groups in [0, 1, 10] {
            assert_eq!(queue.key(groups, &options), "orders:mail");
            assert_eq!(partition.key(groups, &options), "orders:7:mail");
        }
        for groups in [11, u32::MAX] {
            assert_eq!(queue.key(groups, &options), "orders");
            assert_eq!(partition.key(groups, &options), "orders");
            assert_eq!(task.key(groups, &options), "shop:bill:mail");
        }
    }

    proptest! {
        #[test]
        fn the_hash_is_that_of_the_key(
            queue in ".{0,300}", partition in ".{0,90}", group in ".{0,40}", groups in 0_u32..20,
        ) {
            let options = Options::default();
            let (queue, partition, group) = (&*queue, &*partition, &*group);
            for ask in [
                Ask::Queue { queue, group },
                Ask::Partition { queue, partition, group },
                Ask::Task { namespace: queue, task: partition, group },
            ] {
                prop_assert_eq!(ask.hash(groups, &options), hash_of(&ask.key(groups, &options)));
            }
        }
    }
}
