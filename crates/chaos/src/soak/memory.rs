//! Whether nodes need no more after a while than before: memory, open files, threads.
//!
//! A process is compared with itself: the last third of its life with the middle one, while it does
//! the same work under the same kind of faults. What was needed in the first third, for tables and
//! caches to fill, counts for nothing. Memory is judged by the median, because an allocator gives
//! little back; files and threads by the lower quartile, because each fault leaves some of them
//! waiting for a while, and what is never given back lifts the floor, too.

use crate::world::Verdict;
use crate::world::nodes::Alive;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A shorter life says nothing: a third of it is a few faults long.
const LIFE_MIN: Duration = Duration::from_secs(45);
/// From this on caches are full and arenas as large as they get.
const LIFE_LONG: Duration = Duration::from_secs(300);
/// How much more the last third may need than the middle one: a share, and something beside it,
/// for lives that are long, and for those that are not.
const MEMORY: [(f64, u64); 2] = [(0.05, 4 << 20), (0.12, 8 << 20)];
const FILES: [(f64, u64); 2] = [(0.10, 12), (0.25, 24)];
const THREADS: [(f64, u64); 2] = [(0.10, 4), (0.25, 8)];

/// Something that a process needs, and how it is judged.
struct Need {
    part: &'static str,
    of: fn(&Sample) -> u64,
    /// The quantile of each third that counts.
    share: f64,
    bounds: [(f64, u64); 2],
}

const NEEDS: [Need; 3] = [
    Need { part: "memory", of: |sample| sample.memory_bytes, share: 0.5, bounds: MEMORY },
    Need { part: "files", of: |sample| sample.files, share: 0.25, bounds: FILES },
    Need { part: "threads", of: |sample| sample.threads, share: 0.25, bounds: THREADS },
];

/// What a process needs at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub at: Instant,
    pub memory_bytes: u64,
    pub files: u64,
    pub threads: u64,
}

impl Sample {
    /// Of a process that runs now; nothing if it has just ended.
    pub fn of(pid: i32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
        let (memory_bytes, threads) = (number("VmRSS:")? << 10, number("Threads:")?);
        Some(Sample { at: Instant::now(), memory_bytes, files, threads })
    }
}

/// Every life of every node.
#[derive(Default)]
pub struct Lives {
    lives: BTreeMap<u64, Life>,
}

struct Life {
    node: usize,
    samples: Vec<Sample>,
}

/// The verdicts, and the thirds of the longest life.
pub struct Judged {
    pub rows: Vec<Verdict>,
    pub memory_thirds: Option<[u64; 3]>,
}

impl Lives {
    /// Looks at the processes that run; what they need together.
    pub fn look(&mut self, alive: &[Alive]) -> [u64; 3] {
        let mut sum = [0; 3];
        for Alive { node, life, pid } in alive {
            let Some(sample) = Sample::of(*pid) else { continue };
            let Sample { memory_bytes, files, threads, .. } = sample;
            for (sum, more) in sum.iter_mut().zip([memory_bytes, files, threads]) {
                *sum += more;
            }
            let life = self.lives.entry(*life);
            life.or_insert_with(|| Life { node: *node, samples: Vec::new() }).samples.push(sample);
        }
        sum
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.lives.len()
    }

    /// Compares the thirds of every life that was long enough.
    pub fn judge(&self) -> Judged {
        let judged: Vec<&Life> =
            self.lives.values().filter(|life| life.span() >= LIFE_MIN).collect();
        let longest = judged.iter().max_by_key(|life| life.span());
        let mut rows = Vec::new();
        for Need { part, of, share, bounds } in NEEDS {
            let show = |value: u64| match part {
                "memory" => format!("{:.1} MiB", value as f64 / f64::from(1 << 20)),
                _ => value.to_string(),
            };
            let broken = |life: &&Life| {
                let [_, middle, last] = life.thirds(of, share);
                let limit = life.limit(middle, &bounds);
                (last > limit).then(|| {
                    format!(
                        "{part} of node-{} grew in a life of {:.0?}: {} in its middle third, {} in \
                         its last, at most {} would do",
                        life.node + 1,
                        life.span(),
                        show(middle),
                        show(last),
                        show(limit),
                    )
                })
            };
            let done = match longest {
                None => format!("no node lived for {LIFE_MIN:?}, so nothing was compared"),
                Some(life) => {
                    let thirds = life.thirds(of, share).map(show);
                    format!(
                        "{} in the thirds of node-{}'s {:.0?}, the longest of {} lives",
                        thirds.join(", "),
                        life.node + 1,
                        life.span(),
                        judged.len(),
                    )
                }
            };
            let broken = judged.iter().filter_map(broken).collect();
            rows.push(Verdict { part, done, broken });
        }
        let memory_thirds = longest.map(|life| life.thirds(|one| one.memory_bytes, 0.5));
        Judged { rows, memory_thirds }
    }
}

