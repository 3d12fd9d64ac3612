//! What is done when its time comes, by several who share a database.

use crate::kit::*;
use skep_policy::Time;
use skep_policy::queues::{Start, Verdict};
use skep_queues::record::{Records, Wishes};
use skep_queues::schedule::{CatchUp, When};
use skep_queues::store::*;
use skep_queues::{NewItem, Pop, Queues, QueuesMetrics, QueuesOptions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

on_each_store!(
    a_delayed_message_comes_when_its_time_has_come_and_once,
    delayed_messages_come_in_the_order_of_their_times,
    a_schedule_fires_once_at_each_of_its_times,
    slots_that_nobody_fired_are_made_up_for_as_the_schedule_says,
    a_turn_that_comes_to_nothing_is_still_there,
    dead_letters_of_a_filter_go_back_at_their_rate_and_once,
    a_redrive_goes_on_when_whoever_was_at_it_is_gone,
    a_redrive_waits_while_there_is_no_room,
    one_dead_letter_is_wanted_again_once,
);

/// Several nodes on one database; on SQLite they share the store, as the nodes of a process do.
struct Fleet {
    nodes: Vec<Queues>,
    store: Store,
}

impl Fleet {
    async fn of(place: &Place, count: usize) -> Self {
        let store = place.open().await;
        let mut nodes = Vec::new();
        for _ in 0..count {
            let own = if place.shared_by_many() { place.open().await } else { store.clone() };
            let metrics = QueuesMetrics::default();
            let options = QueuesOptions::default();
            let node = Queues::open(own.whole(), None, None, metrics, &options).await;
            nodes.push(node.expect("opens"));
        }
        Fleet { nodes, store }
    }

    /// Lets all nodes keep at it for as long as `work` takes.
    async fn keeping<T>(&self, work: impl Future<Output = T>) -> T {
        let over = Arc::new(AtomicBool::new(false));
        let mut keepers = JoinSet::new();
        for node in self.nodes.clone() {
            let over = over.clone();
            keepers.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let kept = node.keep().await.expect("is done");
                    let most = Duration::from_millis(20);
                    tokio::time::sleep(kept.wait.unwrap_or(most).min(most)).await;
                }
            });
        }
        let done = work.await;
        over.store(true, Ordering::Relaxed);
        keepers.join_all().await;
        done
    }

    /// Everything that can be had now, as transaction ids with when they became available.
    async fn drain(&self, queue: &str) -> Vec<(String, Time)> {
        let mut all = Vec::new();
        loop {
            let pop = Pop {
                target: Target::Queue(queue.into()),
                group: "drain".into(),
                start: Some(Start::All),
                batch: 100,
                partitions: 10,
                lease_seconds: None,
                auto_ack: true,
                wait: None,
            };
            let popped = self.nodes[0].pop(&pop).await.expect("is answered");
            let parts = popped.claimed().lanes.iter().flat_map(|lane| &lane.parts);
            let before = all.len();
            for part in parts {
                for record in Records::of(&part.records) {
                    all.push((record.expect("is whole").transaction.into_owned(), part.at));
                }
            }
            if all.len() == before {
                return all;
            }
        }
    }

    fn store(&self) -> QueueStore {
        self.store.whole()
    }
}

fn item(queue: &str, transaction: &str, due: Option<Time>) -> NewItem {
    NewItem {
        queue: queue.into(),
        partition: "p".into(),
        payload: payload_of(transaction).into_bytes().into(),
        transaction: Some(transaction.into()),
        trace: None,
        producer: None,
        wishes: Wishes { due, ..Wishes::default() },
    }
}

fn micros(time: Time) -> Time {
    Time::from_nanos(time.as_nanos() / 1_000 * 1_000)
}

