//! Tests of reading, checking and writing routes.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn flaws(value: Value) -> Vec<String> {
    let flaws = RouteSpec::parse(&value).expect_err("is wrong");
    flaws.iter().map(ToString::to_string).collect()
}

/// A good route with one more field.
fn with(field: &str, value: Value) -> Value {
    let mut spec = json!({ "name": "shop", "upstreams": ["10.0.0.1:8080"] });
    spec[field] = value;
    spec
}

fn parsed(field: &str, value: Value) -> RouteSpec {
    RouteSpec::parse(&with(field, value)).expect("is fine")
}

fn full() -> Value {
    json!({
        "name": "shop", "host": "*.shop.example", "path": "/api", "strip_prefix": true,
        "upstreams": [
            { "address": "10.0.0.1:8080", "weight": 1 },
            { "address": "api.internal:8080", "weight": 2 },
        ],
        "policy": "least-loaded", "host_header": "inner.example:81",
        "maintenance": {
            "enabled": true, "status": 418, "body": "tea", "content_type": "text/plain",
            "retry_after": "0s",
        },
        "timeouts": {
            "connect": "250ms", "head": "1m30s", "send": "5s", "idle": "2m", "tunnel": "24h",
            "total": "1h",
        },
        "retry": { "tries": 0, "methods": "idempotent", "budget": 1.0, "statuses": [503] },
        "health": {
            "path": "/up?deep=1", "every": "1s", "timeout": "500ms", "rise": 1, "fall": 1,
            "status": "204",
        },
        "breaker": {
            "failures": 1, "ratio": 0.25, "window": "1m", "open": "1s", "open_max": "1s",
            "probes": 1,
        },
        "slow_start": "0s",
        "limits": {
            "body_max": "1GiB",
            "rate": { "requests": 5, "per": "1m", "burst": 9, "by": "header:x-client" },
        },
        "headers": {
            "request": { "set": { "X-Api-Key": "s3cret" }, "add": { "via": "skep" }, "remove": [] },
            "response": { "set": {}, "add": {}, "remove": ["server"] },
        },
        "tls": { "certificate": "/a/c.pem", "key": "/a/k.pem", "redirect": false },
        "log": false,
    })
}

#[test]
fn a_short_route_gets_its_defaults_and_writes_them_out() {
    let spec = RouteSpec::minimal("shop", "10.0.0.1:8080");
    let parsed = RouteSpec::parse(&json!({ "name": "shop", "upstreams": ["10.0.0.1:8080"] }));
    assert_eq!(parsed, Ok(spec.clone()));
    assert_eq!(spec.validate(), []);
    let written = json!({
        "name": "shop", "host": "*", "path": "/", "strip_prefix": false,
        "upstreams": [{ "address": "10.0.0.1:8080", "weight": 1 }],
        "policy": "least-loaded", "host_header": "keep",
        "maintenance": {
            "enabled": false, "status": 503, "body": "<h1>Down for maintenance</h1>\n",
            "content_type": "text/html; charset=utf-8", "retry_after": "1m",
        },
        "timeouts": {
            "connect": "4s", "head": "30s", "send": "30s", "idle": "1m", "tunnel": "1h",
            "total": "0s",
        },
        "retry": { "tries": 2, "methods": "safe", "budget": 0.2, "statuses": [502, 503, 504] },
        "breaker": {
            "failures": 5, "ratio": 0.5, "window": "10s", "open": "5s", "open_max": "1m",
            "probes": 3,
        },
        "slow_start": "10s", "limits": { "body_max": "100MiB" },
        "headers": {
            "request": { "set": {}, "add": {}, "remove": [] },
            "response": { "set": {}, "add": {}, "remove": [] },
        },
        "log": true,
    });
    assert_eq!(serde_json::to_value(&spec).unwrap(), written);
}