impl Life {
    fn span(&self) -> Duration {
        match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => last.at - first.at,
            _ => Duration::ZERO,
        }
    }

    /// A quantile of each third.
    fn thirds(&self, of: fn(&Sample) -> u64, share: f64) -> [u64; 3] {
        let Some(first) = self.samples.first() else { return [0; 3] };
        let third = self.span().as_secs_f64() / 3.0;
        [0, 1, 2].map(|number| {
            let inside = |sample: &&Sample| {
                let place = (sample.at - first.at).as_secs_f64() / third;
                place.min(2.0) as u32 == number
            };
            let mut values: Vec<u64> = self.samples.iter().filter(inside).map(of).collect();
            values.sort_unstable();
            let place = values.len().saturating_sub(1) as f64 * share;
            values.get(place as usize).copied().unwrap_or(0)
        })
    }

    fn limit(&self, middle: u64, bounds: &[(f64, u64); 2]) -> u64 {
        let (share, beside) = bounds[usize::from(self.span() < LIFE_LONG)];
        middle + (middle as f64 * share) as u64 + beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample a second of a node that needs so much at each.
    fn lives(seconds: u64, need: impl Fn(u64) -> (u64, u64)) -> Lives {
        let begun = Instant::now();
        let sample = |second| {
            let (memory_mib, files) = need(second);
            let at = begun + Duration::from_secs(second);
            Sample { at, memory_bytes: memory_mib << 20, files, threads: 30 }
        };
        let samples = (0..=seconds).map(sample).collect();
        Lives { lives: BTreeMap::from([(4, Life { node: 1, samples })]) }
    }

    fn broken(lives: &Lives) -> Vec<String> {
        lives.judge().rows.into_iter().flat_map(|row| row.broken).collect()
    }

    #[test]
    fn a_node_that_fills_its_caches_first_is_flat() {
        let lives = lives(600, |second| (60 + second.min(200) / 4, 100 + second % 50));
        assert_eq!(broken(&lives), [""; 0]);
        let thirds = lives.judge().memory_thirds.expect("it lived for long enough");
        assert!(thirds[0] < thirds[1] && thirds[1] == thirds[2], "{thirds:?}");
    }

    #[test]
    fn a_node_that_leaks_memory_is_told() {
        let told = broken(&lives(600, |second| (60 + second / 10, 100)));
        assert!(told[0].starts_with("memory of node-2 grew"), "{told:?}");
    }

    #[test]
    fn a_node_that_leaks_files_is_told_and_one_that_opens_many_for_a_while_is_not() {
        let told = broken(&lives(600, |second| (60, 100 + second / 5)));
        assert!(told[0].starts_with("files of node-2 grew"), "{told:?}");
        let busy = lives(600, |second| (60, if second % 3 == 0 { 400 } else { 100 }));
        assert_eq!(broken(&busy), [""; 0]);
    }

    #[test]
    fn a_short_life_has_more_room_and_a_very_short_one_is_not_judged() {
        let growing = |second| (60 + second / 5, 100);
        assert_eq!(broken(&lives(100, growing)), [""; 0]);
        let judged = lives(40, |second| (60 + 10 * second, 100)).judge();
        assert_eq!(judged.memory_thirds, None);
        assert!(judged.rows[0].done.contains("nothing was compared"));
    }

    #[test]
    fn this_process_has_memory_files_and_threads() {
        let sample = Sample::of(std::process::id() as i32).expect("it runs");
        assert!(sample.memory_bytes > 1 << 20 && sample.files > 2 && sample.threads > 0);
        assert_eq!(Sample::of(0), None);
    }
}
