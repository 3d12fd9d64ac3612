//! Moves, prepared for looking up one key among very many.

use super::Move;

/// Which keys are not with the first of their ranking. Immutable: a new one is made after a move,
/// and moves are few.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Open addressing: a key is in the first free slot from its home on. Empty without moves.
    slots: Vec<Slot>,
    /// The hashes of the nodes that have such keys.
    nodes: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    key: u64,
    /// One more than the index among the nodes; 0 where the slot is free.
    node: u32,
}

impl Overrides {
    /// Prepares these. Of two with the same key the first counts.
    pub fn new<'a>(moves: impl ExactSizeIterator<Item = &'a Move>) -> Self {
        if moves.len() == 0 {
            return Overrides::default();
        }
        // At most half full, so that chains stay short.
        let mut overrides = Overrides {
            slots: vec![Slot::default(); (2 * moves.len()).next_power_of_two()],
            nodes: Vec::new(),
        };
        for one in moves {
            let node = overrides.number_of(one.node);
            let at = overrides.place_of(one.key);
            if overrides.slots[at].node == 0 {
                overrides.slots[at] = Slot { key: one.key, node };
            }
        }
        overrides
    }

    /// The index among [`Overrides::nodes`] of the node that has this key.
    #[inline]
    pub(super) fn get(&self, key: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = self.slots[self.place_of(key)];
        (slot.node > 0).then(|| slot.node as usize - 1)
    }

    /// The hashes of the nodes that keys were moved to.
    pub fn nodes(&self) -> &[u64] {
        &self.nodes
    }

    /// The hash of the node that this key was moved to.
    pub fn node_of(&self, key: u64) -> Option<u64> {
        self.get(key).map(|index| self.nodes[index])
    }

    fn number_of(&mut self, node: u64) -> u32 {
        let index = self.nodes.iter().position(|one| *one == node).unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        index as u32 + 1
    }

    /// Where the key is, or the free slot where it would be.
    #[inline]
    fn place_of(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = key as usize & mask;
        while self.slots[at].node > 0 && self.slots[at].key != key {
            at = (at + 1) & mask;
        }
        at
    }
}
