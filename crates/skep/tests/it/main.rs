//! Tests of the program as its users meet it. One binary, because each would be linked again.

mod command_line;
mod common;
mod docs;
mod nodes_in_one_process;
mod serve;
mod trouble;
