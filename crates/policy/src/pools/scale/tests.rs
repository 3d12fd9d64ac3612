//! The scaling rules: the tables they were written from, every state of the defaults, and the laws
//! that hold for any rules without problems.

use super::*;
use crate::Number;
use crate::pools::Tier;
use proptest::prelude::*;

const CRITICAL: TierRules = TierRules {
    min: 1,
    max: 4,
    up: Ratio::whole(5),
    down: Ratio::whole(2),
    overflow: Ratio::whole(5),
};
const HIGH: TierRules = TierRules { max: 6, ..CRITICAL };
const NORMAL: TierRules =
    TierRules { max: 1, up: Ratio::whole(10), down: Ratio::whole(3), ..CRITICAL };
const LOW: TierRules = NORMAL;
const DEFAULTS: [TierRules; 4] = [CRITICAL, HIGH, NORMAL, LOW];
const STEAL_ABOVE: u32 = 10;
const SHARED_MAX: u16 = 12;

fn ask(class: Class, rules: &TierRules, now: TierNow, express_helpers: u16) -> Verdict {
    scale(class, rules, STEAL_ABOVE, now, express_helpers)
}

/// All workers busy, which is how the tables see them.
fn busy(workers: u16, queue: u32) -> TierNow {
    TierNow { queue, workers, idle: 0 }
}

fn critical(workers: u16, queue: u32) -> Scale {
    ask(Class::Express, &CRITICAL, busy(workers, queue), 0).scale
}

fn workers_after(workers: u16, scale: Scale) -> u16 {
    match scale {
        Scale::Hold => workers,
        Scale::Spawn => workers + 1,
        Scale::Retire => workers - 1,
    }
}

/// All five pools, for the examples that count them together. Every worker is busy.
struct Pools {
    workers: [u16; 4],
    shared: u16,
}

impl Pools {
    fn idle() -> Self {
        Pools { workers: [1; 4], shared: 0 }
    }

    /// Each tier is asked once per evaluation and its verdict carried out.
    fn evaluate(&mut self, queues: [u32; 4], times: usize) -> &mut Self {
        for _ in 0..times {
            for tier in Tier::ALL {
                let workers = &mut self.workers[tier.index()];
                let now = busy(*workers, queues[tier.index()]);
                let verdict = ask(tier.class(), &DEFAULTS[tier.index()], now, self.shared);
                *workers = workers_after(*workers, verdict.scale);
                if verdict.help != Help::No && self.shared < SHARED_MAX {
                    self.shared += 1;
                }
            }
        }
        self
    }

    fn total(&self) -> u16 {
        self.workers.iter().sum::<u16>() + self.shared
    }
}

// The tables.

#[test]
fn one_worker_copes_with_five_tasks_and_a_sixth_calls_another() {
    for queue in 1..=5 {
        assert_eq!(critical(1, queue), Scale::Hold, "{queue}");
    }
    for (workers, queue) in [(1, 6), (2, 11), (3, 16)] {
        assert_eq!(critical(workers, queue), Scale::Spawn, "{workers} workers, {queue} tasks");
        assert_eq!(critical(workers, queue - 1), Scale::Hold, "{workers} workers, one task less");
    }
}

#[test]
fn at_the_maximum_a_queue_over_the_overflow_ratio_calls_for_help() {
    let verdict = ask(Class::Express, &CRITICAL, busy(4, 21), 1);
    assert_eq!((verdict.scale, verdict.help), (Scale::Hold, Help::One));
    assert_eq!(verdict.rule, Rule::AtMaximum);
}

#[test]
fn workers_leave_only_below_the_scale_down_ratio() {
    for (workers, queue, expected) in [
        (4, 20, Scale::Hold),
        (4, 12, Scale::Hold),
        (4, 8, Scale::Hold),
        (4, 7, Scale::Retire),
        (3, 5, Scale::Retire),
        (2, 4, Scale::Hold),
        (2, 3, Scale::Retire),
        (1, 3, Scale::Hold),
        (1, 1, Scale::Hold),
    ] {
        assert_eq!(critical(workers, queue), expected, "{workers} workers, {queue} tasks");
    }
}

