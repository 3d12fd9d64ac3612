//! What was taken by each life of a node, and what became of it.
//!
//! Pools are memory, and dead letters are in the database. So there are three ways for a life to
//! end, and for each of them another promise:
//!
//! | the node | each task that it took |
//! |---|---|
//! | lives | ends once, as done or as a dead letter that is in the database |
//! | was asked to stop | the same; those it had no time for are dead letters, too |
//! | was killed | may be gone, but for the dead letters that it had written down |
//!
//! A life that is none of these has vanished, and nothing excuses what it had.

use super::super::weather::{Leave, Weather, Who};
use super::super::{Verdict, grouped};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The database keeps so many letters, the newest; with nearly as many nothing can be compared.
const LETTERS_MAX: usize = 9_000;

/// What a node says about the tasks of its present life.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub life: String,
    pub taken: u64,
    pub done: u64,
    pub dead: u64,
    pub twice: u64,
    /// Letters that were not in the database yet.
    pub unwritten: u64,
}

impl Told {
    pub fn read(body: &Value) -> Self {
        let number = |field: &str| body[field].as_u64().unwrap_or(0);
        Told {
            life: body["life"].as_str().unwrap_or_default().to_owned(),
            taken: number("taken"),
            done: number("done"),
            dead: number("dead"),
            twice: number("twice"),
            unwritten: number("letters_waiting"),
        }
    }

    fn open(&self) -> u64 {
        self.taken.saturating_sub(self.done + self.dead)
    }
}

/// The dead letters in the database.
#[derive(Clone, Debug, Default)]
pub struct Letters {
    all: usize,
    /// The numbers of those that were made to fail, by their lives.
    made: BTreeMap<String, BTreeSet<u64>>,
    /// Numbers that came twice.
    doubled: usize,
    /// Those that were dropped when a node stopped.
    dropped: u64,
    /// Those of other causes: their time was over, again and again, on a machine too busy for them.
    others: u64,
}

impl Letters {
    pub fn add(&mut self, letter: &Value) {
        self.all += 1;
        if letter["cause"] == "shutdown" {
            self.dropped += 1;
            return;
        }
        let error = letter["errors"].as_array().and_then(|errors| errors.last()?.as_str());
        let name = error.and_then(|error| error.rsplit_once(": ")).map(|(_, name)| name);
        let numbered = name.and_then(|name| name.split_once('/'));
        let numbered = numbered.and_then(|(life, number)| Some((life, number.parse().ok()?)));
        let Some((life, number)) = numbered else {
            self.others += 1;
            return;
        };
        let numbers = self.made.entry(life.to_owned()).or_default();
        self.doubled += usize::from(!numbers.insert(number));
    }

    fn of(&self, life: &str) -> u64 {
        self.made.get(life).map_or(0, |numbers| numbers.len() as u64)
    }
}

/// What is known of one life of a node.
#[derive(Debug, Default)]
struct Life {
    node: usize,
    /// Tasks that it said it had taken.
    taken: u64,
    /// Dead letters that it had when it was last asked.
    dead: u64,
    /// Dead letters of which it is known that they were in the database while it lived.
    written: u64,
}

/// What was written down.
#[derive(Debug, Default)]
pub struct Book {
    lives: BTreeMap<String, Life>,
    pub refused: u64,
    pub unanswered: u64,
}

impl Book {
    /// A node has said that it took tasks.
    pub fn taken(&mut self, node: usize, life: &str, count: u64) {
        let life = self.lives.entry(life.to_owned()).or_default();
        life.node = node;
        life.taken += count;
    }

    /// A node was asked while it lived.
    pub fn looked(&mut self, node: usize, told: Told) {
        let life = self.lives.entry(told.life).or_default();
        life.node = node;
        // Those it had the last time: the newest may still be on their way to where they wait.
        if told.unwritten == 0 {
            life.written = life.dead;
        }
        life.dead = told.dead;
    }

