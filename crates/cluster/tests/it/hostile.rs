//! Datagrams that nobody should believe: forged, repeated, cut off, random.
//!
//! `tests/corpus` has one datagram a file, in hexadecimal. `SKEP_TEST_BLESS=1` writes them anew.

use crate::common::{Network, Node, REALM, a_move, hex, impatient, options, seal, secret, signed};
use skep_cluster::wire::{Envelope, Groups, Heartbeat, Line, Message, Refusal, Seal};
use skep_cluster::{Load, Membership, MembershipOptions, Secret, State, TAG_BYTES};
use skep_policy::{Chance, SeededChance, Time};
use skep_testkit::eventually;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

const HEAD: usize = 4 + TAG_BYTES;
const SEED: u64 = 10;
const TIME_LIMIT: Duration = Duration::from_secs(3);
const ROUNDS: usize = 150_000;

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("is text");
        u8::from_str_radix(text, 16).expect("is a byte")
    };
    digits.chunks(2).map(byte).collect()
}

fn envelope() -> Envelope<'static> {
    let load = Load { outstanding: 5, polls: 40, cpu: 37.5, score: 0.5 };
    Envelope { from: "b", incarnation: 70, to: 50, sequence: 3, draining: false, load }
}

fn messages() -> Vec<(&'static str, Message<'static>)> {
    let heartbeat = Heartbeat {
        api: "http://b.test:6632",
        udp: "127.0.0.1:6634",
        zone: "west",
        program: "0.1.0",
        digest: 99,
        queues: 2,
    };
    let line = |queue: &str, groups: u32| Line {
        queue: queue.into(),
        groups: Groups::of(Vec::from_iter(0..groups)),
    };
    let lines = vec![line("orders", 2), line("mail", 40), line("", 1)];
    vec![
        ("heartbeat", Message::Heartbeat(heartbeat)),
        ("changes", Message::Changes { number: 4, lines: lines.clone() }),
        ("page", Message::Page { number: 4, first: 0, last: u64::MAX, lines }),
        ("ask", Message::Ask),
        ("wake", Message::Wake(vec!["orders", "mail", "größer"])),
        ("moves", Message::Moves(vec![a_move("orders:mail", "b"), a_move("x", "c")])),
        ("goodbye", Message::Goodbye),
    ]
}

fn closed(seal: &Seal, message: &Message<'_>) -> Vec<u8> {
    let mut datagram = Vec::new();
    seal.close(&envelope(), message, &mut datagram).expect("fits");
    datagram
}

/// Every datagram of the corpus, by the name of its file: `good-…`, or `<why it is refused>-…`.
fn made() -> BTreeMap<String, Vec<u8>> {
    let mut made = BTreeMap::new();
    let other = Secret::new("another secret for tests").expect("is long enough");
    for (kind, message) in messages() {
        made.insert(format!("good-{kind}"), closed(&seal(), &message));
        let forged = Seal::new(Some(other.clone()), REALM);
        made.insert(format!("forged-secret-{kind}"), closed(&forged, &message));
    }
    let (_, heartbeat) = messages().swap_remove(0);
    let good = closed(&seal(), &heartbeat);
    let realm = Seal::new(Some(secret()), "elsewhere");
    made.insert("forged-realm".into(), closed(&realm, &heartbeat));
    made.insert("forged-unsigned".into(), closed(&Seal::new(None, REALM), &heartbeat));
    made.insert("forged-cut".into(), good[..good.len() - 1].to_vec());
    made.insert("forged-longer".into(), [&good[..], b"x"].concat());
    made.insert("malformed-empty".into(), Vec::new());
    made.insert("malformed-short".into(), good[..HEAD - 1].to_vec());
    made.insert("malformed-too-long".into(), vec![b's'; 1_201]);
    made.insert("malformed-trailing".into(), signed(&[&good[HEAD..], b"x"].concat()));
    made.insert("malformed-truncated".into(), signed(&good[HEAD..good.len() - 1]));
    let mut random = vec![0; 300];
    let mut chance = SeededChance::new(SEED);
    random.fill_with(|| chance.bits() as u8);
    made.insert("malformed-random".into(), random);
    let mut newer = good.clone();
    newer[2] = 2;
    made.insert("version-2".into(), newer);
    made
}

fn corpus() -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    if std::env::var_os("SKEP_TEST_BLESS").is_some() {
        for (name, datagram) in made() {
            std::fs::write(folder.join(name + ".hex"), hex(&datagram) + "\n").expect("is written");
        }
    }
    let files = std::fs::read_dir(folder).expect("is there").flatten();
    files
        .map(|file| {
            let name = file.path().file_stem().expect("has a name").to_string_lossy().into_owned();
            (name, unhex(&std::fs::read_to_string(file.path()).expect("reads")))
        })
        .collect()
}

#[test]
fn the_corpus_is_believed_and_refused_as_its_names_say() {
    let corpus = corpus();
    assert_eq!(corpus, made(), "the format has changed; so must its version");
    for (name, datagram) in &corpus {
        let why = name.split('-').next().expect("has one");
        match seal().open(datagram) {
            Ok((found, message)) => {
                let kind = name.strip_prefix("good-").unwrap_or_else(|| panic!("{name} is good"));
                let right = messages().into_iter().find(|(name, _)| *name == kind);
                assert_eq!((found, Some(message)), (envelope(), right.map(|(_, it)| it)));
            }
            Err(refusal) => assert_eq!(refusal.as_str(), why, "{name}"),
        }
    }
}

