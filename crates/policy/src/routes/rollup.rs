//! What is remembered of a minute's requests.
//!
//! Durations go into buckets: each power of two of nanoseconds is cut into twenty equal parts, so
//! a bucket is at most a twentieth of its values wide and its middle at most 2.5 % off. Buckets
//! of several threads, nodes and minutes add up to exactly what one would have counted.
//!
//! As bytes: a version, then for each bucket in use how far it is from the one before and its
//! count, both as variable-length numbers.

use std::fmt;
use std::time::Duration;

/// What happened in a minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    /// Answers by the first digit of their status, from 1 to 5.
    pub answers: [u64; 5],
    /// Requests that no upstream was asked about: no room, too many, paused.
    pub refused: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// How long the answers took.
    pub latency: Histogram,
}

/// One request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// How it ended.
    pub ending: Ending,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client.
    pub bytes_out: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer of this status, after so long.
    Answered(u16, Duration),
    /// At the door, which says nothing about how fast the upstreams are.
    Refused,
}

impl Minute {
    /// Counts a request. A status outside of what HTTP knows counts among the server's errors.
    pub fn note(&mut self, exchange: &Exchange) {
        match exchange.ending {
            Ending::Answered(status, took) => {
                let class = match status {
                    100..=599 => usize::from(status / 100 - 1),
                    _ => 4,
                };
                add(&mut self.answers[class], 1);
                self.latency.note(took);
            }
            Ending::Refused => add(&mut self.refused, 1),
        }
        add(&mut self.bytes_in, exchange.bytes_in);
        add(&mut self.bytes_out, exchange.bytes_out);
    }

    /// Adds what somebody else counted.
    pub fn merge(&mut self, other: &Minute) {
        for (mine, theirs) in self.answers.iter_mut().zip(other.answers) {
            add(mine, theirs);
        }
        add(&mut self.refused, other.refused);
        add(&mut self.bytes_in, other.bytes_in);
        add(&mut self.bytes_out, other.bytes_out);
        self.latency.merge(&other.latency);
    }

    /// How long the answers took: see [`Histogram::quantile`].
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        self.latency.quantile(q)
    }

    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        self.answers.iter().fold(self.refused, |sum, count| sum.saturating_add(*count))
    }
}

/// How often which duration was seen, from a microsecond to an hour; others count as the nearest
/// of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// By bucket, up to the last in use.
    counts: Vec<u64>,
}

/// Why bytes are no histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHistogram {
    /// Nothing, not even a version.
    Empty,
    /// Longer than any histogram can be.
    TooLong {
        /// How long.
        length: usize,
    },
    /// Made by rules that are not known here.
    UnknownVersion {
        /// Which.
        version: u8,
    },
    /// They end within a number, or between the two of a pair.
    CutOff,
    /// A number has more than 64 bits, or more bytes than it needs.
    BadNumber {
        /// Where it begins.
        at: usize,
    },
    /// A bucket comes twice, is too far up, or counts nothing.
    BadBucket {
        /// Where its pair begins.
        at: usize,
    },
}

const VERSION: u8 = 1;
const NANOS_MIN: u64 = 1_000;
const NANOS_MAX: u64 = 3_600 * 1_000_000_000;
/// Into so many parts each power of two is cut.
const PARTS: u64 = 20;
/// The power of two that the shortest duration belongs to.
const POWER_MIN: u32 = NANOS_MIN.ilog2();
const BUCKETS: usize = ((NANOS_MAX.ilog2() - POWER_MIN + 1) as usize) * PARTS as usize;
/// A number of 64 bits in groups of seven.
const NUMBER_LENGTH_MAX: usize = 10;

impl Histogram {
    /// No histogram is longer as bytes.
    pub const BYTES_MAX: usize = 1 + BUCKETS * (2 + NUMBER_LENGTH_MAX);

    /// Counts a duration.
    pub fn note(&mut self, took: Duration) {
        let bucket = bucket_of(took);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        add(&mut self.counts[bucket], 1);
    }

