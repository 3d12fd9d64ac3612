//! Tasks that could not be done, and what can still be done about them.

use crate::kit::*;
use skep_pools::{Cause, Failure, Letter, LetterBook, Pools, RetryError, Task, Tier};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Writes down everything it is told.
#[derive(Default)]
struct Book(Mutex<Vec<(&'static str, u64)>>);

impl Book {
    fn told(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().expect("not poisoned").clone()
    }
}

impl LetterBook for Book {
    fn died(&self, letter: &Letter) {
        self.0.lock().expect("not poisoned").push(("died", letter.id));
    }

    fn done_after_all(&self, letter: u64) {
        self.0.lock().expect("not poisoned").push(("done", letter));
    }
}

fn booked() -> (Pools, Arc<Book>) {
    let pools = start(plain());
    let book = Arc::new(Book::default());
    pools.keep_letters_in(book.clone());
    (pools, book)
}

/// A task that fails for good until it is healed.
fn sick() -> (Task, Arc<AtomicBool>) {
    let healed = Arc::new(AtomicBool::new(false));
    let own = healed.clone();
    let task = Task::blocking("sick", move |_| match own.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(Failure::permanent("sick")),
    });
    (task, healed)
}

fn dead(pools: &Pools, tier: Tier, times: u64) {
    eventually("dead", || (stats_of(pools, tier).total_failed == times).then_some(()));
}

#[test]
fn a_letter_says_what_happened() {
    let pools = start(plain());
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let before = before.expect("after 1970").as_millis() as u64;
    let task = Task::blocking("telling", |context| {
        Err(Failure::retryable(format!("failure {}", context.attempt())))
    });
    let id = pools.try_submit(Tier::Normal, task.payload(*b"abc")).expect("is taken");
    dead(&pools, Tier::Normal, 1);
    let letters = pools.letters(Tier::Normal);
    let [letter] = letters.as_slice() else { panic!("{letters:?}") };
    assert_eq!((letter.task, letter.tier, letter.kind), (id, Tier::Normal, "telling"));
    assert_eq!((letter.cause, letter.attempts), (Cause::Failed, 3));
    assert_eq!(letter.errors, ["failure 1", "failure 2", "failure 3"]);
    assert_eq!(letter.payload.as_deref(), Some(b"abc".as_slice()));
    assert!(before <= letter.submitted_at_ms && letter.submitted_at_ms <= letter.died_at_ms);
    let stats = stats_of(&pools, Tier::Normal);
    assert_eq!((stats.failed_tasks, stats.total_failed), (1, 1));
}

#[test]
fn of_many_errors_the_first_and_the_last_nine_are_kept_and_none_is_endless() {
    let pools = start(plain());
    let task = Task::blocking("many", |context| {
        Err(Failure::retryable(format!("{:04}{}", context.attempt(), "x".repeat(5_000))))
    });
    pools.try_submit(Tier::High, task.retries(19)).expect("is taken");
    dead(&pools, Tier::High, 1);
    let letter = pools.letters(Tier::High).pop().expect("is there");
    let kept: Vec<&str> = letter.errors.iter().map(|one| &one[..4]).collect();
    let expected = std::iter::once(1).chain(12..=20).map(|number| format!("{number:04}"));
    let expected = expected.collect::<Vec<String>>();
    assert_eq!(kept, expected);
    assert!(letter.errors.iter().all(|one| one.len() == 1_000));
    assert_eq!(letter.attempts, 20);
}

#[test]
fn only_so_many_letters_are_kept_and_the_oldest_goes_first() {
    let mut options = plain();
    options.dead_letters_max = 3;
    let pools = start(options);
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(pools.submit_blocking(Tier::Low, sick().0).expect("is taken"));
    }
    dead(&pools, Tier::Low, 10);
    let kept: Vec<u64> = pools.letters(Tier::Low).iter().map(|one| one.task).collect();
    assert_eq!(kept, ids[7..]);
    let stats = stats_of(&pools, Tier::Low);
    assert_eq!((stats.totals.letters_forgotten, stats.failed_tasks), (7, 3));
}

