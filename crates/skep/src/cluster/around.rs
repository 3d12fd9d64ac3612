//! What the cluster needs of the node around it.

use crate::node::Shared;
use skep_cluster::{Around, Discover, Discovered};
use std::sync::Weak;

/// The node: how busy it is, and who waits there.
pub(super) struct NodeAround(pub Weak<Shared>);

impl Around for NodeAround {
    fn in_flight(&self) -> u32 {
        let in_flight = self.0.upgrade().map_or(0, |shared| shared.traffic.in_flight());
        u32::try_from(in_flight).unwrap_or(0)
    }

    fn polls(&self) -> u32 {
        let shared = self.0.upgrade();
        let queues = shared.as_ref().and_then(|shared| shared.queues.get());
        queues.map_or(0, |queues| u32::try_from(queues.parked()).unwrap_or(u32::MAX))
    }

    fn wake(&self, queue: &str) {
        let shared = self.0.upgrade();
        if let Some(queues) = shared.as_ref().and_then(|shared| shared.queues.get()) {
            match queue {
                "" => queues.wake(None),
                _ => queues.hint(queue),
            }
        }
    }
}

/// The other nodes of the installation, from their records where nodes agree.
pub(super) struct FromNodes(pub Weak<Shared>);

impl Discover for FromNodes {
    fn peers(&self) -> Vec<Discovered> {
        let Some(shared) = self.0.upgrade() else { return Vec::new() };
        let Some(fleet) = shared.fleet() else { return Vec::new() };
        let others = fleet.nodes.overview().nodes.into_iter().filter(|view| !view.here);
        others
            .filter_map(|view| {
                let udp = view.info["cluster"]["udp"].as_str()?.to_owned();
                Some(Discovered { name: view.name, udp })
            })
            .collect()
    }
}
