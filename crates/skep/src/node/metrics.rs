//! What a node counts about itself, in a registry of its own.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use skep_store::Stores;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// A node's registry and the gauges that are read when somebody scrapes.
pub struct Metrics {
    registry: Registry,
    uptime: Gauge<f64, AtomicU64>,
    resident: Gauge,
    threads: Gauge,
    open_files: Gauge,
}

impl Metrics {
    /// A registry with the node's own metrics and those of its stores.
    pub fn new(stores: &Stores) -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics {
            uptime: Gauge::default(),
            resident: Gauge::default(),
            threads: Gauge::default(),
            open_files: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register(
            "skep_build",
            "The version that runs",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry.register_with_unit(
            "skep_uptime",
            "Time since the node started",
            Unit::Seconds,
            metrics.uptime.clone(),
        );
        registry.register_with_unit(
            "process_resident_memory",
            "Memory that the process holds",
            Unit::Bytes,
            metrics.resident.clone(),
        );
        registry.register("process_threads", "Threads of the process", metrics.threads.clone());
        registry.register(
            "process_open_fds",
            "Files and connections that the process has open",
            metrics.open_files.clone(),
        );
        stores.register_metrics(&mut registry);
        Metrics { registry, ..metrics }
    }

    /// Everything in the text form that Prometheus reads.
    pub fn render(&self, uptime: Duration, stores: &Stores) -> String {
        self.uptime.set(uptime.as_secs_f64());
        let process = read_process();
        self.resident.set(process.resident_bytes);
        self.threads.set(process.threads);
        self.open_files.set(process.open_files);
        stores.refresh_metrics();
        let mut text = String::with_capacity(4_096);
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

struct ProcessNow {
    resident_bytes: i64,
    threads: i64,
    open_files: i64,
}

/// Reads `/proc`; where there is none, as outside Linux, the gauges stay zero.
fn read_process() -> ProcessNow {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<i64>().ok());
        number.unwrap_or(0)
    };
    let open_files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    ProcessNow {
        resident_bytes: field("VmRSS:") * 1_024,
        threads: field("Threads:"),
        // The listing itself has one open.
        open_files: i64::try_from(open_files.saturating_sub(1)).unwrap_or(i64::MAX),
    }
}
