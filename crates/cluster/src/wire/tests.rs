//! What is written is read again, and nothing else is.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;

fn seal() -> Seal {
    Seal::new(Some(Secret::new("0123456789abcdef").expect("is long enough")), "realm")
}

fn envelope(from: &str) -> Envelope<'_> {
    let load = Load { outstanding: 3, polls: 2, cpu: 12.34, score: 0.25 };
    Envelope { from, incarnation: 7, to: 8, sequence: 9, draining: true, load }
}

fn closed(seal: &Seal, envelope: &Envelope<'_>, message: &Message<'_>) -> Vec<u8> {
    let mut datagram = Vec::new();
    seal.close(envelope, message, &mut datagram).expect("fits");
    datagram
}

#[test]
fn only_the_same_secret_and_realm_open_a_datagram() {
    let datagram = closed(&seal(), &envelope("a"), &Message::Ask);
    assert!(seal().open(&datagram).is_ok());
    let other = Secret::new("0123456789abcdeX").expect("is long enough");
    let same = Secret::new("0123456789abcdef").expect("is long enough");
    let forged = Err(Refusal::Forged { signed: true });
    assert_eq!(Seal::new(Some(other), "realm").open(&datagram), forged);
    assert_eq!(Seal::new(Some(same), "another").open(&datagram), forged);
    assert_eq!(Seal::new(None, "realm").open(&datagram), forged);

    let open = closed(&Seal::new(None, "realm"), &envelope("a"), &Message::Ask);
    assert!(Seal::new(None, "realm").open(&open).is_ok());
    assert_eq!(seal().open(&open), Err(Refusal::Forged { signed: false }));
}

#[test]
fn every_changed_bit_and_every_missing_byte_is_noticed() {
    let message = Message::Wake(vec!["orders", "mail"]);
    let datagram = closed(&seal(), &envelope("a"), &message);
    for bit in 0..datagram.len() * 8 {
        let mut changed = datagram.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let refused = seal().open(&changed).expect_err("is not what was signed");
        let right = match bit / 8 {
            0 | 1 => Refusal::Malformed,
            2 => Refusal::Version(changed[2]),
            3 if bit % 8 > 0 => Refusal::Malformed,
            _ => Refusal::Forged { signed: changed[3] & 1 == 1 },
        };
        assert_eq!(refused, right, "bit {bit}");
    }
    for length in 0..datagram.len() {
        assert!(seal().open(&datagram[..length]).is_err(), "{length} bytes");
    }
    assert!(seal().open(&[&datagram[..], &[0]].concat()).is_err());
}

#[test]
fn the_largest_of_each_kind_fits_into_a_datagram() {
    let (name, url) = ("n".repeat(NAME_MAX), format!("http://{}", "u".repeat(URL_MAX - 7)));
    let (udp, zone) = ("d".repeat(ADDRESS_MAX), "z".repeat(ZONE_MAX));
    let program = "p".repeat(PROGRAM_MAX);
    let heartbeat = Heartbeat {
        api: &url,
        udp: &udp,
        zone: &zone,
        program: &program,
        digest: u64::MAX,
        queues: u32::MAX,
    };
    let room = room_for_list(&name);
    let queue: Arc<str> = "q".repeat(QUEUE_MAX).into();
    let groups = Groups { total: u32::MAX, prints: (0..GROUPS_MAX as u32).collect() };
    let line = Line { queue: queue.clone(), groups };
    let lines: Vec<Line> = split(&vec![line.clone(); 9], room).next().expect("one fits").to_vec();
    let wakes: Vec<&str> = split(&[&*queue; 9], room).next().expect("one fits").to_vec();
    let text: Arc<str> = name.as_str().into();
    let record = MoveRecord {
        key_hash: 1,
        key: "k".repeat(KEY_MAX).into(),
        from: text.clone(),
        node: text.clone(),
        by: text,
        version: 1,
        at: 1,
        used: 2,
        kind: 1,
        load: 1.0,
        best: 0.5,
        improvement: 0.5,
    };
    let moves = split(&vec![record; 9], room).next().expect("one fits").to_vec();
    let (first, last) = (line.hash(), line.hash());
    for message in [
        Message::Heartbeat(heartbeat),
        Message::Changes { number: 1, lines: lines.clone() },
        Message::Page { number: 1, first, last, lines },
        Message::Wake(wakes),
        Message::Moves(moves),
    ] {
        let envelope = envelope(&name);
        let datagram = closed(&seal(), &envelope, &message);
        assert_eq!(seal().open(&datagram), Ok((envelope, message)));
    }
    let too_long = Message::Wake(vec![&*queue; 3]);
    let refused = seal().close(&envelope(&name), &too_long, &mut Vec::new());
    assert!(refused.is_err_and(|error| error.bytes > DATAGRAM_MAX));
}

