//! What snapshots say, in each of their forms.

use super::*;
use proptest::prelude::*;

#[test]
fn a_settled_server_is_read_and_changes_nothing() {
    let plans = planned(&fine(&one_server(settled())));
    let plan = &plans["plans"][0];
    assert_eq!((&plan["server"], &plan["changes"]), (&json!("ntp-1"), &json!([])));
    assert_eq!(plan["states"].as_array().map(Vec::len), Some(16));
    assert_eq!(plan["states"][0]["reason"], "it is active, as it should be");
    let counts = json!({
        "active": 7, "testing": 5, "candidate": 4, "paused": 0, "globally_active_in_testing": 5,
    });
    assert_eq!(plan["counts"], counts);
    assert_eq!(plans["settings"]["target_active"], 7);
    assert_eq!(plans["totals"]["servers"], 1);
    assert!(plan.get("made_at").is_none(), "nobody said when");
}

#[test]
fn a_monitor_that_must_leave_does_and_everything_says_why() {
    let mut monitors = settled();
    monitors[2]["global_status"] = json!("paused");
    let plans = planned(&fine(&one_server(monitors)));
    assert_eq!(
        changes(&plans, 0),
        ["3 active paused 1", "11 testing active 3", "21 candidate testing 5"]
    );
    assert_eq!(
        plans["plans"][0]["changes"][0]["reason"],
        "blocked: the monitor is globally paused"
    );
    let totals = json!({
        "servers": 1, "changing": 1, "changes": 3, "promotions": 2, "demotions": 0, "blocked": 1,
        "below_target": 0, "emergencies": 0,
    });
    assert_eq!(plans["totals"], totals);
}

#[test]
fn the_parts_of_a_snapshot_may_come_in_any_order() {
    let monitors = Value::from(settled()).to_string();
    let server = server("ntp-1");
    let first = format!(
        r#"{{"now": 1790000000000, "settings": {{"target_active": 8}}, "server": {server},
            "monitors": {monitors}}}"#
    );
    let last = format!(
        r#"{{"monitors": {monitors}, "server": {server},
            "settings": {{"target_active": 8}}, "now": 1790000000000}}"#
    );
    let [first, last] = [first, last].map(|text| {
        planned(
            &Fleet::read(text.as_bytes(), &Map::new()).unwrap_or_else(|error| panic!("{error}")),
        )
    });
    assert_eq!(first, last);
    assert_eq!(changes(&first, 0)[0], "11 testing active 3");
    assert_eq!(first["plans"][0]["made_at"], 1_790_000_000_000_u64);
}

