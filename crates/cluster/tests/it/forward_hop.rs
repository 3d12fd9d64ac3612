//! Headers of nodes, and of those who would like to be one.

use crate::forward_kit::{NOW, SECRET, hops_of, name};
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method};
use skep_cluster::Secret;
use skep_cluster::forward::{Forged, HOP, HopInfo, Hops, RequestId};
use skep_policy::{Chance, SeededChance};
use skep_testkit::FakeClock;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATH: &str = "/api/v1/pop/queue/orders?wait=true";
const WINDOW: Duration = Duration::from_secs(30);

fn near() -> IpAddr {
    [127, 0, 0, 1].into()
}

fn far() -> IpAddr {
    [10, 0, 0, 7].into()
}

fn made(by: &Hops) -> HeaderValue {
    by.make(&name("b"), RequestId::mint(), Some(far()), &Method::GET, PATH)
}

fn checked(hops: &Hops, value: HeaderValue) -> Result<Option<HopInfo>, Forged> {
    let mut headers = HeaderMap::from_iter([(HOP, value)]);
    let taken = hops.take(&mut headers, far(), &Method::GET, PATH);
    assert!(!headers.contains_key(HOP), "it never goes on");
    taken
}

fn node(here: &str, cluster: &str, secret: Option<&[u8]>, clock: &Arc<FakeClock>) -> Hops {
    let secret = secret.map(|bytes| Secret::new(bytes).expect("is long enough"));
    Hops::new(name(here), cluster, secret, clock.clone(), WINDOW)
}

#[test]
fn what_a_node_says_is_believed_by_the_node_it_says_it_to() {
    let id = RequestId::mint();
    for client in [None, Some(far()), Some("2001:db8::1".parse().expect("is an address"))] {
        let value = hops_of("a").make(&name("b"), id, client, &Method::GET, PATH);
        let info = checked(&hops_of("b"), value).expect("is genuine");
        assert_eq!(info, Some(HopInfo { from: name("a"), id, client }));
    }
    let none = hops_of("b").take(&mut HeaderMap::new(), far(), &Method::GET, PATH);
    assert_eq!(none, Ok(None), "a client's request has none");
}

#[test]
fn a_header_opens_only_the_door_it_was_made_for() {
    let value = made(&hops_of("a"));
    assert_eq!(checked(&hops_of("c"), value.clone()), Err(Forged::Proof), "another node");
    for (method, path) in [(Method::POST, PATH), (Method::GET, "/api/v1/pop/queue/others")] {
        let mut headers = HeaderMap::from_iter([(HOP, value.clone())]);
        let taken = hops_of("b").take(&mut headers, far(), &method, path);
        assert_eq!(taken, Err(Forged::Proof), "{method} {path}");
    }
}

#[test]
fn other_clusters_other_secrets_and_no_secret_are_told_apart() {
    let clock = Arc::new(FakeClock::at(NOW));
    let b = node("b", "test", Some(SECRET), &clock);
    let other_name = node("a", "another", Some(SECRET), &clock);
    let other_secret = node("a", "test", Some(b"another secret, long enough"), &clock);
    let unsigned = node("a", "test", None, &clock);
    for stranger in [&other_name, &other_secret, &unsigned] {
        assert_eq!(checked(&b, made(stranger)), Err(Forged::OtherCluster));
    }
    let open = node("b", "test", None, &clock);
    assert!(!open.signed() && b.signed());
    assert_eq!(checked(&open, made(&node("a", "another", None, &clock))), {
        Err(Forged::OtherCluster)
    });
    assert_eq!(checked(&open, made(&unsigned)), Err(Forged::NotLoopback(far())));
    for address in [near(), "::1".parse().expect("is"), "::ffff:127.0.0.1".parse().expect("is")] {
        let mut headers = HeaderMap::from_iter([(HOP, made(&unsigned))]);
        let taken = open.take(&mut headers, address, &Method::GET, PATH);
        assert!(matches!(taken, Ok(Some(_))), "{address}: {taken:?}");
    }
}