#[test]
fn the_timeline_of_ten_seconds_goes_up_to_four_and_back_to_one() {
    let timeline = [
        (6, 1, Scale::Spawn),
        (11, 2, Scale::Spawn),
        (16, 3, Scale::Spawn),
        (15, 4, Scale::Hold),
        (12, 4, Scale::Hold),
        (8, 4, Scale::Hold),
        (7, 4, Scale::Retire),
        (5, 3, Scale::Retire),
        (4, 2, Scale::Hold),
        (3, 2, Scale::Retire),
        (3, 1, Scale::Hold),
    ];
    let mut workers = 1;
    for (second, (queue, expected_workers, expected)) in timeline.into_iter().enumerate() {
        assert_eq!(workers, expected_workers, "at {second}s");
        assert_eq!(critical(workers, queue), expected, "at {second}s");
        workers = workers_after(workers, expected);
    }
}

#[test]
fn the_gap_between_the_ratios_stops_the_thrashing_of_the_example() {
    // The original example spawns at 10 / 2, which is 5.0 and not above it; eleven it takes.
    assert_eq!(critical(2, 10), Scale::Hold);
    assert_eq!(critical(2, 11), Scale::Spawn);
    for (queue, expected) in [(9, Scale::Hold), (10, Scale::Hold), (5, Scale::Retire)] {
        assert_eq!(critical(3, queue), expected, "{queue}");
    }
}

// The scenarios.

#[test]
fn scenario_1_a_light_load_needs_nobody() {
    let mut pools = Pools::idle();
    assert_eq!(pools.evaluate([3, 0, 0, 0], 10).total(), 4);
}

#[test]
fn scenario_2_a_moderate_load_stops_growing_when_the_ratio_is_acceptable() {
    let mut pools = Pools::idle();
    pools.evaluate([8, 0, 0, 0], 1).evaluate([11, 0, 0, 0], 1).evaluate([13, 0, 0, 0], 10);
    assert_eq!((pools.workers, pools.shared), ([3, 1, 1, 1], 0));
    assert_eq!(pools.total(), 6);
}

#[test]
fn scenario_3_reaching_the_maximum_brings_one_helper_to_stand_by() {
    let mut pools = Pools { workers: [3, 1, 1, 1], shared: 0 };
    pools.evaluate([16, 0, 0, 0], 1);
    assert_eq!((pools.workers[0], pools.shared), (4, 0));
    pools.evaluate([15, 0, 0, 0], 10);
    assert_eq!(pools.shared, 1);
    // The sum is 8, not the 5 of the original example, which left out the tiers at rest.
    assert_eq!(pools.total(), 8);
}

#[test]
fn scenario_4_an_overwhelmed_tier_gets_one_more_helper_per_evaluation() {
    let mut pools = Pools { workers: [4, 1, 1, 1], shared: 1 };
    assert_eq!(pools.evaluate([25, 0, 0, 0], 2).shared, 3);
    assert_eq!(pools.evaluate([100, 0, 0, 0], 6).shared, 9);
    assert_eq!(pools.total(), 16);
    assert_eq!(pools.evaluate([20, 0, 0, 0], 10).shared, 9, "20 / 4 is not above 5");
}

#[test]
fn scenario_5_two_tiers_under_load_share_one_helper() {
    let mut pools = Pools { workers: [4, 3, 1, 1], shared: 0 };
    // The original example takes 20 tasks from three workers to six, but 20 / 4 is 5.0 and not
    // above it: the sixth worker needs more than 25 tasks.
    pools.evaluate([18, 20, 0, 0], 10);
    assert_eq!((pools.workers, pools.shared), ([4, 4, 1, 1], 1));
    pools.evaluate([18, 25, 0, 0], 10);
    assert_eq!(pools.workers[1], 5);
    pools.evaluate([18, 26, 0, 0], 10).evaluate([18, 15, 0, 0], 10);
    assert_eq!((pools.workers, pools.shared), ([4, 6, 1, 1], 1));
    // The sum is 13, not 15: nothing overflows, so the one helper for both tiers stays alone.
    assert_eq!(pools.total(), 13);
}

#[test]
fn scenario_6_a_falling_load_lets_workers_go_one_by_one() {
    let mut pools = Pools { workers: [4, 1, 1, 1], shared: 0 };
    for (queue, left) in [(20, 4), (12, 4), (7, 3), (5, 2), (3, 1), (3, 1)] {
        assert_eq!(pools.evaluate([queue, 0, 0, 0], 1).workers[0], left, "{queue}");
    }
    assert_eq!(pools.evaluate([6, 0, 0, 0], 1).workers[0], 2, "and they come back");
}