    /// Whether all of it fits together. `alive` is what the nodes say now.
    pub fn judge(
        &self,
        alive: &[(usize, Told)],
        letters: Option<&Letters>,
        weather: &Weather,
    ) -> Verdict {
        let mut judged = Judged::default();
        let comparable = letters.filter(|letters| letters.all < LETTERS_MAX);
        match letters {
            None => judged.broken.push("no node tells which dead letters there are".to_owned()),
            Some(letters) if letters.doubled > 0 => {
                judged.broken.push(format!("{} dead letters are there twice", letters.doubled));
            }
            Some(_) => {}
        }
        // They are nobody's by name, and ended all the same.
        let others = comparable.map_or(0, |letters| letters.others);
        let open: u64 = alive.iter().map(|(_, told)| told.open()).sum();
        let mut ends: BTreeSet<&str> = BTreeSet::new();
        for (node, told) in alive {
            judged.finished(*node, told, self.mine(&told.life), comparable);
            if open > others && told.open() > 0 {
                let text = format!("{} tasks of node {node} did not end", told.open());
                judged.broken.push(text);
            }
            ends.insert(&told.life);
        }
        let accounts = weather.accounts();
        let accounts: Vec<(usize, bool, Told)> = accounts
            .iter()
            .map(|account| (account.node, account.excused, Told::read(&account.told)))
            .collect();
        let mut dropped = 0;
        for (node, excused, told) in &accounts {
            if !ends.insert(&told.life) {
                continue;
            }
            let sure = comparable.filter(|_| told.unwritten == 0);
            judged.finished(*node, told, self.mine(&told.life), sure);
            dropped += told.open();
            judged.unwritten += told.unwritten;
            if told.unwritten > 0 && !excused {
                judged.broken.push(format!(
                    "node {node} stopped and left {} dead letters unwritten, although the \
                     database was there",
                    told.unwritten
                ));
            }
        }
        let found = comparable.map_or(u64::MAX, |letters| letters.dropped);
        let known_lost: u64 = accounts.iter().map(|(_, _, told)| told.unwritten).sum();
        if found.saturating_add(known_lost + others.saturating_sub(open)) < dropped {
            judged.broken.push(format!(
                "nodes that stopped had no time for {dropped} tasks, and only {found} of them are \
                 dead letters"
            ));
        }
        judged.dropped = dropped;
        let rest: Vec<(&str, &Life)> = self
            .lives
            .iter()
            .filter(|(name, _)| !ends.contains(name.as_str()))
            .map(|(name, life)| (name.as_str(), life))
            .collect();
        judged.killed(&rest, comparable, weather);
        if judged.taken == 0 && judged.gone == 0 {
            let hint = "do the nodes have `demo.enabled`?";
            judged.broken.push(format!("no node took a single task; {hint}"));
        }
        judged.verdict(self)
    }

    fn mine(&self, life: &str) -> u64 {
        self.lives.get(life).map_or(0, |life| life.taken)
    }
}

/// What a judge has found so far.
#[derive(Default)]
struct Judged {
    broken: Vec<String>,
    taken: u64,
    done: u64,
    dead: u64,
    twice: u64,
    lost: u64,
    /// Taken by nodes that were killed, without those that are dead letters.
    gone: u64,
    dropped: u64,
    unwritten: u64,
}

impl Judged {
    /// A life that told of its tasks to the end, or does so now.
    fn finished(&mut self, node: usize, told: &Told, mine: u64, letters: Option<&Letters>) {
        if mine > told.taken {
            self.broken.push(format!(
                "node {node} said that it took {mine} tasks, and knows only {}",
                told.taken
            ));
        }
        if told.twice > 0 {
            self.broken.push(format!("{} tasks of node {node} ended twice", told.twice));
        }
        if let Some(found) =
            letters.map(|letters| letters.of(&told.life)).filter(|found| *found < told.dead)
        {
            self.lost += told.dead - found;
            self.broken.push(format!(
                "node {node} had {} tasks that became dead letters, and {found} are kept",
                told.dead
            ));
        }
        self.taken += told.taken;
        self.done += told.done;
        self.dead += told.dead;
        self.twice += told.twice;
    }

    /// Lives that have said nothing at their end.
    fn killed(&mut self, rest: &[(&str, &Life)], letters: Option<&Letters>, weather: &Weather) {
        let mut lives: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
        for (name, life) in rest {
            let found = letters.map_or(life.written, |letters| letters.of(name));
            if found < life.written {
                self.lost += life.written - found;
                self.broken.push(format!(
                    "node {} had written {} dead letters before it was killed, and {found} are \
                     kept",
                    life.node, life.written
                ));
            }
            let gone = life.taken.saturating_sub(found);
            self.gone += gone;
            self.dead += found;
            let of_node = lives.entry(life.node).or_default();
            *of_node = (of_node.0 + 1, of_node.1 + gone);
        }
        for (node, (count, gone)) in lives {
            let kills = weather.times(Who::Node(node), Leave::Killed);
            if count > kills {
                self.broken.push(format!(
                    "node {node} was killed {kills} times, and {count} of its lives have ended \
                     without a word; up to {gone} tasks have vanished with them"
                ));
            }
        }
    }

