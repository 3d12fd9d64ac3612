//! What is to happen in a world of pools.

use skep_policy::{Chance, SeededChance, Time};

/// Something that happens. Worker and timer change their minds, so each of their entries names the
/// decision (`epoch`) it belongs to; an entry of an earlier one is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The thread on a seat goes on.
    Worker { seat: u32, epoch: u32 },
    /// The timer wakes up.
    Timer { epoch: u32 },
    /// Whoever drives the world has something to do.
    Input(u32),
}

/// Everything that is to happen. The first comes out first; the seed decides between those of the
/// same instant, because nothing else does in a real process.
#[derive(Default)]
pub(crate) struct Agenda {
    entries: crate::agenda::Agenda<Time, What>,
    added: u32,
}

impl Agenda {
    pub fn add(&mut self, at: Time, what: What, chance: &mut SeededChance) {
        self.added = self.added.wrapping_add(1);
        let order = chance.bits() & !u64::from(u32::MAX) | u64::from(self.added);
        self.entries.add(at, order, what);
    }

    /// When the next thing happens.
    pub fn first_at(&self) -> Option<Time> {
        self.entries.first_at()
    }

    pub fn take(&mut self) -> Option<(Time, What)> {
        self.entries.take()
    }

    /// Forgets what the driver wanted to do.
    pub fn drop_inputs(&mut self) {
        self.entries.retain(|what| !matches!(what, What::Input(_)));
    }
}
