//! What would make a decision come out otherwise, in words, by the rule that made it.
//!
//! A rule that is not known here has no words: an older or newer node may have made the decision,
//! and saying nothing is better than guessing.

/// Another worker for a session, or one at all.
pub fn session(rule: &str) -> &'static str {
    match rule {
        "least-loaded-then-highest-lifetime" => {
            "a worker that fits with less to do; or with the same, and more sessions behind it"
        }
        "only-due-workers-free" => "a worker that fits, has a free slot and is not nearly worn out",
        "highest-lifetime" => "a worker that fits with more sessions behind it, below the margin",
        "highest-lifetime-within-margin" => {
            "a worker that fits, is below the margin and has a free slot"
        }
        "least-loaded" => "a worker that fits with less to do",
        "nobody-free" | "busy" => {
            "a free slot: a session that ends, more slots, or one more worker of this kind"
        }
        "line-full" => "a free slot, or a higher `sessions.waiting_max`",
        "waited-too-long" => "a free slot in time, or a client that waits longer",
        "no-workers" => "a worker of this kind: `skep worker --kind KIND -- PROGRAM`",
        "no-match" => "a worker with these labels and this version, or a session that wants less",
        "key-limit" => "a session of this key that ends, or a higher `sessions.per_key_max`",
        "draining" => "another node: this one stops",
        "table-away" => "the store of `coordination`, once it answers again",
        "ended" => "nothing: somebody ended it",
        _ => "",
    }
}

/// Whether a worker gets sessions, by where it stands.
pub fn worker(standing: &str) -> &'static str {
    match standing {
        "ready" => "its slots fill up, its life ends, or an operator drains it",
        "due" => "it is recycled as soon as the budget of its kind lets it",
        "full" => "one of its sessions ends",
        "held" => "another worker of its kind comes back, or a higher `sessions.budget`",
        "draining" | "restarting" => "it is back once its program is started anew",
        "drained" => "`skep workers undrain` lets it have sessions again",
        "suspect" => "it answers again",
        "down" => "its supervisor starts its program again",
        "lost" => "its supervisor speaks to a node again",
        "removed" => "it registers anew",
        _ => "",
    }
}

/// Another owner of an endpoint.
pub fn poll(rule: &str) -> &'static str {
    match rule {
        "unowned" => "the owner stops, is cut off from the store, or has more than its share",
        "unowned-overflow" => "a node that the endpoint ranks higher has room again",
        "unowned-under-floor" | "under-floor" => "the owner has more than its share",
        "draining" => "nothing: who stops gives everything away",
        "over-cap" => "the owner before has room again",
        "handed-over" | "found-ours" | "still-ours" => {
            "nodes that come or go, or endpoints with another weight"
        }
        "paused" => "`skep polls resume` lets it be polled",
        _ => "",
    }
}

/// Another node for the requests with a key.
pub fn key(rule: &str) -> &'static str {
    match rule {
        "alone" => "a second node with the same database",
        "nobody-left" => "another node that is heard of, does not stop and whose breaker is closed",
        "owner" => "its owner stops, fails, or has far more to do than the mean; or the key moves",
        "moved" => {
            "300 s without use, after which the move is forgotten; or its node stops or has too \
             much to do"
        }
        "overflow-here" => "its owner has room again, or another node has clearly less to do",
        "overflow-next" => "its owner has room again",
        "owner-least-loaded" => "any node that has room again",
        "consumers-here" => "the consumers of the queue leave this node",
        "consumers-there" => "a consumer of the queue on this node",
        "no-consumers" => "a consumer of the queue on any node",
        "consumers-overloaded" => "a node with consumers that has room again",
        "here-draining" => "nothing: this node stops",
        _ => "",
    }
}

/// Where a key that was moved is served.
pub const MOVED: &str = "its new node is busy too, or the key is not used for 300 s";