#[test]
fn scenario_7_an_empty_queue_lets_nobody_go_because_the_idle_timeout_does() {
    for (rules, workers) in [(CRITICAL, 4), (HIGH, 6)] {
        let now = TierNow { queue: 0, workers, idle: workers };
        let verdict = ask(Class::Express, &rules, now, 5);
        assert_eq!((verdict.scale, verdict.help), (Scale::Hold, Help::No));
    }
    // After it did, nothing asks for the helpers to stay.
    assert_eq!(Pools::idle().evaluate([0; 4], 10).total(), 4);
}

#[test]
fn the_lifecycle_adds_up_from_four_workers_to_twenty_four() {
    let mut pools = Pools::idle();
    assert_eq!(pools.total(), 4);
    pools.evaluate([16, 6, 0, 0], 4);
    assert_eq!((pools.workers, pools.shared, pools.total()), ([4, 2, 1, 1], 1, 9));
    // The sum is 9, not the 7 of the original example, which left out normal and low.
    pools.evaluate([20, 6, 0, 0], 4);
    assert_eq!((pools.workers, pools.shared, pools.total()), ([4, 2, 1, 1], 1, 9));
    // The sum is 20, not 18, for the same reason.
    pools.evaluate([50, 30, 0, 0], 7);
    assert_eq!((pools.workers, pools.shared, pools.total()), ([4, 6, 1, 1], 8, 20));
    pools.evaluate([50, 30, 0, 0], 20);
    assert_eq!((pools.workers, pools.shared, pools.total()), ([4, 6, 1, 1], 12, 24));
}

// Help.

#[test]
fn a_standby_is_wanted_at_the_maximum_whatever_the_queue_while_there_is_no_helper() {
    for rules in [CRITICAL, HIGH] {
        let most = rules.overflow.thousandths() / 1_000 * u32::from(rules.max);
        for queue in 0..=most {
            for idle in 0..=rules.max {
                let now = TierNow { queue, workers: rules.max, idle };
                assert_eq!(ask(Class::Express, &rules, now, 0).help, Help::Standby, "{now:?}");
                assert_eq!(ask(Class::Express, &rules, now, 1).help, Help::No, "{now:?}");
                let fewer = TierNow { workers: rules.max - 1, idle: 0, ..now };
                assert_eq!(ask(Class::Express, &rules, fewer, 0).help, Help::No, "{fewer:?}");
            }
        }
    }
}

#[test]
fn overflow_needs_every_worker_busy_and_the_ratio_strictly_passed() {
    for (rules, at) in [(CRITICAL, 20), (HIGH, 30)] {
        for helpers in [0, 1, 11] {
            let help = |now| ask(Class::Express, &rules, now, helpers).help;
            let quiet = if helpers == 0 { Help::Standby } else { Help::No };
            assert_eq!(help(busy(rules.max, at)), quiet);
            assert_eq!(help(busy(rules.max, at + 1)), Help::One);
            let one_idle = TierNow { idle: 1, ..busy(rules.max, at + 1) };
            assert_eq!(help(one_idle), quiet, "a worker with nothing to do comes first");
            assert_eq!(help(busy(rules.max - 1, at + 1)), Help::No, "the tier can still grow");
        }
    }
}

#[test]
fn background_tiers_are_helped_above_ten_tasks_and_never_by_a_standby() {
    for rules in [NORMAL, LOW] {
        for (workers, helpers) in [(0, 0), (1, 0), (1, 1)] {
            let help = |queue| ask(Class::Background, &rules, busy(workers, queue), helpers).help;
            assert!((0..=10).all(|queue| help(queue) == Help::No));
            assert!((11..=200).all(|queue| help(queue) == Help::One));
        }
    }
    let help = |above, queue| scale(Class::Background, &LOW, above, busy(1, queue), 0).help;
    assert_eq!((help(0, 0), help(0, 1)), (Help::No, Help::One));
    assert_eq!(help(u32::MAX, u32::MAX), Help::No);
}

// The laws.

