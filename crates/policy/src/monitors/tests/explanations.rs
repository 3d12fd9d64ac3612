//! Words and JSON.

use super::*;
use serde_json::json;

fn explained(case: &Case, id: u64) -> Explanation {
    let (roster, plan) = (case.roster(), case.plan());
    let place = case.place(id) as u32;
    explain(&roster, &case.server, &case.assignments, &plan, place).expect("is assigned")
}

#[test]
fn an_explanation_names_rank_state_cause_and_what_would_change_it() {
    let mut case = settled().with(Status::Candidate, [21]).in_network(3, [21]);
    let found = explained(&case, 21);
    assert_eq!((found.rank, found.of, found.state), (13, 13, State::In));
    assert_eq!(found.reason, "monitor 3 of the same network watches this server");
    assert_eq!(found.would_change, "monitor 3 leaving");
    case.assignment(21).measured.count = 4;
    assert_eq!(explained(&case, 21).would_change, "5 more samples");
}

#[test]
fn an_explanation_of_a_change_names_rule_and_cause() {
    let case = settled().in_network(3, [6]);
    let found = explained(&case, 6);
    assert_eq!(found.rule, Some(Rule::Remove));
    assert_eq!(found.reason, "gradual removal: monitor 3 of the same /20 ranks better");
    assert_eq!((found.status, found.becomes), (Status::Active, Status::Testing));
}

#[test]
fn every_monitor_has_a_reason_in_words() {
    let case = settled()
        .with(Status::Candidate, 21..=28)
        .with(Status::Paused, [31])
        .measured([22, 3], ill(4))
        .globally(GlobalStatus::Pending, [23])
        .globally(GlobalStatus::Paused, [24, 31])
        .of_account(9, 1, [1, 2, 25])
        .in_network(12, [26]);
    for verdict in &case.plan().verdicts {
        let found = explained(&case, case.id(verdict.monitor));
        assert!(!found.reason.is_empty() && !found.would_change.is_empty(), "{found:?}");
    }
}

#[test]
fn who_is_not_assigned_has_no_explanation() {
    let case = settled();
    let (roster, plan) = (case.roster(), case.plan());
    assert_eq!(explain(&roster, &case.server, &case.assignments, &plan, 99), None);
}

#[test]
fn a_plan_is_shown_with_changes_states_violations_and_counts() {
    let case = settled().of_account(9, 1, [1, 2]);
    let view = case.plan().view(&case.roster(), &case.server);
    let json = serde_json::to_value(view).expect("serialises");
    let change = json!({
        "id": 2, "from": "active", "to": "testing", "rule": "2",
        "reason": "gradual removal: account 9 has more than its 1 active or 2 active and testing \
                   on this server, and better ones than this",
    });
    assert_eq!(json["changes"][0], change);
    assert_eq!(json["states"][1]["state"], "out");
    assert_eq!(json["violations"][0]["kind"], "limit");
    assert_eq!(json["violations"][0]["account"], 9);
    assert_eq!(json["violations"][0]["grandfathered"], true);
    assert_eq!(json["violations"][0]["since"], case.now.as_millis(), "in milliseconds");
    assert_eq!(json["counts"]["active"], 7);
    assert_eq!(json["budget"]["each"], 2);
}
