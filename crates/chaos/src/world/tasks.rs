//! Background tasks in all tiers of the pools: each that was taken ends once, as done or as a dead
//! letter.
//!
//! What runs in the pools of a node is made by the node itself, so that it cannot be asked for over
//! the API. Nodes with `demo.enabled` take tasks that only take time, and count what becomes of
//! each of them; the pools cannot tell them from others. What is promised of a task when its node
//! ends, and how that is checked, is in `book`.

mod book;

use super::tally::add;
use super::{Answer, Pace, Place, Trouble, Verdict};
use book::{Book, Letters, Told};
use serde_json::{Value, json};
use skep_policy::{Chance, SeededChance};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// What nodes need for it.
pub const SETTINGS: &[&str] = &["demo.enabled=true"];

const TASKS: &str = "/api/v1/demo/tasks";
/// How many of a hundred tasks each tier gets, and how long one of them takes.
const TIERS: [(&str, u32, u64); 4] =
    [("critical", 20, 1), ("high", 30, 4), ("normal", 35, 8), ("low", 15, 15)];
/// How often tasks are given out.
const EVERY: Duration = Duration::from_millis(500);
/// How often nodes are asked what became of those they took.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a node may take to tell; one that does not is asked again.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Of so many tasks one becomes a dead letter.
const DYING_IN: u64 = 200;
/// How long a node may take to take some.
const LIMIT: Duration = Duration::from_secs(10);
/// Tasks of a burst in one request.
const CHUNK: u64 = 250;

/// Gives tasks to every tier of the nodes until `stop`, and then waits until all have ended.
pub async fn run(place: Arc<Place>, pace: Pace, stop: CancellationToken) -> Verdict {
    let mut actor = Actor {
        place: &place,
        chance: SeededChance::new(pace.seed ^ 0x7a5c),
        book: Book::default(),
    };
    let mut ticks = tokio::time::interval(EVERY);
    let (mut owed, mut looked) = (0.0, Instant::now());
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        owed += f64::from(pace.tasks) * EVERY.as_secs_f64();
        let count = owed as u32;
        owed -= f64::from(count);
        actor.give(count).await;
        if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            actor.look().await;
        }
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

struct Actor<'a> {
    place: &'a Place,
    chance: SeededChance,
    book: Book,
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
            // Some are for the dead letters, and one in twenty needs a second try.
            let dying = u64::from(self.chance.up_to(DYING_IN - 1) < count);
            let stumbling = u64::from(self.chance.up_to(19) < count);
            let body = json!({
                "tier": tier, "count": count, "millis": millis,
                "dying": dying, "stumbling": stumbling.min(count - dying),
            });
            let asked = self.place.ask(node, "POST", TASKS, Some(&body), LIMIT).await;
            match asked {
                Ok(answer) if answer.is_ok() => {
                    let life = answer.body["life"].as_str().unwrap_or_default();
                    let number = |field: &str| answer.body[field].as_u64().unwrap_or(0);
                    add(&self.place.tally.tasks, number("taken") as usize);
                    self.book.taken(node, life, number("taken"));
                    self.book.refused += number("refused");
                }
                // Whether it took them is not known; it counts them itself.
                Ok(_) | Err(_) => self.book.unanswered += 1,
            }
        }
    }

    /// Writes down what the nodes say now: one of them may be killed before it is asked again.
    async fn look(&mut self) {
        for node in (0..self.place.api.len()).filter(|node| !self.place.is_down(*node)) {
            if let Some(told) = self.told(node).await {
                self.book.looked(node, told);
            }
        }
    }

    async fn told(&self, node: usize) -> Option<Told> {
        let asked = self.place.ask(node, "GET", TASKS, None, LOOK_LIMIT).await.ok()?;
        asked.is_ok().then(|| Told::read(&asked.body))
    }

    /// Waits until everything that was taken has ended and all letters are written, and compares.
    async fn settle(self, limit: Duration) -> Verdict {
        let deadline = Instant::now() + limit;
        loop {
            let mut alive = Vec::new();
            for node in 0..self.place.api.len() {
                if let Some(told) = self.told(node).await {
                    alive.push((node, told));
                }
            }
            let letters = self.letters().await;
            let all_told = alive.len() == self.place.api.len() && letters.is_some();
            let settled = all_told && alive.iter().all(|(_, told)| told.unwritten == 0);
            let verdict = self.book.judge(&alive, letters.as_ref(), &self.place.weather);
            if settled && verdict.broken.is_empty() || Instant::now() >= deadline {
                return verdict;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// All dead letters of these tasks, from any node.
    async fn letters(&self) -> Option<Letters> {
        let mut letters = Letters::default();
        let mut before = None::<String>;
        loop {
            let after = before.map(|place| format!("&before={place}")).unwrap_or_default();
            let path = format!("/api/v1/pools/dead?kind=demo&limit=1000{after}");
            let page = self.place.ask(self.place.next(), "GET", &path, None, LIMIT).await.ok()?;
            if !page.is_ok() {
                return None;
            }
            page.body["letters"].as_array()?.iter().for_each(|letter| letters.add(letter));
            match page.body["next"].as_str() {
                Some(next) => before = Some(next.to_owned()),
                None => return Some(letters),
            }
        }
    }
}
