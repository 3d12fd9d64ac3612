//! What somebody should look at: upstreams that are not used, and certificates that end.

use skep_policy::Reason;
use skep_routes::RouteView;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Something must be so, or not be so any more, for this long before anybody is told.
const STEADY: Duration = Duration::from_secs(5);

/// A certificate is warned about when it ends within this time.
const END_SOON_MS: i64 = 14 * 24 * 3_600 * 1_000;

/// A route and what is the matter with it.
pub type About = (String, &'static str);

/// What is the matter now.
pub type Matters = BTreeMap<About, Reason>;

/// Alerts that began or ended.
#[derive(Debug)]
pub struct Change {
    pub about: About,
    pub firing: bool,
    pub reason: Reason,
}

/// Watches routes.
#[derive(Default)]
pub struct Watch {
    watched: BTreeMap<About, Watched>,
}

struct Watched {
    firing: bool,
    /// Since when it is otherwise than was told.
    otherwise: Option<Instant>,
}

impl Watch {
    /// Takes in what is the matter and says what has changed for long enough.
    pub fn observe(&mut self, now: Instant, matters: &Matters) -> Vec<Change> {
        for about in matters.keys() {
            let new = Watched { firing: false, otherwise: None };
            self.watched.entry(about.clone()).or_insert(new);
        }
        let mut changes = Vec::new();
        self.watched.retain(|about, watched| {
            let reason = matters.get(about);
            if reason.is_some() == watched.firing {
                watched.otherwise = None;
                return watched.firing;
            }
            if now.duration_since(*watched.otherwise.get_or_insert(now)) < STEADY {
                return true;
            }
            watched.firing = reason.is_some();
            watched.otherwise = None;
            let reason = reason.cloned().unwrap_or(Reason::new("well-again"));
            changes.push(Change { about: about.clone(), firing: watched.firing, reason });
            watched.firing
        });
        changes
    }
}

/// What is the matter with these routes. `ends` says when the certificate of a route ends.
pub fn matters(
    routes: &[RouteView],
    ends: impl Fn(&RouteView) -> Option<i64>,
    now_ms: i64,
) -> Matters {
    let mut matters = Matters::new();
    for route in routes {
        let away = |one: &&skep_routes::UpstreamView| matches!(one.standing, "out" | "down");
        let out: Vec<_> = route.upstreams.iter().filter(away).collect();
        if let Some(first) = out.first() {
            let rule = if out.len() == route.upstreams.len() {
                "no-upstream-left"
            } else {
                "upstreams-not-used"
            };
            let reason = Reason::new(rule)
                .with("out", out.len() as u64)
                .with("of", route.upstreams.len() as u64)
                .with("first", first.address.clone());
            matters.insert((route.name.clone(), "upstreams-out"), reason);
        }
        if let Some(end) = ends(route).filter(|end| *end < now_ms + END_SOON_MS) {
            let days = end.saturating_sub(now_ms).max(0) / 86_400_000;
            let reason = Reason::new("certificate-ends")
                .with("days", u64::try_from(days).unwrap_or(0))
                .with("host", route.host.clone());
            matters.insert((route.name.clone(), "certificate-ends"), reason);
        }
    }
    matters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn out() -> Matters {
        Matters::from([(("shop".to_owned(), "upstreams-out"), Reason::new("no-upstream-left"))])
    }

    #[test]
    fn what_lasts_is_told_once_and_its_end_too() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        assert!(watch.observe(at(start, 0), &out()).is_empty());
        assert!(watch.observe(at(start, 4), &out()).is_empty());
        assert!(watch.observe(at(start, 5), &out())[0].firing);
        assert!(watch.observe(at(start, 60), &out()).is_empty());
        let well = Matters::new();
        assert!(watch.observe(at(start, 61), &well).is_empty());
        assert!(watch.observe(at(start, 62), &out()).is_empty(), "it was not over for long");
        assert!(watch.observe(at(start, 63), &well).is_empty());
        assert!(!watch.observe(at(start, 68), &well)[0].firing);
        assert!(watch.watched.is_empty(), "nothing is remembered of it");
    }

    #[test]
    fn what_passes_quickly_is_never_told() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        for second in 0..100 {
            let now = if second % 2 == 0 { out() } else { Matters::new() };
            assert!(watch.observe(at(start, second), &now).is_empty());
        }
    }
}
