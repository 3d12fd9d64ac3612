//! A demo: three nodes, a fleet's whole life around them, and a tour of things that happen.
//!
//! ```text
//!   cli::demo ─► run ─► nodes        in this process, or processes
//!                 ├──► actors        skep_chaos::world: each uses a capability and checks it
//!                 ├──► script        scenes: something happens, what came of it, and why
//!                 │      └─► narrator ─► terminal; PUT /api/v1/demo of every node ─► dashboard
//!                 └──► Outcome       a row for each actor, and one for the scenes
//! ```
//!
//! `story` and `tasks` are what a node has of it; the rest is around the nodes and knows only their
//! API.

mod narrator;
mod nodes;
mod run;
mod script;
mod story;
mod tasks;

pub use narrator::Say;
pub use nodes::{COUNT as NODES, Kind};
pub use run::{DatabaseUsed, Options, Outcome, Part, run};
pub use story::{DemoPlace, EVENTS_MAX, Next, Story, StoryNode, Told};
pub use tasks::{COUNT_MAX, Counts, DemoTasks, MILLIS_MAX, Taken, Wanted};