#[test]
fn a_list_is_cut_into_pieces_that_fit_and_what_never_fits_is_left_out() {
    let long = "x".repeat(40);
    let list = ["a", "b", &long, "c", "d", "e"];
    let cut: Vec<Vec<&str>> = split(&list, 8).map(<[&str]>::to_vec).collect();
    assert_eq!(cut, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
    assert_eq!(split::<&str>(&[], 8).count(), 0);
}

#[test]
fn numbers_that_are_none_are_told_as_something_harmless() {
    let mut odd = envelope("a");
    for (cpu, told) in [(f64::NAN, 0.0), (f64::INFINITY, 100.0), (-3.0, 0.0), (55.555, 55.56)] {
        odd.load.cpu = cpu;
        let datagram = closed(&seal(), &odd, &Message::Ask);
        assert_eq!(seal().open(&datagram).expect("is good").0.load.cpu, told);
    }
}

/// What a signed datagram may not say, although its signature is good.
#[test]
fn what_breaks_a_limit_is_malformed_whoever_signed_it() {
    let signed = |body: &[u8]| {
        let prefix = [b's', b'k', VERSION, 1];
        [&prefix[..], &seal().tag(&prefix, body), body].concat()
    };
    let good = closed(&seal(), &envelope("a"), &Message::Ask)[HEAD..].to_vec();
    assert!(seal().open(&signed(&good)).is_ok());
    let at_kind = good.len() - 1;
    let spoil: [fn(&mut Vec<u8>, usize); 8] = [
        |body, _| body.push(0),                       // something is left
        |body, kind| body[kind] = 99,                 // no such kind
        |body, kind| body[kind] = 1,                  // a heartbeat of nothing
        |body, _| body[1] = b' ',                     // no name
        |body, _| body[2..10].fill(0),                // no incarnation
        |body, _| body[26] = 2,                       // neither draining nor not
        |body, kind| body[kind - 2..kind].fill(0xff), // more than 100 percent
        |body, kind| body.splice(kind.., [5, 0xff, 0xff]).for_each(drop), // too many queues
    ];
    for (number, spoil) in spoil.iter().enumerate() {
        let mut body = good.clone();
        spoil(&mut body, at_kind);
        assert_eq!(seal().open(&signed(&body)), Err(Refusal::Malformed), "case {number}");
    }
}

fn any_line() -> impl Strategy<Value = Line> {
    let prints = prop::collection::vec(any::<u32>(), 1..60);
    (".{0,20}", prints)
        .prop_map(|(queue, prints)| Line { queue: queue.into(), groups: Groups::of(prints) })
}

fn any_move() -> impl Strategy<Value = MoveRecord> {
    let name = || "[a-z0-9._-]{1,12}".prop_map(|name| Arc::from(name.as_str()));
    let share = || (0..=10_000_u32).prop_map(|parts| f64::from(parts) / 10_000.0);
    let numbers = (any::<u64>(), any::<u64>(), any::<(u64, u64)>(), any::<u8>());
    (".{0,30}", name(), name(), name(), numbers, (share(), share(), share())).prop_map(
        |(key, from, node, by, numbers, (load, best, improvement))| {
            let (key_hash, version, (at, used), kind) = numbers;
            MoveRecord {
                key_hash,
                key: key.as_str().into(),
                from,
                node,
                by,
                version,
                at,
                used,
                kind,
                load,
                best,
                improvement,
            }
        },
    )
}

proptest! {
    #[test]
    fn everything_that_is_written_is_read_again(
        from in "[a-z0-9][a-z0-9._-]{0,127}",
        numbers in any::<(u64, u64, u64, u64, u32, u32)>(),
        draining: bool,
        cpu in 0..=10_000_u32,
        lines in prop::collection::vec(any_line(), 0..40),
        moves in prop::collection::vec(any_move(), 0..10),
        queues in prop::collection::vec(".{0,40}", 0..20),
    ) {
        let (incarnation, to, sequence, number, outstanding, polls) = numbers;
        let load = Load { outstanding, polls, cpu: f64::from(cpu) / 100.0, score: 0.5 };
        let incarnation = incarnation.max(1);
        let envelope = Envelope { from: &from, incarnation, to, sequence, draining, load };
        let room = room_for_list(&from);
        let queues: Vec<&str> = queues.iter().map(String::as_str).collect();
        let mut messages = vec![Message::Ask, Message::Goodbye];
        messages.extend(split(&queues, room).map(|some| Message::Wake(some.to_vec())));
        messages.extend(split(&moves, room).map(|some| Message::Moves(some.to_vec())));
        for some in split(&lines, room) {
            let lines = some.to_vec();
            messages.push(Message::Changes { number, lines: lines.clone() });
            messages.push(Message::Page { number, first: 0, last: u64::MAX, lines });
        }
        for message in messages {
            let datagram = closed(&seal(), &envelope, &message);
            prop_assert!(datagram.len() <= DATAGRAM_MAX);
            prop_assert_eq!(seal().open(&datagram), Ok((envelope, message)));
        }
    }

    #[test]
    fn any_bytes_with_a_good_signature_are_read_without_harm(
        body in prop::collection::vec(any::<u8>(), 0..1_300),
    ) {
        let prefix = [b's', b'k', VERSION, 1];
        let datagram = [&prefix[..], &seal().tag(&prefix, &body), &body].concat();
        // Whatever it is, it is read or refused.
        let _ = seal().open(&datagram);
    }
}
