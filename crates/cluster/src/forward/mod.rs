//! Requests that another node serves, and their answers.
//!
//! ```text
//!   Outgoing ─► Forwarder::send ─► plan::next: this node, the next one, the same again, or here?
//!                   │ forward, one exchange
//!                   ▼
//!        Peer: a free connection, or a new one ─► [skep-hop] ─► the other node: Hops::take
//!                   │                                           │ Outcomes::begin: new, or known?
//!   Answer ◄────────┘ ◄─────────────────────────────────────────┘
//! ```
//!
//! An exchange runs in the task of the request that it is for: nothing is handed to another task,
//! and whoever drops the future or the answer closes the connection, which is how the other node
//! hears that nobody waits any more. What came of an exchange is told to a [`Witness`], once.
//!
//! Nothing is done twice because an answer was lost. A request has an id for as long as it lives,
//! the other node remembers by it what it has answered ([`Outcomes`]), and [`plan::next`] says for
//! each kind of work and each trouble what may follow.

mod body;
mod exchange;
mod failed;
mod forwarder;
mod headers;
mod hop;
mod http1;
mod journey;
mod latency;
mod link;
mod options;
mod outcomes;
mod peer;
pub mod plan;
mod tls;

pub use body::{Answer, AnswerError, BodyFault, Sending};
pub use failed::{Evidence, Failed, FailedKind, Witness};
pub use forwarder::{Forwarder, Outgoing};
pub use headers::{FALLBACK, FORWARDED_BY, HOP, SERVED_BY, TOOK, remove_hop_by_hop};
pub use hop::{Forged, HopInfo, Hops, RequestId};
pub use journey::Journey;
pub use latency::Latency;
pub use options::{BadOption, ForwardOptions, Limits};
pub use outcomes::{
    Begun, Fingerprint, Kept, Outcome, Outcomes, OutcomesNow, OutcomesOptions, Slot,
};
pub use peer::{BadPeer, Peer, PeerNow};
pub use tls::trust;
