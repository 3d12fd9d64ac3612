//! Datagrams of NTP: the question, and what an answer says.
//!
//! ```text
//!   asked (ours) ──────► received (theirs)      offset = ((received - asked) + (sent - now)) / 2
//!   now   (ours) ◄────── sent     (theirs)      rtt    =  (now - asked) - (sent - received)
//! ```
//!
//! The question carries nothing but a random number where its own time would stand. The server
//! repeats it, so only somebody who saw the question can answer it, and nobody learns our clock.
//! Times are 32 bits of seconds since 1900 and 32 bits of a fraction; only differences are used,
//! so the seconds may begin anew in 2036.

use super::outcome::{Fault, Found};
use std::time::Duration;

/// Without extensions.
pub(super) const PACKET_BYTES: usize = 48;
/// Version 4 and mode 3, a client.
const QUESTION: u8 = (4 << 3) | 3;
const SERVER: u8 = 4;
/// An older server answers in its own version, which is the same in all that is read here.
const VERSIONS: std::ops::RangeInclusive<u8> = 3..=4;
const UNSYNCHRONISED: u8 = 3;
const STRATUM_MAX: u8 = 15;
/// A server farther from its reference clock than this does not know the time.
const DISTANCE_MAX: f64 = 1.0;
/// A server cannot have needed longer than the whole exchange took; so much is its clock's rate.
const HASTE_MAX: f64 = 0.01;
/// From 1900 to 1970.
const SECONDS_TO_1970: u64 = 2_208_988_800;

/// A question with this random number.
pub(super) fn request(cookie: u64) -> [u8; PACKET_BYTES] {
    let mut packet = [0; PACKET_BYTES];
    packet[0] = QUESTION;
    packet[40..].copy_from_slice(&cookie.to_be_bytes());
    packet
}

/// What a datagram turned out to be.
#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    /// Not an answer to our question: wait for another.
    Nothing,
    /// The answer.
    Answer(Result<Found, Fault>),
}

/// The fields of an answer that are looked at.
#[derive(Debug)]
struct Answer {
    leap: u8,
    version: u8,
    mode: u8,
    stratum: u8,
    /// Seconds.
    root_delay: f64,
    /// Seconds.
    root_dispersion: f64,
    reference: [u8; 4],
    origin: u64,
    received: u64,
    sent: u64,
}

/// Looks at a datagram that came `elapsed` after the question, which was asked at `asked` (since
/// 1970) with this random number.
pub(super) fn hear(datagram: &[u8], cookie: u64, asked: Duration, elapsed: Duration) -> Heard {
    match decode(datagram) {
        Some(answer) if answer.origin == cookie => {
            Heard::Answer(judge(&answer).and_then(|()| reckon(&answer, asked, elapsed)))
        }
        _ => Heard::Nothing,
    }
}

/// Reads the header; what follows it is not ours to understand.
fn decode(datagram: &[u8]) -> Option<Answer> {
    let packet: &[u8; PACKET_BYTES] = datagram.first_chunk()?;
    let short = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap_or_default();
    let long = |at: usize| {
        u64::from_be_bytes(<[u8; 8]>::try_from(&packet[at..at + 8]).unwrap_or_default())
    };
    let fraction = f64::from(1 << 16);
    Some(Answer {
        leap: packet[0] >> 6,
        version: (packet[0] >> 3) & 7,
        mode: packet[0] & 7,
        stratum: packet[1],
        root_delay: f64::from(i32::from_be_bytes(short(4))) / fraction,
        root_dispersion: f64::from(u32::from_be_bytes(short(8))) / fraction,
        reference: short(12),
        origin: long(24),
        received: long(32),
        sent: long(40),
    })
}

/// Whether a server that answers so knows the time.
fn judge(answer: &Answer) -> Result<(), Fault> {
    let wrong = |why: String| Err(Fault::Wrong(why));
    if answer.mode != SERVER {
        return wrong(format!("the answer has mode {}, a server's is {SERVER}", answer.mode));
    }
    if !VERSIONS.contains(&answer.version) {
        return wrong(format!("the answer has version {}, not 4 or 3", answer.version));
    }
    if answer.stratum == 0 {
        return wrong(format!("it does not want to be asked, code {}", code(answer.reference)));
    }
    if answer.leap == UNSYNCHRONISED || answer.stratum > STRATUM_MAX {
        return wrong(format!("its clock is not synchronised, stratum {}", answer.stratum));
    }
    if answer.root_delay < 0.0 {
        return wrong(format!("its root delay is {:.3} s, below 0", answer.root_delay));
    }
    let distance = answer.root_delay / 2.0 + answer.root_dispersion;
    if distance > DISTANCE_MAX {
        return wrong(format!(
            "it may be off by {distance:.3} s from its reference, more than {DISTANCE_MAX} s"
        ));
    }
    if answer.received == 0 || answer.sent == 0 {
        return wrong("it does not say what time it is".to_owned());
    }
    Ok(())
}

