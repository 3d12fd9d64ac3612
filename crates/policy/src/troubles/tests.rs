//! What is a trouble, what is not, and how it is said.

use super::*;

const NOW: i64 = 1_800_000_000_000;

fn group(queue: &str, behind_ms: i64, leased: u64) -> Fact {
    Fact::Group {
        queue: queue.into(),
        group: "mail".into(),
        pending: 12,
        oldest_ms: Some(NOW - behind_ms),
        leased,
    }
}

fn workers(live: u64, missing: u64, free: u64, waiting: u64) -> Fact {
    Fact::Workers { kind: "chromium".into(), live, missing, free, waiting }
}

fn alert(about: &str, alert: &str, reason: &str) -> Fact {
    let (about, alert, reason) = (about.into(), alert.into(), reason.into());
    Fact::Alert { about, alert, since_ms: NOW - 5, reason }
}

/// The only trouble that this fact is, as severity and text.
fn only(fact: Fact) -> Option<(Severity, String)> {
    let mut found = troubles(&[fact], NOW);
    assert!(found.len() <= 1, "{found:?}");
    found.pop().map(|one| (one.severity, one.text))
}

fn bad(text: &str) -> Option<(Severity, String)> {
    Some((Severity::Bad, text.to_owned()))
}

fn warn(text: &str) -> Option<(Severity, String)> {
    Some((Severity::Warn, text.to_owned()))
}

#[test]
fn an_installation_that_is_well_has_no_troubles() {
    let node = |name: &str| Fact::Node {
        node: name.into(),
        alive: true,
        draining: false,
        heard_ms_ago: 400,
    };
    let facts = [
        Fact::Store { store: "postgres".into(), error: None },
        Fact::Certificate { ends_ms: NOW + ENDS_SOON_MS },
        Fact::Standing { standing: "inside".into() },
        node("node-1"),
        node("node-2"),
        Fact::Breaker { node: "node-2".into(), breaker: "closed".into() },
        group("orders", LAG_MS - 1, 0),
        Fact::Dead { queue: "orders".into(), dead: 0, lately: 0, since_ms: None },
        Fact::Endpoint {
            endpoint: "shop".into(),
            failures: 0,
            since_ms: None,
            verdict: "ok".into(),
        },
        Fact::Servers { below: 0, of: 9, since_ms: None },
        workers(6, 0, 4, 0),
        workers(0, 0, 0, 0),
        workers(2, 0, 1, 1),
        Fact::Route { route: "shop".into(), requests: 100, errors: 4 },
        Fact::Route { route: "quiet".into(), requests: 19, errors: 19 },
    ];
    assert_eq!(troubles(&facts, NOW), []);
}

#[test]
fn each_trouble_is_one_sentence_and_as_bad_as_it_is() {
    let store = Fact::Store { store: "redis".into(), error: Some("connection refused".into()) };
    assert_eq!(only(store), bad("The store redis does not answer: connection refused"));
    for (left, expected) in [
        (-1, bad("The certificate of this node has ended")),
        (3_600_000, bad("The certificate of this node ends within a day")),
        (ENDS_NOW_MS, warn("The certificate of this node ends in 3 days")),
        (ENDS_SOON_MS, None),
    ] {
        assert_eq!(only(Fact::Certificate { ends_ms: NOW + left }), expected, "{left}");
    }
    let standing = Fact::Standing { standing: "outside".into() };
    assert_eq!(
        only(standing),
        bad("This node is not among the others (outside), so it owns nothing")
    );
    let breaker = |breaker: &str| Fact::Breaker { node: "b".into(), breaker: breaker.into() };
    assert_eq!(only(breaker("open")), bad("This node sends no requests to b: its breaker is open"));
    assert_eq!(only(breaker("half-open")), warn("This node tries whether b is well again"));
    let servers = |below| Fact::Servers { below, of: 3, since_ms: None };
    assert_eq!(only(servers(1)), warn("1 of 3 servers has too few active monitors"));
    assert_eq!(only(servers(3)), bad("3 of 3 servers have too few active monitors"));
    let route = |errors| Fact::Route { route: "shop".into(), requests: 100, errors };
    assert_eq!(only(route(5)), warn("The route shop answered 5 of 100 requests with a 5xx"));
    assert_eq!(only(route(50)), bad("The route shop answered 50 of 100 requests with a 5xx"));
    let endpoint = |failures| Fact::Endpoint {
        endpoint: "db".into(),
        failures,
        since_ms: Some(NOW),
        verdict: "refused".into(),
    };
    assert_eq!(only(endpoint(1)), warn("The endpoint db failed: refused"));
    assert_eq!(only(endpoint(3)), bad("The endpoint db failed 3 times in a row: refused"));
}

#[test]
fn a_lag_is_bad_when_it_is_long_and_nobody_works_on_it() {
    let text = "In orders, mail is 1 minute behind: 12 messages are left";
    assert_eq!(only(group("orders", LAG_MS, 2)), warn(text));
    let text = "In orders, mail is 2 hours behind: 12 messages are left";
    assert_eq!(only(group("orders", 2 * LAG_DEAD_MS, 1)), warn(text));
    let text = format!("{text}, and nobody works on it");
    assert_eq!(only(group("orders", 2 * LAG_DEAD_MS, 0)), bad(&text));
    let nothing_left = Fact::Group {
        queue: "orders".into(),
        group: "mail".into(),
        pending: 0,
        oldest_ms: Some(0),
        leased: 0,
    };
    assert_eq!(only(nothing_left), None);
}