/// The law that a state breaks, if it breaks one. The defaults are enumerated against these laws,
/// other rules drawn.
fn broken_law(class: Class, rules: &TierRules, now: TierNow) -> Option<&'static str> {
    let verdict = ask(class, rules, now, 0);
    let at = |workers, queue| ask(class, rules, TierNow { queue, workers, ..now }, 0);
    let workers = now.workers;
    let more_waiting = at(workers, now.queue.saturating_add(1));
    let grows = |scale| workers_after(1, scale);
    let laws = [
        (
            workers >= rules.min || verdict.scale == Scale::Spawn,
            "below the minimum, one is spawned",
        ),
        (workers > rules.min || verdict.scale != Scale::Retire, "nobody goes at the minimum"),
        (workers < rules.max || verdict.scale != Scale::Spawn, "nobody comes at the maximum"),
        (now.queue > 0 || verdict.scale != Scale::Retire, "an empty queue lets nobody go"),
        (
            verdict.scale != Scale::Spawn || at(workers + 1, now.queue).scale != Scale::Retire,
            "whoever was spawned is not let go at once",
        ),
        (
            verdict.scale != Scale::Retire || at(workers - 1, now.queue).scale != Scale::Spawn,
            "whoever was let go is not called back at once",
        ),
        (settles(class, rules, now), "a fixed queue settles"),
        // An empty queue holds what one task would let go: the burst may come back.
        (
            now.queue == 0 || grows(verdict.scale) <= grows(more_waiting.scale),
            "more tasks never mean fewer workers",
        ),
        (
            verdict.help != Help::One || more_waiting.help == Help::One,
            "more tasks never mean less help",
        ),
        (
            ask(class, rules, TierNow { idle: 0, ..now }, 0).scale == verdict.scale,
            "the idle do not count for scaling",
        ),
        (verdict.now == now, "the verdict tells what was looked at"),
    ];
    laws.into_iter().find(|(holds, _)| !holds).map(|(_, law)| law)
}

/// Does carrying out the verdict again and again at one queue length come to rest, in no more steps
/// than there are workers to move?
fn settles(class: Class, rules: &TierRules, start: TierNow) -> bool {
    let mut now = start;
    for _ in 0..start.workers.max(rules.max) {
        now.workers = workers_after(now.workers, ask(class, rules, now, 0).scale);
    }
    ask(class, rules, now, 0).scale == Scale::Hold
}

#[test]
fn every_state_of_the_default_tiers_keeps_every_law() {
    for tier in Tier::ALL {
        let rules = &DEFAULTS[tier.index()];
        assert_eq!(rules.problems(), Vec::<String>::new());
        for workers in 0..=12 {
            for queue in 0..=600 {
                for idle in 0..=workers {
                    let now = TierNow { queue, workers, idle };
                    assert_eq!(broken_law(tier.class(), rules, now), None, "{tier}: {now:?}");
                }
            }
        }
    }
}

#[test]
fn every_state_of_the_default_tiers_agrees_with_plain_division() {
    for rules in DEFAULTS {
        let [up, down] = [rules.up, rules.down].map(|ratio| ratio.thousandths() as f32 / 1_000.0);
        for workers in rules.min..=12 {
            for queue in 0..=600 {
                let each = queue as f32 / f32::from(workers);
                let expected = if each > up && workers < rules.max {
                    Scale::Spawn
                } else if each <= up && each < down && queue > 0 && workers > rules.min {
                    Scale::Retire
                } else {
                    Scale::Hold
                };
                let verdict = ask(Class::Express, &rules, busy(workers, queue), 0);
                assert_eq!(verdict.scale, expected, "{workers} workers, {queue} tasks");
            }
        }
    }
}

#[test]
fn no_worker_at_all_is_safe_with_any_rules() {
    for tier in Tier::ALL {
        for queue in [0, 1, u32::MAX] {
            let verdict = ask(tier.class(), &DEFAULTS[tier.index()], busy(0, queue), 0);
            assert_eq!((verdict.scale, verdict.rule), (Scale::Spawn, Rule::BelowMinimum));
        }
    }
    let nobody = TierRules { min: 0, max: 0, ..CRITICAL };
    for queue in [0, 1, u32::MAX] {
        let verdict = ask(Class::Express, &nobody, busy(0, queue), 0);
        assert_eq!(verdict.scale, Scale::Hold, "{queue}");
        assert!(verdict.reason().to_string().contains("workers 0"));
    }
}

