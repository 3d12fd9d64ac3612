//! The settings of the worker pools, and what they come to.

use super::section::{Reader, section};
use super::value::Value;
use super::{hours, ms};
use skep_policy::backoff;
use skep_policy::pools::{BadRatio, Ratio, SharedRules, Tier, TierRules, sizes_for};
use skep_pools::{Options, QUEUE_MAX, TierOptions, WORKERS_MAX};
use std::time::Duration;

impl Value for Ratio {
    fn expected() -> String {
        BadRatio::EXPECTED.to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_: BadRatio| String::new())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

section! {
    /// The worker pools.
    pub struct PoolSettings in "pools" {
        /// Whether there are pools. They cannot be turned off, because a node's own work runs in
        /// them; the name is there for those who have it in their environment.
        enabled: bool = true;
        /// Whether the sizes of the pools follow the processors this process may use: critical has
        /// half as many workers at most, high three quarters, shared one and a half times, never
        /// less than two. Sizes that are set win.
        auto_configure: bool = false;
        /// After this time without work a worker above the minimum goes; each tier and the shared
        /// pool can set its own. If not set, 30s, and 60s for normal and low.
        idle_timeout: Option<Duration> = None;
        /// The most that the wait before the first retry can be; each further one doubles.
        retry_base: Duration = ms(100), in ms(1)..=hours(1);
        /// Dead letters that a node keeps in memory for each tier.
        dead_letters_max: usize = 1_000, in 1..=100_000;
        /// Processors that normal and low tasks may keep busy at once; all of them if not set.
        background_processors: Option<usize> = None;
        /// How long blocking code has to notice that its time is over, before its thread is given
        /// up and replaced.
        grace: Duration = ms(10), in ms(1)..=hours(1);
    }
}

section! {
    /// The pool without a queue that helps the others.
    pub struct SharedPoolSettings in "pools.shared" {
        /// Workers that are always there.
        min: usize = 0, in 0..=usize::from(WORKERS_MAX);
        /// The most workers.
        max: usize = 12, in 0..=usize::from(WORKERS_MAX);
        /// Normal and low are helped when more tasks than this wait.
        steal_threshold: usize = 10, in 0..=QUEUE_MAX;
        /// After this time without work a shared worker goes.
        idle_timeout: Option<Duration> = None;
    }
}

/// Declares the section of a tier, with the tier's own defaults.
macro_rules! tier_section {
    ($(#[$about:meta])* $name:ident, $section:tt, $tier:expr) => {
        section! {
            $(#[$about])*
            pub struct $name in $section {
                /// Workers that are always there.
                min: usize = 1, in 1..=usize::from(WORKERS_MAX);
                /// The most workers of its own.
                max: usize = usize::from(TierOptions::of($tier).rules.max),
                    in 1..=usize::from(WORKERS_MAX);
                /// Tasks that may wait, those that wait for a retry included.
                queue: usize = TierOptions::of($tier).queue, in 1..=QUEUE_MAX;
                /// More waiting tasks for each worker than this call for another worker.
                scale_up_ratio: Ratio = TierOptions::of($tier).rules.up;
                /// Fewer waiting tasks for each worker than this let one go.
                scale_down_ratio: Ratio = TierOptions::of($tier).rules.down;
                /// More waiting tasks for each of the most workers than this call for shared ones.
                overflow_ratio: Ratio = TierOptions::of($tier).rules.overflow;
                /// After this time without work a worker above the minimum goes.
                idle_timeout: Option<Duration> = None;
                /// How long an attempt may run.
                task_timeout: Duration = TierOptions::of($tier).task_timeout, in ms(1)..=hours(24);
                /// How often a task is tried again after a failure.
                max_retries: usize = TierOptions::of($tier).retries as usize, in 0..=1_000;
                /// The most that a wait before a retry can be.
                retry_cap: Duration = TierOptions::of($tier).backoff.cap, in ms(1)..=hours(24);
            }
        }

        impl $name {
            fn options(&self, pools: &PoolSettings) -> TierOptions {
                let default = TierOptions::of($tier);
                TierOptions {
                    rules: TierRules {
                        min: small(self.min),
                        max: small(self.max),
                        up: self.scale_up_ratio,
                        down: self.scale_down_ratio,
                        overflow: self.overflow_ratio,
                    },
                    queue: self.queue,
                    idle_timeout: self
                        .idle_timeout
                        .or(pools.idle_timeout)
                        .unwrap_or(default.idle_timeout),
                    task_timeout: self.task_timeout,
                    retries: u32::try_from(self.max_retries).unwrap_or(u32::MAX),
                    backoff: backoff::Options { base: pools.retry_base, cap: self.retry_cap },
                }
            }
        }
    };
}

tier_section!(
    /// The critical tier: error events, refused requests, breaker changes.
    CriticalSettings, "pools.critical", Tier::Critical
);
tier_section!(
    /// The high tier: access log, health checks, webhooks.
    HighSettings, "pools.high", Tier::High
);
tier_section!(
    /// The normal tier: aggregation, histograms.
    NormalSettings, "pools.normal", Tier::Normal
);
tier_section!(
    /// The low tier: retention, cleanup.
    LowSettings, "pools.low", Tier::Low
);

fn small(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// All settings of the pools.
#[derive(Clone, Debug)]
pub struct AllPoolSettings {
    pub pools: PoolSettings,
    pub critical: CriticalSettings,
    pub high: HighSettings,
    pub normal: NormalSettings,
    pub low: LowSettings,
    pub shared: SharedPoolSettings,
    /// What they come to.
    pub options: Options,
}

impl AllPoolSettings {
    pub fn keys() -> Vec<&'static str> {
        [
            PoolSettings::KEYS,
            CriticalSettings::KEYS,
            HighSettings::KEYS,
            NormalSettings::KEYS,
            LowSettings::KEYS,
            SharedPoolSettings::KEYS,
        ]
        .concat()
    }

    pub fn read(reader: &mut Reader) -> Self {
        let pools = PoolSettings::read(reader);
        if !pools.enabled {
            reader.conflict(
                "pools.enabled",
                "`pools.enabled` cannot be false: the node's own work runs in the pools; for the \
                 fewest threads set the max of each tier to 1 and `pools.shared.max` to 0"
                    .to_owned(),
            );
        }
        let (critical, high) = (CriticalSettings::read(reader), HighSettings::read(reader));
        let (normal, low) = (NormalSettings::read(reader), LowSettings::read(reader));
        let shared = SharedPoolSettings::read(reader);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let default = Options::new(small(cores));
        let mut options = Options {
            tiers: [
                critical.options(&pools),
                high.options(&pools),
                normal.options(&pools),
                low.options(&pools),
            ],
            shared: SharedRules {
                min: small(shared.min),
                max: small(shared.max),
                steal_above: u32::try_from(shared.steal_threshold).unwrap_or(u32::MAX),
                background_max: pools
                    .background_processors
                    .map_or(default.shared.background_max, small),
            },
            shared_idle_timeout: shared
                .idle_timeout
                .or(pools.idle_timeout)
                .unwrap_or(default.shared_idle_timeout),
            dead_letters_max: pools.dead_letters_max,
            grace: pools.grace,
            ..default
        };
        if pools.auto_configure {
            size_automatically(reader, &mut options, small(cores));
        }
        tell_problems(reader, &options);
        AllPoolSettings { pools, critical, high, normal, low, shared, options }
    }
}

/// Sizes by processors, where nobody has set one.
fn size_automatically(reader: &mut Reader, options: &mut Options, cores: u16) {
    let sizes = sizes_for(cores);
    let is_set = |key: &str| reader.layers.values.contains_key(key);
    let tiers = [(Tier::Critical, sizes.critical), (Tier::High, sizes.high)];
    for (tier, max) in tiers {
        let own = options.tier_mut(tier);
        if !is_set(&format!("pools.{tier}.max")) {
            own.rules.max = max.max(own.rules.min);
            if !is_set(&format!("pools.{tier}.queue")) {
                own.queue = own.queue.max(usize::from(own.rules.max));
            }
        }
    }
    if !is_set("pools.shared.max") {
        options.shared.max = sizes.shared.max(options.shared.min);
    }
    let chosen = [
        ("pools.critical.max", options.tier(Tier::Critical).rules.max),
        ("pools.high.max", options.tier(Tier::High).rules.max),
        ("pools.shared.max", options.shared.max),
    ];
    for (key, max) in chosen {
        reader.now_is(key, max.to_string(), &format!("pools.auto_configure, {cores} processors"));
    }
}

/// Each problem at the setting that most likely caused it.
fn tell_problems(reader: &mut Reader, options: &Options) {
    for problem in options.problems() {
        let (pool, what) = problem.split_once(": ").unwrap_or(("shared", &problem));
        let field = if what.contains("scale-down") {
            "scale_down_ratio"
        } else if what.starts_with("the queue") {
            "queue"
        } else if what.starts_with("the longest wait") {
            "retry_cap"
        } else if what.contains("processor") {
            return reader.conflict("pools.background_processors", problem.clone());
        } else {
            "max"
        };
        reader.conflict(&format!("pools.{pool}.{field}"), format!("`pools.{pool}`: {what}"));
    }
}
