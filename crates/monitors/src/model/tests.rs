//! What people write, right and wrong.

use super::*;
use serde_json::{Value, json};
use skep_policy::monitors::{GlobalStatus, Kind, Status};

fn said<T: std::fmt::Debug>(read: Result<T, Vec<Problem>>) -> Vec<String> {
    read.expect_err("is refused").iter().map(ToString::to_string).collect()
}

#[test]
fn an_account_has_flags_and_keeps_those_of_others() {
    let body = json!({ "id": "bees", "name": "The Bees",
        "flags": { "monitor_limit": 3, "monitors_per_server_limit": 1, "beta": [1, 2] } });
    let account = NewAccount::parse(&body).unwrap();
    assert_eq!(account.flags.monitor_limit, Some(3));
    assert_eq!(account.flags.monitor_per_server_limit, Some(1), "the alias counts");
    assert!(account.flags.monitor_enabled);
    let written = serde_json::to_value(&account.flags).unwrap();
    let expected = json!({ "monitor_limit": 3, "monitor_per_server_limit": 1,
        "monitor_enabled": true, "beta": [1, 2] });
    assert_eq!(written, expected);
    assert_eq!(Flags::read_stored(&written.to_string()), account.flags);
    let bare = NewAccount::parse(&json!({ "id": 17 })).unwrap();
    assert_eq!((bare.id.as_str(), bare.flags), ("17", Flags::default()));
}

#[test]
fn everything_that_is_wrong_with_an_account_is_told_at_once() {
    let body = json!({ "id": "-x", "nane": "y", "name": "", "flags": {
        "monitor_limit": -1, "monitor_per_server_limit": 2, "monitors_per_server_limit": 1.5,
        "monitor_enabled": "yes" } });
    let expected = [
        "nane is not a known field; did you mean name?",
        "id: \"-x\" is not allowed; give 1 to 64 letters, digits and any of . _ : - that begin \
         with a letter or digit",
        "name: \"\" is not allowed; give a text of 1 to 200 characters",
        "flags.monitor_limit: -1 is not allowed; give a whole number from 0 to 1000000",
        "flags.monitors_per_server_limit: 1.5 is not allowed; give a whole number from 0 to \
         1000000",
        "flags.monitor_enabled: \"yes\" is not allowed; give true or false",
    ];
    assert_eq!(said(NewAccount::parse(&body)), expected);
    let both = json!({ "id": "a", "flags": {
        "monitor_per_server_limit": 2, "monitors_per_server_limit": 3 } });
    assert_eq!(said(NewAccount::parse(&both)).len(), 1);
    assert_eq!(
        said(NewAccount::parse(&json!([]))),
        ["account: [] is not allowed; give a JSON object"]
    );
    let long = json!({ "id": "a", "flags": { "x": "y".repeat(9_000) } });
    assert_eq!(
        said(NewAccount::parse(&long)),
        ["flags is too long; give at most 8192 bytes of JSON"]
    );
}

#[test]
fn a_monitor_has_an_address_and_may_have_a_status_and_labels() {
    let body = json!({ "id": "m:1", "account": "bees", "ip": "::ffff:192.0.2.1",
        "status": "testing", "labels": { "country": "de" } });
    let monitor = NewMonitor::parse(&body).unwrap();
    assert_eq!(monitor.ip.to_string(), "192.0.2.1", "IPv4 in other clothes");
    assert_eq!(monitor.status, Some(GlobalStatus::Testing));
    assert_eq!(monitor.labels["country"], "de");
    let bare =
        NewMonitor::parse(&json!({ "id": "m", "ip": "2001:db8::1", "status": null })).unwrap();
    assert_eq!((bare.status, bare.account), (None, None));
}

