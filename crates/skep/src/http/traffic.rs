//! What the node's port is doing: counters for Prometheus, and a point a second for the dashboard.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Points kept: five minutes.
const POINTS_MAX: usize = 300;
/// Latency is counted in steps of a quarter of a power of two, from a microsecond to a minute.
const BUCKETS: usize = 104;

/// The counters of a node's port.
pub struct Traffic {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram>,
    /// The same metrics by route, found without building labels.
    routes: RwLock<HashMap<String, Arc<RouteMetrics>>>,
    in_flight: Gauge,
    connections: Gauge,
    live_streams: Gauge,
    second: Second,
    points: Mutex<VecDeque<Point>>,
}

/// Every value of a label comes from the program: routes are templates, methods and statuses are
/// known ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

struct RouteMetrics {
    seconds: Histogram,
    /// A handful: the methods of a route and the statuses it has answered with.
    requests: Mutex<Vec<(&'static str, u16, Counter)>>,
}

/// What happened since the last point was made.
struct Second {
    count: AtomicU64,
    errors: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

/// One second of the port's life.
#[derive(Clone, Copy, Debug, Default, Serialize, utoipa::ToSchema)]
pub struct Point {
    /// When it ended, in milliseconds since 1970.
    pub at: i64,
    /// Requests answered a second.
    pub per_second: f64,
    /// Those of them that were answered with a 5xx.
    pub errors_per_second: f64,
    /// Half of them took no longer; nothing if there were none.
    pub p50_ms: Option<f64>,
    /// All but one in a hundred took no longer.
    pub p99_ms: Option<f64>,
    /// Memory that the process holds.
    pub resident_bytes: i64,
    /// Of one core.
    pub cpu_percent: f64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self::new()
    }
}

impl Traffic {
    /// Nothing has happened yet.
    pub fn new() -> Self {
        let buckets = || Histogram::new(exponential_buckets(0.000_25, 4.0, 9));
        Traffic {
            requests: Family::default(),
            seconds: Family::new_with_constructor(buckets),
            routes: RwLock::new(HashMap::new()),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            live_streams: Gauge::default(),
            second: Second {
                count: AtomicU64::new(0),
                errors: AtomicU64::new(0),
                latency: std::array::from_fn(|_| AtomicU64::new(0)),
            },
            points: Mutex::new(VecDeque::with_capacity(POINTS_MAX)),
        }
    }

    /// Adds the metrics to a node's registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "skep_http_requests",
            "Requests answered, by method, route and status",
            self.requests.clone(),
        );
        registry.register(
            "skep_http_request_seconds",
            "Time from a request's head to its answer's head, by route",
            self.seconds.clone(),
        );
        registry.register(
            "skep_http_in_flight",
            "Requests that are being answered",
            self.in_flight.clone(),
        );
        registry.register(
            "skep_http_connections",
            "Open connections to the node's port",
            self.connections.clone(),
        );
        registry.register(
            "skep_http_live_streams",
            "Dashboards and others that listen to live events",
            self.live_streams.clone(),
        );
    }

    /// A connection that is open until the answer is dropped.
    pub fn open_connection(&self) -> Held {
        Held::new(&self.connections)
    }

    /// A live stream that lasts until the answer is dropped; `None` past the limit.
    pub fn open_stream(&self, most: usize) -> Option<Held> {
        let held = Held::new(&self.live_streams);
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        (self.live_streams.get() <= limit).then_some(held)
    }

    /// A request that is in flight until the answer is dropped.
    pub fn begin(&self) -> Held {
        Held::new(&self.in_flight)
    }

    /// Connections that are open now.
    pub fn connections(&self) -> i64 {
        self.connections.get()
    }

    /// Requests that are in flight now.
    pub fn in_flight(&self) -> i64 {
        self.in_flight.get()
    }

    /// Counts a request that was answered.
    pub fn count(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        let metrics = self.of_route(route);
        metrics.seconds.observe(took.as_secs_f64());
        self.counter(&metrics, method, route, status).inc();
        self.second.count.fetch_add(1, Ordering::Relaxed);
        if status >= 500 {
            self.second.errors.fetch_add(1, Ordering::Relaxed);
        }
        self.second.latency[bucket_of(took)].fetch_add(1, Ordering::Relaxed);
    }

    fn of_route(&self, route: &str) -> Arc<RouteMetrics> {
        let known = self.routes.read().unwrap_or_else(PoisonError::into_inner).get(route).cloned();
        known.unwrap_or_else(|| {
            let seconds =
                self.seconds.get_or_create_owned(&RouteLabels { route: route.to_owned() });
            let fresh = Arc::new(RouteMetrics { seconds, requests: Mutex::new(Vec::new()) });
            let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
            routes.entry(route.to_owned()).or_insert(fresh).clone()
        })
    }

    fn counter(
        &self,
        metrics: &RouteMetrics,
        method: &'static str,
        route: &str,
        status: u16,
    ) -> Counter {
        let mut requests = metrics.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let known = requests.iter().find(|(m, s, _)| (*m, *s) == (method, status));
        if let Some((_, _, counter)) = known {
            return counter.clone();
        }
        let labels = RequestLabels { method, route: route.to_owned(), status };
        let counter = self.requests.get_or_create_owned(&labels);
        requests.push((method, status, counter.clone()));
        counter
    }

    /// Ends a second that took `span`, and keeps its point.
    pub fn tick(&self, at: i64, span: Duration, resident_bytes: i64, cpu_percent: f64) -> Point {
        let seconds = span.as_secs_f64().max(0.001);
        let count = self.second.count.swap(0, Ordering::Relaxed);
        let errors = self.second.errors.swap(0, Ordering::Relaxed);
        let latency: Vec<u64> =
            self.second.latency.iter().map(|bucket| bucket.swap(0, Ordering::Relaxed)).collect();
        let point = Point {
            at,
            per_second: count as f64 / seconds,
            errors_per_second: errors as f64 / seconds,
            p50_ms: percentile_ms(&latency, 0.50),
            p99_ms: percentile_ms(&latency, 0.99),
            resident_bytes,
            cpu_percent,
        };
        let mut points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        if points.len() == POINTS_MAX {
            points.pop_front();
        }
        points.push_back(point);
        point
    }

    /// The points kept, oldest first.
    pub fn points(&self) -> Vec<Point> {
        let points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        points.iter().copied().collect()
    }
}

