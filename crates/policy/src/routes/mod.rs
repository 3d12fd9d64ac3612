//! Which upstream answers this request?
//!
//! ```text
//!   host, path ──► table ──► a route ──► choose ◄── guard, one an upstream ◄── checks, answers
//!                                          │  ▲
//!                                          ▼  └── once more? ◄── retry
//!                                       an answer ──► rollup
//! ```
//!
//! * [`table`]: host and path to a route.
//! * [`guard`]: whether an upstream is to be used, from what was heard of it.
//! * [`choose`]: which of a route's upstreams gets the next request.
//! * [`retry`]: whether a request that failed is sent again.
//! * [`rollup`]: what is remembered of a minute's requests.
//! * [`alerts`]: what somebody should look at.

pub mod alerts;
pub mod choose;
pub mod guard;
pub mod retry;
pub mod rollup;
pub mod table;