#[test]
fn a_monitor_is_not_called_as_the_page_about_all_of_them() {
    let problems = NewMonitor::parse(&json!({ "id": "overview", "ip": "192.0.2.7" }));
    let told = problems.expect_err("is taken")[0].to_string();
    assert!(told.starts_with(r#"id: "overview" is not allowed; give another name"#), "{told}");
}

#[test]
fn everything_that_is_wrong_with_a_monitor_is_told_at_once() {
    let body = json!({ "account": {}, "ip": "192.0.2.300", "status": "deleted",
        "labels": { "": "x", "n": 7 } });
    let expected = [
        "id is missing; give 1 to 64 letters, digits and any of . _ : - that begin with a letter \
         or digit",
        "account: {} is not allowed; give 1 to 64 letters, digits and any of . _ : - that begin \
         with a letter or digit",
        "ip: \"192.0.2.300\" is not allowed; give an IP address, such as 192.0.2.7 or \
         2001:db8::7",
        "status: \"deleted\" is not allowed; give pending, testing, active or paused",
        "labels. has a name that is not allowed; give a name of 1 to 63 characters",
        "labels.n: 7 is not allowed; give a text of at most 255 characters",
    ];
    assert_eq!(said(NewMonitor::parse(&body)), expected);
    let unknown = json!({ "id": "m", "ip": "192.0.2.1", "status": "bored" });
    let expected = "status: \"bored\" is not allowed; give pending, testing, active or paused";
    assert_eq!(said(NewMonitor::parse(&unknown)), [expected]);
}

fn probe(ip: &str, probe: Value) -> Result<Probe, Vec<Problem>> {
    NewServer::parse(&json!({ "id": "s", "ip": ip, "probe": probe })).map(|server| server.probe)
}

#[test]
fn a_time_server_is_asked_at_its_address_unless_another_is_given() {
    let target =
        |ip, target: Value| probe(ip, json!({ "kind": "ntp", "target": target })).unwrap().target;
    assert_eq!(target("192.0.2.1", Value::Null), "192.0.2.1:123");
    assert_eq!(target("2001:db8::1", Value::Null), "[2001:db8::1]:123");
    assert_eq!(target("192.0.2.1", json!("time.example")), "time.example:123");
    assert_eq!(target("192.0.2.1", json!("time.example:1234")), "time.example:1234");
    assert_eq!(target("192.0.2.1", json!("2001:db8::2")), "[2001:db8::2]:123");
    assert_eq!(target("192.0.2.1", json!("[::1]:99")), "[::1]:99");
}

#[test]
fn a_probe_has_a_timeout_and_http_a_status() {
    let body = json!({ "kind": "http", "target": "https://a.example:8443/x", "timeout": "1.5s",
        "expect_status": 204 });
    let read = probe("192.0.2.1", body).unwrap();
    assert_eq!((read.timeout_ms, read.expect_status), (1_500, Some(204)));
    let shown = serde_json::to_value(&read).unwrap();
    assert_eq!(probe("192.0.2.1", shown).unwrap(), read, "what is shown can be given back");
    let tcp = probe("192.0.2.1", json!({ "kind": "tcp", "target": "db.example:5432" })).unwrap();
    assert_eq!((tcp.timeout_ms, tcp.expect_status), (5_000, None));
}

#[test]
fn what_is_wrong_with_a_probe_is_told_with_its_place() {
    let wrong = |body: Value| said(probe("192.0.2.1", body)).join(" | ");
    let cases = [
        (json!("ntp"), "probe: \"ntp\" is not allowed; give an object such as {\"kind\": \"ntp\"}"),
        (json!({}), "probe.kind is missing; give ntp, http or tcp"),
        (json!({ "kind": "icmp" }), "probe.kind: \"icmp\" is not allowed; give ntp, http or tcp"),
        (
            json!({ "kind": "tcp" }),
            "probe.target is missing; give a host and a port, such as db.example:5432 or \
             [::1]:5432",
        ),
        (
            json!({ "kind": "http", "target": "ftp://a.example/" }),
            "probe.target: \"ftp://a.example/\" is not allowed; give an address such as \
             http://shop.example/health",
        ),
        (
            json!({ "kind": "ntp", "timeout": "1ms", "expect_status": 200 }),
            "probe.timeout: \"1ms\" is not allowed; give 100ms to 30s | probe.expect_status: 200 \
             is not allowed; leave it out, it is for kind http",
        ),
        (
            json!({ "kind": "ntp", "time_out": 5 }),
            "probe.time_out is not a known field; did you mean probe.timeout?",
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(wrong(body), expected);
    }
    for target in ["http://u:p@a.example/", "http://a.example:0/", "http://", "a.example"] {
        let text = wrong(json!({ "kind": "http", "target": target }));
        assert!(text.starts_with("probe.target: "), "{text}");
    }
    let missing = said(NewServer::parse(&json!({ "id": "s", "probe": { "kind": "ntp" } })));
    assert_eq!(missing.len(), 1, "the target of no address is not told twice: {missing:?}");
}

#[test]
fn an_assignment_reads_new_as_candidate() {
    let body = json!({ "server": 1, "monitor": "m", "status": "new", "violation": "network" });
    let read = NewAssignment::parse(&body).unwrap();
    assert_eq!((read.server.as_str(), read.status), ("1", Status::Candidate));
    assert_eq!(read.violation, Some((Kind::Network, None)));
    let wrong = json!({ "server": 1, "status": "idle", "since": "now", "score": 99,
        "violation": "noise" });
    let expected = [
        "monitor is missing; give 1 to 64 letters, digits and any of . _ : - that begin with a \
         letter or digit",
        "status: \"idle\" is not allowed; give candidate, testing, active or paused",
        "since: \"now\" is not allowed; give milliseconds since 1970",
        "score: 99 is not allowed; give a number from -100 to 20",
        "violation: \"noise\" is not allowed; give network, account, limit or diversity",
    ];
    assert_eq!(said(NewAssignment::parse(&wrong)), expected);
}

#[test]
fn an_import_tells_line_place_and_value_of_what_is_wrong() {
    let text = b"\xef\xbb\xbf{\"account\": {\"id\": \"a\"}}\r\n\n\
        {\"monitor\": {\"id\": \"m\", \"ip\": \"x\"}}\n\
        {\"account\": {\"id\": \"a\"}}\n\
        {\"acount\": {}}\n\
        {\"id\": \xff}\n\
        {\"id\":}\n\
        {\"server\": 5}\n\
        [1]";
    let show = |(line, read): (usize, Result<Entity, Vec<Problem>>)| match read {
        Ok(_) => format!("{line} fine"),
        Err(problems) => format!("{line} {}", Problem::all(&problems)),
    };
    let shown: Vec<String> = import(text).map(show).collect();
    let which = "give one of {\"account\": …}, {\"monitor\": …}, {\"server\": …} and \
         {\"assignment\": …}";
    let expected = [
        "1 fine".to_owned(),
        "3 monitor.ip: \"x\" is not allowed; give an IP address, such as 192.0.2.7 or 2001:db8::7"
            .to_owned(),
        "4 account.id: \"a\" is on line 1 already; give each of them once".to_owned(),
        format!("5 acount is not a known field; {which}"),
        "6 column 8 is not UTF-8; save the file as UTF-8".to_owned(),
        "7 column 7 is not JSON (expected value); give one JSON object a line".to_owned(),
        "8 server: 5 is not allowed; give a JSON object".to_owned(),
        format!("9 line: [1] is not allowed; {which}"),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_long_value_is_cut_between_characters() {
    assert_eq!(cut("ääää", 4), "ääää");
    assert_eq!(cut("äääää", 4), "äää…");
    assert_eq!(cut("a\nb\0", 4), "a b ");
}
