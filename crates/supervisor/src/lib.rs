//! Keeps a worker program that wears out alive, registered and fresh.
//!
//! Some programs (browsers above all) are good for a number of sessions and then have to be started
//! anew. A supervisor stands beside one of them: it starts the program, learns its address, tells a
//! Skep node about it, reports how it is doing, and does what the node orders.
//!
//! ```text
//!   run ─► Machine ◄──── answers ◄──── Link ─────► node: register, heartbeat, drain, leave
//!             │  ▲
//!             │  └────── ready, gone, load ◄─┐
//!             └─► start, stop ─► program (process group, output, guard, /proc)
//! ```
//!
//! The machine ([`machine`]) has every rule and neither clock nor sockets; [`run`] is its hands.
//! Three promises:
//! * **Nothing outlives its program.** Whatever the program started goes with it, also what has
//!   left its process group, and also when the supervisor itself is killed.
//! * **A node that does not answer is no reason to stop a program.** Its sessions go on.
//! * **One name, one worker.** Whoever is replaced by another start ends.
//!
//! ```
//! use skep_supervisor::{Options, UrlFrom};
//!
//! let mut options = Options::new("chromium", ["sh", "-c", "echo ws://127.0.0.1:9222/; sleep 60"]);
//! assert!(options.check().is_ok());
//!
//! options.url_from = UrlFrom::Fixed("127.0.0.1:9222".to_owned());
//! let problems = options.check().unwrap_err().to_string();
//! assert!(problems.starts_with(r#"url: "127.0.0.1:9222" is not allowed; "#), "{problems}");
//! ```

mod address;
mod link;
pub mod machine;
mod options;
mod program;
mod run;
pub mod wire;

pub use options::{BadOptions, Options, Problem, UrlFrom, default_name};
pub use program::{Line, Output, Stream};
pub use run::{RunError, Stop, run};