#[test]
fn a_fleet_is_the_same_whether_monitors_are_described_once_or_with_every_server() {
    let of_monitor = ["global_status", "account", "ip"];
    let mut monitors = settled();
    monitors[2]["global_status"] = json!("paused");
    let servers = ["a", "b"];
    let with_each: Vec<Value> =
        servers.iter().map(|id| json!({"server": server(id), "monitors": monitors})).collect();
    let pick = |monitor: &Value, wanted: bool| -> Value {
        let fields = monitor.as_object().expect("an object").iter();
        let kept = fields
            .filter(|(name, _)| *name == "id" || of_monitor.contains(&name.as_str()) == wanted);
        Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    let described: Vec<Value> = monitors.iter().map(|one| pick(one, true)).collect();
    let assigned: Vec<Value> = monitors.iter().map(|one| pick(one, false)).collect();
    let once: Vec<Value> =
        servers.iter().map(|id| json!({"server": server(id), "assignments": assigned})).collect();
    let each = planned(&fine(&json!({"servers": with_each})));
    // Sorted by name, so that the monitors come before those who name them; and the other way.
    let once_first = json!({"monitors": described, "servers": once});
    let once_last =
        format!(r#"{{"servers": {}, "monitors": {}}}"#, Value::from(once), Value::from(described));
    assert_eq!(planned(&fine(&once_first)), each);
    let last = Fleet::read(once_last.as_bytes(), &Map::new()).expect("fine");
    assert_eq!(planned(&last), each);
    assert_eq!(changes(&each, 1)[0], "3 active paused 1");
}

#[test]
fn servers_that_describe_a_monitor_differently_are_each_planned_as_they_say() {
    let mut other = settled();
    other[2]["global_status"] = json!("paused");
    other[3]["ip"] = json!("10.9.9.9");
    let fleet = fine(&json!({"servers": [
        {"server": server("a"), "monitors": settled()},
        {"server": server("b"), "monitors": other},
        {"server": server("c"), "monitors": settled()},
    ]}));
    let plans = planned(&fleet);
    assert_eq!(changes(&plans, 0), Vec::<String>::new());
    assert_eq!(changes(&plans, 1)[0], "3 active paused 1");
    assert_eq!(changes(&plans, 2), Vec::<String>::new());
    assert_eq!(fleet.rosters().len(), 2, "those that agree share one");
}

#[test]
fn ids_are_numbers_or_texts_and_are_told_as_they_were_given() {
    let mut monitors = settled();
    monitors[0]["id"] = json!("fra-1");
    let mut snapshot = one_server(monitors);
    snapshot["server"]["id"] = json!(17);
    let fleet = fine(&snapshot);
    let plans = planned(&fleet);
    assert_eq!(plans["plans"][0]["server"], 17);
    assert_eq!(plans["plans"][0]["states"][0]["id"], "fra-1");
    let found = fleet.explain("17", "fra-1").expect("it is there");
    assert_eq!((found.rank, found.of), (1, 16));
    assert_eq!(fleet.explain("17", "11").expect("it is there").rank, 8);
    let flaw = fleet.explain("17", "fra-2").expect_err("nobody").to_string();
    assert_eq!(flaw, "monitor is \"fra-2\"; there is no such monitor; did you mean fra-1?");
    let flaw = fleet.explain("18", "fra-1").expect_err("nobody").to_string();
    assert_eq!(flaw, "server is \"18\"; there is no such server; there are 17");
}

#[test]
fn samples_come_to_the_same_as_what_they_come_to() {
    let now = 1_790_000_000_000_u64;
    let minute = 60_000;
    let samples: Vec<Value> = (1..=40)
        .map(|place| json!({"at": now - place * 9 * minute, "rtt_ms": 20 + place % 3}))
        .collect();
    let mut of_samples = settled();
    let seen = of_samples[4].as_object_mut().expect("an object");
    for field in ["healthy", "priority", "rtt_ms", "count"] {
        seen.remove(field);
    }
    seen.insert("samples".to_owned(), json!(samples));
    let mut snapshot = one_server(of_samples);
    snapshot["now"] = json!(now);
    let found = fine(&snapshot).explain("ntp-1", "5").expect("it is there").measured;
    assert_eq!((found.is_healthy(), found.priority, found.count), (true, 21, 40));
    assert_eq!(found.step, 1.0);
    // Three timeouts of ten are a mean step of -0.8.
    let mixed: Vec<Value> = (1..=10)
        .map(|place| match place % 10 < 3 {
            true => json!({"at": now - place * minute, "error": "timeout"}),
            false => json!({"at": now - place * minute, "rtt_ms": 20, "offset_ms": -3}),
        })
        .collect();
    snapshot["monitors"][4]["samples"] = json!(mixed);
    let found = fine(&snapshot).explain("ntp-1", "5").expect("it is there");
    assert_eq!(found.cause, "it is unhealthy");
    assert!((found.measured.step - -0.8).abs() < 1e-6, "{}", found.measured.step);
    // What is given wins over the samples.
    snapshot["monitors"][4]["healthy"] = json!(true);
    assert!(fine(&snapshot).explain("ntp-1", "5").expect("there").measured.is_healthy());
    // Those of two days ago are forgotten, and then it is silent.
    snapshot["monitors"][4]["healthy"] = Value::Null;
    snapshot["now"] = json!(now + 2 * 24 * 60 * minute);
    let found = fine(&snapshot).explain("ntp-1", "5").expect("it is there");
    assert_eq!((found.measured.count, &*found.cause), (0, "it was not heard for too long"));
    // Without a time the newest sample is now.
    snapshot.as_object_mut().expect("an object").remove("now");
    let plans = planned(&fine(&snapshot));
    assert_eq!(plans["plans"][0]["made_at"], now - minute);
}

#[test]
fn a_candidate_without_a_sample_is_not_measured_yet() {
    let mut monitors = settled();
    for field in ["healthy", "priority", "rtt_ms"] {
        monitors[12].as_object_mut().expect("an object").remove(field);
    }
    monitors[12]["count"] = json!(0);
    let found = fine(&one_server(monitors)).explain("ntp-1", "21").expect("it is there");
    assert_eq!(found.cause, "it has not measured yet");
}

#[test]
fn priority_and_health_follow_from_round_trip_and_step_where_they_are_not_given() {
    let mut monitors = settled();
    let one = monitors[0].as_object_mut().expect("an object");
    one.remove("healthy");
    one.remove("priority");
    one.insert("rtt_ms".to_owned(), json!(37));
    one.insert("step".to_owned(), json!(0.0));
    let found = fine(&one_server(monitors)).explain("ntp-1", "1").expect("it is there");
    assert_eq!((found.measured.priority, found.measured.is_healthy()), (111, true));
}

#[test]
fn the_flags_of_an_account_hold_for_its_monitors_and_their_own_limit_wins() {
    let mut monitors = settled();
    for place in [0, 1, 2] {
        monitors[place]["account"] = json!("acme");
    }
    monitors[3]["account"] = json!("gone");
    let mut snapshot = one_server(monitors);
    snapshot["accounts"] = json!([
        {"id": "acme", "flags": {"monitors_per_server_limit": 2, "monitor_limit": 9, "vip": 1}},
        {"id": "gone", "name": "Gone", "flags": {"monitor_enabled": false}},
    ]);
    let plans = planned(&fine(&snapshot));
    assert_eq!(changes(&plans, 0)[..2], ["4 active paused 1", "3 active testing 2"]);
    snapshot["accounts"][0]["flags"] = json!({"monitor_per_server_limit": 3});
    assert_eq!(planned(&fine(&snapshot))["plans"][0]["violations"], json!([]));
    for place in [0, 1, 2] {
        snapshot["monitors"][place]["per_server_limit"] = json!(1);
    }
    let violations = &planned(&fine(&snapshot))["plans"][0]["violations"];
    assert_eq!(violations.as_array().map(Vec::len), Some(2), "{violations}");
}

#[test]
fn a_violation_keeps_its_beginning() {
    let mut monitors = settled();
    for place in [0, 1, 2] {
        monitors[place]["account"] = json!("acme");
    }
    monitors[2]["violation"] = json!("limit");
    monitors[2]["violation_since_hours"] = json!(36.5);
    let mut snapshot = one_server(monitors);
    let undated = planned(&fine(&snapshot))["plans"][0]["violations"][0].clone();
    assert_eq!((&undated["since_hours"], undated.get("since")), (&json!(36.5), None));
    let now = 1_790_000_000_000_u64;
    snapshot["now"] = json!(now);
    let dated = &planned(&fine(&snapshot))["plans"][0]["violations"][0];
    assert_eq!(dated["since"], now - 36 * 3_600_000 - 1_800_000);
    assert_eq!((&dated["account"], &dated["grandfathered"]), (&json!("acme"), &json!(true)));
    // Another one begins now.
    snapshot["monitors"][2]["violation"] = json!("diversity");
    let other = &planned(&fine(&snapshot))["plans"][0]["violations"][0];
    assert_eq!((&other["since"], &other["since_hours"]), (&json!(now), &json!(0.0)));
}

#[test]
fn what_a_review_remembered_counts_at_the_next() {
    let mut monitors = settled();
    // Better than the worst by the margin, at three reviews already; the fourth is this one.
    monitors[7]["priority"] = json!(2);
    monitors[6]["priority"] = json!(9);
    monitors[7]["challenge"] = json!({"incumbent": 7, "reviews": 3});
    let plans = planned(&fine(&one_server(monitors.clone())));
    assert_eq!(changes(&plans, 0), ["7 active testing 3", "11 testing active 3"]);
    monitors[7]["challenge"] = json!({"incumbent": 7, "reviews": 1});
    assert_eq!(changes(&planned(&fine(&one_server(monitors.clone()))), 0), Vec::<String>::new());
    // A paused one is looked at again after eight hours.
    monitors[12]["server_status"] = json!("paused");
    monitors[12]["last_check_hours"] = json!(7.5);
    assert_eq!(changes(&planned(&fine(&one_server(monitors.clone()))), 0), Vec::<String>::new());
    monitors[12]["last_check_hours"] = json!(8);
    let plans = planned(&fine(&one_server(monitors)));
    assert_eq!(changes(&plans, 0), ["21 paused candidate recheck"]);
}

#[test]
fn settings_that_are_set_win_over_those_of_the_snapshot() {
    let mut snapshot = one_server(settled());
    snapshot["settings"] = json!({"target_active": 8, "budget": 1});
    let Value::Object(set) = json!({"target_active": 9}) else { unreachable!() };
    let fleet = Fleet::read(snapshot.to_string().as_bytes(), &set).expect("fine");
    assert_eq!((fleet.settings().target_active, fleet.settings().budget), (9, 1));
}

#[test]
fn the_same_snapshot_gives_the_same_bytes() {
    let servers: Vec<Value> = (0..20)
        .map(|place| {
            let mut monitors = settled();
            monitors[place % 7]["healthy"] = json!(false);
            json!({"server": server(&format!("s{place}")), "monitors": monitors})
        })
        .collect();
    let text = json!({"servers": servers}).to_string();
    let bytes = || {
        let fleet = Fleet::read(text.as_bytes(), &Map::new()).expect("fine");
        serde_json::to_vec(&Plans::all(&fleet)).expect("serialises")
    };
    assert_eq!(bytes(), bytes());
}

proptest! {
    #[test]
    fn no_document_makes_it_panic(cut in 0_usize..3_000, byte: u8, at in 0_usize..3_000) {
        let mut text = one_server(settled()).to_string().into_bytes();
        let at = at % text.len();
        text[at] = byte;
        let _ = Fleet::read(&text, &Map::new());
        text.truncate(cut % text.len());
        prop_assert!(Fleet::read(&text, &Map::new()).is_err());
    }
}
