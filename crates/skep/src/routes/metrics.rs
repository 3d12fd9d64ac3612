//! The routes for Prometheus, counted when somebody asks. There are as many series as there are
//! routes and upstreams, and of both there is a most.

use super::NodeRoutes;
use crate::access::now_ms;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use skep_policy::routes::rollup::Minute;
use skep_routes::{RouteView, UpstreamView};
use std::sync::Arc;
use std::time::Duration;

/// The bounds of the histogram, in milliseconds.
const BOUNDS_MS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000];

/// What an upstream can be.
const STANDINGS: [&str; 5] = ["ready", "warming", "trial", "out", "down"];

/// Adds what the routes count to a registry.
pub struct RouteCollector(pub Arc<NodeRoutes>);

impl std::fmt::Debug for RouteCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RouteCollector")
    }
}

type Result = std::result::Result<(), std::fmt::Error>;

struct Sheet<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
    routes: &'a [RouteView],
    totals: &'a [(Arc<str>, Minute)],
}

impl Sheet<'_, '_> {
    fn requests(&mut self) -> Result {
        let help = "Requests of a route that are over, by the class of their status; `refused` \
                    are those that no upstream was asked for";
        let mut family = self.encoder.encode_descriptor(
            "skep_route_requests",
            help,
            None,
            MetricType::Counter,
        )?;
        for (route, total) in self.totals {
            let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(total.answers);
            for (class, count) in classes.chain([("refused", total.refused)]) {
                let labels = [("route", &**route), ("class", class)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn bytes(&mut self, name: &str, help: &str, of: impl Fn(&Minute) -> u64) -> Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (route, total) in self.totals {
            let labels = [("route", &**route)];
            ConstCounter::new(of(total)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn spans(&mut self) -> Result {
        let help = "From the end of a request's head to the end of its answer";
        let mut family = self.encoder.encode_descriptor(
            "skep_route_request",
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (route, total) in self.totals {
            let spans = &total.latency;
            let mut below = 0;
            let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(BOUNDS_MS.len() + 1);
            for bound in BOUNDS_MS.map(Duration::from_millis) {
                let at_most = spans.at_most(bound);
                buckets.push((bound.as_secs_f64(), at_most - below));
                below = at_most;
            }
            buckets.push((f64::MAX, spans.count() - below));
            let labels = [("route", &**route)];
            family.encode_family(&labels)?.encode_histogram::<[(&str, &str); 0]>(
                spans.sum().as_secs_f64(),
                spans.count(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }

    fn routes(&mut self) -> Result {
        let help = "Requests of a route that are on their way";
        let mut family =
            self.encoder.encode_descriptor("skep_route_open", help, None, MetricType::Gauge)?;
        for one in self.routes {
            let labels = [("route", one.name.as_str())];
            ConstGauge::new(signed(one.open)).encode(family.encode_family(&labels)?)?;
        }
        let help = "Requests of a route that were sent again";
        let mut family = self.encoder.encode_descriptor(
            "skep_route_retries",
            help,
            None,
            MetricType::Counter,
        )?;
        for one in self.routes {
            let labels = [("route", one.name.as_str())];
            ConstCounter::new(one.retries).encode(family.encode_family(&labels)?)?;
        }
        let help = "Upstreams of a route, by how they are used";
        let mut family = self.encoder.encode_descriptor(
            "skep_route_upstreams",
            help,
            None,
            MetricType::Gauge,
        )?;
        for one in self.routes {
            for standing in STANDINGS {
                let so = one.upstreams.iter().filter(|upstream| upstream.standing == standing);
                let labels = [("route", one.name.as_str()), ("standing", standing)];
                let count = signed(so.count() as u64);
                ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn upstreams(
        &mut self,
        (name, help): (&str, &str),
        kind: MetricType,
        of: impl Fn(&UpstreamView) -> u64,
    ) -> Result {
        let counts = matches!(kind, MetricType::Counter);
        let mut family = self.encoder.encode_descriptor(name, help, None, kind)?;
        for route in self.routes {
            for one in &route.upstreams {
                let labels = [("route", route.name.as_str()), ("upstream", one.address.as_str())];
                let family = family.encode_family(&labels)?;
                match counts {
                    true => ConstCounter::new(of(one)).encode(family)?,
                    false => ConstGauge::new(signed(of(one))).encode(family)?,
                }
            }
        }
        Ok(())
    }
}

impl Collector for RouteCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result {
        let (routes, totals) = (self.0.proxy.overview(), self.0.proxy.totals());
        let mut sheet = Sheet { encoder: &mut encoder, routes: &routes, totals: &totals };
        sheet.requests()?;
        sheet.spans()?;
        let help = "Bytes of the bodies of a route's requests";
        sheet.bytes("skep_route_received_bytes", help, |total| total.bytes_in)?;
        let help = "Bytes of the bodies of a route's answers";
        sheet.bytes("skep_route_sent_bytes", help, |total| total.bytes_out)?;
        sheet.routes()?;
        let active = ("skep_route_upstream_active", "Requests that an upstream is busy with");
        sheet.upstreams(active, MetricType::Gauge, |one| one.active.into())?;
        let answered = ("skep_route_upstream_answered", "Requests that an upstream has answered");
        sheet.upstreams(answered, MetricType::Counter, |one| one.answered)?;
        let failed = ("skep_route_upstream_failed", "Requests that an upstream has failed");
        sheet.upstreams(failed, MetricType::Counter, |one| one.failed)?;
        self.encode_events(&mut encoder)?;
        self.encode_certificates(&mut encoder)
    }
}

impl RouteCollector {
    fn encode_events(&self, encoder: &mut DescriptorEncoder<'_>) -> Result {
        let help = "Events of routes, by their kind and the status of the answer; 0 if none";
        let mut family =
            encoder.encode_descriptor("skep_route_events", help, None, MetricType::Counter)?;
        for ((kind, status), count) in self.0.journal.counts() {
            let status = status.to_string();
            let labels = [("kind", kind), ("status", status.as_str())];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        let help = "Events of routes that are not in the database because too many came";
        let name = "skep_route_events_dropped";
        let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(self.0.journal.dropped()).encode(family)
    }

    fn encode_certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> Result {
        let help = "How long the certificate of a route's host is good; below 0 it has ended";
        let name = "skep_route_certificate_left";
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for end in self.0.certificates.ends() {
            let left = (end.expires_at_ms - now_ms()) / 1_000;
            let labels = [("host", end.host.as_str())];
            ConstGauge::new(left).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
