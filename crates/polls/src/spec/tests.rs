//! Tests of reading and writing endpoints.

use super::*;
use proptest::prelude::*;
use serde_json::json;
use skep_policy::ownership::Timing;

fn parse(value: Value) -> Result<Spec, Vec<Problem>> {
    Spec::parse(&value, &Timing::default())
}

fn problems(value: Value) -> Vec<String> {
    parse(value).expect_err("is wrong").iter().map(ToString::to_string).collect()
}

/// A good endpoint with one more field.
fn with(field: &str, value: Value) -> Value {
    let mut spec = json!({ "id": "shop", "url": "https://shop.example/health" });
    spec[field] = value;
    spec
}

#[test]
fn a_short_endpoint_gets_its_defaults_and_writes_them_out() {
    let spec = parse(json!({ "id": "shop", "url": "http://shop.example" })).unwrap();
    let written = json!({
        "id": "shop", "kind": "http", "url": "http://shop.example", "method": "GET",
        "expect": { "status": "200-399" }, "interval": "1m", "timeout": "5s", "weight": 1,
        "paused": false,
    });
    assert_eq!(serde_json::to_value(&spec).unwrap(), written);
}

#[test]
fn a_full_endpoint_of_each_kind_is_written_as_it_was_read() {
    let web = json!({
        "id": "eu/shop", "kind": "https", "url": "https://shop.example:8443/a?b=c",
        "method": "POST", "headers": { "Accept": "text/plain", "X-Api-Key": "s3cret" },
        "body": "ping", "expect": { "status": ["200-299", 304], "body": "pong" },
        "expires_in": "14d", "verify": false, "interval": "1500ms", "timeout": "2s",
        "weight": 7, "labels": { "team": "sales" }, "paused": true, "publish_to": "results",
    });
    let tls = json!({
        "id": "mail", "kind": "tls", "address": "[::1]:993", "server_name": "mail.example",
        "verify": true, "interval": "10s", "timeout": "5s", "weight": 1, "paused": false,
    });
    let tcp = json!({
        "id": "db", "kind": "tcp", "address": "db.example:5432",
        "interval": "10s", "timeout": "5s", "weight": 1, "paused": false,
    });
    for value in [web, tls, tcp] {
        let spec = parse(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&spec).unwrap(), value);
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let wrong = json!({
        "id": "a b", "url": "http://shop.example", "interval": "0s", "timeout": "20s",
        "weight": 0, "intervall": "5s", "paused": "no", "headers": { "a b": "c" },
        "expect": { "status": "2xx", "bodi": "x" },
    });
    let expected = [
        "intervall is not a known field; did you mean interval?",
        "id: \"a b\" is not allowed; give 1 to 200 visible ASCII characters without spaces, \
         quotes and backslashes",
        "headers.a b is not the name of a header; give letters, digits and hyphens",
        "expect.bodi is not a known field; did you mean expect.body?",
        "expect.status: \"2xx\" is not allowed; give a status such as 200, a range such as \
         \"200-299\", or a list of at most 32 of them, from 100 to 599",
        "interval: \"0s\" is not allowed; give 1s to 24h",
        "timeout: \"20s\" is too long for nodes.ttl 15s; give at most 11.9s, \
         or set nodes.ttl to 23.2s or more",
        "weight: 0 is not allowed; give 1 to 1000",
        "paused: \"no\" is not allowed; give true or false",
    ];
    assert_eq!(problems(wrong), expected);
}

#[test]
fn the_kind_follows_from_the_url_and_must_not_contradict_it() {
    assert_eq!(parse(with("weight", json!(2))).unwrap().kind(), Kind::Https);
    let told = problems(with("kind", json!("http")));
    let expected = "url: \"https://shop.example/health\" contradicts kind http; \
        give kind https, or leave kind out";
    assert_eq!(told, [expected]);
    let told = problems(json!({ "id": "a", "address": "h:1" }));
    assert_eq!(told, ["kind is missing; give tcp or tls"]);
    let told = problems(json!({ "id": "a" }));
    assert_eq!(told, ["kind is missing; give http, https, tcp or tls, or a url"]);
    let told = problems(json!({ "id": "a", "url": "ftp://h/" }));
    assert!(told[0].starts_with("url: \"ftp://h/\" is not allowed; give an address"), "{told:?}");
}

#[test]
fn fields_of_other_kinds_are_refused() {
    let told = problems(json!({ "id": "a", "kind": "tcp", "address": "h:1", "url": "http://h/",
        "expires_in": "1d" }));
    let expected = [
        "url is not for kind tcp; give address instead",
        "expires_in is not for kind tcp; it is for kind https and tls",
    ];
    assert_eq!(told, expected);
}

