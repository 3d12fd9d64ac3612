//! Background tasks in all tiers of the pools: each that was taken ends once, as done or as a dead
//! letter.
//!
//! What runs in the pools of a node is made by the node itself, so that it cannot be asked for over
//! the API. Nodes with `demo.enabled` take tasks that only take time, and count what becomes of
//! each of them; the pools cannot tell them from others.

use super::tally::add;
use super::{Answer, Pace, Place, Trouble, Verdict, grouped};
use serde_json::{Value, json};
use skep_policy::{Chance, SeededChance};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What nodes need for it.
pub const SETTINGS: &[&str] = &["demo.enabled=true"];

const TASKS: &str = "/api/v1/demo/tasks";
/// How many of a hundred tasks each tier gets, and how long one of them takes.
const TIERS: [(&str, u32, u64); 4] =
    [("critical", 20, 1), ("high", 30, 4), ("normal", 35, 8), ("low", 15, 15)];
/// How often tasks are given out.
const EVERY: Duration = Duration::from_millis(500);
/// How long a node may take to take some.
const LIMIT: Duration = Duration::from_secs(10);
/// Tasks of a burst in one request.
const CHUNK: u64 = 250;

/// Gives tasks to every tier of the nodes until `stop`, and then waits until all have ended.
pub async fn run(place: Arc<Place>, pace: Pace, stop: CancellationToken) -> Verdict {
    let mut actor = Actor {
        place: &place,
        chance: SeededChance::new(pace.seed ^ 0x7a5c),
        taken: BTreeMap::new(),
        refused: 0,
        unanswered: 0,
    };
    let mut ticks = tokio::time::interval(EVERY);
    let mut owed = 0.0;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        owed += f64::from(pace.tasks) * EVERY.as_secs_f64();
        let count = owed as u32;
        owed -= f64::from(count);
        actor.give(count).await;
    }
    actor.settle(pace.settle).await
}

/// What came of a burst.
#[derive(Clone, Debug, Default)]
pub struct Burst {
    /// Tasks that were taken.
    pub taken: u64,
    /// How long it took until the last of them was taken.
    pub took: Duration,
    /// Why some were not.
    pub trouble: Option<String>,
}

/// Gives a tier many tasks at once, shared among the nodes that are not down; as fast as the
/// queues of the pools have room.
pub async fn burst(place: &Place, tier: &str, count: u64) -> Burst {
    let begun = std::time::Instant::now();
    let up: Vec<usize> = (0..place.api.len()).filter(|node| !place.is_down(*node)).collect();
    let share = count.div_ceil(up.len().max(1) as u64);
    let (mut left, mut shares) = (count, Vec::new());
    for node in up {
        let mine = share.min(left);
        left -= mine;
        shares.push(flood(place, node, tier, mine));
    }
    let mut burst = Burst::default();
    for (taken, trouble) in join_all(shares).await {
        burst.taken += taken;
        burst.trouble = burst.trouble.or(trouble);
    }
    burst.took = begun.elapsed();
    burst
}

/// All of them at once; their results in order.
async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.into_iter().map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|cx| {
        for (future, outcome) in &mut waiting {
            if outcome.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(cx)
            {
                *outcome = Some(value);
            }
        }
        match waiting.iter().all(|(_, outcome)| outcome.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    waiting.into_iter().filter_map(|(_, outcome)| outcome).collect()
}

async fn flood(place: &Place, node: usize, tier: &str, count: u64) -> (u64, Option<String>) {
    let mut taken = 0;
    while taken < count {
        let chunk = CHUNK.min(count - taken);
        let body = json!({ "tier": tier, "count": chunk, "millis": 4, "wait": true });
        match ask(place, node, &body).await {
            Ok(answer) => taken += answer.body["taken"].as_u64().unwrap_or(0).max(1),
            Err(trouble) => return (taken, Some(trouble.to_string())),
        }
    }
    (taken, None)
}

async fn ask(place: &Place, node: usize, body: &Value) -> Result<Answer, Trouble> {
    let answer = place.ask(node, "POST", TASKS, Some(body), 3 * LIMIT).await?;
    match answer.is_ok() {
        true => Ok(answer),
        false => Err(Trouble(format!("POST {TASKS} was answered {answer}"))),
    }
}

/// Which life of which node.
type Life = (usize, String);

struct Actor<'a> {
    place: &'a Place,
    chance: SeededChance,
    /// Tasks that each life said it had taken.
    taken: BTreeMap<Life, u64>,
    refused: u64,
    unanswered: u64,
}

