//! Real nodes, real servers and real faults, and checks of what came of it.
//!
//! [`polls::run`] starts a PostgreSQL, a Redis, a web server that writes down every request, and
//! some `skep serve`; then it kills, stops, cuts off and restarts them, and at the end reads what
//! the web server and the database saw. A simulation checks the rules; this checks that what runs
//! keeps them, with the system's scheduler, network and clocks in between.
//!
//! [`sessions::run`] does the same to gateways with clients and workers around them, and compares
//! what they count with what the workers know to be open.
//!
//! [`soak::run`] lets all of it live at once on three nodes, in whatever weather: the actors of
//! [`world`] use every capability and check what they are told.
//!
//! Everything is on loopback, in a temporary folder, and ends with the process.

mod common;
pub mod polls;
pub mod sessions;
pub mod soak;
pub mod world;
