//! Policies and engines under a virtual clock and injected faults, from a seed.
//!
//! What decides takes time and chance as arguments, and what acts is an engine without threads, so
//! both run here as fast as a processor can call them: hours of a storm in seconds, and every run
//! again from its seed, to the byte. A failure names the seed, and the seed is the whole report.
//!
//! ```
//! use skep_sim::pools::{Options, Scenario, run};
//!
//! let options = Options { events: 20_000, ..Options::new(Scenario::Chaos, 7) };
//! let outcome = run(&options);
//! assert!(outcome.ok, "{:#?}", outcome.failures);
//! assert!(outcome.figures["accepted"] > 1_000.0);
//! ```

mod agenda;
pub mod cluster;
pub mod monitors;
pub mod polls;
pub mod pools;
pub mod sessions;
