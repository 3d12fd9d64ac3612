//! Skep as one program: it wires the parts together and decides nothing.
//!
//! ```text
//!   cli ──► settings ──► Stores ──► Node ──► services: stores, http, …
//!    │                                │
//!    └─ asks a running node ──────────┘   (status, …)
//! ```
//!
//! A [`node::Node`] is an object: several run in one process over shared stores, each with its own
//! port, metrics registry and end.
//!
//! ```
//! # #[tokio::main] async fn main() -> anyhow::Result<()> {
//! use skep::{node::Node, settings::{Layers, resolve}};
//! use skep_store::{BootClock, Stores};
//! use std::sync::Arc;
//!
//! let folder = tempfile::tempdir()?;
//! let mut layers = Layers::default();
//! layers.add_flag("--data", "data", &folder.path().display().to_string());
//! layers.add_flag("--listen", "api.listen", "127.0.0.1:0");
//! let settings = resolve(layers)?.settings;
//!
//! let stores = Stores::open(&settings.store_options())?;
//! let mut node = Node::start(settings, stores.clone(), Arc::new(BootClock)).await?;
//! assert!(node.ready().await);
//! println!("http://{}/", node.shared().address);
//! node.stop();
//! node.ended().await?;
//! stores.close().await;
//! # Ok(()) }
//! ```

pub mod access;
pub mod agent;
pub mod bench;
pub mod cli;
pub mod cluster;
pub mod demo;
pub mod fleet;
pub mod http;
pub mod logging;
pub mod monitors;
pub mod node;
pub mod queues;
pub mod report;
pub mod routes;
pub mod settings;
pub mod work;