/// Why a node gets requests of others or none, as another one sees it.
pub fn node_rule(alive: bool, draining: bool, breaker: &str) -> &'static str {
    match (alive, draining, breaker) {
        (false, ..) => "dead",
        (true, true, _) => "draining",
        (true, false, "open") => "breaker-open",
        (true, false, "half-open") => "half-open",
        (true, false, _) => "healthy",
    }
}

/// Whether a node gets requests of others, by [`node_rule`].
pub fn node(rule: &str) -> &'static str {
    match rule {
        "dead" => "it is heard of again",
        "draining" => "it is started again",
        "breaker-open" => "its breaker lets one through, and that succeeds",
        "half-open" => "the one request that it gets succeeds",
        "healthy" => "it has too much to do, stops, or fails",
        _ => "",
    }
}

/// How many workers a pool has.
pub fn pool(rule: &str, pool: &str) -> String {
    match rule {
        "below-minimum" => format!("a lower `pools.{pool}.min`: so many there must always be"),
        "queue-over-scale-up" => {
            format!("fewer tasks for each worker, or a higher `pools.{pool}.scale_up_ratio`")
        }
        "queue-under-scale-down" => {
            format!("more tasks for each worker, or a lower `pools.{pool}.scale_down_ratio`")
        }
        "at-maximum" => format!("a higher `pools.{pool}.max`"),
        "at-minimum" => format!("a lower `pools.{pool}.min`"),
        _ => "more tasks that wait, or fewer".to_owned(),
    }
}

/// A task that counts as stuck.
pub const TASK: &str = "it ends, or a longer time for tasks of its kind";

/// A task that was given up.
pub fn dead(id: &str, retryable: bool) -> String {
    match retryable {
        true => format!("`skep pools dead retry {id}` tries it again"),
        false => "nothing: neither its payload nor its code is there any more".to_owned(),
    }
}

/// A message that was set aside.
pub fn letter(id: &str, queue: &str) -> String {
    format!(
        "`skep dlq retry {id}` pushes it again; so that fewer are set aside, a higher retryLimit: \
         `skep queues set {queue} --set retryLimit=…`"
    )
}

/// Dead letters on their way back.
pub fn redrive(state: &str, id: &str, queue: &str) -> String {
    match state {
        "running" => format!("`skep dlq redrives --stop {id}` stops it"),
        _ => format!("another one: `skep dlq retry --queue {queue}`"),
    }
}

/// What became of a message.
pub fn message(status: &str) -> &'static str {
    match status {
        "completed" => "`skep messages retry` pushes it again",
        "processing" => "its consumer settles it, or its lease runs out",
        "pending" => "a pop of its queue; what is before it in its partition comes first",
        _ => "",
    }
}

/// Another route for a request, or another upstream of it.
pub fn route(rule: &str) -> &'static str {
    match rule {
        "exact-host" => "a route for the same host with a longer prefix of the path",
        "wildcard-host" => "a route for just this host, or with a longer prefix of the path",
        "any-host" => "a route for this host, or for a * above it",
        "no-route" => "a route for its host and path: `skep routes add`",
        "redirect" => "the request comes over TLS",
        "maintenance" => "the route is opened again",
        "busy" | "nobody-has-room" => "an upstream that is well and has room",
        "workers" => "another kind of workers in the route",
        "no-upstreams" => "an upstream in the route",
        "least-loaded" => "an upstream with less to do for its weight, or one that goes out",
        "trials-turn" => "the next requests go to upstreams that serve as usual",
        "only-trials-left" => "an upstream that serves as usual",
        "tried-before" => "an upstream that was not tried yet",
        "last-resort" => "an upstream that is well: all that were not tried are out or down",
        _ => "",
    }
}

/// Something that happened to a route, by its kind.
pub fn event(kind: &str) -> &'static str {
    match kind {
        "breaker" | "health" => "answers that are well again, or failures again",
        "rate-limited" => "fewer requests, or a higher limit in the route",
        "refused" => "room: fewer requests at once, or higher limits in the route",
        "error" => "an upstream that answers",
        "certificate" => "a certificate that is renewed in time",
        _ => "",
    }
}

