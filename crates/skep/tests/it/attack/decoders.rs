//! Everything that reads what others wrote, given what is nearly right: it is read or refused, at
//! once, within the memory that it would take, and nothing panics.
//!
//! Read elsewhere with mutations of their own: datagrams of the cluster, answers of NTP servers,
//! HTTP of the proxy, bodies of queues, backups.

use serde_json::{Map, Value};
use skep::settings::Value as _;
use skep::settings::{self, ByteSize};
use skep_policy::ownership::Timing;
use skep_queues::record::{Record, Records, Wishes};
use skep_testkit::{Folder, Mutator};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Inputs of each reader, and how long it has for all of them; whichever comes first.
const CASES: usize = 20_000;
const TIME: Duration = Duration::from_millis(400);
/// One input may take so long on a busy machine.
const ONE: Duration = Duration::from_secs(2);
const SEED: u64 = 12;

/// Gives a reader everything that comes of good inputs; `read` says whether it took one.
fn attack<T: AsRef<[u8]>>(name: &str, good: &[T], mut read: impl FnMut(&[u8]) -> bool) {
    let given = std::env::var("SKEP_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(SEED);
    let good: Vec<&[u8]> = good.iter().map(AsRef::as_ref).collect();
    assert!(read(good[0]), "{name} does not take what is good");
    let (mut mutator, began) = (Mutator::new(seed), Instant::now());
    let (mut taken, mut cases) = (0, 0);
    while cases < CASES && began.elapsed() < TIME {
        cases += 1;
        let bytes = mutator.next(&good);
        let at = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| read(&bytes)));
        let shown = || {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2_000)]).into_owned();
            format!("{name}, case {cases} of SKEP_TEST_SEED={seed}: {text:?}")
        };
        match outcome {
            Ok(took) => taken += usize::from(took),
            Err(_) => panic!("it panicked: {}", shown()),
        }
        assert!(at.elapsed() < ONE, "it took {:?}: {}", at.elapsed(), shown());
    }
    println!("{name}: {cases} inputs, {taken} of them taken, {:?}", began.elapsed());
    assert!(taken < cases, "{name} takes everything");
}

/// A reader of text is not asked about what is none.
fn text(read: impl Fn(&str) -> bool) -> impl Fn(&[u8]) -> bool {
    move |bytes| std::str::from_utf8(bytes).is_ok_and(&read)
}

/// A reader of JSON.
fn json(read: impl Fn(&Value) -> bool) -> impl Fn(&[u8]) -> bool {
    move |bytes| serde_json::from_slice::<Value>(bytes).is_ok_and(|value| read(&value))
}

/// The most memory that this process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0) << 10
}

#[test]
fn settings_are_read_or_refused_with_their_line() {
    let folder = Folder::new("attack-decoders");
    let file = folder.join("skep.toml");
    let good = "data = \"x\"\n[api]\nlisten = \"127.0.0.1:7000\"\nbody_max = \"16MiB\"\n\
        [reach]\ndeny = \"10.0.0.0/8\"\n[log]\nlevel = \"info,skep=debug\"\n\
        [sessions]\nkinds = \"a: slots=2\"\n[[routes]]\nname = \"r\"\nhost = \"a.test\"\n\
        upstreams = [\"127.0.0.1:1\", { address = \"b:2\", weight = 3 }]\n\
        [routes.limits]\nbody_max = \"1MiB\"\nrate = { requests = 5, per = \"1s\" }\n";
    attack("settings", &[good, "[api]\nlisten = 1\n", "a.b.c = [1, {x = 2}]"], |bytes| {
        std::fs::write(&file, bytes).expect("writes");
        match settings::check_file(&file) {
            Ok(_) => true,
            Err(invalid) => {
                assert!(invalid.to_string().contains("skep.toml"), "{invalid}");
                false
            }
        }
    });
}