/// Counts one in a gauge until it is dropped.
pub struct Held(Gauge);

impl Held {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Held(gauge.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn bucket_of(took: Duration) -> usize {
    let micros = took.as_secs_f64() * 1e6;
    let steps = (micros.max(1.0).log2() * 4.0).ceil();
    (steps as usize).min(BUCKETS - 1)
}

/// The upper end of the bucket in which the percentile lies.
fn percentile_ms(latency: &[u64], percentile: f64) -> Option<f64> {
    let total: u64 = latency.iter().sum();
    if total == 0 {
        return None;
    }
    let rank = (total as f64 * percentile).ceil() as u64;
    let mut seen = 0;
    let bucket = latency.iter().position(|count| {
        seen += count;
        seen >= rank
    });
    Some((bucket? as f64 / 4.0).exp2() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_tells_rate_errors_and_percentiles_and_then_starts_again() {
        let traffic = Traffic::new();
        for _ in 0..98 {
            traffic.count("GET", "/health", 200, Duration::from_micros(100));
        }
        traffic.count("GET", "/health", 503, Duration::from_millis(50));
        traffic.count("GET", "/health", 503, Duration::from_millis(50));
        let point = traffic.tick(1, Duration::from_secs(2), 5, 1.0);
        assert_eq!((point.per_second, point.errors_per_second), (50.0, 1.0));
        let within = |value: Option<f64>, low: f64, high: f64| {
            value.is_some_and(|value| (low..high).contains(&value))
        };
        assert!(within(point.p50_ms, 0.1, 0.12), "{point:?}");
        assert!(within(point.p99_ms, 50.0, 60.0), "{point:?}");
        let quiet = traffic.tick(2, Duration::from_secs(1), 5, 1.0);
        assert_eq!((quiet.per_second, quiet.p50_ms), (0.0, None));
        assert_eq!(traffic.points().len(), 2);
    }

    #[test]
    fn points_are_bounded_and_every_latency_has_a_bucket() {
        let traffic = Traffic::new();
        for at in 0..1_000 {
            traffic.tick(at, Duration::from_secs(1), 0, 0.0);
        }
        assert_eq!(traffic.points().len(), POINTS_MAX);
        assert_eq!(traffic.points()[0].at, 700);
        for took in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            assert!(bucket_of(took) < BUCKETS);
        }
    }

    #[test]
    fn streams_past_the_limit_are_refused_and_leave_no_trace() {
        let traffic = Traffic::new();
        let first = traffic.open_stream(1).expect("there is room");
        assert!(traffic.open_stream(1).is_none());
        assert_eq!(traffic.live_streams.get(), 1);
        drop(first);
        assert!(traffic.open_stream(1).is_some());
    }
}
