//! Polls endpoints, each from exactly one node and at its own time.
//!
//! ```text
//!   API ─► Polls ─► store (endpoints) ─► Registry, a copy on each node ─► Nodes: whose is it?
//!                                                                           │ start, stop, lost
//!            store (results, fenced) ◄─ Outbox ◄─ Prober ◄─ Poller ◄────────┘
//! ```
//!
//! A [`Spec`] is an endpoint as somebody wrote it, checked: what to ask, what the answer must be,
//! how often and for how long. A [`Prober`] asks it once and says what came of it, an [`Outcome`].
//! [`Polls`] is what a node holds; [`run`] is what it does. A node announces its grant in the
//! database before its first poll of an endpoint, and results under an older grant are refused, so
//! that whoever was overtaken unnoticed can do no harm.
//!
//! ```
//! use skep_policy::ownership::Timing;
//! use skep_polls::Spec;
//! use serde_json::json;
//!
//! let timing = Timing::default();
//! let shop = json!({ "id": "shop", "url": "http://shop.example/health", "interval": "10s" });
//! assert_eq!(Spec::parse(&shop, &timing).unwrap().interval.as_secs(), 10);
//!
//! let often = json!({ "id": "shop", "url": "http://shop.example/health", "interval": "0s" });
//! let problems = Spec::parse(&often, &timing).unwrap_err();
//! assert_eq!(problems[0].to_string(), r#"interval: "0s" is not allowed; give 1s to 24h"#);
//! ```

mod courier;
mod handle;
mod metrics;
mod options;
mod outbox;
mod poller;
mod probe;
mod publish;
mod registry;
mod service;
mod spec;
pub mod store;

pub use handle::{ChangeError, Filter, ImportReport, Listed, Polls, PollsNow};
pub use metrics::PollsMetrics;
pub use options::PollsOptions;
pub use poller::Beat;
pub use probe::{Outcome, PrepareError, Prepared, ProbeError, ProbeOptions, Prober, Verdict};
pub use publish::Publish;
pub use registry::{Endpoint, Hub, KIND, key_of};
pub use service::run;
pub use spec::{
    Certificate, Expect, Headers, Http, Kind, Problem, Spec, Statuses, StoredError, Target, import,
    parse_span, write_span,
};
pub use store::SCHEMA;
