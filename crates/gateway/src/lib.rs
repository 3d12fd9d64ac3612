//! Carries WebSocket sessions between clients and workers that wear out: browsers and the like.
//!
//! ```text
//!   client ─► Server ─► Desk::admit, checkout ─► Search ─► dial ─► worker
//!     ▲      (a thread       (who may, which      (a second one    │ 101
//!     │       a core)         worker, the line)    if it is slow)  ▼
//!     └────────────── Session: Relay, bytes both ways ◄────────────┘ ─► Seat::close
//! ```
//!
//! A client's `ws://gateway:8080` is an HTTP upgrade. The gateway asks its [`Desk`] for a worker,
//! dials it, hands the worker's answer to the client and from then on copies bytes; it never reads
//! a frame. It decides nothing about workers: a worker that fails is reported with
//! [`Closed::Failed`], and the desk says which one is next.
//!
//! A [`Front`] may have the first word on connections: it serves ordinary requests and gives the
//! connection back at the first one that is a session's. With its certificates the gateway listens
//! for TLS too.
//!
//! Each thread has its own listener, its own event loop and its own sessions, so that carrying a
//! message wakes nobody else. See [`GatewayOptions`] for the limits.
//!
//! ```
//! use skep_gateway::WorkerUrl;
//!
//! let worker: WorkerUrl = "ws://10.0.0.7:9001/3f2a".parse().unwrap();
//! assert_eq!(worker.authority(), "10.0.0.7:9001");
//!
//! let problem = "wss://10.0.0.7:9001/".parse::<WorkerUrl>().unwrap_err();
//! assert!(problem.to_string().contains("workers are spoken to without TLS"));
//! ```

mod ask;
mod body;
mod desk;
mod dial;
mod front;
mod gateway;
mod handshake;
mod limits;
mod listen;
mod metrics;
mod options;
mod outline;
mod places;
mod probe;
mod query;
mod refusals;
mod relay;
mod rewound;
mod serve;
mod session;
mod tls;
mod url;

pub use body::{Body, BodyError, full};
pub use desk::{Caller, Checkout, Closed, Credentials, Desk, EndedBy, Refusal, Seat, Wanted};
pub use front::{Arrival, Front, Io, Unclaimed};
pub use gateway::{Gateway, GatewayError};
pub use limits::raise_file_limit;
pub use metrics::GatewayMetrics;
pub use options::GatewayOptions;
pub use probe::answers;
pub use refusals::{REFUSAL_CODES, RefusalCode};
pub use url::{WorkerUrl, WorkerUrlError};