#[test]
fn a_header_from_long_ago_or_from_the_future_is_not_believed() {
    let (past, present) = (Arc::new(FakeClock::at(NOW)), Arc::new(FakeClock::at(NOW)));
    let a = node("a", "test", Some(SECRET), &past);
    let b = node("b", "test", Some(SECRET), &present);
    let old = made(&a);
    present.advance(WINDOW);
    assert!(checked(&b, old.clone()).is_ok(), "just in time");
    present.advance(Duration::from_millis(1));
    let stale = checked(&b, old).expect_err("is too old");
    assert_eq!(stale, Forged::Stale { age_ms: 30_001, most_ms: 30_000 });
    let said = "the header skep-hop is 30001 ms old; at most 30000 are allowed either way";
    assert_eq!(stale.to_string(), said);
    past.advance(Duration::from_secs(120));
    let ahead = checked(&b, made(&a)).expect_err("is from the future");
    assert_eq!(ahead, Forged::Stale { age_ms: -89_999, most_ms: 30_000 });
}

#[test]
fn two_headers_are_none() {
    let (a, b) = (hops_of("a"), hops_of("b"));
    let mut headers = HeaderMap::new();
    headers.append(HOP, made(&a));
    headers.append(HOP, made(&a));
    let taken = b.take(&mut headers, far(), &Method::GET, PATH);
    assert_eq!(taken, Err(Forged::Malformed));
    assert!(headers.is_empty());
}

#[test]
fn other_versions_are_named() {
    let b = hops_of("b");
    let next = made(&hops_of("a")).to_str().expect("is text").replacen('1', "2", 1);
    let taken = checked(&b, HeaderValue::from_str(&next).expect("is a value"));
    assert_eq!(taken, Err(Forged::Version("2".into())));
}

/// What has been tried, or might be.
const CORPUS: &[&str] = &[
    "",
    " ",
    "1",
    "1 ",
    "1       ",
    "0 0 0 0 0 0 0",
    "99999999999999999999 a b c d e f",
    "1 0123456789abcdef a 0198c0ffee007000800000000000abcd 1800000000000000 - -",
    "1 0123456789abcdef a 0198C0FFEE007000800000000000ABCD 1800000000000000 - -",
    "1 0123456789abcdef a {0198c0ff-ee00-7000-8000-00000000abcd} 1800000000000000 - -",
    "1 0123456789abcdef ../a 0198c0ffee007000800000000000abcd +1800000000000000 ::1 00",
    "1 0123456789abcdef a 0198c0ffee007000800000000000abcd 18446744073709551615 127.0.0.1 ff",
    "1 0123456789abcdef a 0198c0ffee007000800000000000abcd 18446744073709551616 1.2.3.4 ff",
    "1 0123456789abcdef a 0198c0ffee007000800000000000abcd -1 ::ffff:0:0 zz",
    "1;0123456789abcdef;a;0198c0ffee007000800000000000abcd;0;-;-",
    "true",
    "b",
];

fn mutated(text: &str, chance: &mut impl Chance) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=chance.up_to(2) {
        let length = bytes.len().max(1) as u64;
        let at = (chance.up_to(length - 1) as usize).min(bytes.len());
        match chance.up_to(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, chance.up_to(255) as u8),
            2 if !bytes.is_empty() => bytes[at] ^= 1 << chance.up_to(7),
            3 if !bytes.is_empty() => bytes[at] = b"0123456789abcdef -"[chance.up_to(17) as usize],
            4 => bytes.extend_from_within(at..),
            5 if !bytes.is_empty() => drop(bytes.remove(at)),
            _ => {}
        }
    }
    bytes
}

#[test]
fn nothing_that_was_tampered_with_is_believed() {
    let (seed, rounds) = (0x5ee_d0b5, 40_000);
    let mut chance = SeededChance::new(seed);
    let (a, b) = (hops_of("a"), hops_of("b"));
    let genuine = made(&a);
    let genuine = genuine.to_str().expect("is text");
    assert!(checked(&b, HeaderValue::from_str(genuine).expect("is a value")).is_ok());
    let ends = Instant::now() + Duration::from_secs(20);
    for round in 0..rounds {
        let from = match chance.up_to(CORPUS.len() as u64 + 16) as usize {
            known if known < CORPUS.len() => CORPUS[known],
            _ => genuine,
        };
        let bytes = mutated(from, &mut chance);
        let Ok(value) = HeaderValue::from_bytes(&bytes) else { continue };
        if bytes != genuine.as_bytes() {
            let taken = checked(&b, value);
            let shown = String::from_utf8_lossy(&bytes);
            assert!(taken.is_err(), "seed {seed}, round {round}: {shown:?} gave {taken:?}");
        }
        if Instant::now() > ends {
            break;
        }
    }
    for text in CORPUS {
        let value = HeaderValue::from_str(text).expect("is a value");
        assert!(checked(&b, value).is_err(), "{text:?}");
    }
}