/// Another answer to a request.
pub fn request(status: i64, error: &str) -> &'static str {
    match (error, status) {
        ("", ..400) => "",
        ("", 400..500) => "another request: the answer's code says what was wrong with it",
        ("", _) => "what the answer's code says: `skep explain E_…`",
        _ => "an upstream that answers in time",
    }
}

/// Which monitors watch a server, where the next review would change nothing.
pub const SERVER: &str = "other measurements, monitors that come or go, or other settings";

/// A change of what a monitor is to a server, which is over.
pub fn change(server: &str, monitor: &str) -> String {
    format!("`skep explain monitor:{server}/{monitor}` says what would change it now")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster;
    use crate::ownership::placement::Why;
    use crate::routes::choose;
    use crate::sessions::Standing;

    /// Every word is known, and none says the same as if it was not.
    fn all_known<'rule>(
        rules: impl IntoIterator<Item = &'rule str>,
        words: impl Fn(&str) -> String,
    ) {
        let unknown = words("of-another-age");
        for rule in rules {
            let said = words(rule);
            assert!(said != unknown, "{rule} has no words of its own");
            let last = said.chars().last();
            assert!(last.is_some_and(|last| last != '.'), "{rule}: {said:?} is no part of a list");
        }
    }

    #[test]
    fn every_rule_of_a_policy_says_what_would_change_it() {
        all_known(cluster::Rule::ALL.iter().map(|rule| rule.as_str()), |rule| key(rule).to_owned());
        all_known(Standing::ALL.iter().map(|standing| standing.name()), |rule| {
            worker(rule).to_owned()
        });
        let moves = [
            Why::Unowned,
            Why::UnownedOverflow,
            Why::UnownedUnderFloor,
            Why::Draining,
            Why::OverCap,
            Why::UnderFloor,
        ];
        all_known(moves.iter().map(|why| why.rule()), |rule| poll(rule).to_owned());
        let picks = [
            choose::Rule::LeastLoaded,
            choose::Rule::TrialsTurn,
            choose::Rule::OnlyTrialsLeft,
            choose::Rule::TriedBefore,
            choose::Rule::LastResort,
        ];
        all_known(picks.iter().map(|rule| rule.as_str()), |rule| route(rule).to_owned());
        let seats = [
            "least-loaded-then-highest-lifetime",
            "only-due-workers-free",
            "highest-lifetime",
            "highest-lifetime-within-margin",
            "least-loaded",
            "nobody-free",
        ];
        all_known(seats, |rule| session(rule).to_owned());
        let scales = [
            "below-minimum",
            "queue-over-scale-up",
            "queue-under-scale-down",
            "at-maximum",
            "at-minimum",
        ];
        all_known(scales, |rule| pool(rule, "high"));
    }

    #[test]
    fn what_would_change_a_pool_names_its_own_settings() {
        assert_eq!(pool("at-maximum", "high"), "a higher `pools.high.max`");
        assert!(pool("below-minimum", "low").contains("`pools.low.min`"));
    }

    #[test]
    fn a_node_is_told_of_by_the_first_thing_that_keeps_requests_away() {
        assert_eq!(node_rule(false, true, "open"), "dead");
        assert_eq!(node_rule(true, true, "open"), "draining");
        assert_eq!(node_rule(true, false, "open"), "breaker-open");
        assert_eq!(node_rule(true, false, "half-open"), "half-open");
        assert_eq!(node_rule(true, false, "closed"), "healthy");
        let rules = ["dead", "draining", "breaker-open", "half-open", "healthy"];
        all_known(rules, |rule| node(rule).to_owned());
    }

    #[test]
    fn what_went_well_needs_no_change() {
        assert_eq!(request(200, ""), "");
        assert!(request(404, "").contains("another request"));
        assert!(request(502, "").contains("skep explain"));
        assert!(request(502, "slow").contains("in time"));
    }
}