async fn a_delayed_message_comes_when_its_time_has_come_and_once(place: Place) {
    let fleet = Fleet::of(&place, 3).await;
    let due = micros(fleet.store.now().await + Duration::from_millis(400));
    let items = [item("q", "late", Some(due)), item("q", "now", None)];
    let pushed = fleet.nodes[0].push(&items).await.expect("is kept");
    assert!(pushed.iter().all(|one| one.partition.is_some()));
    let got = fleet
        .keeping(async {
            assert_eq!(fleet.drain("q").await.len(), 1, "what is not delayed waits for nobody");
            soon("it comes", async || {
                let got = fleet.drain("q").await;
                (!got.is_empty()).then_some(got)
            })
            .await
        })
        .await;
    assert_eq!(got.len(), 1);
    assert!(got[0].0 == "late" && got[0].1 >= due, "{got:?}, due {due}");
    fleet.keeping(async {}).await;
    assert_eq!(fleet.drain("q").await, []);
    assert_eq!(fleet.nodes[1].keep().await.expect("is done").wait, None);
}

async fn delayed_messages_come_in_the_order_of_their_times(place: Place) {
    let fleet = Fleet::of(&place, 2).await;
    let now = fleet.store.now().await;
    let due =
        |number: u64| Some(micros(now + Duration::from_millis(2_900 - 3 * (number * 7 % 300))));
    let items: Vec<NewItem> =
        (0..300).map(|number| item("q", &number.to_string(), due(number))).collect();
    fleet.nodes[0].push(&items).await.expect("are kept");
    let mut expected: Vec<u64> = (0..300).collect();
    expected.sort_by_key(|number| due(*number));
    fleet
        .keeping(soon("all come", async || {
            let shown = fleet.store.show("q").await.expect("is there");
            (shown.summary.total == 300).then_some(())
        }))
        .await;
    let got: Vec<u64> =
        fleet.drain("q").await.iter().map(|(id, _)| id.parse().expect("a number")).collect();
    assert_eq!(got, expected);
}

fn every_second(queue: &str, catch_up: CatchUp) -> ScheduleSpec {
    ScheduleSpec {
        queue: queue.into(),
        partition: "p".into(),
        priority: 0,
        payload: "{\"beat\":1}".into(),
        when: When::every(1, Time::ZERO).expect("a second"),
        zone: "UTC".into(),
        catch_up,
        paused: false,
    }
}

async fn put(store: &QueueStore, name: &str, spec: ScheduleSpec, next_at: Time) -> Schedule {
    let wish = PutSchedule { name: name.into(), spec, next_at: Some(next_at), expected: None };
    match store.put_schedule(wish).await.expect("writes") {
        ScheduleWritten::Done(schedule) => *schedule,
        other => panic!("{other:?}"),
    }
}

/// The slots of a schedule's messages, in seconds.
fn slots(name: &str, got: &[(String, Time)]) -> Vec<u64> {
    let slot = |id: &String| {
        let millis = id.strip_prefix(&format!("schedule:{name}:")).expect("of the schedule");
        millis.parse::<u64>().expect("a number") / 1_000
    };
    got.iter().map(|(id, _)| slot(id)).collect()
}

async fn a_schedule_fires_once_at_each_of_its_times(place: Place) {
    let fleet = Fleet::of(&place, 3).await;
    let store = fleet.store();
    let spec = every_second("beats", CatchUp::Latest);
    let first = spec.next_after(fleet.store.now().await).expect("a zone").expect("a slot");
    put(&store, "beat", spec, first).await;
    fleet
        .keeping(soon("four turns are over", async || {
            let schedule = store.schedule("beat").await.expect("reads").expect("is there");
            (schedule.fired >= 4).then_some(())
        }))
        .await;
    let got = fleet.drain("beats").await;
    let slots = slots("beat", &got);
    let second = first.as_millis() / 1_000;
    let expected: Vec<u64> = (second..second + slots.len() as u64).collect();
    assert_eq!(slots, expected, "each once, none left out");
    for (slot, (_, at)) in slots.iter().zip(&got) {
        let late = at.since(Time::from_millis(slot * 1_000));
        assert!(
            *at >= Time::from_millis(slot * 1_000) && late < Duration::from_secs(2),
            "{late:?}"
        );
    }
    let schedule = store.schedule("beat").await.expect("reads").expect("is there");
    assert_eq!(schedule.fired, got.len() as u64);
    assert!(schedule.last_message.is_some());
}

