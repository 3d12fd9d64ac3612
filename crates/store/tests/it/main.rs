//! Tests of the stores against the real thing. One binary, because each would be linked again.

mod hints;
mod migrate;
mod postgres;
mod redis;
mod sqlite;