    /// Adds what somebody else counted.
    pub fn merge(&mut self, other: &Histogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            add(mine, *theirs);
        }
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// How many took no longer than this, those counted together with it included.
    pub fn at_most(&self, span: Duration) -> u64 {
        let within = self.counts.iter().take(bucket_of(span) + 1);
        within.fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// How long all of them took together, at most 2.5 % off.
    pub fn sum(&self) -> Duration {
        let spans = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let seconds =
            |(bucket, count): (usize, &u64)| middle_of(bucket).as_secs_f64() * *count as f64;
        Duration::try_from_secs_f64(spans.map(seconds).sum()).unwrap_or(Duration::MAX)
    }

    /// The duration that the part `q` of all did not exceed, at most 2.5 % off: 0.5 asks for the
    /// median, 1 for the longest. None if nothing was counted, or `q` is not from 0 to 1.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let total: u128 = self.counts.iter().map(|count| u128::from(*count)).sum();
        if total == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let rank = (libm::ceil(q * total as f64) as u128).clamp(1, total);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += u128::from(*count);
            seen >= rank
        });
        bucket.map(middle_of)
    }

    /// The histogram as bytes, a few for each bucket in use.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        let mut next = 0;
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            write_number(&mut bytes, (bucket - next) as u64);
            write_number(&mut bytes, *count);
            next = bucket + 1;
        }
        bytes
    }

    /// The histogram that [`Histogram::to_bytes`] wrote. Nothing else passes: each histogram has
    /// exactly one form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadHistogram> {
        if bytes.len() > Self::BYTES_MAX {
            return Err(BadHistogram::TooLong { length: bytes.len() });
        }
        match bytes.first() {
            None => return Err(BadHistogram::Empty),
            Some(&VERSION) => {}
            Some(&version) => return Err(BadHistogram::UnknownVersion { version }),
        }
        let (mut counts, mut at) = (Vec::new(), 1);
        while at < bytes.len() {
            let begin = at;
            let gap = read_number(bytes, &mut at)?;
            let count = read_number(bytes, &mut at)?;
            let bucket = usize::try_from(gap).ok().and_then(|gap| gap.checked_add(counts.len()));
            match bucket {
                Some(bucket) if bucket < BUCKETS && count > 0 => {
                    counts.resize(bucket, 0);
                    counts.push(count);
                }
                Some(_) | None => return Err(BadHistogram::BadBucket { at: begin }),
            }
        }
        Ok(Histogram { counts })
    }
}

impl fmt::Display for BadHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadHistogram::Empty => write!(f, "a histogram begins with its version, this is empty"),
            BadHistogram::TooLong { length } => {
                let most = Histogram::BYTES_MAX;
                write!(f, "a histogram has at most {most} bytes, this has {length}")
            }
            BadHistogram::UnknownVersion { version } => {
                write!(f, "a histogram of version {version}; known is {VERSION}")
            }
            BadHistogram::CutOff => write!(f, "a histogram that is cut off"),
            BadHistogram::BadNumber { at } => {
                write!(f, "byte {at} of a histogram begins no number of at most 64 bits")
            }
            BadHistogram::BadBucket { at } => {
                write!(f, "byte {at} of a histogram begins no bucket of {BUCKETS} with a count")
            }
        }
    }
}

impl std::error::Error for BadHistogram {}

fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

fn bucket_of(took: Duration) -> usize {
    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).clamp(NANOS_MIN, NANOS_MAX);
    let power = nanos.ilog2();
    let part = ((nanos - (1 << power)) * PARTS) >> power;
    (power - POWER_MIN) as usize * PARTS as usize + part as usize
}