    fn verdict(self, book: &Book) -> Verdict {
        let mut done = format!(
            "{} tasks taken, {} done, {} dead letters, {} lost, {} doubled",
            grouped(self.taken + self.gone),
            grouped(self.done),
            grouped(self.dead),
            grouped(self.lost),
            grouped(self.twice),
        );
        for (count, text) in [
            (self.gone, "taken or done by a node that was killed"),
            (self.dropped, "left as letters by a node that stopped"),
            (self.unwritten, "letters unwritten because the database was away"),
            (book.refused, "refused by a full queue"),
            (book.unanswered, "requests unanswered"),
        ] {
            if count > 0 {
                done += &format!(", {} {text}", grouped(count));
            }
        }
        Verdict { part: "tasks", done, broken: self.broken }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::weather::Account;
    use super::*;
    use serde_json::json;

    fn told(life: &str, taken: u64, done: u64, dead: u64) -> Told {
        Told { life: life.to_owned(), taken, done, dead, ..Told::default() }
    }

    fn letters(of: &[(&str, u64)], dropped: usize) -> Letters {
        let mut letters = Letters::default();
        for (life, count) in of {
            for number in 0..*count {
                let error = format!("it was made to fail, for the demo: {life}/{number}");
                letters.add(&json!({ "cause": "permanent", "errors": [error] }));
            }
        }
        for _ in 0..dropped {
            letters.add(&json!({ "cause": "shutdown", "errors": [] }));
        }
        letters
    }

    fn account(weather: &Weather, life: &str, (taken, done, dead): (u64, u64, u64), waiting: u64) {
        let told = json!({ "life": life, "taken": taken, "done": done, "dead": dead,
                           "letters_waiting": waiting });
        weather.left(Account { node: 0, told, excused: false });
    }

    fn broken(book: &Book, alive: &[(usize, Told)], found: &Letters, weather: &Weather) -> String {
        book.judge(alive, Some(found), weather).broken.join("; ")
    }

    #[test]
    fn a_node_that_lives_has_done_every_task_once_or_left_a_letter() {
        let (mut book, weather) = (Book::default(), Weather::default());
        book.taken(0, "a", 10);
        let say = |alive: Told, found: &Letters| broken(&book, &[(0, alive)], found, &weather);
        let one = letters(&[("a", 1)], 0);
        assert_eq!(say(told("a", 10, 9, 1), &one), "");
        assert!(say(told("a", 10, 8, 1), &one).contains("1 tasks of node 0 did not end"));
        assert!(say(told("a", 9, 8, 1), &one).contains("knows only 9"));
        assert!(say(told("a", 10, 8, 2), &one).contains("2 tasks that became dead letters, and 1"));
        let twice = Told { twice: 2, ..told("a", 10, 9, 1) };
        assert!(say(twice, &one).contains("2 tasks of node 0 ended twice"));
        assert!(say(told("a", 10, 9, 1), &letters(&[("a", 1), ("a", 1)], 0)).contains("twice"));
        assert!(book.judge(&[], None, &weather).broken.join("").contains("no node tells"));
        let mut late = letters(&[("a", 1)], 0);
        late.add(&json!({ "cause": "timed-out", "errors": ["its time was over"] }));
        assert_eq!(say(told("a", 10, 8, 1), &late), "", "its time was over");
        assert!(say(told("a", 10, 7, 1), &late).contains("2 tasks of node 0 did not end"));
        let none = Book::default();
        assert!(broken(&none, &[], &one, &weather).contains("demo.enabled"));
    }

    #[test]
    fn a_node_that_stopped_leaves_what_it_had_no_time_for_as_letters() {
        let (mut book, weather) = (Book::default(), Weather::default());
        book.taken(0, "a", 10);
        account(&weather, "a", (10, 6, 1), 0);
        let alive = [(0, told("b", 0, 0, 0))];
        assert_eq!(broken(&book, &alive, &letters(&[("a", 1)], 3), &weather), "");
        let lost = broken(&book, &alive, &letters(&[("a", 1)], 2), &weather);
        assert!(lost.contains("no time for 3 tasks, and only 2"), "{lost}");
        let lost = broken(&book, &alive, &letters(&[], 3), &weather);
        assert!(lost.contains("1 tasks that became dead letters, and 0"), "{lost}");
        let unwritten = Weather::default();
        account(&unwritten, "a", (10, 9, 1), 1);
        let lost = broken(&book, &alive, &letters(&[], 0), &unwritten);
        assert!(lost.contains("although the database was there"), "{lost}");
    }

    #[test]
    fn what_a_killed_node_had_may_be_gone_but_not_what_it_had_written() {
        let (mut book, weather) = (Book::default(), Weather::default());
        book.taken(1, "a", 10);
        book.looked(1, told("a", 10, 3, 2));
        book.looked(1, Told { unwritten: 1, ..told("a", 10, 5, 3) });
        let alive = [(1, told("b", 5, 5, 0))];
        let vanished = broken(&book, &alive, &letters(&[("a", 2)], 0), &weather);
        assert!(vanished.contains("killed 0 times, and 1 of its lives"), "{vanished}");
        weather.leaves(Who::Node(1), Leave::Killed);
        assert_eq!(broken(&book, &alive, &letters(&[("a", 0)], 0), &weather), "");
        book.looked(1, told("a", 10, 5, 3));
        let lost = broken(&book, &alive, &letters(&[("a", 2)], 0), &weather);
        assert!(lost.contains("written 3 dead letters before it was killed, and 2"), "{lost}");
        let fine = book.judge(&alive, Some(&letters(&[("a", 3)], 0)), &weather);
        assert!(fine.broken.is_empty() && fine.done.contains("7 taken or done"), "{fine:?}");
    }
}
