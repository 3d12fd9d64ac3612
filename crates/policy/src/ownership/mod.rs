//! Which node owns this key? Never two at once, through any fault.
//!
//! A node does not hold a lease for each thing it owns. It has one **session** in a table that all
//! nodes share, and renews it with one small call per tick; what it owns are rows of that table
//! that name its session. Four parts, none of which reads a clock or opens a socket:
//!
//! ```text
//!            Request                        Event, now
//!   Table ◄─────────── whoever carries ◄──────────────── Member ──► Send, Start, Stop, Lost
//!     │                     ▲                              ▲
//!     └── Reply ────────────┴──────────────────────────────┘  permit(now, key, work) ─► Permit
//! ```
//!
//! * [`Table`] is what must be agreed on: an exact description of every store's behaviour, and the
//!   store itself where all nodes live in one process.
//! * [`Member`] is one node: it renews, watches the others, takes and gives.
//! * [`placement`] says who should own each key. Every node computes it from the same facts and
//!   comes to the same answer, so nobody has to be in charge.
//! * [`Timing`] says how long trust lasts and how long one waits before calling another dead.
//!
//! Why two can never work on one key:
//! * A node trusts its session until `ttl * (1 - drift) - margin` after the moment **before** it
//!   sent the renewal. An answer that comes late extends nothing.
//! * Another is dead when its sequence number has not changed for `ttl * (1 + drift) + margin` on
//!   the observer's own clock, counted from when the observer **received** that number. Removing it
//!   is a compare-and-set on the number, so a renewal that was still on its way saves it.
//! * What a node sent before its last renewal is void: every request names the number it believes
//!   to be the present one.
//! * A table that lost something (restarted empty or from an old copy, flushed, failed over) starts
//!   a new **epoch**. Who still trusts itself claims what it held again and goes on without a gap;
//!   everybody else waits until no trust from before can be left.
//! * Every grant has a [`Token`] that only grows, so that whoever keeps the results can refuse
//!   those of an owner that was overtaken in a way no clock can see.
//!
//! No decision depends on the wall clock of the store, on clocks being equal, or on how long a
//! message takes.

mod guards;
mod member;
pub mod placement;
mod protocol;
mod table;
mod timing;

pub use guards::{Guard, Guards};
pub use member::{
    Effect, Event, Grant, Loads, Member, MemberOptions, News, NewsKind, Peer, Permit, Refusal,
    Standing, Want,
};
pub use protocol::{
    Answer, Ask, BATCH_MAX, Caller, Epoch, Hint, Key, NodeRow, PAGE_ROWS, Reply, Request, Row,
    Seen, Status, Ticked, Token,
};
pub use table::{TOMBSTONES_MAX, Table};
pub use timing::{BadTiming, Timing};
