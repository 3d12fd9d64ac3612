//! What a node counts about itself, in a registry of its own.

use crate::cluster::ClusterPlace;
use crate::fleet::FleetMetrics;
use crate::http::Traffic;
use crate::queues::NodeQueues;
use crate::routes::{NodeRoutes, RouteCollector};
use crate::work::{PoolCollector, Work};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use skep_store::Stores;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// A node's registry and the gauges that are read when somebody scrapes.
pub struct Metrics {
    registry: Registry,
    uptime: Gauge<f64, AtomicU64>,
    resident: Gauge,
    threads: Gauge,
    open_files: Gauge,
    log_dropped: Gauge,
    certificate_expires: Gauge,
}

impl Metrics {
    /// A registry with the node's own metrics, those of its port, its stores, its pools
    /// of the fleet, of the routes and of the queues.
    pub fn new(
        stores: &Stores,
        traffic: &Traffic,
        work: &Arc<Work>,
        fleet: &FleetMetrics,
        routes: &Arc<NodeRoutes>,
        (queues, cluster): (&NodeQueues, &ClusterPlace),
    ) -> Self {
        let mut registry = Registry::default();
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("skep_build", "The version that runs", version);
        let uptime = Gauge::default();
        registry.register_with_unit(
            "skep_uptime",
            "Time since the node started",
            Unit::Seconds,
            uptime.clone(),
        );
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let resident = gauge("process_resident_memory_bytes", "Memory that the process holds");
        let threads = gauge("process_threads", "Threads of the process");
        let open_files =
            gauge("process_open_fds", "Files and connections that the process has open");
        let log_dropped =
            gauge("skep_log_lines_dropped", "Log lines lost because standard error was too slow");
        let certificate_expires = gauge(
            "skep_certificate_expires_timestamp_seconds",
            "When the listener's certificate ends, in seconds since 1970; 0 without TLS",
        );
        traffic.register(&mut registry);
        stores.register_metrics(&mut registry);
        registry.register_collector(Box::new(PoolCollector::new(work.clone())));
        work.dials.register(&mut registry);
        fleet.nodes.register(&mut registry);
        fleet.polls.register(&mut registry);
        fleet.monitors.register(&mut registry);
        fleet.sessions.register(&mut registry);
        fleet.gateway.register(&mut registry);
        registry.register_collector(Box::new(RouteCollector(routes.clone())));
        queues.metrics().register(&mut registry);
        cluster.metrics.register(&mut registry);
        Metrics {
            registry,
            uptime,
            resident,
            threads,
            open_files,
            log_dropped,
            certificate_expires,
        }
    }

    /// Everything in the text form that Prometheus reads.
    pub fn render(
        &self,
        uptime: Duration,
        stores: &Stores,
        certificate_expires_at_ms: Option<i64>,
    ) -> String {
        self.uptime.set(uptime.as_secs_f64());
        let process = process_now();
        self.resident.set(process.resident_bytes);
        self.threads.set(process.threads);
        self.open_files.set(process.open_files);
        let dropped = crate::logging::log().map_or(0, |log| log.dropped());
        self.log_dropped.set(i64::try_from(dropped).unwrap_or(i64::MAX));
        self.certificate_expires.set(certificate_expires_at_ms.unwrap_or(0) / 1_000);
        stores.refresh_metrics();
        let mut text = String::with_capacity(8_192);
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// What the process uses now.
pub struct ProcessNow {
    pub resident_bytes: i64,
    pub threads: i64,
    pub open_files: i64,
    /// Time that it has computed so far.
    pub cpu: Duration,
}

/// Reads `/proc`; where there is none, as outside Linux, the gauges stay zero.
pub fn process_now() -> ProcessNow {
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
        cpu: cpu_time(),
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
