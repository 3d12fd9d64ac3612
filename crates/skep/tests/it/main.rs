//! Tests of the program as its users meet it. One binary, because each would be linked again.

mod access;
mod access_store;
mod chaos;
mod command_line;
mod common;
mod dashboard;
mod dashboard_polls;
mod dashboard_sessions;
mod docs;
mod fleet;
mod nodes_in_one_process;
mod playwright;
mod polls;
mod requests;
mod serve;
mod sessions;
mod sessions_cli;
mod sessions_load;
mod tls;
mod trouble;
mod work;
mod work_store;
