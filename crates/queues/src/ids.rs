//! Numbers that the stores give out, and how the outside sees them.
//!
//! Outside a partition and a queue are UUIDs. They are not kept: the number is written into the
//! UUID together with a check of itself, so that finding a partition by its UUID needs no index,
//! and a UUID that was never given out is known as such without asking anybody.

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A queue. One that is deleted and made again has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub i64);

/// A partition, of all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub i64);

/// A group of one queue. One that is deleted or moved as a whole gets another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub i64);

const QUEUE_SEED: u64 = 0x71;
const PARTITION_SEED: u64 = 0x70;
/// The bits of a UUID's lower half that its variant leaves free.
const LOW_BITS: u64 = (1 << 62) - 1;

impl QueueId {
    /// As the outside sees it.
    pub fn uuid(self) -> Uuid {
        wrap(self.0, QUEUE_SEED)
    }

    /// The queue that the outside means, if such a UUID was ever given out.
    pub fn from_uuid(uuid: Uuid) -> Option<Self> {
        unwrap(uuid, QUEUE_SEED).map(QueueId)
    }
}

impl PartitionId {
    /// As the outside sees it.
    pub fn uuid(self) -> Uuid {
        wrap(self.0, PARTITION_SEED)
    }

    /// The partition that the outside means, if such a UUID was ever given out.
    pub fn from_uuid(uuid: Uuid) -> Option<Self> {
        unwrap(uuid, PARTITION_SEED).map(PartitionId)
    }
}

/// The mark of whoever gave out this lease: see [`crate::QueuesOptions::lease_tag`].
pub fn lease_tag(lease: Uuid) -> u16 {
    lease.as_u128() as u16
}

/// The id with this mark, which takes the place of some of its random bits.
pub(crate) fn tagged(id: Uuid, tag: u16) -> Uuid {
    Uuid::from_u128((id.as_u128() & !u128::from(u16::MAX)) | u128::from(tag))
}

/// The number in the lower half, its check in the upper one; version 8 is for what one likes.
fn wrap(number: i64, seed: u64) -> Uuid {
    let low = u64::try_from(number).unwrap_or(0) & LOW_BITS;
    let high = xxh3_64_with_seed(&low.to_le_bytes(), seed);
    let both = (u128::from(high) << 64) | u128::from(low);
    uuid::Builder::from_custom_bytes(both.to_be_bytes()).into_uuid()
}

/// The number of a UUID that [`wrap`] made.
fn unwrap(uuid: Uuid, seed: u64) -> Option<i64> {
    let number = i64::try_from(uuid.as_u64_pair().1 & LOW_BITS).ok()?;
    (wrap(number, seed) == uuid).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_partition_is_found_by_its_uuid(number in 0_i64..1 << 60) {
            let id = PartitionId(number);
            prop_assert_eq!(PartitionId::from_uuid(id.uuid()), Some(id));
            prop_assert_ne!(QueueId(number).uuid(), id.uuid());
        }

        #[test]
        fn no_other_uuid_is_a_partition(bits: u128) {
            prop_assert_eq!(PartitionId::from_uuid(Uuid::from_u128(bits)), None);
        }
    }
}