#[test]
fn a_full_route_is_written_as_it_was_read() {
    let spec = RouteSpec::parse(&full()).unwrap();
    assert_eq!(serde_json::to_value(&spec).unwrap(), full());
    let through_serde: RouteSpec = serde_json::from_value(full()).unwrap();
    assert_eq!(through_serde, spec);
    assert_eq!(RouteSpec::read_stored(&full().to_string()).unwrap(), spec);
    let workers = json!({ "name": "r", "workers": "renderers", "policy": "budgeted" });
    let spec = RouteSpec::parse(&workers).unwrap();
    assert_eq!(serde_json::to_value(&spec).unwrap()["workers"], "renderers");
    assert_eq!(serde_json::to_value(&spec).unwrap().get("upstreams"), None);
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let wrong = json!({
        "name": "a b", "hosts": "x", "path": "api", "upstreams": [5, "a", { "adress": "b:1" }],
        "strip_prefix": "no", "policy": "budgeted", "timeouts": { "conect": "1s", "head": "never",
        "idle": "0s" }, "retry": { "statuses": ["x", 404] }, "log": 1,
    });
    let expected = [
        "hosts is not a known field; did you mean host?",
        "strip_prefix: \"no\" is not allowed; give true or false",
        "upstreams[0]: 5 is not allowed; give \"host:port\" or { address = \"host:port\", \
         weight = 1 }",
        "upstreams[2].adress is not a known field; did you mean upstreams[2].address?",
        "timeouts.conect is not a known field; did you mean timeouts.connect?",
        "timeouts.head: \"never\" is not allowed; give \"1ms\" to \"24h\"",
        "retry.statuses[0]: \"x\" is not allowed; give 500 to 599",
        "log: 1 is not allowed; give true or false",
        "name: \"a b\" is not allowed; give letters, digits, dots, underscores and hyphens, at \
         most 64 of them, a letter or digit first",
        "path: \"api\" does not begin with a slash; give a path such as \"/api\"",
        "policy: \"budgeted\" is not allowed; give least-loaded; the others are for routes with \
         `workers`",
        "upstreams[1].address: \"a\" has no port; give host:port, such as \"10.0.0.1:8080\" or \
         \"[::1]:8080\"",
        "upstreams[2].address is missing; give host:port, such as \"10.0.0.1:8080\" or \
         \"[::1]:8080\"",
        "timeouts.idle: \"0s\" is not allowed; give \"1ms\" to \"24h\"",
        "retry.statuses[1]: 404 is not allowed; give 500 to 599",
    ];
    assert_eq!(flaws(wrong.clone()), expected);
    let error = serde_json::from_value::<RouteSpec>(wrong).unwrap_err().to_string();
    assert_eq!(error, expected.join("; "));
}

#[test]
fn what_is_no_table_is_one_flaw() {
    assert_eq!(flaws(json!(7)).len(), 1);
    assert!(flaws(json!([]))[0].starts_with("route: [] is not allowed; give a table with name"));
    assert_eq!(flaws(with("timeouts", json!("1s"))).len(), 1);
    assert_eq!(flaws(with("headers", json!({ "request": { "set": [1] } }))).len(), 1);
}

#[test]
fn hosts_have_one_way_of_writing() {
    let host = |text: &str| parsed("host", json!(text)).host;
    assert_eq!(host("Shop.Example."), "shop.example");
    assert_eq!(host("*.Example"), "*.example");
    assert_eq!(host("*"), "*");
    assert_eq!(host("10.0.0.1"), "10.0.0.1");
    assert_eq!(host("[0:0::1]"), "[::1]");
    assert_eq!(host(&format!("{}.example", "a".repeat(63))).len(), 71);
    let wrong = [
        ("", "is not a host"),
        ("http://shop.example", "without a scheme"),
        ("shop.example/api", "the path as `path`"),
        ("shop.example:80", "has a port"),
        ("müller.example", "xn--"),
        ("*.*.example", "elsewhere than in front"),
        ("a*.example", "elsewhere than in front"),
        ("shop..example", "is not a host"),
        ("-shop.example", "is not a host"),
        ("shop example", "is not a host"),
        ("*.[::1]", "is not a host"),
        ("::1", "is not a host"),
    ];
    for (text, part) in wrong {
        let flaws = flaws(with("host", json!(text)));
        assert!(flaws.len() == 1 && flaws[0].contains(part), "{text}: {flaws:?}");
    }
    let long = ["a"; 127].join(".");
    assert_eq!(parsed("host", json!(long)).host.len(), 253);
    assert!(flaws(with("host", json!(format!("{long}.a"))))[0].contains("at most 253"));
}

