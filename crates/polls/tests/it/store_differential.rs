//! Both databases give the same answers to the same questions, whatever they are.

use super::store::{follow, grant, new, postgres, result, sqlite};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use skep_polls::store::*;
use skep_store::{Database, StoreError};
use skep_testkit::Folder;
use std::collections::BTreeMap;

const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];
const MAX: u64 = 4;

/// Something to do; numbers stand for ids, and `stale` for an endpoint before it was created again.
#[derive(Clone, Debug)]
enum Step {
    Create(usize, u8, bool),
    Replace(usize, u8, bool, Option<i64>),
    Import(Vec<(usize, u8, bool)>),
    Pause(Vec<usize>, bool),
    Delete(usize),
    Forget(i64),
    Follow(u32),
    Announce(Vec<(usize, u64, u64, bool)>),
    Record(Vec<(usize, u64, u64, i64, bool, bool)>),
    NextEpoch,
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0..IDS.len();
    let stale = || prop::bool::weighted(0.1);
    let grants = vec((id(), 0..3_u64, 0..4_u64, stale()), 0..40);
    let rows = vec((id(), 0..3_u64, 0..4_u64, 0..12_i64, any::<bool>(), stale()), 0..30);
    prop_oneof![
        4 => (id(), 0..3_u8, any::<bool>()).prop_map(|(a, b, c)| Step::Create(a, b, c)),
        2 => (id(), 0..3_u8, any::<bool>(), prop::option::of(0..20_i64))
            .prop_map(|(a, b, c, d)| Step::Replace(a, b, c, d)),
        1 => vec((id(), 0..3_u8, any::<bool>()), 0..6).prop_map(Step::Import),
        2 => (vec(id(), 0..4), any::<bool>()).prop_map(|(a, b)| Step::Pause(a, b)),
        2 => id().prop_map(Step::Delete),
        1 => (0..20_i64).prop_map(Step::Forget),
        3 => (1..5_u32).prop_map(Step::Follow),
        4 => grants.prop_map(Step::Announce),
        8 => rows.prop_map(Step::Record),
        1 => Just(Step::NextEpoch),
    ]
}

/// One database, and a follower of its registry.
struct Side {
    db: Database,
    seen: Seen,
    copy: BTreeMap<String, Record>,
}

impl Side {
    async fn reset(&mut self) {
        let empty = "DELETE FROM skep_poll_endpoints; DELETE FROM skep_poll_state;
            DELETE FROM skep_poll_results; DELETE FROM skep_poll_moves;
            UPDATE skep_polls SET version = 0, floor = 0, live = 0, last_number = 0, epoch = 0";
        match &self.db {
            Database::Sqlite(store) => {
                let empty = store.write(move |db| Ok::<_, StoreError>(db.execute_batch(empty)?));
                empty.await.expect("is emptied");
            }
            Database::Postgres(store) => {
                let client = store.client().await.expect("connects");
                client.batch_execute(empty).await.expect("is emptied");
            }
        }
        (self.seen, self.copy) = (Seen::NOTHING, BTreeMap::new());
    }

    /// The endpoint as it is, or one that never was.
    async fn endpoint(&self, id: usize, stale: bool) -> Record {
        let id = IDS[id];
        let found = find(&self.db, id).await.expect("reads");
        let record = found.unwrap_or(Record {
            id: id.to_owned(),
            number: 0,
            born: -1,
            version: 0,
            spec: String::new(),
            paused: false,
            deleted: false,
            created_at_ms: 0,
            updated_at_ms: 0,
            asked_at_ms: 0,
        });
        Record { born: record.born - i64::from(stale), ..record }
    }

    async fn page(&mut self, limit: u32) -> Changes {
        let page = changes(&self.db, self.seen, limit).await.expect("reads");
        if page.full {
            self.copy.clear();
        }
        for record in &page.records {
            if record.deleted {
                self.copy.remove(&record.id);
            } else {
                self.copy.insert(record.id.clone(), record.clone());
            }
        }
        self.seen = page.seen;
        page
    }