#[test]
fn dead_letters_that_grow_are_worse_than_dead_letters_that_wait() {
    let dead = |dead, lately| Fact::Dead { queue: "mails".into(), dead, lately, since_ms: None };
    assert_eq!(only(dead(20, 0)), warn("20 dead letters of mails wait for somebody"));
    assert_eq!(
        only(dead(20, 1)),
        bad("1 message of mails was given up in the last ten minutes, 20 in all")
    );
}

#[test]
fn workers_are_a_trouble_when_they_are_missing_or_waited_for() {
    assert_eq!(only(workers(5, 1, 3, 0)), warn("1 of 6 workers of the kind chromium is missing"));
    assert_eq!(
        only(workers(5, 0, 0, 2)),
        warn("2 sessions wait for a worker of the kind chromium")
    );
    assert_eq!(only(workers(0, 3, 0, 0)), bad("No worker of the kind chromium is left"));
    assert_eq!(
        only(workers(0, 0, 0, 2)),
        bad("No worker of the kind chromium is left; 2 sessions wait")
    );
}

#[test]
fn an_alert_without_a_way_out_is_bad() {
    let left = alert("routes:shop", "upstreams-out", "no-upstream-left: out 1, of 1");
    assert_eq!(only(left), bad("The route shop has no upstream left"));
    let some = alert("routes:shop", "upstreams-out", "upstreams-not-used: out 1, of 2");
    assert_eq!(only(some), warn("The route shop has upstreams that are not used"));
    let full = alert("critical", "queue-depth", "depth");
    assert_eq!(only(full), bad("The queue of the pool critical is nearly full"));
    let unknown = alert("sessions:chromium", "new-kind", "x");
    assert_eq!(only(unknown), warn("sessions chromium: new-kind"));
}

#[test]
fn the_worst_comes_first_and_then_what_began_last() {
    let gone = |node: &str, ago| Fact::Node {
        node: node.into(),
        alive: false,
        draining: false,
        heard_ms_ago: ago,
    };
    let facts = [
        group("orders", LAG_MS, 1),
        gone("old", 60_000),
        gone("new", 4_000),
        alert("low", "crashes", ""),
    ];
    let found = troubles(&facts, NOW);
    let order: Vec<_> = found.iter().map(|one| one.about.as_deref()).collect();
    assert_eq!(order, [Some("new"), Some("old"), Some("low"), Some("orders")]);
    assert_eq!(found[0].since_ms, Some(NOW - 4_000));
    assert_eq!(found[3].within.as_deref(), Some("mail"));
}

#[test]
fn many_of_a_kind_are_one_line_and_the_others_keep_theirs() {
    let endpoint = |number: usize, failures| Fact::Endpoint {
        endpoint: format!("e{number}"),
        failures,
        since_ms: Some(NOW - number as i64),
        verdict: "refused".into(),
    };
    let mut facts: Vec<Fact> = (0..=ALONE_MAX).map(|number| endpoint(number, 5)).collect();
    facts.push(endpoint(9, 1));
    let found = troubles(&facts, NOW);
    let said: Vec<_> = found.iter().map(|one| (one.count, &*one.text)).collect();
    assert_eq!(
        said,
        [(4, "4 endpoints fail again and again"), (1, "The endpoint e9 failed: refused")]
    );
    assert_eq!((found[0].about.as_deref(), found[0].since_ms), (None, Some(NOW - 3)));
    facts.remove(0);
    assert_eq!(troubles(&facts, NOW).len(), 4);
}

#[test]
fn failed_tasks_of_pools_are_not_counted_among_dead_letters_of_queues() {
    let reason = "dead-letters-grew: dead_letters 1";
    let pools = ["critical", "high", "normal", "low"];
    let mut facts = pools.map(|pool| alert(pool, "dead-letters", reason)).to_vec();
    facts.push(Fact::Dead { queue: "critical".into(), dead: 2, lately: 0, since_ms: None });
    let found = troubles(&facts, NOW);
    let said: Vec<_> = found.iter().map(|one| (&*one.kind, one.count, &*one.text)).collect();
    assert_eq!(
        said,
        [
            ("tasks-failed", 4, "Tasks of 4 pools have failed for good"),
            ("dead-letters", 1, "2 dead letters of critical wait for somebody"),
        ]
    );
}

#[test]
fn a_trouble_is_remembered_until_it_is_over() {
    let store = Fact::Store { store: "redis".into(), error: Some("gone".into()) };
    let mut memory = Memory::default();
    let mut look = |facts: &[Fact], now| {
        let mut found = troubles(facts, now);
        memory.stamp(&mut found, now);
        found.iter().map(|one| (one.since_ms, one.seen_ms)).collect::<Vec<_>>()
    };
    let away = std::slice::from_ref(&store);
    assert_eq!(look(away, NOW), [(None, Some(NOW))]);
    assert_eq!(look(away, NOW + 7_000), [(None, Some(NOW))]);
    assert_eq!(look(&[], NOW + 8_000), []);
    assert_eq!(look(away, NOW + 9_000), [(None, Some(NOW + 9_000))]);
}
