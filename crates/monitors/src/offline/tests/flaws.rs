//! What is wrong with a snapshot, with its place.

use super::*;

#[test]
fn every_flaw_is_told_with_its_place_its_value_and_what_would_be_right() {
    let mut monitors = settled();
    monitors[1]["ip"] = json!("10.0.0");
    monitors[2]["server_status"] = json!("retired");
    monitors[3]["global_status"] = json!(7);
    monitors[4]["per_server_limit"] = json!(-1);
    monitors[5]["violation"] = json!("asn");
    monitors[6]["count"] = json!("many");
    monitors[7]["violation_since_hours"] = json!(-2);
    monitors[8]["id"] = json!("");
    let mut snapshot = one_server(monitors);
    snapshot["server"]["ip"] = json!("nowhere");
    let address = "it must be an IPv4 or IPv6 address, such as 192.0.2.7 or 2001:db8::7";
    let id = "it must be a whole number from 0, or a text of 1 to 200 characters";
    let statuses = "it must be candidate, testing, active or paused";
    let globals = "it must be pending, testing, active, paused or deleted";
    let count = "it must be a whole number from 0 to 4294967295";
    let expected = [
        ("monitors[1].ip is \"10.0.0\"", address),
        ("monitors[2].server_status is \"retired\"", statuses),
        ("monitors[3].global_status is 7", globals),
        ("monitors[4].per_server_limit is -1", count),
        ("monitors[5].violation is \"asn\"", "it must be network, account, limit or diversity"),
        ("monitors[6].count is \"many\"", count),
        (
            "monitors[7].violation_since_hours is -2",
            "it must be a number of hours from 0 to 1000000",
        ),
        ("monitors[8].id is \"\"", id),
        ("server.ip is \"nowhere\"", address),
    ];
    assert_eq!(flaws(&snapshot), expected.map(|(what, right)| format!("{what}; {right}")));
}

#[test]
fn every_field_that_must_be_there_is_missed() {
    for (field, right) in [
        ("id", "give the number or the text that names it"),
        ("server_status", "give candidate, testing, active or paused (or new)"),
        ("global_status", "give pending, testing, active, paused or deleted"),
        ("account", "give the id of its account, or null if it has none"),
        ("ip", "give its address, or null if it is not known"),
        ("healthy", "give true or false, or step, or samples"),
        ("count", "give how many samples it has, 0 if none, or samples"),
    ] {
        let servers = [0, 1, 2].map(|place| {
            let mut monitors = settled();
            if place == 1 {
                monitors[3].as_object_mut().expect("an object").remove(field);
            }
            json!({"server": server(&format!("s{place}")), "monitors": monitors})
        });
        let found = flaws(&json!({"servers": servers}));
        assert_eq!(found, [format!("servers[1].monitors[3].{field} is missing; {right}")]);
    }
    let mut monitors = settled();
    for field in ["priority", "rtt_ms"] {
        monitors[0].as_object_mut().expect("an object").remove(field);
    }
    let right = "give a whole number, or rtt_ms, or samples";
    assert_eq!(flaws(&one_server(monitors)), [format!("monitors[0].priority is missing; {right}")]);
    for field in ["id", "account", "ip"] {
        let mut snapshot = one_server(settled());
        snapshot["server"].as_object_mut().expect("an object").remove(field);
        let found = flaws(&snapshot);
        assert!(found.len() == 1 && found[0].starts_with(&format!("server.{field} is missing; ")));
    }
}

#[test]
fn a_snapshot_needs_a_server_and_its_monitors_or_many() {
    let right = "give server with monitors, or servers for many";
    assert_eq!(flaws(&json!({})), [format!("server is missing; {right}")]);
    let right = "give the list of the server's monitors";
    assert_eq!(flaws(&json!({"server": server("a")})), [format!("monitors is missing; {right}")]);
    let both = json!({"server": server("a"), "monitors": [], "servers": []});
    assert_eq!(flaws(&both), ["servers is given; give either server or servers"]);
    let found = flaws(&json!({"servers": [{"server": server("a")}]}));
    let right = "give the list of the server's monitors, or assignments";
    assert_eq!(found, [format!("servers[0].monitors is missing; {right}")]);
    let found = flaws(&json!({"servers": {"a": 1}}));
    assert!(
        found[0].starts_with("servers is an object; it must be a list of servers"),
        "{found:?}"
    );
    let found = flaws(&json!([1, 2]));
    assert!(found[0].starts_with("the snapshot is a list; it must be an object"), "{found:?}");
}