/// The largest scale-down ratio that passes, in thousandths.
fn down_limit(min: u16, up: u32) -> u32 {
    let (min, up) = (u64::from(min), u64::from(up));
    u32::try_from((up * min).saturating_sub(1_000) / (min + 1)).expect("less than up")
}

/// Rules without problems, often with the smallest gap that passes.
fn sound_rules() -> impl Strategy<Value = TierRules> {
    let up = prop_oneof![1_020_u32..20_000, 1_020_u32..=1_000_000_000];
    let slack = prop_oneof![Just(0_u32), 0_u32..20_000, any::<u32>()];
    (1_u16..12, 0_u16..12, up, slack, 1_u32..20_000).prop_map(|(min, more, up, slack, overflow)| {
        let down = down_limit(min, up).saturating_sub(slack);
        TierRules {
            min,
            max: min + more,
            up: Ratio::from_thousandths(up),
            down: Ratio::from_thousandths(down),
            overflow: Ratio::from_thousandths(overflow),
        }
    })
}

/// A queue length at or next to the one where `ratio` is reached.
fn queue_near(ratio: Ratio, workers: u16, away: u32) -> u32 {
    let reached = u64::from(ratio.thousandths()) * u64::from(workers) / 1_000;
    u32::try_from(reached).unwrap_or(u32::MAX).saturating_add(away).saturating_sub(2)
}

/// How many came and went while the queue changed between `low` and one more, again and again.
fn hover(rules: &TierRules, low: u32, mut workers: u16) -> (u32, u32) {
    let (mut came, mut went) = (0, 0);
    for round in 0..60_u32 {
        let verdict = ask(Class::Express, rules, busy(workers, low + round % 2), 0);
        workers = workers_after(workers, verdict.scale);
        came += u32::from(verdict.scale == Scale::Spawn);
        went += u32::from(verdict.scale == Scale::Retire);
    }
    (came, went)
}

/// Does nothing happen at one of the two queue lengths, so that the threshold is between them?
fn rests_beside(rules: &TierRules, low: u32, workers: u16) -> bool {
    let holds = |queue| ask(Class::Express, rules, busy(workers, queue), 0).scale == Scale::Hold;
    holds(low) || holds(low + 1)
}

#[test]
fn a_queue_that_hovers_around_any_default_threshold_moves_one_worker_at_most() {
    for rules in DEFAULTS {
        for workers in rules.min..=rules.max {
            for low in (1..=600).filter(|low| rests_beside(&rules, *low, workers)) {
                let (came, went) = hover(&rules, low, workers);
                assert!(came + went <= 1, "{workers} workers, {low} tasks: +{came} -{went}");
            }
        }
    }
}

