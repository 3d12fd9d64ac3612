//! Nodes as one server: who is there, who waits for what, and requests passed on.
//!
//! ```text
//!   Pulse ─► heartbeats, presence, wakes, moves ─► datagrams, signed ─► the others' Pulse
//!     │                                                                      │
//!     ├─ Membership: who lives (a state machine without clock and sockets) ◄─┤
//!     ├─ Presence: which queues have consumers where ◄───────────────────────┤
//!     └─ Ears: wakes and moves that were heard ◄─────────────────────────────┘
//! ```
//!
//! Datagrams are hints: nothing is wrong if they are lost, late or repeated, only slower for a
//! moment. What must be agreed on is in the database. [`Seal`] signs them, [`wire`] says how they
//! look, and [`PulseMetrics`] counts those that were not believed, by why.

mod addresses;
mod counts;
mod cpu;
pub mod forward;
mod handle;
mod keeping;
mod ledger;
mod membership;
mod metrics;
mod presence;
mod pulse;
mod secret;
mod told;
pub mod views;
mod wakes;
pub mod wire;
mod witness;

pub use addresses::{Address, BadAddress, Discover, Discovered, PEERS_MAX, PeerStatus};
pub use counts::ClusterMetrics;
pub use cpu::{CpuMeter, allowed_cores};
pub use handle::{Around, Cluster, ClusterError, ClusterOptions, Going, lease_tag_of};
pub use keeping::run;
pub use membership::{
    Change, Doubled, Heard, Member, Membership, MembershipOptions, State, Verdict,
};
pub use metrics::{HeartbeatCounts, PulseCounts, PulseMetrics, WakeCounts};
pub use presence::{ANY_QUEUE, Held, Holder, Listed, Presence, PresenceOptions, Waiting};
pub use pulse::{Ears, Pulse, PulseError, PulseOptions, run as run_pulse};
pub use secret::{BadSecret, SECRET_BYTES_MIN, Secret, TAG_BYTES};
pub use wakes::{WAITING_MAX, Wakes};
pub use wire::{Load, MoveRecord, Seal};
