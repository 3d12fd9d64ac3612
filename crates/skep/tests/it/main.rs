//! Tests of the program as its users meet it. One binary, because each would be linked again.

mod access;
mod access_store;
mod command_line;
mod common;
mod dashboard;
mod docs;
mod nodes_in_one_process;
mod requests;
mod serve;
mod tls;
mod trouble;
mod work;
mod work_store;
