//! What would be different.

use super::*;

fn suppose(body: Value) -> WhatIf {
    WhatIf::parse(&body).unwrap_or_else(|flaws| panic!("{flaws:#?}"))
}

fn compared(fleet: &Fleet, body: Value) -> Value {
    let found = fleet.what_if(&suppose(body)).unwrap_or_else(|flaws| panic!("{flaws:#?}"));
    serde_json::to_value(found).expect("serialises")
}

fn refused(fleet: &Fleet, body: Value) -> Vec<String> {
    let found = WhatIf::parse(&body).and_then(|what_if| fleet.what_if(&what_if).map(|_| ()));
    found.expect_err("refused").iter().map(ToString::to_string).collect()
}

#[test]
fn a_higher_target_promotes_and_the_totals_tell() {
    let found = compared(&fine(&one_server(settled())), json!({"set": {"target_active": 9}}));
    let one = &found["servers"][0];
    let changed: Vec<&Value> =
        one["only_what_if"].as_array().expect("a list").iter().map(|one| &one["id"]).collect();
    assert_eq!(changed, [11, 12], "the budget of a run");
    assert_eq!(one["only_planned"], json!([]));
    let counts = &one["counts"];
    let active = ["before", "after", "what_if"].map(|which| counts[which]["active"].clone());
    assert_eq!(active, [7, 7, 9]);
    assert_eq!(one["gains"][0], json!({"id": 11, "planned": "testing", "what_if": "active"}));
    assert_eq!(one["loses"], json!([]));
    let totals = &found["totals"];
    assert_eq!(totals["below_target"], json!({"before": 0, "after": 0, "what_if": 0}));
    assert_eq!(totals["changes"], json!({"planned": 0, "what_if": 2}));
    assert_eq!(totals["active"], json!({"before": 7, "after": 7, "what_if": 9}));
    assert_eq!((&found["compared"], &totals["differ"]), (&json!(1), &json!(1)));
}

#[test]
fn a_monitor_that_is_not_there_is_replaced_and_one_that_only_could_be_chosen_is_no_difference() {
    let fleet = fine(&one_server(settled()));
    let found = compared(&fleet, json!({"drop_monitors": [3]}));
    let one = &found["servers"][0];
    let lost = json!([{"id": 3, "planned": "active", "what_if": null}]);
    assert_eq!(one["loses"], lost);
    assert_eq!(one["gains"][0], json!({"id": 11, "planned": "testing", "what_if": "active"}));
    let found = compared(&fleet, json!({"drop_monitors": ["24"]}));
    assert_eq!(found["servers"], json!([]));
    assert_eq!(found["totals"]["differ"], 0);
}

#[test]
fn an_account_that_is_not_there_takes_its_monitors_along() {
    let mut monitors = settled();
    for place in [0, 1, 8] {
        monitors[place]["account"] = json!("acme");
    }
    let found = compared(&fine(&one_server(monitors)), json!({"drop_accounts": ["acme"]}));
    let lost: Vec<&Value> = found["servers"][0]["loses"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(lost, [1, 2, 12]);
}

#[test]
fn a_lower_limit_violates_and_a_wider_prefix_too() {
    let mut monitors = settled();
    for place in [0, 1] {
        monitors[place]["account"] = json!("acme");
    }
    let fleet = fine(&one_server(monitors));
    let found = compared(&fleet, json!({"limits": {"acme": 1}}));
    let one = &found["servers"][0];
    assert_eq!(one["violations"], json!({"planned": 0, "what_if": 1}));
    assert_eq!(one["loses"][0], json!({"id": 2, "planned": "active", "what_if": "testing"}));
    // All of the monitors 1 to 15 are in 10.0.0.0/16.
    let found = compared(&fleet, json!({"set": {"diversity_v4": 16}}));
    assert_eq!(found["totals"]["violations"], json!({"planned": 0, "what_if": 11}));
}

#[test]
fn nothing_supposed_is_no_difference() {
    let fleet = fine(&one_server(settled()));
    assert!(suppose(json!({})).is_empty() && suppose(json!({"set": null})).is_empty());
    assert_eq!(compared(&fleet, json!({}))["servers"], json!([]));
    assert_eq!(compared(&fleet, json!({"set": {"target_active": 7}}))["servers"], json!([]));
}

#[test]
fn who_is_unknown_is_refused_with_whoever_was_meant() {
    let mut monitors = settled();
    monitors[0]["account"] = json!("acme");
    monitors[0]["id"] = json!("fra-1");
    let fleet = fine(&one_server(monitors));
    let found = refused(
        &fleet,
        json!({
            "limits": {"acne": 1}, "drop_accounts": ["potato"], "drop_monitors": ["fra-2"],
            "set": {"target_actve": 1},
        }),
    );
    assert_eq!(found[0], "limits is \"acne\"; there is no such account; did you mean acme?");
    assert!(
        found[1].starts_with("drop_accounts is \"potato\"; there is no such account; there are")
    );
    assert_eq!(
        found[2],
        "drop_monitors is \"fra-2\"; there is no such monitor; did you mean fra-1?"
    );
    assert_eq!(
        found[3],
        "set.target_actve is 1; there is no such setting; did you mean target_active?"
    );
}

#[test]
fn what_is_measured_and_when_cannot_be_supposed() {
    let fleet = fine(&one_server(settled()));
    for set in [json!({"look_back": "2d"}), json!({"silent_after_seconds": 60})] {
        let found = refused(&fleet, json!({"set": set}));
        assert!(
            found.len() == 1 && found[0].contains("it says what is measured and when"),
            "{found:?}"
        );
    }
    compared(&fleet, json!({"set": {"recheck_after": "1h"}}));
}

#[test]
fn a_request_that_makes_no_sense_is_refused_with_all_its_flaws() {
    let wrong = json!({
        "sett": {}, "limits": {"a": -1}, "drop_accounts": "a", "drop_monitors": [1, "b", null],
    });
    let flaws = WhatIf::parse(&wrong).expect_err("refused");
    let told: Vec<String> = flaws.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "drop_accounts is \"a\"; it must be a list of ids",
            "drop_monitors[2] is null; it must be an id: a text or a number",
            "limits.a is -1; it must be a whole number from 0",
            "sett is {}; there is no such field; did you mean set?",
        ]
    );
    assert!(WhatIf::parse(&json!([])).is_err());
}

#[test]
fn many_servers_on_many_threads_are_compared_like_one_after_the_other() {
    let servers: Vec<Value> = (0..300)
        .map(|place| {
            let mut monitors = settled();
            monitors[place % 7]["healthy"] = json!(place % 3 > 0);
            monitors[place % 7]["account"] = json!("acme");
            json!({"server": server(&format!("s{place}")), "monitors": monitors})
        })
        .collect();
    let fleet = fine(&json!({"servers": servers}));
    let what_if = suppose(json!({"set": {"target_active": 6}, "drop_accounts": ["acme"]}));
    let found = fleet.what_if(&what_if).expect("fine");
    assert_eq!(found, fleet.what_if(&what_if).expect("fine"));
    let mut totals = Totals::default();
    let mut alone = Vec::new();
    for watched in fleet.servers() {
        let roster = fleet.roster(watched);
        let supposed = what_if.suppose(roster);
        let Ok(supposed) = supposed else { panic!("{supposed:?}") };
        let one = supposed.compare(roster, &watched.server, &watched.assignments, fleet.now());
        totals.add(&one, &supposed, fleet.settings());
        alone.extend((!one.is_empty()).then_some(one));
    }
    assert_eq!((found.servers, found.totals), (alone, totals));
    assert_eq!(found.compared, 300);
}
