//! Pops that wait for something to come.
//!
//! Whoever waits stands in a row for what it wants (a queue, a partition, a namespace) and its
//! group, and does nothing. A push wakes one of each group, because one partition can be handed to
//! one consumer only; whoever was woken and leaves passes it on to the next.
//!
//! What came by another node is only a hint: of how much there is it says nothing. So one of each
//! row looks, and each that finds something lets two more look. A single message costs few looks
//! however many wait, and a thousand are found by a thousand soon.

use crate::store::{Target, Wake};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// So many more look when one found something that came by another node.
const MORE: usize = 2;

/// Where pops wait.
#[derive(Debug)]
pub(crate) struct Parking {
    max: usize,
    rows: Mutex<Rows>,
}

#[derive(Debug, Default)]
struct Rows {
    by_target: HashMap<Target, HashMap<Arc<str>, VecDeque<Arc<Waiter>>>>,
    count: usize,
}

#[derive(Debug, Default)]
struct Waiter {
    came: Notify,
    woken: AtomicBool,
    /// Whether a hint has woken it.
    hinted: AtomicBool,
    /// Whether its look is for a hint: if it finds something there may be more.
    looks_for_hint: AtomicBool,
}

/// A place in a row, given up when dropped.
#[derive(Debug)]
pub(crate) struct Place<'parking> {
    parking: &'parking Parking,
    target: Target,
    group: Arc<str>,
    waiter: Arc<Waiter>,
}

impl Parking {
    /// At most `max` may wait.
    pub(crate) fn new(max: usize) -> Self {
        Parking { max, rows: Mutex::default() }
    }

    /// Takes a place at the end of the row. Take it before looking for messages: what comes
    /// between the look and the wait would be missed otherwise. `None` if too many wait.
    pub(crate) fn wait_for(&self, target: &Target, group: &Arc<str>) -> Option<Place<'_>> {
        let mut rows = self.rows();
        if rows.count >= self.max {
            return None;
        }
        let waiter = Arc::new(Waiter::default());
        let groups = rows.by_target.entry(target.clone()).or_default();
        groups.entry(group.clone()).or_default().push_back(waiter.clone());
        rows.count += 1;
        Some(Place { parking: self, target: target.clone(), group: group.clone(), waiter })
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.rows().count
    }

    /// Wakes who waits for this, one of each group.
    pub(crate) fn wake(&self, wake: &Wake) {
        let mut rows = self.rows();
        if rows.count == 0 {
            return;
        }
        let (namespace, task) = (Some(wake.namespace.clone()), Some(wake.task.clone()));
        let targets = [
            Target::Partition(wake.queue.clone(), wake.partition.clone()),
            Target::Queue(wake.queue.clone()),
            Target::Matching { namespace: namespace.clone(), task: task.clone() },
            Target::Matching { namespace, task: None },
            Target::Matching { namespace: None, task },
            Target::Matching { namespace: None, task: None },
        ];
        for target in targets {
            rows.wake(&target, wake.group.as_ref());
        }
    }

    /// Wakes everybody who waits for anything in this queue, or, without one, everybody: something
    /// may have come that nobody told of.
    pub(crate) fn wake_all(&self, queue: Option<&str>) {
        let rows = self.rows();
        let wanted = |target: &Target| match (target, queue) {
            (Target::Queue(name) | Target::Partition(name, _), Some(queue)) => **name == *queue,
            _ => true,
        };
        let of_target = rows.by_target.iter().filter(|(target, _)| wanted(target));
        for waiter in of_target.flat_map(|(_, groups)| groups.values().flatten()) {
            waiter.wake();
        }
    }

    /// Something came to this queue by another node: lets one of each row look.
    pub(crate) fn hint(&self, queue: &str) {
        let rows = self.rows();
        let wanted = |target: &Target| match target {
            Target::Queue(name) | Target::Partition(name, _) => **name == *queue,
            Target::Matching { .. } => true,
        };
        let of_target = rows.by_target.iter().filter(|(target, _)| wanted(target));
        for row in of_target.flat_map(|(_, groups)| groups.values()) {
            hint_first(row, 1, None);
        }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    /// Wakes the first of each group, or of this group, that was not woken yet.
    fn wake(&mut self, target: &Target, group: Option<&Arc<str>>) {
        let Some(groups) = self.by_target.get(target) else { return };
        match group {
            Some(group) => wake_first(groups.get(group)),
            None => groups.values().for_each(|row| wake_first(Some(row))),
        }
    }
}

