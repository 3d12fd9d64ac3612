//! The monitors of a snapshot by their ids, each with a place, whichever part names it first.

use skep_policy::monitors::{Id, Monitor};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Known {
    numbers: HashMap<u64, u32>,
    texts: HashMap<Arc<str>, u32>,
    all: Vec<One>,
    /// Lists of one fleet mostly name the same monitors in the same order.
    guess: usize,
}

struct One {
    id: Id,
    monitor: Option<Monitor>,
    /// The server and the place in its list that named it first.
    first: (usize, usize),
}

impl Known {
    fn find(&self, id: &Id) -> Option<u32> {
        match id {
            Id::Number(number) => self.numbers.get(number).copied(),
            Id::Text(text) => self.texts.get(text).copied(),
        }
    }

    fn guessed(&self, id: &Id) -> Option<u32> {
        let right = self.all.get(self.guess).is_some_and(|one| one.id == *id);
        right.then_some(self.guess as u32)
    }

    /// The place of this monitor, a new one if it was not named before.
    pub fn place(&mut self, id: &Id, first: (usize, usize)) -> u32 {
        let found = self.guessed(id).or_else(|| self.find(id));
        let place = found.unwrap_or_else(|| self.add(id, first));
        self.guess = place as usize + 1;
        if self.guess == self.all.len() {
            self.guess = 0;
        }
        place
    }

    fn add(&mut self, id: &Id, first: (usize, usize)) -> u32 {
        let place = self.all.len() as u32;
        match id {
            Id::Number(number) => self.numbers.insert(*number, place),
            Id::Text(text) => self.texts.insert(Arc::clone(text), place),
        };
        self.all.push(One { id: id.clone(), monitor: None, first });
        place
    }

    /// Whether what is said about this monitor is what is known, if anything is. It may be at the
    /// place `guess`.
    pub fn fits(&self, monitor: &Monitor, guess: usize) -> bool {
        let guessed = self.all.get(guess).filter(|one| one.id == monitor.id);
        let one = guessed.or_else(|| self.find(&monitor.id).map(|place| &self.all[place as usize]));
        one.and_then(|one| one.monitor.as_ref()).is_none_or(|known| known == monitor)
    }

    /// Says what the monitor at this place is.
    pub fn describe(&mut self, place: u32, monitor: Monitor) {
        self.all[place as usize].monitor = Some(monitor);
    }

    /// The same, unless somebody did before.
    pub fn describe_once(&mut self, monitor: Monitor) -> bool {
        let place = self.place(&monitor.id, (0, 0)) as usize;
        let new = self.all[place].monitor.is_none();
        self.all[place].monitor = Some(monitor);
        new
    }

    /// Those who were named and never described, and where.
    pub fn unknown(&self) -> impl Iterator<Item = (&Id, (usize, usize))> {
        let undescribed = self.all.iter().filter(|one| one.monitor.is_none());
        undescribed.map(|one| (&one.id, one.first))
    }

    /// All of them, by their places.
    pub fn monitors(self) -> Vec<Monitor> {
        self.all.into_iter().filter_map(|one| one.monitor).collect()
    }
}