#[test]
fn small_values_are_read_or_refused() {
    let before = peak();
    attack("spans", &["1h30m", "250ms", "1.5s", "90d"], |bytes| {
        text(|text| skep_policy::span::parse_span(text).is_some())(bytes)
    });
    attack("sizes", &["64MiB", "1k", "0.5GiB"], text(|text| ByteSize::parse(text).is_ok()));
    attack("levels", &["info,skep_store=debug", "warn"], |bytes| {
        text(|text| settings::LogLevel::parse(text).is_ok())(bytes)
    });
    attack("ranges", &["10.0.0.0/8", "fe80::/10", "::1"], |bytes| {
        text(|text| text.parse::<skep_policy::reach::Network>().is_ok())(bytes)
    });
    let reach = skep_policy::reach::Reach::default();
    attack("hosts", &["a.test", "0xa9.0376.43518", "[fe80::1%eth0]", "2852039166"], |bytes| {
        text(|text| reach.judge_host(text).is_ok())(bytes)
    });
    attack("databases", &["postgres://u:p@h:5432/d?sslmode=require", "embedded"], |bytes| {
        text(|text| text.parse::<skep_store::DatabaseUrl>().is_ok())(bytes)
    });
    attack("coordination", &["redis://:p@h:6379/3", "rediss://h", "database"], |bytes| {
        text(|text| text.parse::<skep_store::CoordinationUrl>().is_ok())(bytes)
    });
    attack("workers' addresses", &["ws://h:1/p?q=1", "http://[::1]:9/x"], |bytes| {
        text(|text| text.parse::<skep_gateway::WorkerUrl>().is_ok())(bytes)
    });
    attack("cron", &["*/5 0-12 1,15 jan-mar mon", "0 0 29 2 *"], |bytes| {
        text(|text| text.parse::<skep_queues::schedule::CronExpression>().is_ok())(bytes)
    });
    let key = skep::access::SecretKey::generate().reveal();
    attack(
        "keys",
        &[key.as_str(), "skep_k1_00"],
        text(|text| {
            let _ = skep::access::redact(text);
            skep::access::SecretKey::parse(text).is_some()
        }),
    );
    let login = skep::access::Login::new("k1", "secret", 1_000).seal("secret");
    attack(
        "logins",
        &[&login],
        text(|text| skep::access::Login::open(text, "secret", 2_000).is_some()),
    );
    attack("ids of sessions", &["s-1f-17", "s-ffffffffffffffff-18446744073709551615"], |bytes| {
        text(|text| skep_sessions::parse_session_id(text).is_some())(bytes)
    });
    let id = skep_cluster::forward::RequestId::mint().to_string();
    attack(
        "ids of hops",
        &[&id],
        text(|text| skep_cluster::forward::RequestId::parse(text).is_some()),
    );
    attack("paths into payloads", &["a.b[0].c", "[1][2].x"], |bytes| {
        text(|text| skep_queues::browse::FieldPath::parse(text).is_ok())(bytes)
    });
    let grown = peak().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes");
}

