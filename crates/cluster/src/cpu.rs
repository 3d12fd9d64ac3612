//! How much of the processors that this process may use it does use.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::path::Path;
use std::time::{Duration, Instant};

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Measures the share of the processors that this process uses.
///
/// A container that may use half a processor and does is at 100 percent, whatever the machine has:
/// what counts is how much more it could do.
#[derive(Debug)]
pub struct CpuMeter {
    cores: f64,
    looked_at: Instant,
    before: (Instant, Duration),
    percent: f64,
}

/// Limits can change while a process runs.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Shorter spans say nothing: the clock of the scheduler is not that fine.
const SPAN_MIN: Duration = Duration::from_millis(100);

impl Default for CpuMeter {
    fn default() -> Self {
        CpuMeter::new()
    }
}

impl CpuMeter {
    /// Begins to measure.
    pub fn new() -> Self {
        let now = Instant::now();
        CpuMeter { cores: allowed_cores(), looked_at: now, before: (now, used()), percent: 0.0 }
    }

    /// Processors that this process may use; a fraction where its time is limited.
    pub fn cores(&self) -> f64 {
        self.cores
    }

    /// Percent of them since the last call, 0 to 100. A call too soon after the last gives the same
    /// again.
    pub fn sample(&mut self) -> f64 {
        let now = Instant::now();
        let wall = now.duration_since(self.before.0);
        if wall < SPAN_MIN {
            return self.percent;
        }
        if now.duration_since(self.looked_at) > LOOK_EVERY {
            self.cores = allowed_cores();
            self.looked_at = now;
        }
        let used = used();
        self.percent = percent(used.saturating_sub(self.before.1), wall, self.cores);
        self.before = (now, used);
        self.percent
    }
}

/// Percent of `cores` processors that `used` is in `wall`.
pub fn percent(used: Duration, wall: Duration, cores: f64) -> f64 {
    let could = wall.as_secs_f64() * cores;
    if could > 0.0 { (used.as_secs_f64() / could * 100.0).clamp(0.0, 100.0) } else { 0.0 }
}

fn used() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(tv_sec), u32::try_from(tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// Processors that this process may use: the least of what its affinity, the quotas of its control
/// groups and of their parents allow. One if nothing can be read.
pub fn allowed_cores() -> f64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let affinity = read(Path::new("/proc/self/status")).and_then(|text| affinity_of(&text));
    let affinity = affinity.or_else(|| Some(std::thread::available_parallelism().ok()?.get()));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let quota = quota(&groups, |path| read(&Path::new(CGROUPS).join(path)));
    let cores = affinity.unwrap_or(1) as f64;
    quota.map_or(cores, |quota| cores.min(quota))
}

/// The processors that `/proc/self/status` allows.
fn affinity_of(status: &str) -> Option<usize> {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut count = 0;
    for part in line.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        count += last.checked_sub(first)? + 1;
    }
    Some(count)
}

/// The least quota along the control groups of `/proc/self/cgroup`; `read` gets paths below where
/// these are mounted.
fn quota(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<f64> {
    let mut least: Option<f64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let is_cpu = controllers.split(',').any(|controller| controller == "cpu");
        if !controllers.is_empty() && !is_cpu {
            continue;
        }
        let mut path = path.trim_matches('/');
        loop {
            let within = |file: &str| match path {
                "" => file.to_owned(),
                _ => format!("{path}/{file}"),
            };
            let found = if controllers.is_empty() {
                read(&within("cpu.max")).and_then(|text| quota_v2(&text))
            } else {
                // Both controllers are often mounted together, and linked under each name.
                let home = |file| format!("cpu/{}", within(file));
                let quota = read(&home("cpu.cfs_quota_us"));
                quota.and_then(|quota| quota_v1(&quota, &read(&home("cpu.cfs_period_us"))?))
            };
            least = match (least, found) {
                (Some(least), Some(found)) => Some(least.min(found)),
                (least, found) => found.or(least),
            };
            if path.is_empty() {
                break;
            }
            path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
    }
    least
}

/// `cpu.max`: `max 100000` or `50000 100000`.
fn quota_v2(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    share(quota.parse().ok()?, period.parse().ok()?)
}

/// `cpu.cfs_quota_us`, which is -1 without a limit, and `cpu.cfs_period_us`.
fn quota_v1(quota: &str, period: &str) -> Option<f64> {
    share(quota.trim().parse().ok()?, period.trim().parse().ok()?)
}

fn share(quota: i64, period: i64) -> Option<f64> {
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_busy_thread_is_seen_and_the_share_stays_within_bounds() {
        let mut meter = CpuMeter::new();
        let start = Instant::now();
        let mut spun = 0_u64;
        while start.elapsed() < Duration::from_millis(150) {
            spun = std::hint::black_box(spun.wrapping_add(1));
        }
        let busy = meter.sample();
        // Other tests share the machine, so only little of a processor is sure.
        assert!(busy > 1.0 / meter.cores() && busy <= 100.0, "{busy} of {}", meter.cores());
        assert_eq!(meter.sample(), busy, "too soon for another answer");
    }

    #[test]
    fn a_share_is_of_what_may_be_used_and_never_beyond() {
        let second = Duration::from_secs(1);
        assert_eq!(percent(second / 4, second, 0.5), 50.0);
        assert_eq!(percent(second, second, 4.0), 25.0);
        assert_eq!(percent(second * 9, second, 4.0), 100.0);
        assert_eq!(percent(second, Duration::ZERO, 4.0), 0.0);
        assert_eq!(percent(second, second, 0.0), 0.0);
    }

    #[test]
    fn affinity_is_counted_from_ranges() {
        let status = |list: &str| format!("Name:\tskep\nCpus_allowed_list:\t{list}\nMems:\t0\n");
        assert_eq!(affinity_of(&status("0-3")), Some(4));
        assert_eq!(affinity_of(&status("0")), Some(1));
        assert_eq!(affinity_of(&status("0-1,4,6-7")), Some(5));
        assert_eq!(affinity_of(&status("3-1")), None);
        assert_eq!(affinity_of(&status("x")), None);
        assert_eq!(affinity_of("Name:\tskep\n"), None);
    }

    #[test]
    fn the_least_quota_along_the_groups_counts() {
        let files = |files: &[(&str, &str)]| -> HashMap<String, String> {
            files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect()
        };
        let of = |groups: &str, files: &HashMap<String, String>| {
            quota(groups, |path| files.get(path).cloned())
        };
        let newer = files(&[
            ("a/b/cpu.max", "max 100000\n"),
            ("a/cpu.max", "150000 100000\n"),
            ("cpu.max", "200000 100000\n"),
        ]);
        assert_eq!(of("0::/a/b\n", &newer), Some(1.5));
        assert_eq!(of("0::/\n", &newer), Some(2.0));
        assert_eq!(of("0::/a/b\n", &files(&[("a/b/cpu.max", "max 100000\n")])), None);

        let older = files(&[
            ("cpu/docker/x/cpu.cfs_quota_us", "50000\n"),
            ("cpu/docker/x/cpu.cfs_period_us", "100000\n"),
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(of("5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n", &older), Some(0.5));
        assert_eq!(of("5:memory:/docker/x\n", &older), None);
        assert_eq!(of("4:cpu,cpuacct:/\n", &older), None);
        for odd in ["", "nonsense", "0:", "1:cpu", "0::/\u{0}"] {
            assert_eq!(of(odd, &files(&[("cpu.max", "0 0")])), None, "{odd:?}");
        }
    }
}