#[test]
fn a_field_nobody_knows_is_refused_with_the_one_that_was_meant() {
    let mut snapshot = one_server(settled());
    snapshot["monitors"][3]["acount"] = json!("acme");
    snapshot["monitors"][4]["colour"] = json!({"deep": ["blue"]});
    snapshot["server"]["adress"] = json!("192.0.2.1");
    snapshot["setings"] = json!({});
    snapshot["settings"] = json!({"target_actve": 9, "subnet_v4": 999});
    let found = flaws(&snapshot);
    assert_eq!(found.len(), 6, "{found:#?}");
    assert_eq!(
        found[0],
        "monitors[3].acount is \"acme\"; there is no such field; did you mean account?"
    );
    assert!(
        found[1].starts_with("monitors[4].colour is an object; there is no such field; there are")
    );
    assert!(
        found[2].starts_with("server.adress is \"192.0.2.1\"; there is no such field"),
        "{found:#?}"
    );
    assert_eq!(found[3], "setings is an object; there is no such field; did you mean settings?");
    let setting = "there is no such setting; did you mean target_active?";
    assert!(found.contains(&format!("settings.target_actve is 9; {setting}")), "{found:#?}");
}

#[test]
fn nobody_is_named_twice() {
    let mut monitors = settled();
    monitors[5]["id"] = json!(2);
    let found = flaws(&one_server(monitors));
    assert_eq!(found, ["monitors[5].id is 2; monitors[1] is the same monitor"]);
    let twice = [0, 1].map(|_| json!({"server": server("a"), "monitors": settled()}));
    let found = flaws(&json!({"servers": twice}));
    assert_eq!(found, ["servers[1].server.id is a; servers[0] has this id already"]);
    let mut snapshot = one_server(settled());
    snapshot["accounts"] = json!([{"id": 7}, {"id": 7}]);
    let right = "another account of the list has this id";
    assert_eq!(flaws(&snapshot), [format!("accounts[1].id is 7; {right}")]);
    let text = r#"{"server": {"id": 1, "id": 2, "account": null, "ip": null}, "monitors": []}"#;
    let refused = Fleet::read(text.as_bytes(), &Map::new()).expect_err("refused");
    assert_eq!(refused.flaws[0].to_string(), "server.id is given twice; give it once");
}

#[test]
fn assignments_and_monitors_say_each_their_own() {
    let describe =
        |id: u64| json!({"id": id, "global_status": "active", "account": null, "ip": null});
    let assign = |id: u64| json!({"id": id, "server_status": "active", "count": 0});
    let mut monitors = [1, 2].map(describe);
    let mut assignments = [1, 2].map(assign);
    let snapshot = |monitors: &[Value], assignments: &[Value]| {
        let one = json!({"server": server("a"), "assignments": assignments});
        json!({"monitors": monitors, "servers": [one]})
    };
    fine(&snapshot(&monitors, &assignments));
    let found = flaws(&snapshot(&monitors[..1], &assignments));
    let right = "no monitor has this id; describe it in monitors";
    assert_eq!(found, [format!("servers[0].assignments[1].id is 2; {right}")]);
    assignments[0]["ip"] = json!("192.0.2.9");
    monitors[1]["server_status"] = json!("active");
    assert_eq!(
        flaws(&snapshot(&monitors, &assignments)),
        [
            "servers[0].assignments[0].ip is given; it belongs to the monitor, in monitors of the \
         snapshot",
            "monitors[1].server_status is given; it depends on the server, so it belongs to its \
         assignments",
        ]
    );
    let twice = [describe(1), describe(1)];
    let found = flaws(&snapshot(&twice, &[assign(1)]));
    assert_eq!(found, ["monitors[1].id is 1; this monitor is described elsewhere already"]);
}