impl Actor<'_> {
    async fn give(&mut self, count: u32) {
        let node = self.place.next();
        for (tier, share, millis) in TIERS {
            // Shares of small numbers are mostly less than one; chance makes them right over time.
            let exact = u64::from(count) * u64::from(share);
            let more = u64::from(self.chance.up_to(99) < exact % 100);
            let count = exact / 100 + more;
            if count == 0 {
                continue;
            }
            // A task in two thousand is for the dead letters, one in twenty needs a second try.
            let dying = u64::from(self.chance.up_to(1_999) < count);
            let stumbling = u64::from(self.chance.up_to(19) < count);
            let body = json!({
                "tier": tier, "count": count, "millis": millis,
                "dying": dying, "stumbling": stumbling.min(count - dying),
            });
            let asked = self.place.ask(node, "POST", TASKS, Some(&body), LIMIT).await;
            match asked {
                Ok(answer) if answer.is_ok() => {
                    let life = answer.body["life"].as_str().unwrap_or_default().to_owned();
                    let number = |field: &str| answer.body[field].as_u64().unwrap_or(0);
                    add(&self.place.tally.tasks, number("taken") as usize);
                    *self.taken.entry((node, life)).or_default() += number("taken");
                    self.refused += number("refused");
                }
                // Whether it took them is not known; it counts them itself.
                Ok(_) | Err(_) => self.unanswered += 1,
            }
        }
    }

    /// Waits until everything that was taken has ended, and compares.
    async fn settle(self, limit: Duration) -> Verdict {
        let deadline = tokio::time::Instant::now() + limit;
        let counted = loop {
            let counted = self.count().await;
            let open: u64 = counted.iter().map(|(_, told)| told.open()).sum();
            if open == 0 || tokio::time::Instant::now() >= deadline {
                break counted;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        self.judge(&counted)
    }

    /// What every node that answers says about the life it has now.
    async fn count(&self) -> Vec<(Life, Told)> {
        let mut counted = Vec::new();
        for node in 0..self.place.api.len() {
            let asked = self.place.ask(node, "GET", TASKS, None, LIMIT).await;
            if let Ok(answer) = asked
                && answer.is_ok()
            {
                let life = answer.body["life"].as_str().unwrap_or_default().to_owned();
                counted.push(((node, life), Told::read(&answer.body)));
            }
        }
        counted
    }

    fn judge(&self, counted: &[(Life, Told)]) -> Verdict {
        let mut broken = Vec::new();
        let mut sum = Told::default();
        let mut alive = 0;
        for (life, told) in counted {
            let (node, mine) = (life.0, self.taken.get(life).copied().unwrap_or(0));
            alive += mine;
            if mine > told.taken {
                broken.push(format!(
                    "node {node} said that it took {mine} tasks, and knows only {}",
                    told.taken
                ));
            }
            if told.open() > 0 {
                broken.push(format!("{} tasks of node {node} did not end", told.open()));
            }
            if told.twice > 0 {
                broken.push(format!("{} tasks of node {node} ended twice", told.twice));
            }
            sum.add(told);
        }
        let gone = self.taken.values().sum::<u64>().saturating_sub(alive);
        if sum.taken == 0 && gone == 0 {
            let hint = "do the nodes have `demo.enabled`?";
            broken.push(format!("no node took a single task; {hint}"));
        }
        let mut done = format!(
            "{} tasks taken, {} done, {} dead letters, {} lost, {} doubled",
            grouped(sum.taken),
            grouped(sum.done),
            grouped(sum.dead),
            grouped(sum.open()),
            grouped(sum.twice),
        );
        for (count, text) in [
            (gone, "ended with a node that was killed"),
            (self.refused, "refused by a full queue"),
            (self.unanswered, "requests unanswered"),
        ] {
            if count > 0 {
                done += &format!(", {} {text}", grouped(count));
            }
        }
        Verdict { part: "tasks", done, broken }
    }
}

/// What a node says about its tasks.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    taken: u64,
    done: u64,
    dead: u64,
    twice: u64,
}

impl Told {
    fn read(body: &Value) -> Self {
        let number = |field: &str| body[field].as_u64().unwrap_or(0);
        Told {
            taken: number("taken"),
            done: number("done"),
            dead: number("dead"),
            twice: number("twice"),
        }
    }

    fn open(&self) -> u64 {
        self.taken.saturating_sub(self.done + self.dead)
    }

    fn add(&mut self, other: &Told) {
        self.taken += other.taken;
        self.done += other.done;
        self.dead += other.dead;
        self.twice += other.twice;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(taken: &[(usize, &str, u64)], counted: &[(usize, &str, Told)]) -> Verdict {
        let place = Place::new(Vec::new(), Vec::new(), None);
        let taken = taken.iter().map(|(node, life, count)| ((*node, (*life).to_owned()), *count));
        let actor = Actor {
            place: &place,
            chance: SeededChance::new(1),
            taken: taken.collect(),
            refused: 0,
            unanswered: 0,
        };
        let counted = counted.iter().map(|(node, life, told)| ((*node, (*life).to_owned()), *told));
        actor.judge(&counted.collect::<Vec<_>>())
    }

    fn told(taken: u64, done: u64, dead: u64) -> Told {
        Told { taken, done, dead, ..Told::default() }
    }

    #[test]
    fn what_was_taken_and_ended_once_is_fine_also_if_a_life_is_over() {
        let verdict = judge(&[(0, "a", 10), (0, "b", 5)], &[(0, "b", told(6, 5, 1))]);
        assert!(verdict.broken.is_empty(), "{verdict:?}");
        assert!(verdict.done.contains("10 ended with a node"), "{verdict:?}");
    }

    #[test]
    fn a_lost_task_a_doubled_one_and_one_that_is_not_known_are_told() {
        let lost = judge(&[(0, "a", 10)], &[(0, "a", told(10, 8, 1))]);
        assert!(lost.broken[0].contains("1 tasks of node 0 did not end"), "{lost:?}");
        let twice = judge(&[], &[(1, "a", Told { twice: 2, ..told(3, 3, 0) })]);
        assert!(twice.broken[0].contains("2 tasks of node 1 ended twice"), "{twice:?}");
        let unknown = judge(&[(0, "a", 10)], &[(0, "a", told(9, 9, 0))]);
        assert!(unknown.broken[0].contains("knows only 9"), "{unknown:?}");
    }

    #[test]
    fn nodes_that_take_nothing_are_told() {
        assert!(judge(&[], &[]).broken[0].contains("demo.enabled"));
    }
}