#[test]
fn prefixes_are_plain_paths() {
    let path = |text: &str| parsed("path", json!(text)).path;
    assert_eq!(path("/"), "/");
    assert_eq!(path("//"), "/");
    assert_eq!(path("/api/"), "/api");
    assert_eq!(path("/A%20b/~c"), "/A%20b/~c");
    for text in ["", "api", "/a/../b", "/a?b", "/a#b", "/a b", "/a\n", "/a\0", "/ä", "/a\\b"] {
        let flaws = flaws(with("path", json!(text)));
        assert!(flaws.len() == 1 && flaws[0].starts_with("path: "), "{text}: {flaws:?}");
    }
    assert_eq!(path(&format!("/{}", "a".repeat(1_023))).len(), 1_024);
    assert!(flaws(with("path", json!(format!("/{}", "a".repeat(1_024)))))[0].contains("1024"));
}

#[test]
fn upstreams_are_written_shortly_or_with_a_weight() {
    let given = json!(["HTTP://Api.internal:8080/", "http://plain", { "address": "[0::1]:80" },
        { "address": "b:1", "weight": 1_000 }, "http://[::2]"]);
    let upstreams = parsed("upstreams", given).upstreams;
    let written: Vec<_> = upstreams.iter().map(|one| (one.address.as_str(), one.weight)).collect();
    let expected = [
        ("api.internal:8080", 1),
        ("plain:80", 1),
        ("[::1]:80", 1),
        ("b:1", 1_000),
        ("[::2]:80", 1),
    ];
    assert_eq!(written, expected);
    assert_eq!(upstreams[2].host_and_port(), Some(("::1", 80)));
    let wrong = [
        ("https://a:443", "without TLS"),
        ("ftp://a:21", "not spoken"),
        ("a", "has no port"),
        ("a:0", "is not an address"),
        ("a:65536", "is not an address"),
        ("a:+80", "is not an address"),
        ("::1", "without brackets"),
        ("http://a:80/path", "has a path"),
        ("a b:80", "is not an address"),
        ("", "is missing"),
    ];
    for (address, part) in wrong {
        let flaws = flaws(with("upstreams", json!(["x:1", address])));
        assert!(flaws.len() == 1 && flaws[0].contains(part), "{address}: {flaws:?}");
        assert!(flaws[0].starts_with("upstreams[1].address"), "{flaws:?}");
    }
    let login = flaws(with("upstreams", json!(["http://me:s3cret@a:80"])));
    assert!(login[0].contains("has a login") && !login[0].contains("s3cret"));
}

#[test]
fn upstreams_are_few_and_different_and_there_are_no_workers_beside_them() {
    let twice = flaws(with("upstreams", json!(["a:1", "b:1", "http://A:1/"])));
    assert_eq!(twice.len(), 1);
    assert!(twice[0].starts_with("upstreams[2].address: \"a:1\" is the same as upstreams[0]"));
    let many = |count: usize| {
        let all: Vec<String> = (0..count).map(|number| format!("h{number}:1")).collect();
        with("upstreams", json!(all))
    };
    assert!(RouteSpec::parse(&many(256)).is_ok());
    assert_eq!(flaws(many(257)), ["upstreams are more than 256; give at most 256"]);
    assert!(flaws(with("workers", json!("renderers")))[0].contains("not both"));
    let none = flaws(json!({ "name": "shop" }));
    assert!(none.len() == 1 && none[0].starts_with("upstreams are missing"));
    assert!(flaws(with("upstreams", json!([])))[0].starts_with("upstreams are missing"));
    for weight in [json!(0), json!(1_001), json!(-1), json!(1.5), json!(1_u64 << 40)] {
        let flaws = flaws(with("upstreams", json!([{ "address": "a:1", "weight": weight }])));
        assert_eq!(flaws.len(), 1);
        assert!(flaws[0].starts_with("upstreams[0].weight") && flaws[0].ends_with("1 to 1000"));
    }
}

