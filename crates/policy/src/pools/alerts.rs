//! When do the pools call for a person?
//!
//! An alert fires at one edge and clears at another, so that a value which hovers at an edge does
//! not ring twice; only `stuck` is plainly so or not:
//!
//! | alert          | fires                                     | clears               |
//! |----------------|-------------------------------------------|----------------------|
//! | `queue-depth`  | more than 80 % of the queue in use        | less than 60 %       |
//! | `dead-letters` | one more                                  | none in the window   |
//! | `crashes`      | more than one a minute                    | half of that         |
//! | `timeouts`     | more than 5 % of at least 20 attempts     | less than 2.5 %      |
//! | `stuck`        | as many abandoned workers as there may be | fewer                |
//!
//! What is counted is counted over the last five minutes ([`WINDOW`]).

use crate::{Reason, Time};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How far back the counters are looked at.
pub const WINDOW: Duration = Duration::from_secs(300);

/// The history is kept in steps of this, so that its size does not depend on how often the pool is
/// looked at. A step is forgotten as a whole and never late: what is counted is never older than
/// the window, and what is forgotten may be younger than it by up to a step.
const STEP: Duration = Duration::from_secs(10);

const STEPS: u64 = WINDOW.as_secs() / STEP.as_secs();

/// What can be wrong with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlertKind {
    /// The queue is nearly full.
    QueueDepth,
    /// Tasks were given up.
    DeadLetters,
    /// Tasks panic, again and again.
    Crashes,
    /// Too many attempts run out of time.
    Timeouts,
    /// No more workers may be abandoned: the next that hangs is not replaced.
    Stuck,
}

impl AlertKind {
    /// All kinds, in the order in which their changes are told.
    pub const ALL: [AlertKind; 5] = [
        AlertKind::QueueDepth,
        AlertKind::DeadLetters,
        AlertKind::Crashes,
        AlertKind::Timeouts,
        AlertKind::Stuck,
    ];

    /// The kind's name, the same in the log, the API and the settings.
    pub const fn name(self) -> &'static str {
        match self {
            AlertKind::QueueDepth => "queue-depth",
            AlertKind::DeadLetters => "dead-letters",
            AlertKind::Crashes => "crashes",
            AlertKind::Timeouts => "timeouts",
            AlertKind::Stuck => "stuck",
        }
    }
}

/// A pool as it is now. Totals only grow; one that is smaller than before counts as unmoved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Tasks that wait.
    pub queue: u32,
    /// Tasks that can wait. 0 for a pool without a queue.
    pub capacity: u32,
    /// Tasks given up since the start.
    pub dead_letters_total: u64,
    /// Panics that reached a worker since the start.
    pub crashes_total: u64,
    /// Attempts that ran out of time since the start.
    pub timeouts_total: u64,
    /// Attempts that ended since the start, in whatever way; those that ran out of time included.
    pub completed_total: u64,
    /// Workers that hang and were replaced.
    pub abandoned: u32,
    /// How many of them there may be.
    pub abandoned_max: u32,
}

/// Where the edges are. Shares are thousandths, counts are within one [`WINDOW`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// A larger share of the queue in use fires.
    pub queue_above: u32,
    /// A smaller share of the queue in use clears.
    pub queue_below: u32,
    /// More tasks given up than this fire; none clear.
    pub dead_letters_above: u64,
    /// More crashes than this fire; half as many clear.
    pub crashes_above: u64,
    /// A larger share of attempts that ran out of time fires.
    pub timeouts_above: u32,
    /// A smaller share of attempts that ran out of time clears.
    pub timeouts_below: u32,
    /// With fewer attempts than this, a share of them means nothing and does not fire.
    pub attempts_min: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            queue_above: 800,
            queue_below: 600,
            dead_letters_above: 0,
            crashes_above: 5,
            timeouts_above: 50,
            timeouts_below: 25,
            attempts_min: 20,
        }
    }
}

/// An alert that began or ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Which.
    pub kind: AlertKind,
    /// Whether it began (or ended).
    pub firing: bool,
    /// The rule and the numbers.
    pub reason: Reason,
}