fn mutate(datagram: &mut Vec<u8>, others: &[Vec<u8>], chance: &mut SeededChance) {
    for _ in 0..=chance.up_to(3) {
        let place = chance.up_to(datagram.len() as u64) as usize;
        let within = place < datagram.len();
        match chance.up_to(7) {
            0 if within => datagram[place] ^= 1 << chance.up_to(7),
            1 if within => datagram[place] = chance.bits() as u8,
            2 if within => datagram[place] = [0, 1, 0x7f, 0x80, 0xff][chance.up_to(4) as usize],
            3 => datagram.truncate(place),
            4 => datagram.insert(place, chance.bits() as u8),
            5 if within => drop(datagram.remove(place)),
            6 => {
                let other = &others[chance.up_to(others.len() as u64 - 1) as usize];
                let from = chance.up_to(other.len() as u64) as usize;
                datagram.truncate(place);
                datagram.extend_from_slice(&other[from..]);
            }
            _ => {
                let more = chance.up_to(40);
                datagram.extend((0..more).map(|_| chance.bits() as u8));
            }
        }
    }
}

/// What must hold for every datagram: read or refused, and what is read is written alike.
fn weigh(datagram: &[u8], members: &mut Membership) -> Option<Refusal> {
    let (envelope, message) = match seal().open(datagram) {
        Ok(opened) => opened,
        Err(refusal) => return Some(refusal),
    };
    let mut again = Vec::new();
    seal().close(&envelope, &message, &mut again).expect("fits, because it did before");
    assert_eq!(hex(&again), hex(datagram), "one meaning has one form");
    members.hear(&envelope, &message, ([127, 0, 0, 1], 9).into(), Time::from_millis(1));
    assert!(members.members(Time::from_millis(1)).len() <= 8);
    None
}

#[test]
fn no_mutation_of_the_corpus_does_harm() {
    let corpus: Vec<Vec<u8>> = corpus().into_values().collect();
    let given = std::env::var("SKEP_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(SEED);
    let (mut chance, began) = (SeededChance::new(seed), Instant::now());
    let limits = MembershipOptions { members_max: 8, ..MembershipOptions::default() };
    let mut members = Membership::new("here", 50, limits);
    let (mut believed, mut refused) = (0_u64, BTreeMap::new());
    let mut rounds = 0;
    while rounds < ROUNDS && began.elapsed() < TIME_LIMIT {
        rounds += 1;
        let original = &corpus[chance.up_to(corpus.len() as u64 - 1) as usize];
        let mut datagram = original.clone();
        mutate(&mut datagram, &corpus, &mut chance);
        // Half of them by somebody who has the secret and means ill.
        let is_signed = chance.up_to(1) == 0 && datagram.len() >= HEAD;
        if is_signed {
            datagram = signed(&datagram[HEAD..]);
        }
        let weighed = catch_unwind(AssertUnwindSafe(|| weigh(&datagram, &mut members)));
        let Ok(weighed) = weighed else {
            panic!("round {rounds} of SKEP_TEST_SEED={seed} did harm: {}", hex(&datagram));
        };
        match weighed {
            Some(refusal) => *refused.entry(refusal.as_str()).or_insert(0_u64) += 1,
            None => {
                let known = is_signed || corpus.contains(&datagram);
                assert!(
                    known,
                    "round {rounds} of SKEP_TEST_SEED={seed} forged: {}",
                    hex(&datagram)
                );
                believed += 1;
            }
        }
    }
    println!("{rounds} rounds in {:?}: {believed} believed, {refused:?}", began.elapsed());
    assert!(believed > 0 && ["forged", "malformed", "version"].iter().all(|why| refused[why] > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_counts_what_it_does_not_believe_and_goes_on() {
    let node = Node::start(options("here", "127.0.0.1:0", &[]), None).await;
    let enemy = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("is free");
    let corpus = corpus();
    let bad: Vec<(&String, &Vec<u8>)> =
        corpus.iter().filter(|(name, _)| !name.starts_with("good-")).collect();
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for round in 1..=20_u64 {
        for (name, datagram) in &bad {
            enemy.send_to(datagram, node.address()).await.expect("is sent");
            *expected.entry(name.split('-').next().expect("has one")).or_default() += 1;
        }
        eventually(&format!("round {round} is counted"), || {
            expected.iter().all(|(why, count)| node.rejected(why) == *count).then_some(())
        });
    }
    assert!(node.pulse.members().is_empty());
    let friend = Node::start(options("friend", "127.0.0.1:0", &[node.address()]), None).await;
    eventually("it still hears", || node.sees("friend"));
    drop(friend);
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_datagrams_bring_no_dead_node_back_not_even_to_a_restarted_one() {
    let network = Network::new().await;
    let first = options("a", "127.0.0.1:0", &[network.to_second]);
    let second = impatient("b", "127.0.0.1:0", &[network.to_first]);
    let (a, b) = network.between(first, second).await;
    eventually("b sees a", || b.sees("a"));
    let enough = || (network.recorded.lock().expect("works").len() > 20).then_some(());
    eventually("some are recorded", enough);
    a.kill().await;
    eventually("b takes a for dead", || (b.state("a") == Some(State::Dead)).then_some(()));

    let recorded = network.recorded.lock().expect("works").clone();
    let before = b.rejected("replayed");
    for datagram in &recorded {
        network.replay(datagram).await;
    }
    eventually("they are counted", || (b.rejected("replayed") > before + 10).then_some(()));
    assert_eq!(b.state("a"), Some(State::Dead));

    let address = b.kill().await;
    let b = Node::start(options("b", &address.to_string(), &[]), None).await;
    for datagram in &recorded {
        network.replay(datagram).await;
    }
    eventually("they are counted", || (b.rejected("stale") > 10).then_some(()));
    assert_ne!(b.state("a"), Some(State::Alive), "it was not there in this life");
}