#[test]
fn a_letter_that_is_tried_again_and_done_is_gone_and_the_book_hears_of_it() {
    let (pools, book) = booked();
    let (task, healed) = sick();
    pools.try_submit(Tier::High, task).expect("is taken");
    dead(&pools, Tier::High, 1);
    let letter = pools.letters(Tier::High).remove(0);
    assert!(pools.has_letter(letter.id));
    healed.store(true, Ordering::SeqCst);
    pools.retry(letter.id).expect("is tried again");
    assert!(!pools.has_letter(letter.id));
    eventually("it is done", || (stats_of(&pools, Tier::High).total_processed == 1).then_some(()));
    eventually("it is told", || (book.told().len() == 2).then_some(()));
    assert_eq!(book.told(), [("died", letter.id), ("done", letter.id)]);
    assert_eq!(pools.retry(letter.id), Err(RetryError::Unknown));
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_letter_that_fails_again_keeps_its_id_and_starts_its_count_anew() {
    let (pools, book) = booked();
    let task = Task::blocking("failing", |_| Err(Failure::retryable("no")));
    pools.try_submit(Tier::High, task.serial_key(5)).expect("is taken");
    dead(&pools, Tier::High, 1);
    let first = pools.letters(Tier::High).remove(0);
    for times in 2..5 {
        pools.retry(first.id).expect("is tried again");
        dead(&pools, Tier::High, times);
        let letters = pools.letters(Tier::High);
        assert_eq!((letters.len(), letters[0].id), (1, first.id));
        assert_eq!((letters[0].attempts, letters[0].errors.len()), (3, 3));
    }
    assert_eq!(book.told(), [("died", first.id); 4]);
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_letter_that_finds_no_room_stays_where_it_is() {
    let (pools, _book) = booked();
    for _ in 0..3 {
        pools.submit_blocking(Tier::High, sick().0).expect("is taken");
    }
    dead(&pools, Tier::High, 3);
    let before: Vec<u64> = pools.letters(Tier::High).iter().map(|one| one.id).collect();
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    pools.try_submit(Tier::High, blocker(&running, &door)).expect("is taken");
    running.reach(1);
    for _ in 0..4 {
        pools.try_submit(Tier::High, counting(&done)).expect("is taken");
    }
    assert_eq!(pools.retry(before[0]), Err(RetryError::Full));
    let after: Vec<u64> = pools.letters(Tier::High).iter().map(|one| one.id).collect();
    assert_eq!(after.iter().collect::<BTreeSet<_>>(), before.iter().collect::<BTreeSet<_>>());
    door.open();
    done.reach(4);
    finish(&pools);
    assert_eq!(pools.retry(before[0]), Err(RetryError::Stopped));
    assert!(pools.has_letter(before[0]));
    let letter = pools.letters(Tier::High).into_iter().find(|one| one.id == before[0]);
    assert_eq!(letter.expect("is there").errors, ["sick"]);
}

#[test]
fn letters_that_are_tried_while_others_die_stay_bounded() {
    let mut options = high(1, 1_000);
    options.dead_letters_max = 8;
    let pools = start(options);
    std::thread::scope(|scope| {
        let dying = scope.spawn(|| {
            for _ in 0..2_000 {
                pools.submit_blocking(Tier::High, sick().0).expect("is taken");
            }
        });
        while !dying.is_finished() {
            for letter in pools.letters(Tier::High) {
                let _ = pools.retry(letter.id);
            }
            assert!(pools.letters(Tier::High).len() <= 9);
        }
    });
    finish(&pools);
    assert_eq!(pools.letters(Tier::High).len(), 8);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_letter_can_be_discarded_once() {
    let pools = start(plain());
    pools.try_submit(Tier::High, sick().0).expect("is taken");
    dead(&pools, Tier::High, 1);
    let letter = pools.letters(Tier::High).remove(0).id;
    assert!(pools.discard(letter) && !pools.discard(letter) && !pools.has_letter(letter));
    assert_eq!(pools.retry(letter), Err(RetryError::Unknown));
}

#[test]
fn a_task_of_an_earlier_life_is_built_from_its_payload() {
    let (pools, book) = booked();
    let done = Arc::new(Mutex::new(Vec::new()));
    let own = done.clone();
    pools.register("mail", move |payload| {
        let text = String::from_utf8(payload.to_vec()).map_err(|error| error.to_string())?;
        let done = own.clone();
        Ok(Task::blocking("mail", move |_| {
            if text == "bounces" {
                return Err(Failure::permanent("it bounced"));
            }
            done.lock().expect("not poisoned").push(text.clone());
            Ok(())
        }))
    });
    let tier = Tier::High;
    let nobody = pools.retry_payload(1, tier, "fax", b"hello");
    assert_eq!(nobody, Err(RetryError::NoHandler("fax".to_owned())));
    let broken = pools.retry_payload(2, tier, "mail", &[0xff]);
    assert!(matches!(broken, Err(RetryError::BadPayload(_))), "{broken:?}");
    pools.retry_payload(3, tier, "mail", b"hello").expect("is tried again");
    pools.retry_payload(4, tier, "mail", b"bounces").expect("is tried again");
    dead(&pools, tier, 1);
    eventually("both are told", || (book.told().len() == 2).then_some(()));
    assert_eq!(book.told(), [("done", 3), ("died", 4)]);
    assert_eq!(*done.lock().expect("not poisoned"), ["hello"]);
    let letter = pools.letters(tier).remove(0);
    assert_eq!((letter.id, letter.payload.as_deref()), (4, Some(b"bounces".as_slice())));
    // Twice from outside, and still one letter.
    pools.retry_payload(4, tier, "mail", b"bounces").expect("is tried again");
    dead(&pools, tier, 2);
    assert_eq!(pools.letters(tier).len(), 1);
    finish(&pools);
    let late = pools.retry_payload(5, tier, "mail", b"hello");
    assert_eq!(late, Err(RetryError::Stopped));
}

#[test]
fn a_task_that_can_be_called_once_says_so_when_it_is_tried_again() {
    let pools = start(plain());
    let task = Task::once("once", |_| Err(Failure::retryable("no")));
    pools.try_submit(Tier::High, task).expect("is taken");
    dead(&pools, Tier::High, 1);
    let letter = pools.letters(Tier::High).remove(0);
    assert_eq!(letter.attempts, 1, "it is never retried");
    pools.retry(letter.id).expect("is tried again");
    dead(&pools, Tier::High, 2);
    let again = pools.letters(Tier::High).remove(0);
    assert_eq!((again.id, again.cause), (letter.id, Cause::Permanent));
    assert_eq!(again.errors, ["it can be called only once"]);
}

#[test]
fn something_that_never_was_a_task_can_be_a_letter() {
    let (pools, book) = booked();
    pools.bury(Tier::Low, "entry", "unreadable", Some(b"data".to_vec()));
    let letter = pools.letters(Tier::Low).remove(0);
    assert_eq!((letter.kind, letter.cause), ("entry", Cause::Permanent));
    assert_eq!((letter.errors, letter.payload.as_deref().map(<[u8]>::len)), {
        (vec!["unreadable".to_owned()], Some(4))
    });
    assert_eq!(book.told(), [("died", letter.id)]);
}