/// The alerts of one pool: what they look back at, and since when they fire. Its size is fixed.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// When the pool was looked at last, and its totals then.
    seen_at: Time,
    seen: Totals,
    history: [Step; STEPS as usize],
    since: [Option<Time>; AlertKind::ALL.len()],
}

/// What the alerts count.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    dead_letters: u64,
    crashes: u64,
    timeouts: u64,
    attempts: u64,
}

/// What happened within one step.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    /// Which step since the clock's origin.
    number: u64,
    counts: Totals,
}

impl Totals {
    fn of(sample: &Sample) -> Self {
        Totals {
            dead_letters: sample.dead_letters_total,
            crashes: sample.crashes_total,
            timeouts: sample.timeouts_total,
            // The counters are not read at one instant; a timeout is an attempt nonetheless.
            attempts: sample.completed_total.max(sample.timeouts_total),
        }
    }

    fn combine(self, other: Totals, with: impl Fn(u64, u64) -> u64) -> Self {
        Totals {
            dead_letters: with(self.dead_letters, other.dead_letters),
            crashes: with(self.crashes, other.crashes),
            timeouts: with(self.timeouts, other.timeouts),
            attempts: with(self.attempts, other.attempts),
        }
    }
}

impl Watch {
    /// A watch over a pool that started at `started`, when all its totals were zero.
    pub fn new(started: Time) -> Self {
        Watch { seen_at: started, ..Watch::default() }
    }

    /// Looks at the pool and tells which alerts began or ended. Any rhythm of calls is fine: what
    /// a total grew by since the last call counts as having happened now.
    pub fn observe(&mut self, now: Time, sample: Sample, thresholds: &Thresholds) -> Vec<Change> {
        let now = now.max(self.seen_at);
        self.remember(now, Totals::of(&sample));
        let facts = Facts { sample, recent: self.recent(now), thresholds };
        let mut changes = Vec::new();
        for (kind, since) in AlertKind::ALL.into_iter().zip(&mut self.since) {
            let (fires, clears) = facts.edges(kind);
            let firing = fires || (since.is_some() && !clears);
            if firing != since.is_some() {
                *since = firing.then_some(now);
                changes.push(Change { kind, firing, reason: facts.reason(kind, firing) });
            }
        }
        changes
    }

    /// The alerts that fire, and since when.
    pub fn firing(&self) -> impl Iterator<Item = (AlertKind, Time)> {
        AlertKind::ALL
            .into_iter()
            .zip(&self.since)
            .filter_map(|(kind, since)| since.map(|since| (kind, since)))
    }

    fn remember(&mut self, now: Time, totals: Totals) {
        let mut grown = totals.combine(self.seen, u64::saturating_sub);
        grown.crashes = within_window(grown.crashes, now.since(self.seen_at));
        (self.seen_at, self.seen) = (now, totals);
        let number = step_number(now);
        let step = &mut self.history[(number % STEPS) as usize];
        if step.number != number {
            *step = Step { number, ..Step::default() };
        }
        step.counts = step.counts.combine(grown, u64::saturating_add);
    }

    fn recent(&self, now: Time) -> Totals {
        let number = step_number(now);
        self.history
            .iter()
            .filter(|step| number - step.number < STEPS)
            .fold(Totals::default(), |sum, step| sum.combine(step.counts, u64::saturating_add))
    }
}

fn step_number(time: Time) -> u64 {
    time.as_millis() / (STEP.as_secs() * 1_000)
}

/// How many of `count` events in the time `over` fall into one window. If nobody looked for longer
/// than a window, they are taken as evenly spread, because a rate is what is asked; rounding up
/// keeps every comparison with a whole number as it was.
fn within_window(count: u64, over: Duration) -> u64 {
    let share = (u128::from(count) * WINDOW.as_nanos()).div_ceil(over.max(WINDOW).as_nanos());
    u64::try_from(share).unwrap_or(count)
}

/// Is `part` a larger share of `whole` than `thousandths`?
fn is_above(part: u64, whole: u64, thousandths: u32) -> bool {
    u128::from(part) * 1_000 > u128::from(thousandths) * u128::from(whole)
}