#[test]
fn numbers_and_times_have_limits() {
    let wrong = [
        ("timeouts", json!({ "connect": "25h" }), "timeouts.connect: \"25h\""),
        ("timeouts", json!({ "send": "999us" }), "timeouts.send"),
        ("timeouts", json!({ "total": "25h" }), "timeouts.total"),
        ("slow_start", json!("61m"), "slow_start"),
        ("retry", json!({ "tries": 11 }), "retry.tries: 11"),
        ("retry", json!({ "budget": 1.1 }), "retry.budget: 1.1"),
        ("retry", json!({ "budget": -0.1 }), "retry.budget"),
        ("retry", json!({ "statuses": [600] }), "retry.statuses[0]: 600"),
        ("retry", json!({ "statuses": vec![500; 101] }), "retry.statuses are more"),
        ("retry", json!({ "methods": "all" }), "retry.methods: \"all\""),
        ("maintenance", json!({ "status": 200 }), "maintenance.status: 200"),
        ("maintenance", json!({ "status": 70_000 }), "maintenance.status: 70000"),
        ("maintenance", json!({ "content_type": "a/b\r\nx: y" }), "maintenance.content_type"),
        ("maintenance", json!({ "body": "x".repeat(65_537) }), "maintenance.body"),
        ("health", json!({ "path": "x" }), "health.path"),
        ("health", json!({ "path": "/a b" }), "health.path"),
        ("health", json!({ "every": "1ms" }), "health.every"),
        ("health", json!({ "rise": 0 }), "health.rise"),
        ("health", json!({ "status": "399-200" }), "health.status: \"399-200\""),
        ("health", json!({ "status": "2xx" }), "health.status: \"2xx\""),
        ("breaker", json!({ "ratio": 0 }), "breaker.ratio"),
        ("breaker", json!({ "failures": 0 }), "breaker.failures"),
        ("breaker", json!({ "open": "10s", "open_max": "9s" }), "breaker.open_max: \"9s\""),
        ("limits", json!({ "body_max": "0B" }), "limits.body_max: \"0B\""),
        ("limits", json!({ "body_max": "2TiB" }), "limits.body_max: \"2TiB\""),
        ("limits", json!({ "rate": {} }), "limits.rate.requests is missing"),
        ("limits", json!({ "rate": { "requests": 1, "burst": 0 } }), "limits.rate.burst: 0"),
        ("limits", json!({ "rate": { "requests": 1, "by": "ip" } }), "limits.rate.by: \"ip\""),
        ("limits", json!({ "rate": { "requests": 1, "by": "header:" } }), "limits.rate.by"),
        ("host_header", json!("a b"), "host_header: \"a b\""),
        ("host_header", json!("a\r\nb"), "host_header"),
        ("tls", json!({ "certificate": "/a.pem" }), "tls.key is missing"),
        ("tls", json!({ "key": "/a.key" }), "tls.certificate is missing"),
        ("tls", json!({ "certificate": "a.pem", "key": "/a.key" }), "tls.certificate: \"a.pem\""),
        ("name", json!("x".repeat(65)), "name"),
        ("name", json!(".."), "name"),
    ];
    for (field, value, start) in wrong {
        let flaws = flaws(with(field, value));
        assert!(flaws.len() == 1 && flaws[0].starts_with(start), "{start}: {flaws:?}");
    }
    assert_eq!(parsed("timeouts", json!({ "total": 0.5 })).timeouts.total.as_millis(), 500);
    let rate = parsed("limits", json!({ "rate": { "requests": 7 } })).limits.rate.unwrap();
    assert_eq!((rate.burst, rate.per.as_secs(), rate.by), (7, 1, RateBy::Address));
    let slow = parsed("breaker", json!({ "open": "10m" })).breaker;
    assert_eq!(slow.open_max, slow.open, "a longer time than the default's longest is fine");
}

