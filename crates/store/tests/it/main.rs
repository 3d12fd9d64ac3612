//! Tests of the stores against the real thing. One binary, because each would be linked again.

mod copy;
mod hints;
mod migrate;
mod postgres;
mod redis;
mod sqlite;