/// Round trip and offset of the four times.
fn reckon(answer: &Answer, asked: Duration, elapsed: Duration) -> Result<Found, Fault> {
    let asked = stamp(asked);
    let now = asked.wrapping_add(fixed(elapsed));
    let needed = seconds(answer.sent, answer.received);
    if needed < 0.0 {
        return Err(Fault::Wrong("it answered before it was asked, by its own clock".to_owned()));
    }
    let rtt = elapsed.as_secs_f64() - needed;
    if rtt < -HASTE_MAX {
        return Err(Fault::Wrong(format!(
            "it says that it needed {needed:.3} s, longer than the answer took"
        )));
    }
    let offset = (seconds(answer.received, asked) + seconds(answer.sent, now)) / 2.0;
    Ok(Found { rtt: Duration::from_secs_f64(rtt.max(0.0)), offset: Some(offset) })
}

/// A time since 1970 as NTP has it.
fn stamp(since_1970: Duration) -> u64 {
    fixed(since_1970).wrapping_add(SECONDS_TO_1970 << 32)
}

/// A span with 32 bits of a fraction; whole multiples of 2^32 seconds are lost, as in every stamp.
fn fixed(span: Duration) -> u64 {
    let fraction = (u64::from(span.subsec_nanos()) << 32) / 1_000_000_000;
    (span.as_secs() << 32) | fraction
}

/// Seconds from one stamp to another; they are less than 68 years apart.
fn seconds(later: u64, earlier: u64) -> f64 {
    later.wrapping_sub(earlier).cast_signed() as f64 / (1_u64 << 32) as f64
}

