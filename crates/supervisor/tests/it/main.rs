//! Supervisors with real programs and a node that does what a test wants.

mod faults;
mod killed;
mod life;
mod node;
mod programs;
mod worker;
