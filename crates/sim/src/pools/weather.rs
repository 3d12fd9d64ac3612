//! How late things are, and what goes wrong.

use super::task::{End, Nature, Order, Plan, one_of};
use skep_policy::{Chance, SeededChance, Time};
use std::time::Duration;

/// Everything happens on this grid where the weather is rough, so that much of it happens at the
/// same instant.
const GRID: Duration = Duration::from_micros(100);

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How late something is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    /// At least.
    pub least: Duration,
    /// At most, usually.
    pub usual: Duration,
    /// At most, rarely.
    pub rare: Duration,
    /// How rarely: of 1024 times, so often.
    pub rarely: u64,
    pub grid: Duration,
}

impl Late {
    const NEVER: Late = Late {
        least: Duration::ZERO,
        usual: Duration::ZERO,
        rare: Duration::ZERO,
        rarely: 0,
        grid: micros(1),
    };

    /// Between these two, evenly.
    const fn between(least: Duration, most: Duration) -> Self {
        Late { least, usual: most, rare: most, rarely: 0, grid: micros(1) }
    }

    pub fn draw(&self, chance: &mut SeededChance) -> Duration {
        let most = match self.rarely > 0 && chance.up_to(1_023) < self.rarely {
            true => self.rare,
            false => self.usual,
        };
        if most <= self.least {
            return self.least;
        }
        let steps = (most - self.least).as_nanos() as u64 / self.grid.as_nanos() as u64;
        self.least + self.grid * chance.up_to(steps) as u32
    }

    pub fn most(&self) -> Duration {
        self.least.max(self.usual).max(self.rare)
    }
}

/// How likely each fate of an attempt is, relative to the others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fates {
    pub succeeds: u64,
    pub fails: u64,
    pub fails_for_good: u64,
    pub panics: u64,
    pub dies: u64,
    /// Takes longer than it may, and comes back.
    pub overruns: u64,
    /// Never comes back by itself.
    pub hangs: u64,
}

/// The world around the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub start_late: Late,
    pub wake_late: Late,
    pub timer_late: Late,
    pub step_late: Late,
    pub linger: Late,
    pub fates: Fates,
    /// Whether durations are on the grid.
    pub rough: bool,
}

impl Weather {
    /// A machine with little to do: a thread starts within 0.1 ms and wakes within 50 µs.
    pub const FAIR: Weather = Weather {
        start_late: Late::between(micros(30), micros(100)),
        wake_late: Late::between(micros(5), micros(50)),
        timer_late: Late::between(micros(5), micros(100)),
        step_late: Late::NEVER,
        linger: Late::between(micros(2), micros(5)),
        fates: Fates {
            succeeds: 1,
            fails: 0,
            fails_for_good: 0,
            panics: 0,
            dies: 0,
            overruns: 0,
            hangs: 0,
        },
        rough: false,
    };

    /// Fair, after a storm: what still goes wrong goes wrong in the tasks, and all come back.
    pub fn calm(self) -> Self {
        let fates = Fates { panics: 0, dies: 0, overruns: 0, hangs: 0, ..self.fates };
        let fates = Fates { succeeds: fates.succeeds.max(1), ..fates };
        Weather { fates, rough: self.rough, ..Weather::FAIR }
    }

    /// A storm, a different one for each seed.
    pub fn storm(faults: bool, chance: &mut SeededChance) -> Self {
        let mut late = |usual: &[u64], rare: &[u64]| Late {
            least: Duration::ZERO,
            usual: micros(one_of(usual, chance)),
            rare: millis(one_of(rare, chance)),
            rarely: one_of(&[0, 4, 30], chance),
            grid: GRID,
        };
        let start_late = late(&[0, 200, 1_000], &[5, 200]);
        let wake_late = late(&[0, 100, 300], &[1, 20]);
        let timer_late = late(&[0, 100, 2_000], &[20, 300]);
        let step_late = late(&[0, 0, 100], &[0, 1]);
        let mut often = |choices: &[u64]| if faults { one_of(choices, chance) } else { 0 };
        let fates = Fates {
            succeeds: 400,
            fails: often(&[0, 50, 200, 400]),
            fails_for_good: often(&[0, 10, 40]),
            panics: often(&[0, 10, 40]),
            dies: often(&[0, 4, 30]),
            overruns: often(&[0, 10, 60]),
            hangs: often(&[0, 2, 10, 40]),
        };
        let linger = Weather::FAIR.linger;
        Weather { start_late, wake_late, timer_late, step_late, linger, fates, rough: true }
    }

    /// What an attempt of a task without plans of its own does.
    pub fn plan(
        &self,
        order: &Order,
        now: Time,
        deadline: Time,
        chance: &mut SeededChance,
    ) -> Plan {
        let fates = &self.fates;
        let faults = [
            (fates.fails, End::Fails),
            (fates.fails_for_good, End::FailsForGood),
            (fates.panics, End::Panics),
            (fates.dies, End::Dies),
        ];
        let all = fates.succeeds + fates.overruns + fates.hangs;
        let all = all + faults.iter().map(|(weight, _)| weight).sum::<u64>();
        let mut drawn = chance.up_to(all - 1);
        let in_time = Some(now + self.duration(deadline.since(now), chance));
        if drawn < fates.succeeds {
            return Plan { end: End::Succeeds, at: in_time };
        }
        drawn -= fates.succeeds;
        for (weight, end) in faults {
            if drawn < weight {
                return Plan { end, at: in_time };
            }
            drawn -= weight;
        }
        if drawn >= fates.hangs {
            // Also exactly at its deadline, and a little after it, when it is being given up.
            let most = one_of(&[1, 120, 3_000], chance);
            let past = GRID * chance.up_to(most) as u32;
            let ends = [End::Succeeds, End::Fails, End::FailsForGood, End::Panics, End::Dies];
            let ends = if fates.dies > 0 { &ends } else { &ends[..4] };
            let end = one_of(ends, chance);
            return Plan { end, at: Some(deadline + past) };
        }
        let end = one_of(&[End::Succeeds, End::Fails, End::Panics], chance);
        match order.nature {
            Nature::Future | Nature::Deaf => Plan { end, at: None },
            Nature::Attentive => Plan { end: End::Stops, at: None },
        }
    }

    fn duration(&self, timeout: Duration, chance: &mut SeededChance) -> Duration {
        if !self.rough {
            // A write to a log: most take a millisecond, some wait for a disk.
            let disk = chance.up_to(199) == 0;
            return micros(if disk {
                5_000 + chance.up_to(15_000)
            } else {
                200 + chance.up_to(1_600)
            });
        }
        match chance.up_to(15) {
            0..4 => micros(chance.up_to(12)),
            4..14 => GRID * chance.up_to(30) as u32,
            _ => GRID * chance.up_to((timeout.as_nanos() / GRID.as_nanos()) as u64) as u32,
        }
    }
}