async fn slots_that_nobody_fired_are_made_up_for_as_the_schedule_says(place: Place) {
    let fleet = Fleet::of(&place, 2).await;
    let store = fleet.store();
    let now = fleet.store.now().await;
    let hour = When::every(3_600, Time::ZERO).expect("an hour");
    let missed = Time::from_millis((now.as_millis() / 3_600_000 - 4) * 3_600_000);
    for (name, catch_up) in
        [("latest", CatchUp::Latest), ("all", CatchUp::All), ("skip", CatchUp::Skip)]
    {
        let spec = ScheduleSpec { when: hour.clone(), ..every_second(name, catch_up) };
        put(&store, name, spec, missed).await;
    }
    fleet
        .keeping(soon("all are up to date", async || {
            let due = store.due_schedules(now, 9).await.expect("reads");
            due.is_empty().then_some(())
        }))
        .await;
    let last = now.as_millis() / 3_600_000;
    let hours = |got: Vec<u64>| got.iter().map(|second| second / 3_600).collect::<Vec<u64>>();
    assert_eq!(hours(slots("latest", &fleet.drain("latest").await)), [last]);
    let all: Vec<u64> = (last - 4..=last).collect();
    assert_eq!(hours(slots("all", &fleet.drain("all").await)), all);
    // At the turn of an hour the last slot is on time.
    let skipped = hours(slots("skip", &fleet.drain("skip").await));
    assert!(skipped.is_empty() || skipped == [last], "{skipped:?}");
}

async fn a_turn_that_comes_to_nothing_is_still_there(place: Place) {
    let fleet = Fleet::of(&place, 1).await;
    let store = fleet.store();
    let (was, next) = (Time::from_millis(60_000), Some(Time::from_millis(120_000)));
    let schedule = put(&store, "s", every_second("q", CatchUp::Latest), was).await;
    let pushed = fleet.store.push(&[("q", "p", "there")]).await;
    let take = Take::Slot { schedule: schedule.id, was, next };
    let refused = SettleItem {
        partition: Some(pushed[0].partition),
        transaction: "never".into(),
        verdict: Verdict::Completed,
        lease: None,
        error: None,
        after: None,
    };
    let push = Step::Push(message("q", "p", "new"));
    let steps = vec![push.clone(), Step::Settle { group: "g".into(), item: refused }];
    let job = TransactionJob { steps, takes: vec![take], required: vec![] };
    let done = fleet.store.try_transact(job).await.expect("is answered");
    assert!(matches!(done, Err(NotDone::Step(1, _))), "{done:?}");
    let kept = store.schedule("s").await.expect("reads").expect("is there");
    assert_eq!((kept.next_at, kept.fired), (Some(was), 0));
    let job = TransactionJob { steps: vec![push], takes: vec![take], required: vec![] };
    fleet.store.try_transact(job.clone()).await.expect("is answered").expect("is done");
    let again = fleet.store.try_transact(job).await.expect("is answered");
    assert_eq!(again, Err(NotDone::Gone(0)));
    let kept = store.schedule("s").await.expect("reads").expect("is there");
    assert_eq!((kept.next_at, kept.last_at, kept.fired), (next, Some(was), 1));
    assert_eq!(fleet.drain("q").await.len(), 2);
}

/// Sets aside so many messages of a queue; every second one with another error.
async fn bury(fleet: &Fleet, queue: &str, count: usize) {
    let names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let items: Vec<NewItem> = names.iter().map(|name| item(queue, name, None)).collect();
    fleet.nodes[0].push(&items).await.expect("are kept");
    let got = fleet.store.pop(ClaimJob { batch: count as u32, ..from(queue) }).await;
    let dead = |(number, name): (usize, &String)| SettleItem {
        error: Some(if number % 2 == 0 { "timed out" } else { "refused" }.into()),
        ..got.word(name, Verdict::Dead)
    };
    fleet.store.settle(names.iter().enumerate().map(dead).collect()).await;
    let shown = fleet.store.show(queue).await.expect("is there");
    assert_eq!(shown.summary.dead, count as u64);
}

fn redrive(queue: &str, error: Option<&str>, rate: Option<u32>) -> MakeRedrive {
    let filter = RedriveFilter { error: error.map(Into::into), ..RedriveFilter::default() };
    MakeRedrive { queue: queue.into(), filter, target: None, rate, by: "test".into() }
}