#[test]
fn at_most_twenty_flaws_are_told_and_the_others_counted() {
    let monitors: Vec<Value> = (0..50).map(|_| json!({"id": -1})).collect();
    let refused = read(&one_server(monitors)).expect_err("refused");
    // Of each: the id, and four that are missing.
    assert_eq!((refused.flaws.len(), refused.more), (FLAWS_MAX, 50 * 5 - FLAWS_MAX));
    let lines = refused.lines("fleet.json");
    assert_eq!(lines.len(), FLAWS_MAX + 1);
    assert!(lines.iter().all(|line| line.starts_with("fleet.json: ")), "{lines:#?}");
    assert_eq!(lines[FLAWS_MAX], "fleet.json: 230 more flaws");
}

#[test]
fn what_is_no_json_is_told_with_line_and_column_after_what_is_wrong_before() {
    let text = "{\n  \"server\": {\"id\": -1},\n  \"monitors\": [}\n";
    let refused = Fleet::read(text.as_bytes(), &Map::new()).expect_err("refused");
    let lines = refused.lines("fleet.json");
    assert!(lines[0].starts_with("fleet.json: server.id is -1; "), "{lines:#?}");
    let last = lines.last().expect("a line");
    assert_eq!(last, "fleet.json, line 3, column 16: this is not JSON: expected value");
    for text in ["", "{", "{\"now\": 1} 2", "\u{feff}{}"] {
        let refused = Fleet::read(text.as_bytes(), &Map::new()).expect_err("refused");
        assert!(refused.broken.is_some(), "{text:?}: {refused:?}");
    }
}

#[test]
fn other_parts_are_looked_at_as_closely() {
    let mut snapshot = one_server(settled());
    snapshot["now"] = json!("yesterday");
    snapshot["accounts"] = json!([
        {"id": "a", "flags": {"monitor_per_server_limit": -2, "monitor_enabled": "no"}},
        {"flags": {}},
        {"id": "b", "flags": 7, "name": 7},
    ]);
    snapshot["monitors"][0]["samples"] = json!([{"rtt_ms": 1}, {"at": "soon"}, 5]);
    snapshot["monitors"][1]["challenge"] = json!({"incumbent": 999, "reviews": 2});
    snapshot["monitors"][2]["challenge"] = json!({"incumbent": 7});
    let all = flaws(&snapshot).join("\n");
    for part in [
        "now is \"yesterday\"; it must be a time in milliseconds since 1970",
        "accounts[0].flags.monitor_per_server_limit is -2; it must be a whole number from 0",
        "accounts[0].flags.monitor_enabled is \"no\"; it must be true or false",
        "accounts[1].id is missing",
        "accounts[2].flags is 7; it must be an object of flags",
        "accounts[2].name is 7; it must be a text",
        "monitors[0].samples[0].at is missing; give its time in milliseconds since 1970",
        "monitors[0].samples[1].at is \"soon\"; it must be a time",
        "monitors[0].samples[2] is 5; it must be an object with at, rtt_ms, step",
        "monitors[1].challenge.incumbent is 999; it must be another monitor of this server",
        "monitors[2].challenge is missing; give incumbent, an id, and reviews, a number",
    ] {
        assert!(all.contains(part), "{part}\n{all}");
    }
}

#[test]
fn settings_that_are_set_wrongly_are_no_fault_of_the_file() {
    let Value::Object(set) = json!({"target_actve": 9}) else { unreachable!() };
    let refused = Fleet::read(one_server(settled()).to_string().as_bytes(), &set);
    let lines = refused.expect_err("refused").lines("fleet.json");
    let right = "there is no such setting; did you mean target_active?";
    assert_eq!(lines, [format!("set.target_actve is 9; {right}")]);
}