#[test]
fn documents_are_read_or_refused_in_proportion() {
    let before = peak();
    let timing = Timing::default();
    let endpoint = r#"{"id":"a","url":"https://h:1/p?q","method":"POST","headers":{"A":"b"},
        "body":"x","expect":{"status":["200-299",404],"body":"ok"},"interval":"10s","timeout":"1s",
        "weight":2,"labels":{"a":"b"},"paused":false,"verify":true,"expires_in":"7d"}"#;
    let port = r#"{"id":"b","kind":"tls","address":"h:1","server_name":"x.test"}"#;
    attack(
        "endpoints",
        &[endpoint, port],
        json(|value| {
            let read = skep_polls::Spec::parse(value, &timing);
            // What is taken can be polled and is written as it was read.
            read.is_ok_and(|spec| {
                let again = skep_polls::Spec::read_stored(&serde_json::json!(spec).to_string());
                assert_eq!(again.expect("is read again"), spec);
                skep_polls::Prober::prepare(&spec).is_ok()
            })
        }),
    );
    let lines = format!("{}\n\n{}\r\n", endpoint.replace('\n', ""), port);
    attack("imports", &[lines.as_str(), "\u{feff}{}\n"], |bytes| {
        skep_polls::import(bytes, &timing).fold(false, |some, (_, line)| some | line.is_ok())
    });
    let route = r#"{"name":"r","host":"*.a.test","path":"/x","strip_prefix":true,"upstreams":
        ["h:1",{"address":"[::1]:2","weight":9}],"timeouts":{"connect":"1s"},"retry":{"tries":2,
        "statuses":[503]},"health":{"path":"/","every":"1s","status":"200-204"},"headers":
        {"request":{"set":{"x":"y"},"remove":["z"]}},"limits":{"body_max":"1MiB",
        "rate":{"requests":1,
        "per":"1s","by":"header:x"}}}"#;
    attack(
        "routes",
        &[route, r#"{"name":"s","workers":"k"}"#],
        json(|value| {
            let read = skep_routes::spec::RouteSpec::parse(value);
            read.is_ok_and(|spec| {
                let written = serde_json::to_value(&spec).expect("is plain data");
                assert_eq!(skep_routes::spec::RouteSpec::parse(&written), Ok(spec));
                true
            })
        }),
    );
    let account = r#"{"id":"a","name":"A","flags":{"limit":3}}"#;
    attack("accounts", &[r#"{"id":"a","name":"A"}"#, account], |bytes| {
        json(|value| skep_monitors::NewAccount::parse(value).is_ok())(bytes)
    });
    let snapshot = r#"{"now":1790000000000,"server":{"id":"n","account":"o","ip":"192.0.2.17"},
        "settings":{"target_active":2},"monitors":[{"id":"a","server_status":"active",
        "global_status":"active","account":"b","ip":"198.51.100.7","healthy":true,"priority":11,
        "count":158},{"id":19,"server_status":"candidate","global_status":"active","account":5,
        "ip":"10.77.0.1","since_hours":20,"samples":[{"at":1789999400000,"rtt_ms":61.5,
        "offset_ms":0.4}]}]}"#;
    let none = Map::new();
    attack("snapshots", &[snapshot], |bytes| {
        let read = skep_monitors::offline::Fleet::read(bytes, &none);
        // What is taken can be planned with.
        read.is_ok_and(|fleet| {
            serde_json::to_value(skep_monitors::offline::Plans::all(&fleet)).is_ok()
        })
    });
    let grown = peak().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes");
}

#[test]
fn what_lies_on_the_disk_is_read_or_called_damaged() {
    let before = peak();
    let id = "2c7e4bd1-9e4b-4f7d-8d7d-9a3d1c2b3a4f".parse().expect("an id");
    let record = Record {
        id,
        transaction: "order-17".into(),
        trace: Some("2c7e4bd1-9e4b-4f7d-8d7d-9a3d1c2b3a4f".into()),
        producer: Some("shop".into()),
        wishes: Wishes { priority: 3, retry_limit: Some(5), ..Wishes::default() },
        encrypted: false,
        payload: br#"{"a":1}"#,
    };
    let segment = record.encode().repeat(3);
    // Lengths that promise more than there is, and numbers without an end.
    attack("segments", &[&segment[..], b"\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f"], |bytes| {
        let _ = Records::of(bytes).skip_bytes(3);
        Records::of(bytes).all(|record| record.is_ok())
    });
    let cipher = skep_queues::cipher::Cipher::new(&[7; 32]);
    let sealed = cipher.seal(id, br#"{"a":1}"#).expect("seals");
    let good = sealed.clone();
    let mut mutator = Mutator::new(SEED);
    for case in 0..CASES / 4 {
        let bytes = mutator.next(&[&sealed]);
        let opened = cipher.open(id, &bytes);
        assert!(bytes == good || opened.is_err(), "case {case}: it was opened: {bytes:?}");
    }
    let grown = peak().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes");
}
