//! The oracle itself, where it does more than a lane.

use super::*;
use crate::SeededChance;
use crate::queues::Verdict;

const GROUP: &str = "group";

fn at(millis: u64) -> Time {
    Time::from_millis(1_000_000 + millis)
}

fn push(queue: &str, partition: &str, transaction: &str) -> Push<()> {
    let (queue, partition) = (queue.to_owned(), partition.to_owned());
    let id = u128::from(xxhash_rust::xxh3::xxh3_64(transaction.as_bytes()));
    let own = Retry::default();
    Push { queue, partition, transaction: transaction.to_owned(), id, payload: (), own }
}

fn pop(lease: u128, batch: u32, partitions: u32) -> Pop {
    Pop {
        target: Target::Queue("q".to_owned()),
        group: GROUP.to_owned(),
        start: Some(Start::All),
        batch,
        partitions,
        lease: LeaseId(lease),
        hold: None,
        auto_settle: false,
    }
}

fn word(partition: u64, transaction: &str, verdict: Verdict, lease: Option<u128>) -> Word {
    Word {
        partition: Some(partition),
        transaction: transaction.to_owned(),
        verdict,
        lease: lease.map(LeaseId),
        error: None,
        after: None,
    }
}

fn got(popped: &Popped<()>) -> Vec<&str> {
    let messages = popped.lanes.iter().flat_map(|lane| &lane.messages);
    messages.map(|message| message.transaction.as_str()).collect()
}

/// Two partitions: a1, a2 and then b1.
fn filled() -> Model<()> {
    let mut model = Model::default();
    model.push(at(0), &[push("q", "a", "a1"), push("q", "a", "a2")]).expect("there is room");
    model.push(at(1), &[push("q", "b", "b1")]).expect("there is room");
    model
}

#[test]
fn the_lane_that_waits_longest_comes_first_and_one_lease_holds_several() {
    let mut model = filled();
    let first = model.pop(at(2), &pop(1, 1, 9));
    assert_eq!(got(&first), ["a1"]);
    let mut chance = SeededChance::new(1);
    let done = word(first.lanes[0].number, "a1", Verdict::Completed, Some(1));
    model.settle(at(3), GROUP, &[done], &mut chance);
    assert_eq!(got(&model.clone().pop(at(4), &pop(2, 1, 9))), ["b1"], "a is ready since 3");
    assert_eq!(got(&model.pop(at(4), &pop(3, 9, 9))), ["b1", "a2"]);
    assert_eq!(model.held(at(4), LeaseId(3)), 2);
    assert_eq!(model.release(at(5), LeaseId(3)), 2);
    assert_eq!(got(&model.pop(at(6), &pop(4, 9, 1))), ["a2"], "both since 5: by number");
}

#[test]
fn a_transaction_id_is_known_again_within_its_window() {
    let mut model = filled();
    let hour = 3_600_000;
    let again = model.push(at(hour - 1), &[push("q", "a", "a1")]).expect("there is room");
    assert!(again[0].duplicate);
    let other = model.push(at(2), &[push("q", "b", "a1")]).expect("there is room");
    assert!(!other[0].duplicate, "another partition");
    let late = model.push(at(hour), &[push("q", "a", "a1")]).expect("there is room");
    assert!(!late[0].duplicate);
}

#[test]
fn a_full_queue_takes_nothing_of_a_push_and_duplicates_need_no_room() {
    let mut model = filled();
    model.configure(at(2), "q", Settings { max_size: 4, ..Settings::of("q") });
    let full = Full { queue: "q".to_owned(), waiting: 3, max_size: 4 };
    let more = [push("q", "a", "a3"), push("q", "a", "a4")];
    assert_eq!(model.push(at(3), &more), Err(full));
    assert!(model.push(at(3), &[push("q", "a", "a1"), push("q", "a", "a3")]).is_ok());
    model.pop(at(4), &Pop { auto_settle: true, ..pop(1, 1, 1) });
    assert!(model.push(at(5), &[push("q", "a", "a4")]).is_ok(), "one was settled");
}