#[test]
fn headers_that_frame_messages_are_left_alone() {
    let edits = |kind: &str, value: Value| with("headers", json!({ "request": { kind: value } }));
    let framing = "connection transfer-encoding content-length host upgrade te trailer keep-alive \
                   proxy-connection";
    for name in framing.split_whitespace() {
        let shout = name.to_ascii_uppercase();
        for value in [edits("set", json!({ &shout: "x" })), edits("add", json!({ name: "x" }))] {
            assert_eq!(flaws(value).len(), 1, "{name}");
        }
        assert_eq!(flaws(edits("remove", json!([shout]))).len(), 1, "{name}");
    }
    assert!(flaws(edits("set", json!({ "Host": "a" })))[0].ends_with("use host_header"));
    for value in ["a\r\nx: y", "a\nb", "a\0b", "\u{7f}", " a", "a\t"] {
        assert_eq!(flaws(edits("set", json!({ "x": value }))).len(), 1, "{value:?}");
    }
    for name in ["", "a b", "a:b", "a\r\nb", "ä", &"x".repeat(129)] {
        assert_eq!(flaws(edits("set", json!({ name: "v" }))).len(), 1, "{name:?}");
        assert_eq!(flaws(edits("remove", json!([name]))).len(), 1, "{name:?}");
    }
    assert!(flaws(edits("set", json!({ "x-a": "1", "X-A": "2" })))[0].contains("twice"));
    let many = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("x-{number}")).collect();
        edits("remove", json!(names))
    };
    assert!(RouteSpec::parse(&many(64)).is_ok());
    assert_eq!(flaws(many(65)), ["headers.request has 65 rules; give at most 64"]);
    assert!(flaws(edits("set", json!({ "x": "v".repeat(4_097) })))[0].contains("4096"));
}

#[test]
fn secrets_are_shown_nowhere() {
    let spec = RouteSpec::parse(&full()).unwrap();
    assert!(!format!("{spec:?}").contains("s3cret"));
    let shown = serde_json::to_value(spec.redacted()).unwrap();
    assert_eq!(shown["headers"]["request"]["set"]["X-Api-Key"], "***");
    assert_eq!(shown["headers"]["request"]["add"]["via"], "skep");
    let back = flaws(shown);
    assert!(back.len() == 1 && back[0].contains("give the value itself"), "{back:?}");
    let headers = json!({ "request": { "set": { "authorization": "s3cret\n", "x-token": 5 } } });
    let told = flaws(with("headers", headers)).join("\n");
    assert!(!told.contains("s3cret") && !told.contains('5'), "{told}");
    let told = flaws(with("headers", json!({ "request": "s3cret" }))).join("\n");
    assert!(told.starts_with("headers.request is not a table") && !told.contains("s3cret"));
}

#[test]
fn a_route_is_not_too_much_as_a_whole() {
    let values: serde_json::Map<String, Value> =
        (0..40).map(|number| (format!("x-{number}"), json!("v".repeat(4_000)))).collect();
    let told = flaws(with("headers", json!({ "request": { "set": values } })));
    assert!(told.len() == 1 && told[0].starts_with("route has "), "{told:?}");
}