    async fn take(&mut self, step: &Step, now_ms: i64) -> String {
        let endpoint = |id: usize, spec: u8, paused: bool| NewEndpoint {
            paused,
            ..new(IDS[id], &format!("{{{spec}}}"))
        };
        match step {
            Step::Create(id, spec, paused) => {
                let made = create(&self.db, endpoint(*id, *spec, *paused), now_ms, MAX).await;
                format!("{made:?}")
            }
            Step::Replace(id, spec, paused, expected) => {
                let new = endpoint(*id, *spec, *paused);
                format!("{:?}", replace(&self.db, new, *expected, now_ms).await)
            }
            Step::Import(all) => {
                let all = all.iter().map(|(id, spec, paused)| endpoint(*id, *spec, *paused));
                format!("{:?}", import(&self.db, all.collect(), now_ms, MAX).await)
            }
            Step::Pause(ids, paused) => {
                let ids = ids.iter().map(|id| IDS[*id].to_owned()).collect();
                format!("{:?}", set_paused(&self.db, ids, *paused, now_ms).await)
            }
            Step::Delete(id) => format!("{:?}", delete(&self.db, IDS[*id], now_ms).await),
            Step::Forget(age) => format!("{:?}", forget_deleted(&self.db, now_ms - age).await),
            Step::Follow(limit) => format!("{:?}", self.page(*limit).await),
            Step::Announce(grants) => {
                let mut all = Vec::new();
                for (id, epoch, counter, stale) in grants {
                    let endpoint = self.endpoint(*id, *stale).await;
                    let at_ms = now_ms;
                    all.push(Grant { at_ms, ..grant(&endpoint, (*epoch, *counter), "n") });
                }
                format!("{:?}", announce(&self.db, all).await)
            }
            Step::Record(rows) => {
                let mut all = Vec::new();
                for (id, epoch, counter, slot, ok, stale) in rows {
                    let endpoint = self.endpoint(*id, *stale).await;
                    all.push(result(&endpoint, (*epoch, *counter), *slot, *ok));
                }
                format!("{:?}", record(&self.db, all, 7).await)
            }
            Step::NextEpoch => format!("{:?}", next_epoch(&self.db).await),
        }
    }

    /// Everything there is to see.
    async fn look(&self) -> String {
        let (db, ids) = (&self.db, IDS.map(str::to_owned));
        let mut seen = format!(
            "{:?} {:?} {:?}",
            follow(db, Seen::NOTHING).await.1.version(),
            summary(db).await.expect("reads"),
            states(db, &ids).await.expect("reads"),
        );
        for id in IDS {
            let (results, moves) = (results(db, id, 5).await, moves(db, id).await);
            seen += &format!("\n{id}: {:?} {:?}", results, moves);
        }
        seen
    }
}

async fn compare(sides: &mut [Side; 2], steps: &[Step]) -> Result<(), TestCaseError> {
    for side in sides.iter_mut() {
        side.reset().await;
    }
    for (position, step) in steps.iter().enumerate() {
        let now_ms = position as i64;
        let answers = [sides[0].take(step, now_ms).await, sides[1].take(step, now_ms).await];
        prop_assert_eq!(&answers[0], &answers[1], "step {}", position);
        prop_assert!(!answers[0].contains("Store("), "{}", answers[0]);
        if position % 10 == 9 {
            prop_assert_eq!(sides[0].look().await, sides[1].look().await, "step {}", position);
        }
    }
    for side in sides.iter_mut() {
        while side.page(2).await.more {}
        let (all, ..) = follow(&side.db, Seen::NOTHING).await;
        let live = all.into_iter().filter(|one| !one.deleted);
        let live: BTreeMap<_, _> = live.map(|one| (one.id.clone(), one)).collect();
        prop_assert_eq!(&side.copy, &live, "the follower has it all");
        let counted = summary(&side.db).await.expect("reads").endpoints;
        prop_assert_eq!(counted, live.len() as u64);
    }
    Ok(())
}

#[test]
fn both_databases_give_the_same_answers() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (folder, server) = (Folder::new("polls"), skep_testkit::Postgres::shared().database());
    let mut sides = runtime.block_on(async {
        [sqlite(&folder).await, postgres(&server).await].map(|db| Side {
            db,
            seen: Seen::NOTHING,
            copy: BTreeMap::new(),
        })
    });
    let config = Config { cases: 30, failure_persistence: None, ..Config::default() };
    let sides = std::cell::RefCell::new(&mut sides);
    let outcome = TestRunner::new(config).run(&vec(step(), 60), |steps| {
        let sides: &mut [Side; 2] = &mut sides.borrow_mut();
        runtime.block_on(compare(sides, &steps))
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