#[test]
fn spans_are_texts_or_seconds() {
    let interval = |value| parse(with("interval", value)).unwrap().interval;
    assert_eq!(interval(json!(10)), Duration::from_secs(10));
    assert_eq!(interval(json!(1.5)), Duration::from_millis(1_500));
    assert_eq!(interval(json!("24h")), Duration::from_secs(86_400));
    for wrong in [json!("10"), json!(-1), json!(1e30), json!(true), json!("25h"), json!("999ms")] {
        assert_eq!(problems(with("interval", wrong.clone())).len(), 1, "{wrong}");
    }
}

#[test]
fn addresses_and_urls_need_a_host_and_a_port_that_can_be() {
    for good in ["h:1", "127.0.0.1:65535", "[::1]:80", "db_1.example.:5432"] {
        let value = json!({ "id": "a", "kind": "tcp", "address": good });
        assert!(parse(value).is_ok(), "{good}");
    }
    for wrong in ["h", "h:0", "h:65536", ":80", "::1:80", "[::1]", "h:+1", "a b:1", "[h:1", "h/:1"]
    {
        let value = json!({ "id": "a", "kind": "tcp", "address": wrong });
        assert_eq!(problems(value).len(), 1, "{wrong}");
    }
    for good in ["http://h", "http://[::1]:80/", "HTTP://h/x?y", "http://127.0.0.1/"] {
        assert!(parse(json!({ "id": "a", "url": good })).is_ok(), "{good}");
    }
    let long = format!("http://h/{}", "x".repeat(2_000));
    for wrong in [
        "http://",
        "http://:80/",
        "http:/h",
        "h",
        "http://h:0/",
        "http://h:99999/",
        "http://h/ä ö",
        "http://h:/",
        "",
        &long,
    ] {
        assert_eq!(
            problems(json!({ "id": "a", "kind": "http", "url": wrong })).len(),
            1,
            "{wrong}"
        );
    }
}