#[test]
fn a_stored_route_of_a_later_version_is_read() {
    let mut later = full();
    later["later"] = json!(true);
    later["timeouts"]["later"] = json!("1s");
    assert_eq!(flaws(later.clone()).len(), 2);
    let read = RouteSpec::read_stored(&later.to_string()).unwrap();
    assert_eq!(read, RouteSpec::parse(&full()).unwrap());
    assert!(matches!(RouteSpec::read_stored("{"), Err(StoredError::Json(_))));
    let damaged = RouteSpec::read_stored(r#"{"name":"shop"}"#).unwrap_err().to_string();
    assert!(damaged.contains("upstreams are missing"), "{damaged}");
}

#[test]
fn a_route_made_by_hand_is_checked_too() {
    let mut spec = RouteSpec::minimal("shop", "HTTP://A:1");
    assert_eq!(spec.upstreams[0].address, "a:1");
    spec.host = "Shop.example".to_owned();
    spec.path = "/api/".to_owned();
    spec.upstreams[0].address = "A:1".to_owned();
    spec.retry.budget = f64::NAN;
    let told: Vec<_> = spec.validate().iter().map(ToString::to_string).collect();
    let expected = [
        "host: \"Shop.example\" is not in its normal form; give \"shop.example\"",
        "path: \"/api/\" is not in its normal form; give \"/api\"",
        "upstreams[0].address: \"A:1\" is not in its normal form; give \"a:1\"",
        "retry.budget: null is not allowed; give 0 to 1",
    ];
    assert_eq!(told, expected);
}

#[test]
fn routes_together_have_names_and_places_of_their_own() {
    let route = |name: &str, host: &str, path: &str| {
        RouteSpec::parse(&json!({ "name": name, "host": host, "path": path,
            "upstreams": ["a:1"] }))
        .unwrap()
    };
    let fine = [route("a", "x", "/"), route("b", "x", "/b"), route("c", "y", "/")];
    assert_eq!(check_together(&fine), []);
    let wrong = [route("a", "x", "/b"), route("a", "y", "/"), route("c", "X.", "/b/")];
    let told: Vec<_> = check_together(&wrong).iter().map(ToString::to_string).collect();
    let expected = [
        "routes[1].name: \"a\" is the name of routes[0] too; give another name",
        "routes[2].path: \"x/b\" is where \"a\" (routes[0]) is already; give another host or path",
    ];
    assert_eq!(told, expected);
    let many: Vec<_> = (0..1_001).map(|n| route(&format!("r{n}"), "x", &format!("/{n}"))).collect();
    assert_eq!(check_together(&many[..1_000]), []);
    assert_eq!(check_together(&many)[0].to_string(), "routes are 1001; give at most 1000");
}

#[test]
fn no_more_flaws_are_told_than_anybody_reads() {
    let unknown: serde_json::Map<String, Value> =
        (0..500).map(|number| (format!("zz{number}"), json!(1))).collect();
    assert_eq!(flaws(Value::Object(unknown)).len(), 64);
}

/// JSON of any shape, with names that routes have.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[a-z]{1,3}:[0-9]{1,5}".prop_map(Value::from),
        "[0-9]{1,4}(ms|s|h|MiB)".prop_map(Value::from),
    ];
    let names = "name|host|path|upstreams|address|weight|timeouts|connect|retry|statuses|health|\
                 status|limits|rate|by|headers|request|set|remove|tls|key|[a-z]{1,6}";
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_is_a_route_or_has_flaws(field in "[a-z_]{1,10}|upstreams|headers|limits|health",
                                        value in any_json()) {
        for value in [value.clone(), with(&field, value)] {
            match RouteSpec::parse(&value) {
                Ok(spec) => prop_assert_eq!(spec.validate(), []),
                Err(flaws) => prop_assert!(!flaws.is_empty()),
            }
        }
    }

    #[test]
    fn what_was_read_is_written_and_read_again_unchanged(
        host in "([A-Za-z0-9-]{1,6}\\.){0,3}[A-Za-z]{1,4}\\.?", path in "(/[a-z.%]{0,4}){1,4}",
        address in "(http://)?[A-Za-z0-9.-]{1,9}(:[0-9]{1,5})?/?", millis in 0_u64..100_000_000,
        bytes in 0_u64..1 << 42, budget in 0.0_f64..1.0,
    ) {
        let value = json!({ "name": "a", "host": host, "path": path, "upstreams": [address],
            "timeouts": { "head": format!("{millis}ms") }, "retry": { "budget": budget },
            "limits": { "body_max": format!("{bytes}B") } });
        if let Ok(spec) = RouteSpec::parse(&value) {
            let written = serde_json::to_value(&spec).unwrap();
            prop_assert_eq!(RouteSpec::parse(&written), Ok(spec));
        }
    }
}

#[test]
fn what_is_sent_again_depends_on_the_method() {
    let mut spec = RouteSpec::minimal("shop", "a:1");
    assert!(spec.repeats("GET") && !spec.repeats("PUT"));
    spec.retry.methods = RetryMethods::Idempotent;
    assert!(spec.repeats("PUT") && !spec.repeats("POST"));
    spec.retry.tries = 0;
    assert!(!spec.repeats("GET"));
}