#[test]
fn a_transaction_is_done_as_a_whole_or_not_at_all() {
    let mut model = filled();
    let mut chance = SeededChance::new(1);
    let a = model.pop(at(2), &pop(1, 2, 1)).lanes[0].number;
    let settle = |transaction: &str, lease| Step::Settle {
        group: GROUP.to_owned(),
        word: word(a, transaction, Verdict::Completed, lease),
    };
    let steps = [Step::Push(push("r", "x", "x1")), settle("a1", Some(1)), settle("no", Some(1))];
    let refused = NotDone::Step(2, Settled::Refused(Refusal::Unknown));
    assert_eq!(model.transact(at(3), &steps, &[], &mut chance), Err(refused));
    assert_eq!(model.queues().collect::<Vec<_>>(), ["q"]);
    let lost = NotDone::Lease(LeaseId(7));
    assert_eq!(model.transact(at(3), &steps[..2], &[LeaseId(7)], &mut chance), Err(lost));
    let steps = [Step::Push(push("r", "x", "x1")), settle("a2", None)];
    let held = NotDone::Step(1, Settled::Refused(Refusal::Held));
    assert_eq!(model.transact(at(3), &steps, &[], &mut chance), Err(held));
    let done = model.transact(at(3), &steps, &[LeaseId(1)], &mut chance).expect("all is well");
    assert_eq!(done[1], Done::Settled(Settled::Done { released: true }));
    assert_eq!(
        model.partitions("r").next().map(|(_, name, all)| (name, all.len())),
        Some(("x", 1))
    );
}

#[test]
fn the_queue_with_the_highest_priority_that_has_something_comes_first() {
    let mut model = filled();
    let settings = Settings { priority: 5, ..Settings::of("urgent") };
    model.configure(at(2), "urgent", settings);
    let any = Target::Matching { namespace: None, task: None };
    let any = |lease| Pop { target: any.clone(), ..pop(lease, 9, 9) };
    assert_eq!(got(&model.clone().pop(at(3), &any(1))), ["a1", "a2", "b1"]);
    model.push(at(4), &[push("urgent", "x", "x1")]).expect("there is room");
    assert_eq!(got(&model.pop(at(5), &any(2))), ["x1"], "of one queue only");
}

#[test]
fn a_group_begins_where_it_said_and_reads_on_where_it_is_sent() {
    let mut model = filled();
    let new = Pop { group: "new".to_owned(), start: None, ..pop(1, 9, 9) };
    assert_eq!(model.pop(at(2), &new).nothing, Some(Nothing::Empty));
    model.push(at(3), &[push("q", "a", "a3")]).expect("there is room");
    assert_eq!(got(&model.pop(at(4), &new)), ["a3"]);
    assert_eq!(model.seek(at(5), "q", GROUP, None, Some(at(1))), Ok(2));
    assert_eq!(got(&model.pop(at(6), &pop(2, 9, 9))), ["a3", "b1"]);
    assert_eq!(model.seek(at(7), "q", GROUP, None, None), Ok(2));
    assert_eq!(model.pop(at(8), &pop(3, 9, 9)).nothing, Some(Nothing::Empty));
    assert_eq!(model.seek(at(9), "q", GROUP, Some("a"), Some(at(0))), Ok(1));
    assert_eq!(got(&model.pop(at(9), &pop(4, 9, 9))), ["a1", "a2", "a3"]);
    model.delete_group(GROUP, None);
    assert_eq!(got(&model.pop(at(10), &pop(5, 9, 9))).len(), 4);
}

#[test]
fn what_failed_too_often_is_kept_aside_with_its_message() {
    let mut model = filled();
    let rules = Rules { retry_limit: 0, ..Rules::default() };
    model.configure(at(2), "q", Settings { rules, ..Settings::of("q") });
    let a = model.pop(at(3), &pop(1, 1, 1)).lanes[0].number;
    let failed = Word { error: Some("no".to_owned()), ..word(a, "a1", Verdict::Failed, Some(1)) };
    model.settle(at(4), GROUP, &[failed], &mut SeededChance::new(1));
    let letter = &model.dead_letters()[0];
    assert_eq!((letter.message.transaction.as_str(), letter.error.as_deref()), ("a1", Some("no")));
    assert!(model.delete_queue("q"));
    assert!(model.dead_letters().is_empty() && !model.delete_queue("q"));
}
