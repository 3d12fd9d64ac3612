//! A node among others: says that it lives, hears who does, and passes on what cannot wait.

mod beat;
mod core;
mod options;
#[cfg(test)]
mod tests;

use self::core::Core;
use crate::addresses::{Discover, PeerStatus};
use crate::membership::{Change, Doubled, Member};
use crate::metrics::{PulseCounts, PulseMetrics};
use crate::presence::Presence;
use crate::wakes::Wakes;
use crate::wire::{Load, MoveRecord};
pub use beat::run;
pub use options::{PulseError, PulseOptions};
use skep_policy::Clock;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// What a node says about itself, and what it does with what it hears. Nothing here may wait.
pub trait Ears: Send + Sync {
    /// How busy this node is. Asked for every datagram.
    fn load(&self) -> Load;

    /// Another node has something new in `queue`.
    fn wake(&self, queue: &str);

    /// Another node tells moves; some of them may be known, or older than what is known.
    fn moved(&self, from: &str, moves: &[MoveRecord]);

    /// Moves that are told again with the next heartbeat, so that one who missed them hears them.
    /// As many as fit into one datagram are.
    fn moves_to_repeat(&self) -> Vec<MoveRecord> {
        Vec::new()
    }

    /// Something changed among the nodes.
    fn changed(&self, _change: &Change) {}
}

/// The pulse of a node. Clones are the same. It is heard once [`run`] runs.
#[derive(Clone)]
pub struct Pulse {
    core: Arc<Core>,
}

impl Pulse {
    /// Takes the address where datagrams are heard.
    pub async fn bind(
        options: PulseOptions,
        ears: Arc<dyn Ears>,
        discover: Option<Arc<dyn Discover>>,
        metrics: PulseMetrics,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, PulseError> {
        let core = Core::bind(options, ears, discover, metrics, clock).await?;
        Ok(Pulse { core: Arc::new(core) })
    }

    /// Where it hears datagrams.
    pub fn local_addr(&self) -> SocketAddr {
        self.core.bound
    }

    /// Whether datagrams are signed with a secret.
    pub fn is_signed(&self) -> bool {
        self.core.seal.is_signed()
    }

    /// Who has consumers of which queues.
    pub fn presence(&self) -> &Presence {
        &self.core.presence
    }

    /// Wakes for consumers on other nodes.
    pub fn wakes(&self) -> &Wakes {
        &self.core.wakes
    }

    /// The other nodes by name, as they are now. Takes no lock. Renewed with every heartbeat that
    /// is heard and every change, and at most every 50 ms from other datagrams.
    pub fn members(&self) -> Arc<Vec<Member>> {
        self.core.members.load_full()
    }

    /// Changes its value whenever [`Pulse::members`] does.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.core.renewed.subscribe()
    }

    /// The addresses of the list and of discovery, and what is known of them.
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.core.lock().book.status()
    }

    /// Names that two nodes have.
    pub fn doubled(&self) -> Vec<Doubled> {
        self.core.lock().membership.doubled()
    }

    /// What was counted.
    pub fn counts(&self) -> PulseCounts {
        self.core.metrics.counts()
    }

    /// Tells the others at once that this node takes no new work, or does again.
    pub fn set_draining(&self, draining: bool) {
        self.core.set_draining(draining);
    }

    /// Whether it says so.
    pub fn is_draining(&self) -> bool {
        self.core.is_draining()
    }

    /// Tells everybody who lives of moves, soon. What does not fit into the waiting line is
    /// dropped and counted; the new ones go first, see [`Ears::moves_to_repeat`].
    pub fn tell_moves(&self, moves: &[MoveRecord]) {
        self.core.queue_moves(None, moves);
    }

    /// Tells one node of moves: all of them, when it is new.
    pub fn tell_moves_to(&self, node: &str, moves: &[MoveRecord]) {
        self.core.queue_moves(Some(node), moves);
    }
}
