//! From what somebody wrote to what is used.

use crate::moment::Moment;
use crate::rate::{By, Rate};
use crate::route::{HostField, Live, Maintenance, Route, Timeouts};
use crate::rules::Rules;
use crate::spec::{HeaderEdits, HostHeader, RateBy, RouteSpec};
use crate::upstream::Upstream;
use skep_policy::breaker;
use skep_policy::routes::guard::{Checks, Options};
use skep_policy::routes::retry::{Budget, Limits, Options as RetryOptions};
use skep_policy::routes::{choose, table::Table};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

impl Live {
    /// Makes routes ready. What is as it was goes on as it was: upstreams keep their load, their
    /// standing and their connections.
    pub fn new(specs: &[Arc<RouteSpec>], before: Option<&Live>, moment: &Moment) -> Self {
        let places = specs.iter().map(|spec| (spec.host.as_str(), spec.path.as_str()));
        let table = Table::new(places);
        let routes = specs.iter().map(|spec| {
            let old = before.and_then(|live| live.named(&spec.name));
            match old {
                Some(old) if old.spec == *spec => old.clone(),
                _ => Arc::new(Route::new(spec.clone(), old.map(AsRef::as_ref), moment)),
            }
        });
        Live { routes: routes.collect(), table }
    }

    /// The route of this name.
    pub fn named(&self, name: &str) -> Option<&Arc<Route>> {
        self.routes.iter().find(|route| &*route.name == name)
    }
}

impl Route {
    fn new(spec: Arc<RouteSpec>, old: Option<&Route>, moment: &Moment) -> Self {
        let options = guard_options(&spec);
        let upstreams = spec.upstreams.iter().map(|one| {
            let known = old.and_then(|old| {
                let mut all = old.upstreams.iter();
                all.find(|known| *known.address == one.address && known.weight == one.weight)
            });
            match known {
                Some(known) if known.has_rules(&options) => known.clone(),
                _ => Arc::new(Upstream::new(&one.address, one.weight, options)),
            }
        });
        let limits = Limits { ratio: spec.retry.budget, ..Limits::default() };
        let maintenance = spec.maintenance.enabled.then(|| Maintenance {
            status: spec.maintenance.status,
            content_type: spec.maintenance.content_type.as_str().into(),
            body: spec.maintenance.body.as_str().into(),
            retry_after: Some(spec.maintenance.retry_after).filter(|span| !span.is_zero()),
        });
        let times = &spec.timeouts;
        Route {
            name: Arc::from(spec.name.as_str()),
            cut: if spec.strip_prefix && spec.path != "/" { spec.path.len() } else { 0 },
            host: match &spec.host_header {
                HostHeader::Keep => HostField::Keep,
                HostHeader::Upstream => HostField::Upstream,
                HostHeader::Literal(host) => HostField::Fixed(host.as_str().into()),
            },
            timeouts: Timeouts {
                connect: times.connect,
                head: times.head,
                send: times.send,
                idle: times.idle,
                tunnel: times.tunnel,
                total: times.total,
            },
            tries: spec.retry.tries,
            retry: RetryOptions {
                methods: spec.retry.methods.rule(),
                statuses: spec.retry.statuses.clone(),
            },
            budget: Mutex::new(Budget::new(moment.now(), &limits)),
            limits,
            undeposited: AtomicU64::new(0),
            body_max: spec.limits.body_max,
            request_rules: rules(&spec.headers.request),
            response_rules: rules(&spec.headers.response),
            maintenance,
            redirects: spec.tls.as_ref().is_some_and(|tls| tls.redirect),
            rate: spec.limits.rate.as_ref().map(rate),
            logs: spec.log,
            upstreams: upstreams.collect(),
            workers: spec.workers.as_deref().map(Arc::from),
            choice: choose::Rules {
                slow_start: spec.slow_start,
                probes: spec.breaker.probes,
                ..choose::Rules::default()
            },
            turn: AtomicU64::new(0),
            tally: old.map(|old| old.tally.clone()).unwrap_or_default(),
            spec,
        }
    }
}

fn guard_options(spec: &RouteSpec) -> Options {
    let breaker = &spec.breaker;
    Options {
        checks: spec.health.as_ref().map(|one| Checks { rise: one.rise, fall: one.fall }),
        breaker: breaker::Options {
            failures: breaker.failures,
            ratio: breaker.ratio,
            window: breaker.window,
            open: breaker.open,
            open_max: breaker.open_max,
            probes: breaker.probes,
            ..breaker::Options::default()
        },
        slow_start: spec.slow_start,
    }
}

fn rules(edits: &HeaderEdits) -> Rules {
    let pair = |(name, value)| -> (&str, &str) { (name, value) };
    let set = edits.set.iter().map(|(name, value)| pair((name.as_str(), value.as_str())));
    let add = edits.add.iter().map(|(name, value)| pair((name.as_str(), value.as_str())));
    Rules::new(set, add, edits.remove.iter().map(String::as_str))
}

fn rate(rate: &crate::spec::Rate) -> Rate {
    let by = match &rate.by {
        RateBy::Address => By::Address,
        RateBy::Key => By::Key,
        RateBy::Header(name) => By::Field(name.as_str().into()),
    };
    Rate::new(by, rate.burst, rate.per / rate.requests.max(1))
}