fn middle_of(bucket: usize) -> Duration {
    let (octave, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    let power = u64::from(POWER_MIN) + octave;
    let middle = (((2 * (PARTS + part) + 1) << power) / (2 * PARTS)).clamp(NANOS_MIN, NANOS_MAX);
    Duration::from_nanos(middle)
}

/// Seven bits a byte, the lowest first; a high bit says that more follow.
fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &[u8], at: &mut usize) -> Result<u64, BadHistogram> {
    let begin = *at;
    let bad = BadHistogram::BadNumber { at: begin };
    let mut number = 0_u64;
    for position in 0..NUMBER_LENGTH_MAX {
        let byte = *bytes.get(*at).ok_or(BadHistogram::CutOff)?;
        *at += 1;
        let (bits, shift) = (u64::from(byte & 0x7f), 7 * position as u32);
        if bits << shift >> shift != bits {
            return Err(bad);
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            let needless = byte == 0 && position > 0;
            return if needless { Err(bad) } else { Ok(number) };
        }
    }
    Err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(nanos: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        nanos.iter().for_each(|nanos| histogram.note(Duration::from_nanos(*nanos)));
        histogram
    }

    fn answered(status: u16, millis: u64) -> Exchange {
        let ending = Ending::Answered(status, Duration::from_millis(millis));
        Exchange { ending, bytes_in: 10, bytes_out: 100 }
    }

    #[test]
    fn those_up_to_a_span_and_the_sum_of_all_can_be_asked_for() {
        let seen = histogram(&[1_000_000, 5_000_000, 40_000_000, 2_000_000_000]);
        let at_most = |ms| seen.at_most(Duration::from_millis(ms));
        assert_eq!([at_most(0), at_most(2), at_most(10), at_most(3_000)], [0, 1, 2, 4]);
        let sum = seen.sum().as_secs_f64();
        assert!((sum / 2.046 - 1.0).abs() < 0.025, "{sum}");
        assert_eq!(Histogram::default().sum(), Duration::ZERO);
    }

    #[test]
    fn a_minute_counts_by_class() {
        let mut minute = Minute::default();
        for status in [101, 200, 204, 302, 404, 500, 599, 600, 999, 0, 99] {
            minute.note(&answered(status, 5));
        }
        minute.note(&Exchange { ending: Ending::Refused, bytes_in: 1, bytes_out: 2 });
        assert_eq!(minute.answers, [1, 2, 1, 1, 6]);
        assert_eq!((minute.refused, minute.requests()), (1, 12));
        assert_eq!((minute.bytes_in, minute.bytes_out), (111, 1_102));
        assert_eq!(minute.latency.count(), 11, "what was refused took no time");
    }

    #[test]
    fn counts_stop_at_their_end() {
        let mut minute = Minute { bytes_in: u64::MAX, ..Minute::default() };
        minute.note(&answered(200, 1));
        minute.merge(&minute.clone());
        assert_eq!((minute.bytes_in, minute.answers[1]), (u64::MAX, 2));
        let full = Histogram { counts: vec![u64::MAX; BUCKETS] };
        assert_eq!(full.count(), u64::MAX);
        assert!(full.quantile(0.0) < full.quantile(0.5) && full.quantile(0.5) < full.quantile(1.0));
        assert!(full.to_bytes().len() <= Histogram::BYTES_MAX);
        assert_eq!(Histogram::from_bytes(&full.to_bytes()), Ok(full));
    }

    #[test]
    fn nothing_has_no_quantile_and_no_part_is_beyond_one() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        for q in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(histogram(&[5_000]).quantile(q), None, "{q}");
        }
    }

    #[test]
    fn what_is_too_short_or_too_long_counts_as_the_nearest() {
        let ends = histogram(&[0, u64::MAX]);
        let near = |q: f64, expected: f64| {
            let found = ends.quantile(q).expect("is there").as_secs_f64();
            assert!((found / expected - 1.0).abs() <= 0.025, "{found} for {expected}");
        };
        near(0.0, 1e-6);
        near(1.0, 3_600.0);
        assert_eq!(bucket_of(Duration::MAX), bucket_of(Duration::from_secs(3_600)));
    }

    #[test]
    fn powers_of_two_which_are_the_furthest_off_are_within_three_percent() {
        for power in 10..=41 {
            let exact = 1_u64 << power;
            let found = histogram(&[exact]).quantile(0.5).expect("is there").as_nanos() as f64;
            assert!((found / exact as f64 - 1.0).abs() <= 0.03, "{found} for {exact}");
        }
    }

    #[test]
    fn a_usual_minute_is_small_as_bytes() {
        assert_eq!(Histogram::default().to_bytes(), [1]);
        let mut minute = Histogram::default();
        (0..60_000_u64).for_each(|number| minute.note(Duration::from_micros(500 + number)));
        assert!(minute.to_bytes().len() < 500, "{} bytes", minute.to_bytes().len());
    }

    #[test]
    fn hostile_bytes_are_refused_with_a_reason() {
        let beyond: &[u8] = &[1, 0x94, 0x05, 1]; // 660
        let cases: &[(&[u8], BadHistogram)] = &[
            (&[], BadHistogram::Empty),
            (&[2], BadHistogram::UnknownVersion { version: 2 }),
            (&[1, 0], BadHistogram::CutOff),
            (&[1, 0x80], BadHistogram::CutOff),
            (&[1, 0, 0x80], BadHistogram::CutOff),
            (&[1, 0, 0], BadHistogram::BadBucket { at: 1 }),
            (&[1, 0, 1, 0, 0], BadHistogram::BadBucket { at: 3 }),
            (&[1, 0x80, 0, 1], BadHistogram::BadNumber { at: 1 }),
            (beyond, BadHistogram::BadBucket { at: 1 }),
            (
                &[1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
                BadHistogram::BadNumber { at: 2 },
            ),
            (
                &[1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0],
                BadHistogram::BadNumber { at: 2 },
            ),
            (
                &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1],
                BadHistogram::BadBucket { at: 1 },
            ),
            (
                &[1; Histogram::BYTES_MAX + 1],
                BadHistogram::TooLong { length: Histogram::BYTES_MAX + 1 },
            ),
        ];
        for (bytes, expected) in cases {
            let found = Histogram::from_bytes(bytes);
            assert_eq!(found, Err(*expected), "{:?}", &bytes[..bytes.len().min(16)]);
            assert!(!expected.to_string().is_empty());
        }
        assert_eq!(BUCKETS, 660);
        assert!(Histogram::from_bytes(&[1, 0x93, 0x05, 1]).is_ok(), "659 is the last bucket");
    }

    fn any_nanos() -> impl Strategy<Value = Vec<u64>> {
        let spread = (10_u32..42, any::<u64>());
        let one = spread.prop_map(|(power, low)| {
            ((1 << power) | (low & ((1 << power) - 1))).clamp(NANOS_MIN, NANOS_MAX)
        });
        prop::collection::vec(one, 1..200)
    }

    proptest! {
        #[test]
        fn a_quantile_is_at_most_three_percent_off(nanos in any_nanos(), q in 0.0_f64..=1.0) {
            let found = histogram(&nanos).quantile(q).expect("is there").as_nanos() as f64;
            let mut sorted = nanos;
            sorted.sort_unstable();
            let rank = libm::ceil(q * sorted.len() as f64) as usize;
            let exact = sorted[rank.max(1) - 1] as f64;
            prop_assert!((found / exact - 1.0).abs() <= 0.03, "{found} for {exact}");
        }

        #[test]
        fn merging_is_counting_together_in_any_order(one in any_nanos(), two in any_nanos()) {
            let minute = |nanos: &[u64], status: u16| {
                let mut minute = Minute::default();
                nanos.iter().for_each(|nanos| {
                    let ending = Ending::Answered(status, Duration::from_nanos(*nanos));
                    minute.note(&Exchange { ending, bytes_in: *nanos, bytes_out: 1 });
                });
                minute
            };
            let (mut forth, mut back) = (minute(&one, 200), minute(&two, 503));
            let first = forth.clone();
            forth.merge(&back);
            back.merge(&first);
            prop_assert_eq!(&forth, &back);
            let together: Vec<u64> = one.into_iter().chain(two).collect();
            prop_assert_eq!(forth.latency, histogram(&together));
        }

        #[test]
        fn bytes_come_back_as_they_went(nanos in any_nanos()) {
            let histogram = histogram(&nanos);
            prop_assert_eq!(Histogram::from_bytes(&histogram.to_bytes()), Ok(histogram));
        }

        #[test]
        fn whatever_bytes_are_accepted_are_the_only_form(
            bytes in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..40),
        ) {
            for bytes in [bytes.clone(), [vec![VERSION], bytes].concat()] {
                if let Ok(histogram) = Histogram::from_bytes(&bytes) {
                    prop_assert_eq!(histogram.to_bytes(), bytes);
                }
            }
        }
    }
}