/// Is `part` a smaller share of `whole` than `thousandths`? Nothing is, even of nothing: a pool
/// that came to rest has no share to show, and its alerts end.
fn is_below(part: u64, whole: u64, thousandths: u32) -> bool {
    part == 0 || u128::from(part) * 1_000 < u128::from(thousandths) * u128::from(whole)
}

/// A share as people read it. Decisions never use it.
fn shown(thousandths: u32) -> f64 {
    f64::from(thousandths) / 1_000.0
}

/// What the alerts are decided from.
struct Facts<'a> {
    sample: Sample,
    recent: Totals,
    thresholds: &'a Thresholds,
}

impl Facts<'_> {
    /// Whether the alert fires, and whether one that fires already would clear.
    fn edges(&self, kind: AlertKind) -> (bool, bool) {
        let Facts { sample, recent, thresholds: at } = self;
        match kind {
            AlertKind::QueueDepth => {
                let (used, all) = (sample.queue.into(), sample.capacity.into());
                (is_above(used, all, at.queue_above), is_below(used, all, at.queue_below))
            }
            AlertKind::DeadLetters => {
                (recent.dead_letters > at.dead_letters_above, recent.dead_letters == 0)
            }
            AlertKind::Crashes => {
                (recent.crashes > at.crashes_above, recent.crashes <= at.crashes_above / 2)
            }
            AlertKind::Timeouts => {
                let (late, all) = (recent.timeouts, recent.attempts);
                let fires = all >= at.attempts_min && is_above(late, all, at.timeouts_above);
                (fires, is_below(late, all, at.timeouts_below))
            }
            AlertKind::Stuck => {
                let stuck = sample.abandoned > 0 && sample.abandoned >= sample.abandoned_max;
                (stuck, !stuck)
            }
        }
    }

    fn reason(&self, kind: AlertKind, firing: bool) -> Reason {
        let Facts { sample, recent, thresholds: at } = self;
        let rule = |fires, clears| Reason::new(if firing { fires } else { clears });
        match kind {
            AlertKind::QueueDepth => rule("queue-nearly-full", "queue-has-room")
                .with("queue", sample.queue)
                .with("capacity", sample.capacity)
                .with("fires_above", shown(at.queue_above))
                .with("clears_below", shown(at.queue_below)),
            AlertKind::DeadLetters => rule("dead-letters-grew", "dead-letters-at-rest")
                .with("dead_letters", recent.dead_letters)
                .with("within", WINDOW)
                .with("fires_above", at.dead_letters_above),
            AlertKind::Crashes => rule("crashes-over-rate", "crashes-under-half-rate")
                .with("crashes", recent.crashes)
                .with("within", WINDOW)
                .with("fires_above", at.crashes_above)
                .with("clears_at", at.crashes_above / 2),
            AlertKind::Timeouts => rule("timeouts-over-share", "timeouts-under-share")
                .with("timeouts", recent.timeouts)
                .with("attempts", recent.attempts)
                .with("within", WINDOW)
                .with("fires_above", shown(at.timeouts_above))
                .with("clears_below", shown(at.timeouts_below)),
            AlertKind::Stuck => rule("abandoned-at-bound", "abandoned-under-bound")
                .with("abandoned", sample.abandoned)
                .with("bound", sample.abandoned_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1_000)
    }

    fn look(watch: &mut Watch, seconds: u64, sample: Sample) -> Vec<(AlertKind, bool)> {
        let changes = watch.observe(at(seconds), sample, &Thresholds::default());
        changes.into_iter().map(|change| (change.kind, change.firing)).collect()
    }

    fn queue(queue: u32) -> Sample {
        Sample { queue, capacity: 100, ..Sample::default() }
    }

    fn crashes(crashes_total: u64) -> Sample {
        Sample { crashes_total, ..Sample::default() }
    }

    fn dead(dead_letters_total: u64) -> Sample {
        Sample { dead_letters_total, ..Sample::default() }
    }

    fn timeouts(timeouts_total: u64, completed_total: u64) -> Sample {
        Sample { timeouts_total, completed_total, ..Sample::default() }
    }

    fn abandoned(abandoned: u32, abandoned_max: u32) -> Sample {
        Sample { abandoned, abandoned_max, ..Sample::default() }
    }

    #[test]
    fn a_queue_fires_above_eighty_percent_and_clears_below_sixty() {
        let mut watch = Watch::default();
        assert_eq!(look(&mut watch, 1, queue(80)), []);
        assert_eq!(look(&mut watch, 2, queue(81)), [(AlertKind::QueueDepth, true)]);
        assert_eq!(look(&mut watch, 3, queue(60)), []);
        assert_eq!(look(&mut watch, 4, queue(59)), [(AlertKind::QueueDepth, false)]);
    }

    #[test]
    fn between_the_edges_a_queue_keeps_the_state_it_has() {
        let mut watch = Watch::default();
        assert!((60..=80).all(|length| look(&mut watch, 1, queue(length)).is_empty()));
        assert_eq!(look(&mut watch, 2, queue(100)), [(AlertKind::QueueDepth, true)]);
        for length in (60..=100).rev().chain(60..=100) {
            assert_eq!(look(&mut watch, 3, queue(length)), []);
        }
    }

    #[test]
    fn edges_in_the_wrong_order_do_not_make_a_queue_flap() {
        let crossed = Thresholds { queue_below: 900, ..Thresholds::default() };
        let mut watch = Watch::default();
        let changes = (0..10).map(|second| watch.observe(at(second), queue(85), &crossed).len());
        assert_eq!(changes.sum::<usize>(), 1);
    }

    #[test]
    fn a_pool_without_a_queue_has_no_depth() {
        let mut watch = Watch::default();
        assert_eq!(look(&mut watch, 1, Sample::default()), []);
        assert_eq!(look(&mut watch, 2, queue(90)), [(AlertKind::QueueDepth, true)]);
        assert_eq!(look(&mut watch, 3, Sample::default()), [(AlertKind::QueueDepth, false)]);
    }

    #[test]
    fn one_dead_letter_fires_until_the_window_has_passed_without_another() {
        let mut watch = Watch::default();
        assert_eq!(look(&mut watch, 5, dead(0)), []);
        assert_eq!(look(&mut watch, 10, dead(1)), [(AlertKind::DeadLetters, true)]);
        assert_eq!(look(&mut watch, 20, dead(2)), []);
        assert!(watch.firing().eq([(AlertKind::DeadLetters, at(10))]), "and tells since when");
        assert_eq!(look(&mut watch, 319, dead(2)), []);
        assert_eq!(look(&mut watch, 320, dead(2)), [(AlertKind::DeadLetters, false)]);
        assert_eq!(watch.firing().count(), 0);
    }

    #[test]
    fn more_than_five_crashes_in_five_minutes_fire_and_two_clear() {
        let mut watch = Watch::default();
        assert!((1..=5).all(|crash| look(&mut watch, crash * 20 - 20, crashes(crash)).is_empty()));
        assert_eq!(look(&mut watch, 100, crashes(6)), [(AlertKind::Crashes, true)]);
        // Three are left at 340 seconds, two at 360.
        assert_eq!(look(&mut watch, 359, crashes(6)), []);
        assert_eq!(look(&mut watch, 360, crashes(6)), [(AlertKind::Crashes, false)]);
    }

    #[test]
    fn one_crash_a_minute_never_fires_and_a_little_more_does() {
        let fires_within_an_hour = |every: u64| {
            let mut watch = Watch::default();
            (0..3_600).any(|second| !look(&mut watch, second, crashes(second / every)).is_empty())
        };
        assert!(!fires_within_an_hour(60));
        assert!(fires_within_an_hour(56));
    }

    #[test]
    fn timeouts_fire_above_five_percent_and_clear_below_half_of_it() {
        let mut watch = Watch::default();
        assert_eq!(look(&mut watch, 1, timeouts(5, 100)), []);
        assert_eq!(look(&mut watch, 2, timeouts(6, 101)), [(AlertKind::Timeouts, true)]);
        assert_eq!(look(&mut watch, 3, timeouts(6, 240)), []);
        assert_eq!(look(&mut watch, 4, timeouts(6, 241)), [(AlertKind::Timeouts, false)]);
        assert_eq!(look(&mut watch, 5, timeouts(12, 241)), []);
    }

    #[test]
    fn a_share_of_fewer_than_twenty_attempts_does_not_fire() {
        let mut watch = Watch::default();
        assert_eq!(look(&mut watch, 1, timeouts(19, 19)), []);
        assert_eq!(look(&mut watch, 2, timeouts(19, 20)), [(AlertKind::Timeouts, true)]);
        // A pool in which everything hangs completes nothing else, and still fires.
        assert_eq!(look(&mut Watch::default(), 1, timeouts(20, 0)), [(AlertKind::Timeouts, true)]);
    }

    #[test]
    fn timeouts_clear_when_the_pool_comes_to_rest() {
        let mut watch = Watch::default();
        assert_eq!(look(&mut watch, 0, timeouts(20, 20)), [(AlertKind::Timeouts, true)]);
        // One slow attempt among ten: too few to fire, too many to clear.
        assert_eq!(look(&mut watch, 200, timeouts(21, 30)), []);
        assert_eq!(look(&mut watch, 300, timeouts(21, 30)), []);
        assert_eq!(look(&mut watch, 500, timeouts(21, 30)), [(AlertKind::Timeouts, false)]);
    }

    #[test]
    fn stuck_fires_exactly_while_no_worker_may_be_abandoned_any_more() {
        let mut watch = Watch::default();
        assert_eq!(look(&mut watch, 1, abandoned(3, 4)), []);
        assert_eq!(look(&mut watch, 2, abandoned(4, 4)), [(AlertKind::Stuck, true)]);
        assert_eq!(look(&mut watch, 3, abandoned(5, 4)), []);
        assert_eq!(look(&mut watch, 4, abandoned(3, 4)), [(AlertKind::Stuck, false)]);
        assert_eq!(look(&mut watch, 5, abandoned(0, 0)), [], "none may hang, and none does");
        assert_eq!(look(&mut watch, 6, abandoned(1, 0)), [(AlertKind::Stuck, true)]);
    }

    #[test]
    fn totals_that_do_not_move_change_nothing_however_large() {
        let mut watch = Watch::default();
        let old = Sample { dead_letters_total: 9, crashes_total: 99, ..timeouts(999, 1_000) };
        assert_eq!(look(&mut watch, 0, old).len(), 3, "the first look counts from zero");
        assert_eq!(look(&mut watch, 300, old).len(), 3, "and that ends with the window");
        assert!((301..2_000).all(|second| look(&mut watch, second, old).is_empty()));
    }

    #[test]
    fn whatever_the_rhythm_the_first_look_after_the_sixth_crash_fires() {
        // The first crash is at 1000 seconds, the sixth at 1035.
        let total = |second: u64| second.saturating_sub(993) / 7;
        for rhythm in [&[1][..], &[5], &[60], &[299], &[1, 7, 3, 0, 0, 61, 13], &[250, 39]] {
            let (mut watch, mut second) = (Watch::default(), 0);
            let mut steps = rhythm.iter().cycle();
            while total(second) < 6 {
                second += steps.next().expect("endless");
                let fires = !look(&mut watch, second, crashes(total(second))).is_empty();
                assert_eq!(fires, second >= 1_035, "{rhythm:?} at {second}");
            }
        }
    }

    #[test]
    fn after_a_gap_longer_than_the_window_a_rate_is_taken_over_the_gap() {
        let hour = |hours: u64| hours * 3_600;
        let mut watch = Watch::new(at(hour(9)));
        assert_eq!(look(&mut watch.clone(), hour(10), crashes(60)), []);
        assert_eq!(look(&mut watch, hour(10), crashes(61)), [(AlertKind::Crashes, true)]);
        assert_eq!(look(&mut watch, hour(11), crashes(121)), [], "five are not half of it");
        assert_eq!(look(&mut watch, hour(12), crashes(145)), [(AlertKind::Crashes, false)]);
        // The gap does not thin out what comes after it.
        assert_eq!(look(&mut watch, hour(12) + 60, crashes(149)), [(AlertKind::Crashes, true)]);
    }

    #[test]
    fn after_a_gap_longer_than_the_window_a_dead_letter_is_news() {
        let mut watch = Watch::default();
        assert_eq!(look(&mut watch, 3_600, dead(1)), [(AlertKind::DeadLetters, true)]);
        assert_eq!(look(&mut watch, 7_200, dead(1)), [(AlertKind::DeadLetters, false)]);
        assert_eq!(look(&mut watch, 10_800, dead(2)), [(AlertKind::DeadLetters, true)]);
    }

    #[test]
    fn a_change_tells_its_rule_and_its_numbers() {
        let mut watch = Watch::default();
        let sample = Sample { timeouts_total: 6, completed_total: 101, ..queue(81) };
        let changes = watch.observe(at(1), sample, &Thresholds::default());
        let told: Vec<String> = changes.iter().map(|change| change.reason.to_string()).collect();
        assert_eq!(
            told,
            [
                "queue-nearly-full: queue 81, capacity 100, fires_above 0.800, clears_below 0.600",
                "timeouts-over-share: timeouts 6, attempts 101, within 300s, fires_above 0.050, \
                 clears_below 0.025",
            ]
        );
        let json = serde_json::to_value(&changes[0]).expect("serialises");
        assert_eq!((&json["kind"], &json["firing"]), (&"queue-depth".into(), &true.into()));
    }

    #[test]
    fn a_kind_has_one_name_everywhere() {
        for kind in AlertKind::ALL {
            let json = serde_json::to_value(kind).expect("serialises");
            assert_eq!(json, kind.name());
            assert_eq!(serde_json::from_value::<AlertKind>(json).expect("reads"), kind);
        }
    }

    fn any_sample() -> impl Strategy<Value = Sample> {
        let totals = prop::array::uniform4(prop_oneof![0_u64..50, any::<u64>()]);
        let counts = prop::array::uniform4(prop_oneof![0_u32..6, any::<u32>()]);
        (totals, counts).prop_map(|(totals, [queue, capacity, abandoned, abandoned_max])| {
            let [dead_letters_total, crashes_total, timeouts_total, completed_total] = totals;
            Sample {
                queue,
                capacity,
                dead_letters_total,
                crashes_total,
                timeouts_total,
                completed_total,
                abandoned,
                abandoned_max,
            }
        })
    }

    proptest! {
        #[test]
        fn firing_and_clearing_alternate_whatever_happens(
            looks in prop::collection::vec(
                (any_sample(), prop_oneof![0_u64..400_000_000_000, any::<u64>()]), 1..80,
            ),
            queue_above in 0_u32..1_200,
            queue_below in 0_u32..1_200,
            crashes_above in 0_u64..60,
        ) {
            let thresholds =
                Thresholds { queue_above, queue_below, crashes_above, ..Thresholds::default() };
            let (mut watch, mut firing) = (Watch::default(), BTreeSet::new());
            for (sample, nanos) in looks {
                // The times go forth and back, and so do the totals.
                for change in watch.observe(Time::from_nanos(nanos), sample, &thresholds) {
                    let began = firing.insert(change.kind);
                    prop_assert_eq!(began, change.firing);
                    prop_assert!(began || firing.remove(&change.kind));
                }
                prop_assert!(watch.firing().map(|(kind, _)| kind).eq(firing.iter().copied()));
            }
        }

        /// The history in steps, against all crashes written down.
        #[test]
        fn what_is_counted_is_no_older_than_the_window_and_misses_at_most_one_step_of_it(
            gaps in prop::collection::vec(0_u64..120, 1..120),
        ) {
            let (mut watch, mut second, mut seen) = (Watch::default(), 0, Vec::new());
            for gap in gaps {
                second += gap;
                seen.push(second);
                watch.observe(at(second), crashes(seen.len() as u64), &Thresholds::default());
                let younger = |age: u64| seen.iter().filter(|then| second - **then < age).count();
                let counted = watch.recent(at(second)).crashes as usize;
                prop_assert!(counted <= younger(300) && counted >= younger(290));
            }
        }
    }
}
