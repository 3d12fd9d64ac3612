//! Sessions on workers that wear out, simulated.
//!
//! [`load`] puts the same load on several ways to choose a worker and measures what each costs:
//! workers away at once, sessions that had to wait, restarts. [`chaos`] lets everything go wrong
//! around the table of sessions and compares it with the truth, which only a simulator knows: what
//! each gateway really carries on which start of which program.
//!
//! The table is the real one, [`skep_policy::sessions::Fleet`].

pub mod chaos;
pub mod load;
