//! Of what is the matter with a route: what somebody should look at, and when to say so.

use crate::{Reason, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Something must be so, or not be so any more, for this long before anybody is told.
const STEADY: Duration = Duration::from_secs(5);

/// A certificate is warned about when it ends within this time.
pub const END_SOON: Duration = Duration::from_secs(14 * 24 * 3_600);

/// A route and what is the matter with it.
pub type About = (String, &'static str);

/// What is the matter now.
pub type Matters = BTreeMap<About, Reason>;

/// Alerts that began or ended.
#[derive(Debug)]
pub struct Change {
    /// Of what.
    pub about: About,
    /// Whether it is the matter now.
    pub firing: bool,
    /// Why.
    pub reason: Reason,
}

/// Watches routes.
#[derive(Debug, Default)]
pub struct Watch {
    watched: BTreeMap<About, Watched>,
}

#[derive(Debug)]
struct Watched {
    firing: bool,
    /// Since when it is otherwise than was told.
    otherwise: Option<Time>,
}

impl Watch {
    /// Takes in what is the matter and says what has changed for long enough.
    pub fn observe(&mut self, now: Time, matters: &Matters) -> Vec<Change> {
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
            if now.since(*watched.otherwise.get_or_insert(now)) < STEADY {
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

/// What is the matter with a route that has so many upstreams, of which these are not used.
pub fn upstreams_out(out: &[&str], of: usize) -> Option<Reason> {
    let first = out.first()?;
    let rule = if out.len() == of { "no-upstream-left" } else { "upstreams-not-used" };
    let reason = Reason::new(rule).with("out", out.len() as u64).with("of", of as u64);
    Some(reason.with("first", (*first).to_owned()))
}

/// Whether a certificate ends soon, in milliseconds since 1970; how many are left until then.
pub fn ends_soon(end_ms: i64, now_ms: i64) -> Option<i64> {
    let left = end_ms.saturating_sub(now_ms);
    let soon = i64::try_from(END_SOON.as_millis()).unwrap_or(i64::MAX);
    (left < soon).then_some(left)
}

/// What is the matter with the certificate of a host.
pub fn certificate_ends(host: &str, end_ms: i64, now_ms: i64) -> Option<Reason> {
    let days = ends_soon(end_ms, now_ms)?.max(0) / 86_400_000;
    let days = u64::try_from(days).unwrap_or(0);
    Some(Reason::new("certificate-ends").with("days", days).with("host", host.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;

    fn at(second: u64) -> Time {
        Time::ZERO + Duration::from_secs(second)
    }

    fn out() -> Matters {
        let reason = upstreams_out(&["a:1"], 1).expect("all of them are out");
        Matters::from([(("shop".to_owned(), "upstreams-out"), reason)])
    }

    #[test]
    fn what_lasts_is_told_once_and_its_end_too() {
        let mut watch = Watch::default();
        assert!(watch.observe(at(0), &out()).is_empty());
        assert!(watch.observe(at(4), &out()).is_empty());
        assert!(watch.observe(at(5), &out())[0].firing);
        assert!(watch.observe(at(60), &out()).is_empty());
        let well = Matters::new();
        assert!(watch.observe(at(61), &well).is_empty());
        assert!(watch.observe(at(62), &out()).is_empty(), "it was not over for long");
        assert!(watch.observe(at(63), &well).is_empty());
        assert!(!watch.observe(at(68), &well)[0].firing);
        assert!(watch.watched.is_empty(), "nothing is remembered of it");
    }

    #[test]
    fn what_passes_quickly_is_never_told() {
        let mut watch = Watch::default();
        for second in 0..100 {
            let now = if second % 2 == 0 { out() } else { Matters::new() };
            assert!(watch.observe(at(second), &now).is_empty());
        }
    }

    #[test]
    fn a_certificate_is_warned_about_two_weeks_before_its_end_and_after_it() {
        assert_eq!(certificate_ends("shop", 15 * DAY, 0), None);
        let days = |end, now| Reason::new("certificate-ends").with("days", end).with("host", now);
        let shop = || "shop".to_owned();
        assert_eq!(certificate_ends("shop", 13 * DAY, 0), Some(days(13_u64, shop())));
        assert_eq!(certificate_ends("shop", 0, 3 * DAY), Some(days(0_u64, shop())));
        assert_eq!((ends_soon(0, 3 * DAY), ends_soon(14 * DAY, 0)), (Some(-3 * DAY), None));
    }

    #[test]
    fn nothing_is_the_matter_while_every_upstream_is_used() {
        assert_eq!(upstreams_out(&[], 3), None);
        let some = upstreams_out(&["a:1"], 3).expect("one is out");
        let all = upstreams_out(&["a:1", "b:1", "c:1"], 3).expect("all are out");
        assert_ne!(some, all);
    }
}
