//! The same questions, the same answers: each store against the table that describes them all.

use crate::common::Fixture;
use crate::crowd::{Crowd, Next};
use skep_policy::sessions::{Answer, Ask, Fleet, NewsKind, PAGE_ROWS, Refusal};
use std::collections::BTreeMap;

#[tokio::test]
async fn memory_answers_every_question_as_the_table_does() {
    compare(Fixture::memory(), steps(30_000, 1_000_000)).await;
}

#[tokio::test]
async fn postgres_answers_every_question_as_the_table_does() {
    compare(Fixture::postgres().await, steps(4_000, 150_000)).await;
}

#[tokio::test]
async fn redis_answers_every_question_as_the_table_does() {
    compare(Fixture::redis(), steps(10_000, 300_000)).await;
}

/// `SKEP_TEST_LONG=1` asks for the long run; `SKEP_TEST_SEED` repeats one.
fn steps(short: u32, long: u32) -> u32 {
    if std::env::var_os("SKEP_TEST_LONG").is_some() { long } else { short }
}

/// How often everything that can be looked at is compared, in steps.
const LOOK_EVERY: u32 = 25;

/// Takes the same steps in a store and in the table itself. After some hundred steps the world
/// begins anew with other rules, so that each of them is seen with few and with many workers.
async fn compare(fixture: Fixture, steps: u32) {
    let given = std::env::var("SKEP_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1);
    println!("SKEP_TEST_SEED={seed}");
    let mut crowd = Crowd::new(seed);
    let mut table = Fleet::new();
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for number in 0..steps {
        let ask = match crowd.next(&mut table) {
            Next::Ask(ask) => ask,
            Next::Lose => {
                fixture.lose().await;
                table = Fleet::new();
                continue;
            }
        };
        let now = crowd.now;
        let place = |ask: &Ask| format!("seed {seed}, step {number} at {now}: {ask:#?}");
        let expected = table.apply(now, &ask);
        let found = match fixture.store.step(&ask, Some(now)).await {
            Ok(reply) => reply,
            Err(error) => panic!("{error}\n{}", place(&ask)),
        };
        assert_eq!(found, expected, "{}", place(&ask));
        count(&mut seen, &expected.answer);
        *seen.entry("hints").or_default() += u32::from(!expected.hints.is_empty());
        crowd.learn(&ask, &expected.answer);
        if number % LOOK_EVERY == 0 {
            for look in looks(&mut crowd) {
                let expected = table.apply(now, &look).answer;
                let found = fixture.store.step(&look, Some(now)).await;
                let found = found.unwrap_or_else(|error| panic!("{error}\n{}", place(&look)));
                assert_eq!(found.answer, expected, "after {}", place(&ask));
            }
        }
    }
    println!("{steps} steps: {seen:?}");
    // A sequence that is refused all the time would prove nothing. Short ones may miss something;
    // the long one for the table in memory is made in the same way.
    for kind in SEEN.into_iter().filter(|_| steps >= 30_000) {
        assert!(seen.contains_key(kind), "seed {seed}: nothing was ever {kind}: {seen:?}");
    }
}

fn looks(crowd: &mut Crowd) -> [Ask; 5] {
    let (from, limit) = (crowd.up_to(8), 1 + usize::try_from(crowd.up_to(4)).expect("small"));
    let after = Some((crowd.up_to(3), crowd.up_to(1_000)));
    [
        Ask::Kinds,
        Ask::Workers { from: 0, limit: PAGE_ROWS },
        Ask::Sessions { after: None, limit: PAGE_ROWS + 1 },
        Ask::Workers { from, limit },
        Ask::Sessions { after, limit },
    ]
}

/// What must have been answered in any run of a useful length.
const SEEN: [&str; 18] = [
    "done",
    "unconfigured",
    "unknown",
    "replaced",
    "joined",
    "unplaced",
    "beaten",
    "reaped",
    "news of a seat",
    "news of an end",
    "probes",
    "seated",
    "waiting",
    "no workers",
    "no match",
    "busy",
    "registered",
    "hints",
];

fn count(seen: &mut BTreeMap<&'static str, u32>, answer: &Answer) {
    let mut add = |what| *seen.entry(what).or_default() += 1;
    match answer {
        Answer::Done => add("done"),
        Answer::Unconfigured => add("unconfigured"),
        Answer::Unknown => add("unknown"),
        Answer::Replaced => add("replaced"),
        Answer::Joined { unplaced } => {
            add(if unplaced.is_empty() { "joined" } else { "unplaced" });
        }
        Answer::Beaten { news, probes, reaped } => {
            add("beaten");
            for one in news {
                let end = matches!(one.what, NewsKind::End(_));
                add(if end { "news of an end" } else { "news of a seat" });
            }
            probes.iter().for_each(|_| add("probes"));
            (0..*reaped).for_each(|_| add("reaped"));
        }
        Answer::Seated(seat) => add(if seat.due { "seated on due" } else { "seated" }),
        Answer::Waiting { .. } => add("waiting"),
        Answer::Refused(Refusal::NoWorkers) => add("no workers"),
        Answer::Refused(Refusal::NoMatch { .. }) => add("no match"),
        Answer::Refused(Refusal::Busy) => add("busy"),
        Answer::Refused(Refusal::LineFull) => add("line full"),
        Answer::Refused(Refusal::KeyLimit) => add("key limit"),
        Answer::Registered { .. } => add("registered"),
        Answer::Ordered { order, .. } => add(match order {
            skep_policy::sessions::Order::Serve => "serve",
            skep_policy::sessions::Order::Restart => "restart",
            skep_policy::sessions::Order::Succeed => "succeed",
            skep_policy::sessions::Order::StopOld => "stop old",
            skep_policy::sessions::Order::Leave => "leave",
        }),
        Answer::Kinds { .. } | Answer::Workers { .. } | Answer::Sessions { .. } => add("looked"),
    }
}