proptest! {
    #[test]
    fn rules_without_problems_keep_every_law(
        rules in sound_rules(),
        workers in 0_u16..30,
        idle in 0_u16..30,
        near in 0_usize..4,
        away in 0_u32..5,
        anywhere: u32,
        express: bool,
    ) {
        prop_assert_eq!(rules.problems(), Vec::<String>::new());
        let queue = [
            queue_near(rules.up, workers, away),
            queue_near(rules.down, workers, away),
            queue_near(rules.overflow, rules.max, away),
            anywhere,
        ][near];
        let class = if express { Class::Express } else { Class::Background };
        let now = TierNow { queue, workers, idle: idle.min(workers) };
        prop_assert_eq!(broken_law(class, &rules, now), None);
    }

    /// A worker that comes takes a task, so the gap has to be a task wide for the hovering to end.
    #[test]
    fn a_queue_that_hovers_around_a_threshold_never_calls_and_dismisses(
        min in 1_u16..12,
        more in 1_u16..12,
        down in prop_oneof![1_u32..1_000, 1_000_u32..20_000],
        slack in prop_oneof![Just(0_u32), 0_u32..20_000],
        above in 0_u16..12,
        near_up: bool,
        away in 0_u32..5,
    ) {
        let up = (down * (u32::from(min) + 1) + 1_000).div_ceil(u32::from(min)) + slack;
        let (up, down) = (Ratio::from_thousandths(up), Ratio::from_thousandths(down));
        let rules = TierRules { min, max: min + more, up, down, overflow: up };
        prop_assert_eq!(rules.problems(), Vec::<String>::new());
        let workers = min + above.min(more);
        let low = queue_near(if near_up { up } else { down }, workers, away);
        let (came, went) = hover(&rules, low, workers);
        prop_assert!(came == 0 || went == 0, "+{came} -{went} around {low}");
        // Below one task for each worker, one task more or less is worth several workers.
        let coarse = up.thousandths() >= 1_000 && down.thousandths() >= 1_000;
        if coarse && low > 0 && rests_beside(&rules, low, workers) {
            prop_assert!(came + went <= 1, "+{came} -{went} around {low}");
        }
    }

    #[test]
    fn the_first_scale_down_ratio_that_is_too_large_is_named(
        min in 1_u16..1_000,
        more in 1_u16..1_000,
        up in 1_020_u32..=1_000_000_000,
    ) {
        let down = Ratio::from_thousandths(down_limit(min, up) + 1);
        let rules =
            TierRules { min, max: min + more, up: Ratio::from_thousandths(up), down, ..CRITICAL };
        let problems = rules.problems();
        prop_assert_eq!(problems.len(), 1);
        prop_assert!(problems[0].contains("scale-down ratio"), "{}", problems[0]);
        // Who cannot scale cannot thrash.
        prop_assert_eq!(TierRules { max: min, ..rules }.problems(), Vec::<String>::new());
    }

    #[test]
    fn a_reason_tells_the_numbers_of_its_verdict(
        rules in sound_rules(), queue: u32, workers in 0_u16..30,
    ) {
        let verdict = ask(Class::Express, &rules, busy(workers, queue), 0);
        let reason = verdict.reason();
        let name = serde_json::to_value(verdict.rule).expect("serialises");
        prop_assert_eq!(name, reason.rule);
        let ratio = |ratio: Ratio| Number::Ratio(f64::from(ratio.thousandths()) / 1_000.0);
        let each = f64::from(queue) / f64::from(workers.max(1));
        prop_assert_eq!(&reason.numbers, &[
            ("queue", Number::from(queue)),
            ("workers", Number::from(u32::from(workers))),
            ("per_worker", Number::Ratio(each)),
            ("up", ratio(rules.up)),
            ("down", ratio(rules.down)),
        ]);
        let decision = verdict.decision();
        prop_assert_eq!((decision.chosen, decision.reason), (verdict.scale, reason));
    }
}

// Words.

#[test]
fn each_problem_of_rules_is_named() {
    for (rules, named) in [
        (TierRules { min: 0, ..CRITICAL }, "min cannot be 0"),
        (TierRules { min: 5, ..CRITICAL }, "max (4) cannot be below min (5)"),
        (TierRules { down: Ratio::from_thousandths(2_500), ..CRITICAL }, "ratio (2.5)"),
        (TierRules { down: Ratio::whole(6), ..CRITICAL }, "it can be at most 2.0"),
        (TierRules { min: 3, down: Ratio::whole(4), ..HIGH }, "it can be at most 3.5"),
    ] {
        let problems = rules.problems();
        assert!(problems.len() == 1 && problems[0].contains(named), "{named}: {problems:?}");
    }
    let all_wrong = TierRules { min: 0, down: Ratio::whole(5), ..CRITICAL };
    assert_eq!(all_wrong.problems().len(), 2);
    let just_passes = TierRules { down: Ratio::from_thousandths(2_000), ..CRITICAL };
    assert_eq!(just_passes.problems(), Vec::<String>::new());
}

#[test]
fn each_rule_has_its_own_words() {
    for (workers, queue, words) in [
        (0, 3, "below-minimum: queue 3, workers 0, per_worker 3.000"),
        (2, 11, "queue-over-scale-up: queue 11, workers 2, per_worker 5.500"),
        (4, 7, "queue-under-scale-down: queue 7, workers 4, per_worker 1.750"),
        (4, 12, "within-band: queue 12, workers 4, per_worker 3.000"),
        (4, 21, "at-maximum: queue 21, workers 4, per_worker 5.250"),
        (1, 1, "at-minimum: queue 1, workers 1, per_worker 1.000"),
    ] {
        let reason = ask(Class::Express, &CRITICAL, busy(workers, queue), 0).reason();
        assert_eq!(reason.to_string(), format!("{words}, up 5.000, down 2.000"));
    }
}