async fn ended(store: &QueueStore, id: i64) -> Redrive {
    soon("the redrive is over", async || {
        let redrive = store.redrive(id).await.expect("reads").expect("is there");
        (redrive.state == RedriveState::Done).then_some(redrive)
    })
    .await
}

async fn dead_letters_of_a_filter_go_back_at_their_rate_and_once(place: Place) {
    let fleet = Fleet::of(&place, 3).await;
    let store = fleet.store();
    bury(&fleet, "q", 60).await;
    let began = fleet.store.now().await;
    let made = store.make_redrive(redrive("q", Some("timed"), Some(20))).await.expect("writes");
    let done = fleet.keeping(ended(&store, made.expect("a queue").id)).await;
    assert_eq!((done.moved, done.skipped), (30, 30));
    let took = fleet.store.now().await.since(began);
    assert!(took >= Duration::from_millis(900), "30 at 20 a second took {took:?}");
    let got = fleet.drain("q").await;
    let again: Vec<&str> = got.iter().filter(|(_, at)| *at > began).map(|(id, _)| &**id).collect();
    let expected: Vec<String> = (0..60).step_by(2).map(|number| number.to_string()).collect();
    assert_eq!(again, expected, "in their order, each once");
    assert_eq!(fleet.store.show("q").await.expect("is there").summary.dead, 30);
}

async fn a_redrive_goes_on_when_whoever_was_at_it_is_gone(place: Place) {
    let fleet = Fleet::of(&place, 2).await;
    let store = fleet.store();
    bury(&fleet, "q", 10).await;
    let made = store.make_redrive(redrive("q", None, None)).await.expect("writes");
    let made = made.expect("a queue");
    let next_at = fleet.store.now().await + Duration::from_millis(300);
    let turn = RedriveProgress {
        mark: RedriveMark { next_at: micros(next_at), ..made.mark },
        moved: 0,
        skipped: 0,
        state: RedriveState::Running,
    };
    assert!(store.progress_redrive(made.id, made.mark, turn).await.expect("writes"));
    let done = fleet.keeping(ended(&store, made.id)).await;
    assert_eq!(done.moved, 10);
    assert!(done.ended_at.expect("it ended") >= next_at, "the turn was not its own before");
    assert_eq!(fleet.store.show("q").await.expect("is there").summary.dead, 0);
}

async fn a_redrive_waits_while_there_is_no_room(place: Place) {
    let fleet = Fleet::of(&place, 1).await;
    let store = fleet.store();
    bury(&fleet, "q", 4).await;
    fleet.store.configure("small", |options| options.max_size = 2).await;
    let wish = MakeRedrive { target: Some("small".into()), ..redrive("q", None, None) };
    let made = store.make_redrive(wish).await.expect("writes").expect("a queue");
    let kept = fleet.nodes[0].keep().await.expect("is done");
    assert_eq!(kept.redriven, 0);
    assert!(kept.wait.expect("it tries again") >= Duration::from_secs(1));
    let kept = store.redrive(made.id).await.expect("reads").expect("is there");
    assert_eq!((kept.state, kept.moved, kept.mark.position), (RedriveState::Running, 0, 0));
    assert_eq!(fleet.store.show("q").await.expect("is there").summary.dead, 4, "none is lost");
    assert_eq!(fleet.drain("small").await, []);
}

async fn one_dead_letter_is_wanted_again_once(place: Place) {
    let fleet = Fleet::of(&place, 2).await;
    bury(&fleet, "q", 2).await;
    let filter = DeadFilter { limit: 1, ..DeadFilter::default() };
    let id = fleet.store.dead_letters(filter).await.letters[0].id;
    let mut tries = JoinSet::new();
    for node in fleet.nodes.iter().cycle().take(6) {
        let node = node.clone();
        tries.spawn(async move { node.retry_letter(id).await.expect("is answered").is_some() });
    }
    assert_eq!(tries.join_all().await.into_iter().filter(|done| *done).count(), 1);
    let got: BTreeSet<String> = fleet.drain("q").await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(got.len(), 2);
    assert_eq!(fleet.store.show("q").await.expect("is there").summary.dead, 1);
}
