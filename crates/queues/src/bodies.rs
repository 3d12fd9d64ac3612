//! Bodies of segments that were pushed or read lately.
//!
//! A pop mostly wants what was pushed a moment ago. What is here can be forgotten at any time and
//! read again. Records of a body never change their place in it; messages that are taken out only
//! make it shorter, or begin at another number. So there is nothing to keep in step, if whoever
//! uses a body goes by what the segment's row says, and takes no more of it.

use crate::ids::PartitionId;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which segment: its partition and the number of its first message.
pub type BodyKey = (PartitionId, u64);

/// What a body weighs beside its bytes.
const ENTRY_BYTES: usize = 100;

/// Bodies, shared by threads.
#[derive(Debug)]
pub struct Bodies {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

/// As in [`crate::prints`]: two halves, of which the one not looked at is forgotten.
#[derive(Debug, Default)]
struct Kept {
    warm: HashMap<BodyKey, Bytes>,
    cool: HashMap<BodyKey, Bytes>,
    warm_bytes: usize,
}

impl Bodies {
    /// Uses `bytes_max` of memory at most.
    pub fn new(bytes_max: usize) -> Self {
        Bodies { bytes_max, kept: Mutex::default() }
    }

    /// The body, if it is here.
    pub fn get(&self, key: BodyKey) -> Option<Bytes> {
        let mut kept = self.kept();
        if let Some(body) = kept.warm.get(&key) {
            return Some(body.clone());
        }
        let body = kept.cool.remove(&key)?;
        kept.put(key, body.clone(), self.bytes_max / 2);
        Some(body)
    }

    /// Keeps a body that is in the store.
    pub fn put(&self, key: BodyKey, body: Bytes) {
        self.kept().put(key, body, self.bytes_max / 2);
    }

    /// Forgets one body, because there is no such segment any more.
    pub fn forget(&self, key: BodyKey) {
        let mut kept = self.kept();
        if let Some(body) = kept.warm.remove(&key) {
            kept.warm_bytes -= ENTRY_BYTES + body.len();
        }
        kept.cool.remove(&key);
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.kept() = Kept::default();
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn put(&mut self, key: BodyKey, body: Bytes, half: usize) {
        let weight = ENTRY_BYTES + body.len();
        if weight > half {
            return;
        }
        if self.warm_bytes + weight > half {
            self.cool = std::mem::take(&mut self.warm);
            self.warm_bytes = 0;
        }
        if let Some(before) = self.warm.insert(key, body) {
            self.warm_bytes -= ENTRY_BYTES + before.len();
        }
        self.warm_bytes += weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_that_were_not_looked_at_go_first_and_the_memory_is_bounded() {
        let bodies = Bodies::new(20 * (ENTRY_BYTES + 100));
        let body = Bytes::from(vec![0; 100]);
        for number in 0..1_000 {
            bodies.put((PartitionId(1), number), body.clone());
            assert!(bodies.get((PartitionId(1), 0)).is_some(), "it is looked at all the time");
            let kept = bodies.kept();
            assert!(kept.warm.len() + kept.cool.len() <= 20);
        }
        assert_eq!(bodies.get((PartitionId(1), 500)), None);
        assert_eq!(bodies.get((PartitionId(1), 999)), Some(body));
    }

    #[test]
    fn a_body_that_is_too_large_is_not_kept() {
        let bodies = Bodies::new(1_000);
        bodies.put((PartitionId(1), 1), Bytes::from(vec![0; 1_000]));
        assert_eq!(bodies.get((PartitionId(1), 1)), None);
    }
}