fn wake_first(row: Option<&VecDeque<Arc<Waiter>>>) {
    let first = row.and_then(|row| row.iter().find(|one| !one.woken.load(Ordering::Relaxed)));
    if let Some(waiter) = first {
        waiter.wake();
    }
}

/// Wakes the first of a row that were not woken yet, with a hint, but not the one that tells it.
fn hint_first(row: &VecDeque<Arc<Waiter>>, count: usize, teller: Option<&Arc<Waiter>>) {
    let is_teller = |one: &Arc<Waiter>| teller.is_some_and(|teller| Arc::ptr_eq(teller, one));
    let asleep = row.iter().filter(|one| !one.woken.load(Ordering::Relaxed) && !is_teller(one));
    for waiter in asleep.take(count) {
        waiter.hinted.store(true, Ordering::Relaxed);
        waiter.wake();
    }
}

impl Waiter {
    fn wake(&self) {
        self.woken.store(true, Ordering::Relaxed);
        self.came.notify_one();
    }
}

impl Place<'_> {
    /// Waits to be woken. Whoever comes back from it must look, or leave.
    pub(crate) async fn woken(&self) {
        self.waiter.came.notified().await;
    }

    /// Says that the next look answers every wake so far.
    pub(crate) fn looks(&self) {
        self.waiter.woken.store(false, Ordering::Relaxed);
        let hinted = self.waiter.hinted.swap(false, Ordering::Relaxed);
        self.waiter.looks_for_hint.store(hinted, Ordering::Relaxed);
    }

    /// It looked and found something. If it did so for a hint, more may look.
    pub(crate) fn found(&self) {
        if !self.is_hinted() {
            return;
        }
        let rows = self.parking.rows();
        let groups = rows.by_target.get(&self.target);
        if let Some(row) = groups.and_then(|groups| groups.get(&self.group)) {
            hint_first(row, MORE, Some(&self.waiter));
        }
    }

    fn is_hinted(&self) -> bool {
        let Waiter { hinted, looks_for_hint, .. } = &*self.waiter;
        hinted.load(Ordering::Relaxed) || looks_for_hint.load(Ordering::Relaxed)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut rows = self.parking.rows();
        let Some(groups) = rows.by_target.get_mut(&self.target) else { return };
        if let Some(row) = groups.get_mut(&self.group) {
            row.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
            if row.is_empty() {
                groups.remove(&self.group);
            }
        }
        if groups.is_empty() {
            rows.by_target.remove(&self.target);
        }
        rows.count -= 1;
        if !self.waiter.woken.load(Ordering::Relaxed) {
            return;
        }
        let groups = rows.by_target.get(&self.target);
        let row = groups.and_then(|groups| groups.get(&self.group));
        match (row, self.is_hinted()) {
            (Some(row), true) => hint_first(row, 1, None),
            _ => wake_first(row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn wake(queue: &str, partition: &str, group: Option<&str>) -> Wake {
        let name = |text: &str| -> Arc<str> { Arc::from(text) };
        Wake {
            queue: name(queue),
            namespace: name("shop"),
            task: name("mail"),
            partition: name(partition),
            group: group.map(name),
        }
    }

    fn queue(name: &str) -> Target {
        Target::Queue(Arc::from(name))
    }

    fn is_woken(place: &Place<'_>) -> bool {
        place.woken().now_or_never().is_some()
    }

    #[test]
    fn a_push_wakes_one_of_each_group_the_first_come_first() {
        let parking = Parking::new(10);
        let (a, b) = (Arc::from("a"), Arc::from("b"));
        let first = parking.wait_for(&queue("q"), &a).unwrap();
        let second = parking.wait_for(&queue("q"), &a).unwrap();
        let other = parking.wait_for(&queue("q"), &b).unwrap();
        let elsewhere = parking.wait_for(&queue("r"), &a).unwrap();
        parking.wake(&wake("q", "p", None));
        assert!(is_woken(&first) && is_woken(&other));
        assert!(!is_woken(&second) && !is_woken(&elsewhere));
        parking.wake(&wake("q", "p", None));
        assert!(is_woken(&second), "the first has not looked yet, so the next is woken");
    }

    #[test]
    fn partitions_and_namespaces_are_woken_too_and_others_are_not() {
        let parking = Parking::new(10);
        let group = Arc::from("g");
        let one = |target: Target| parking.wait_for(&target, &group).unwrap();
        let partition = one(Target::Partition(Arc::from("q"), Arc::from("p")));
        let beside = one(Target::Partition(Arc::from("q"), Arc::from("x")));
        let namespace = one(Target::Matching { namespace: Some(Arc::from("shop")), task: None });
        let foreign = one(Target::Matching { namespace: Some(Arc::from("x")), task: None });
        parking.wake(&wake("q", "p", Some("g")));
        assert!(is_woken(&partition) && is_woken(&namespace));
        assert!(!is_woken(&beside) && !is_woken(&foreign));
    }

    #[test]
    fn who_was_woken_and_leaves_passes_it_on() {
        let parking = Parking::new(10);
        let group = Arc::from("g");
        let first = parking.wait_for(&queue("q"), &group).unwrap();
        let second = parking.wait_for(&queue("q"), &group).unwrap();
        parking.wake(&wake("q", "p", None));
        drop(first);
        assert!(is_woken(&second));
        second.looks();
        drop(second);
        assert_eq!(parking.count(), 0);
        assert!(parking.rows().by_target.is_empty(), "nothing is left of them");
    }

    #[test]
    fn places_are_limited() {
        let parking = Parking::new(1);
        let group = Arc::from("g");
        let place = parking.wait_for(&queue("q"), &group);
        assert!(place.is_some() && parking.wait_for(&queue("q"), &group).is_none());
        drop(place);
        assert!(parking.wait_for(&queue("q"), &group).is_some());
    }

    #[test]
    fn everybody_looks_when_nobody_knows_what_came() {
        let parking = Parking::new(9);
        let group = Arc::from("g");
        let place = |target: Target| parking.wait_for(&target, &group).unwrap();
        let (one, other) = (place(queue("q")), place(queue("r")));
        parking.wake_all(Some("q"));
        assert!(is_woken(&one) && !is_woken(&other));
        parking.wake_all(None);
        assert!(is_woken(&one) && is_woken(&other));
    }

    #[test]
    fn a_hint_lets_one_look_and_two_more_for_each_that_finds_something() {
        let parking = Parking::new(9);
        let group = Arc::from("g");
        let place = |name: &str| parking.wait_for(&queue(name), &group).unwrap();
        let waiting: Vec<Place<'_>> = (0..5).map(|_| place("q")).collect();
        let foreign = place("r");
        let woken = || -> Vec<bool> { waiting.iter().map(is_woken).collect() };
        parking.hint("q");
        assert_eq!(woken(), [true, false, false, false, false]);
        waiting[0].looks();
        waiting[0].found();
        assert_eq!(woken(), [false, true, true, false, false]);
        // One that finds nothing wakes nobody.
        waiting[1].looks();
        waiting[2].looks();
        waiting[2].found();
        let found = woken();
        assert_eq!(found.iter().filter(|woken| **woken).count(), 2, "{found:?}");
        assert!(!found[2] && !is_woken(&foreign));
    }

    #[test]
    fn a_hint_is_passed_on_by_who_leaves_and_forgotten_after_a_look() {
        let parking = Parking::new(9);
        let group = Arc::from("g");
        let place = || parking.wait_for(&queue("q"), &group).unwrap();
        let (first, second, third) = (place(), place(), place());
        parking.hint("q");
        drop(first);
        assert!(is_woken(&second), "it was told in place of the first");
        second.looks();
        second.looks();
        second.found();
        assert!(!is_woken(&third), "the second look was not for the hint");
    }
}