/// Four letters such as RATE or DENY.
fn code(reference: [u8; 4]) -> String {
    let letters = reference.iter().filter(|byte| byte.is_ascii_alphanumeric());
    let code: String = letters.map(|byte| char::from(*byte)).collect();
    if code.is_empty() { "unknown".to_owned() } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::{Chance, SeededChance};

    const COOKIE: u64 = 0x0123_4567_89AB_CDEF;
    const ASKED: Duration = Duration::from_millis(1_800_000_000_500);
    const ELAPSED: Duration = Duration::from_millis(50);

    /// The answer of a good server whose clock is ahead by `ahead`, that needed 10 ms and to which
    /// both ways took 20 ms.
    fn good(ahead: f64) -> [u8; PACKET_BYTES] {
        let mut packet = [0; PACKET_BYTES];
        packet[0] = (4 << 3) | SERVER;
        packet[1] = 2;
        packet[4..8].copy_from_slice(&(1_u32 << 14).to_be_bytes());
        packet[8..12].copy_from_slice(&(1_u32 << 12).to_be_bytes());
        packet[24..32].copy_from_slice(&COOKIE.to_be_bytes());
        let shift = (ahead * (1_u64 << 32) as f64) as i64 as u64;
        let at = |millis| stamp(ASKED + Duration::from_millis(millis)).wrapping_add(shift);
        packet[32..40].copy_from_slice(&at(20).to_be_bytes());
        packet[40..48].copy_from_slice(&at(30).to_be_bytes());
        packet
    }

    fn heard(packet: &[u8]) -> Heard {
        hear(packet, COOKIE, ASKED, ELAPSED)
    }

    fn found(packet: &[u8]) -> Found {
        match heard(packet) {
            Heard::Answer(Ok(found)) => found,
            other => panic!("{other:?}"),
        }
    }

    fn wrong(packet: &[u8]) -> String {
        match heard(packet) {
            Heard::Answer(Err(Fault::Wrong(why))) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_question_tells_nothing_but_its_random_number() {
        let question = request(COOKIE);
        assert_eq!(question[0], 0x23);
        assert!(question[1..40].iter().all(|byte| *byte == 0));
        assert_eq!(question[40..], COOKIE.to_be_bytes());
    }

    #[test]
    fn offset_and_round_trip_follow_from_the_four_times() {
        for ahead in [0.0, 0.25, -0.25, 3.5, -86_400.0, 1e9] {
            let found = found(&good(ahead));
            let offset = found.offset.expect("a clock");
            assert!((offset - ahead).abs() < 1e-5, "{offset} for {ahead}");
            assert!((found.rtt.as_secs_f64() - 0.040).abs() < 1e-6, "{:?}", found.rtt);
        }
    }

    #[test]
    fn times_beyond_2036_are_compared_as_those_before() {
        // The last second before the stamps begin anew, and an answer after it.
        let asked = Duration::from_secs((1 << 32) - SECONDS_TO_1970) - Duration::from_millis(10);
        let mut packet = good(0.0);
        let after = stamp(asked + Duration::from_millis(25));
        assert!(after < stamp(asked), "it began anew");
        packet[32..40].copy_from_slice(&after.to_be_bytes());
        packet[40..48].copy_from_slice(&after.to_be_bytes());
        let Heard::Answer(Ok(found)) = hear(&packet, COOKIE, asked, ELAPSED) else {
            panic!("it is an answer")
        };
        assert!(found.offset.expect("a clock").abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn an_answer_without_our_number_is_nothing_whatever_else_it_says() {
        let mut forged = good(0.0);
        forged[31] ^= 1;
        assert_eq!(heard(&forged), Heard::Nothing);
        forged[24..32].fill(0);
        assert_eq!(heard(&forged), Heard::Nothing);
        assert_eq!(heard(&good(0.0)[..47]), Heard::Nothing);
        assert_eq!(heard(b""), Heard::Nothing);
        assert_eq!(heard(&request(COOKIE)), Heard::Nothing, "our own question come back");
    }

    #[test]
    fn what_follows_the_header_does_not_matter() {
        let mut long = good(0.0).to_vec();
        long.extend([7; 20]);
        found(&long);
    }

    #[test]
    fn a_server_that_does_not_know_the_time_is_wrong_and_the_error_says_why() {
        let with = |change: fn(&mut [u8; PACKET_BYTES])| {
            let mut packet = good(0.0);
            change(&mut packet);
            wrong(&packet)
        };
        assert!(with(|packet| packet[0] = (4 << 3) | 5).contains("mode 5"));
        assert!(with(|packet| packet[0] = (2 << 3) | 4).contains("version 2"));
        assert!(with(|packet| packet[0] |= 3 << 6).contains("not synchronised"));
        assert!(with(|packet| packet[1] = 16).contains("stratum 16"));
        assert!(with(|packet| packet[4] = 0x80).contains("below 0"));
        assert!(with(|packet| packet[9] = 1).contains("off by 1.1"));
        assert!(with(|packet| packet[40..].fill(0)).contains("what time"));
        assert!(with(|packet| packet[32..40].fill(0)).contains("what time"));
        assert!(with(|packet| packet[35] += 1).contains("before it was asked"));
        assert!(with(|packet| packet[43] += 1).contains("needed 1.010 s"));
        let kissed = with(|packet| {
            packet[0] |= 3 << 6;
            packet[1] = 0;
            packet[12..16].copy_from_slice(b"RATE");
        });
        assert!(kissed.ends_with("code RATE"), "{kissed}");
        assert!(with(|packet| packet[1] = 0).ends_with("code unknown"));
    }

    #[test]
    fn an_answer_in_version_3_is_as_good() {
        let mut packet = good(0.0);
        packet[0] = (3 << 3) | SERVER;
        found(&packet);
    }

    #[test]
    fn no_damage_to_a_datagram_makes_it_anything_but_nothing_wrong_or_plausible() {
        let mut chance = SeededChance::new(0x6E74_7034);
        let (mut nothing, mut bad, mut fine) = (0, 0, 0);
        for _ in 0..200_000 {
            let mut packet = good(0.0).to_vec();
            for _ in 0..=chance.up_to(3) {
                let at = chance.up_to(packet.len() as u64 - 1) as usize;
                packet[at] = chance.bits() as u8;
            }
            if chance.up_to(9) == 0 {
                packet.truncate(chance.up_to(PACKET_BYTES as u64) as usize);
            }
            let ours = packet.get(24..32) == Some(&COOKIE.to_be_bytes());
            match heard(&packet) {
                Heard::Nothing => {
                    assert!(!ours || packet.len() < PACKET_BYTES, "{packet:?}");
                    nothing += 1;
                }
                Heard::Answer(Err(Fault::Wrong(why))) => {
                    assert!(ours && why.chars().count() < 150, "{why}");
                    bad += 1;
                }
                Heard::Answer(Err(other)) => panic!("{other:?}"),
                Heard::Answer(Ok(found)) => {
                    assert!(ours && found.rtt <= ELAPSED, "{found:?}");
                    let offset = found.offset.expect("a clock");
                    assert!(offset.is_finite() && offset.abs() <= 2_f64.powi(31), "{offset}");
                    fine += 1;
                }
            }
        }
        assert!(nothing > 10_000 && bad > 10_000 && fine > 10_000, "{nothing} {bad} {fine}");
    }
}