#[test]
fn secrets_are_neither_shown_nor_repeated() {
    let headers = json!({ "Authorization": "Bearer s3cret", "x-token": "s3cret", "Cookie": "s3cret",
        "X-Secret-Thing": "s3cret", "api-KEY": "s3cret", "Accept": "text/plain" });
    let spec = parse(with("headers", headers)).unwrap();
    let shown = serde_json::to_string(&spec.redacted()).unwrap();
    assert!(!format!("{spec:?}").contains("s3cret") && !shown.contains("s3cret"));
    assert!(shown.contains("text/plain") && shown.contains(r#""Authorization":"***""#));
    assert!(serde_json::to_string(&spec).unwrap().contains("s3cret"));

    let asked =
        json!({ "id": "a", "url": "http://h/?page=2&access_token=s3cret", "body": "s3cret" });
    let spec = parse(asked).unwrap();
    assert!(!format!("{spec:?}").contains("s3cret"));
    let read = json!(spec.for_readers());
    assert_eq!(read["url"], "http://h/?page=2&access_token=***");
    assert_eq!(read["body"], "***");
    assert_eq!(json!(spec.redacted())["body"], "s3cret", "whoever may change it sees it");
    // What was read like that cannot be written back by mistake.
    let told = problems(json!({ "id": "a", "url": read["url"], "body": read["body"] }));
    let hides = "has *** for a value, which hides one";
    assert!(told.len() == 2 && told.iter().all(|one| one.contains(hides)), "{told:?}");

    let told = problems(with(
        "headers",
        json!({ "Authorization": "s3cret\n", "cookie": ["s3cret"],
        "x-key": "***" }),
    ));
    assert!(told.len() == 3 && !told.concat().contains("s3cret"), "{told:?}");
    let told = problems(json!({ "id": "a", "url": "http://me:s3cret@h/" }));
    assert_eq!(told, ["url has a name and password; give them as the header Authorization"]);
}

#[test]
fn headers_that_frame_the_message_and_those_given_twice_are_refused() {
    let refused = json!({ "Content-Length": "3", "A": "1", "a": "2", "Connection": "upgrade" });
    assert_eq!(problems(with("headers", refused)).len(), 3);
    assert!(parse(with("headers", json!({ "Connection": "close", "Host": "x" }))).is_ok());
}

#[test]
fn everything_has_a_limit() {
    let many: serde_json::Map<_, _> = (0..33).map(|n| (format!("k{n}"), json!("v"))).collect();
    let wrong = [
        with("id", json!("x".repeat(201))),
        with("id", json!("quo\"te")),
        with("id", json!("")),
        with("labels", json!(many)),
        with("headers", json!(many)),
        with("labels", json!({ "x".repeat(64): "v" })),
        with("labels", json!({ "k": "v".repeat(256) })),
        with("body", json!("x".repeat((64 << 10) + 1))),
        with("publish_to", json!("a b")),
        with("weight", json!(1_001)),
        with("method", json!("CONNECT")),
        with("expect", json!({ "body": "" })),
        with("expires_in", json!("4000d")),
        with("server_name", json!("shop.example")),
    ];
    for value in wrong {
        assert_eq!(
            problems(value.clone()).len(),
            1,
            "{}",
            skep_policy::problem::shortened(&value.to_string())
        );
    }
}

#[test]
fn what_is_stored_is_read_without_the_limits_and_with_unknown_fields() {
    let text = r#"{"id":"a","url":"http://h/","timeout":"1m","later":1,"expect":{"x":1}}"#;
    assert_eq!(Spec::read_stored(text).unwrap().timeout, Duration::from_secs(60));
    assert!(matches!(Spec::read_stored("{"), Err(StoredError::Json(_))));
    assert!(matches!(Spec::read_stored("{}"), Err(StoredError::Problems(_))));
}

#[test]
fn the_default_timeout_fits_a_short_ttl() {
    let limits = Timing { ttl: Duration::from_secs(5), ..Timing::default() };
    let spec = Spec::parse(&json!({ "id": "a", "url": "http://h/" }), &limits).unwrap();
    assert_eq!(spec.timeout, limits.work_max());
}

fn any_endpoint() -> impl Strategy<Value = Value> {
    let web = (
        prop::sample::select(vec!["http://h", "https://h.example:1/x?y", "https://[::1]/"]),
        prop::option::of("[a-z]{1,20}"),
        prop::collection::btree_map("x-[a-z]{1,9}", "[ -~]{0,9}[!-)]", 0..4),
        prop::option::of("\\PC{0,40}"),
        prop::option::of((prop::option::of(100_u16..=599), prop::option::of("\\PC{1,20}"))),
    );
    let web = web.prop_filter_map("a method that may be used", |parts| {
        let (url, method, headers, body, expect) = parts;
        let expect = expect.map(|(status, body)| json!({ "status": status, "body": body }));
        let method = method.filter(|method| !["head", "connect"].contains(&method.as_str()));
        Some(json!({ "url": url, "method": method, "headers": headers, "body": body,
            "expect": expect }))
    });
    let port = prop::sample::select(vec![
        json!({ "kind": "tcp", "address": "h:1" }),
        json!({ "kind": "tls", "address": "127.0.0.1:1", "verify": false, "expires_in": 3.5 }),
        json!({ "kind": "tls", "address": "[::1]:1", "server_name": "h.example" }),
    ]);
    let common = (
        "[!#-&(-\\[\\]-~]{1,200}",
        1_000_u64..86_400_000,
        prop::option::of(10_u64..11_925),
        1_u32..=1_000,
        prop::collection::btree_map("\\PC{1,9}", "\\PC{0,9}", 0..4),
        any::<bool>(),
        prop::option::of("[!-~]{1,50}"),
    );
    (prop_oneof![web, port], common).prop_map(|(mut value, common)| {
        let (id, interval, timeout, weight, labels, paused, publish_to) = common;
        value["id"] = json!(id);
        value["interval"] = json!(format!("{interval}ms"));
        value["timeout"] = json!(timeout.map(|timeout| timeout as f64 / 1_000.0));
        value["weight"] = json!(weight);
        value["labels"] = json!(labels);
        value["paused"] = json!(paused);
        value["publish_to"] = json!(publish_to);
        value
    })
}

proptest! {
    #[test]
    fn a_written_endpoint_reads_back(value in any_endpoint()) {
        let spec = parse(value).map_err(|told| TestCaseError::fail(format!("{told:?}")))?;
        let written = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(&Spec::read_stored(&written).unwrap(), &spec);
        let again = parse(serde_json::from_str(&written).unwrap());
        prop_assert_eq!(again, Ok(spec));
    }

    #[test]
    fn any_json_is_read_without_a_panic(
        field in prop::sample::select(vec!["id", "kind", "url", "address", "headers", "expect",
            "labels", "interval", "timeout", "weight"]),
        text in "\\PC{0,40}",
    ) {
        let _ = parse(with(field, json!(text)));
        let _ = parse(with(field, json!({ &text: &text })));
        let _ = parse(json!({ "id": "a", "kind": "tls", "address": text }));
    }
}
