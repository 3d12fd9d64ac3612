//! Producers and consumers with skewed keys: what was acknowledged to a producer reaches every
//! group, in the order of its partition, and again only after a lease.

mod book;

use super::tally::add;
use super::{Answer, Pace, Place, Verdict};
use book::{Book, Lane};
use serde_json::{Value, json};
use skep_policy::{Chance, SeededChance};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What producers push to.
pub const QUEUES: [&str; 4] = ["orders", "mails", "images", "audit"];
/// Who reads all of it.
pub const GROUPS: [&str; 2] = ["billing", "search"];
/// Keys of each queue; the first has most of the messages.
const KEYS: usize = 6;

/// Short, so that what a dead node had leased comes again soon.
const LEASE: Duration = Duration::from_secs(5);
/// How long a pop waits for messages.
const WAIT: Duration = Duration::from_secs(1);
/// What may come on top of it: the time of a forwarded request, and that of a busy machine.
const SLACK: Duration = Duration::from_secs(8);
/// Messages in a push, and in a pop.
const PUSH_MAX: u64 = 4;
const POP_MAX: u32 = 8;
/// So many messages for each one pushed in a second may wait; then producers wait, too. A machine
/// that is slower than the pace is given its own.
const BACKLOG: u64 = 8;
/// After a request that came to nothing.
const RETRY: Duration = Duration::from_millis(50);
/// One request in so many goes to any node, also to one that is known to be down.
const ANYWHERE: u64 = 7;
/// How long nobody may take a push, or nothing may be consumed, at most. Nodes that come and go
/// are away for seconds.
const STANDSTILL: Duration = Duration::from_secs(60);

/// Lets messages flow until `stop`, and then until every group has had all of them.
pub async fn run(place: Arc<Place>, pace: Pace, stop: CancellationToken) -> Verdict {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let actor = Arc::new(Actor {
        book: Mutex::new(Book::new(GROUPS.len(), QUEUES.len() * KEYS, LEASE)),
        // What another run left in the same database is not this one's.
        run: format!("{:x}-{:x}", pace.seed, since.as_millis()),
        enough: CancellationToken::new(),
        stop,
        place,
        pace,
    });
    let (mut producers, mut consumers) = (JoinSet::new(), JoinSet::new());
    let count = actor.producers();
    for number in 0..count {
        let actor = actor.clone();
        producers.spawn(async move { actor.produce(number, count).await });
    }
    // One for each queue of each group at least: what nobody asks for would never be consumed.
    for number in 0..(actor.pace.consumers as usize).max(GROUPS.len() * QUEUES.len()) {
        let actor = actor.clone();
        consumers.spawn(async move { actor.consume(number).await });
    }
    let watching = actor.clone();
    consumers.spawn(async move { watching.watch_for_standstill().await });
    while producers.join_next().await.is_some() {}
    // Pushes that were under way are acknowledged yet: only now it is known what must come.
    let deadline = Instant::now() + actor.pace.settle;
    while actor.book().waiting() > 0 && Instant::now() < deadline {
        tokio::time::sleep(RETRY).await;
    }
    let mut open = actor.open().await;
    while !open.is_empty() && Instant::now() < deadline {
        tokio::time::sleep(RETRY).await;
        open = actor.open().await;
    }
    // As it is while consumers still ask.
    let mut lost = actor.book().lost(&name);
    lost.extend(open);
    actor.enough.cancel();
    while consumers.join_next().await.is_some() {}
    actor.book().verdict(lost)
}

/// A lane's queue and partition.
fn names(lane: usize) -> (&'static str, String) {
    (QUEUES[lane % QUEUES.len()], format!("customer-{}", lane / QUEUES.len() + 1))
}

fn name(lane: usize) -> String {
    let (queue, partition) = names(lane);
    format!("{queue}/{partition}")
}

/// The lane that an answer names.
fn lane_of(message: &Value) -> Option<usize> {
    let queue = QUEUES.iter().position(|queue| message["queue"] == **queue)?;
    let key = message["partition"].as_str()?.strip_prefix("customer-")?.parse::<usize>().ok()?;
    (1..=KEYS).contains(&key).then(|| (key - 1) * QUEUES.len() + queue)
}

struct Actor {
    place: Arc<Place>,
    pace: Pace,
    book: Mutex<Book>,
    run: String,
    /// No more pushes.
    stop: CancellationToken,
    /// No more pops either.
    enough: CancellationToken,
}

impl Actor {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn producers(&self) -> usize {
        (self.pace.messages as usize / 20).clamp(2, 8)
    }

    fn chance(&self, salt: u64) -> SeededChance {
        SeededChance::new(self.pace.seed ^ (salt.wrapping_mul(0x9e37_79b9)))
    }

    /// Mostly a node that is there.
    fn node(&self, chance: &mut SeededChance) -> usize {
        match chance.up_to(ANYWHERE) {
            0 => chance.up_to(self.place.api.len().saturating_sub(1) as u64) as usize,
            _ => self.place.next(),
        }
    }

    /// Sends a request; nothing if there is no answer of use. What a node never may answer is
    /// written down.
    async fn ask(
        &self,
        node: usize,
        (method, path): (&str, &str),
        body: Option<&Value>,
    ) -> Option<Answer> {
        let limit = if method == "GET" { WAIT + SLACK } else { SLACK };
        let answer = match self.place.ask(node, method, path, body, limit).await {
            Ok(answer) if answer.is_ok() => return Some(answer),
            Ok(answer) => answer,
            Err(_) => {
                add(&self.place.tally.refused, 1);
                return None;
            }
        };
        add(&self.place.tally.refused, 1);
        // A node that starts, stops, has no database, or has too much to do says so.
        if !matches!(answer.status, 429 | 502 | 503 | 504) {
            let path = path.split('?').next().unwrap_or(path);
            self.book().broken(format!("{method} {path} was answered {answer}"));
        }
        None
    }

    /// Asks one node after the other until one answers, for `limit` at most; how often it took.
    async fn insist(
        &self,
        chance: &mut SeededChance,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Option<(Answer, usize)> {
        let deadline = Instant::now() + limit;
        for tries in 1.. {
            if let Some(answer) = self.ask(self.node(chance), ("POST", path), Some(body)).await {
                return Some((answer, tries));
            }
            if Instant::now() > deadline {
                break;
            }
            tokio::time::sleep(RETRY).await;
        }
        None
    }

    /// Pushes to lanes of its own, one push after the other: their order is known then.
    async fn produce(&self, number: usize, of: usize) {
        let lanes: Vec<usize> =
            (0..QUEUES.len() * KEYS).filter(|lane| lane % of == number).collect();
        let mut next = vec![0_u64; QUEUES.len() * KEYS];
        let mut chance = self.chance(number as u64 + 1);
        let rate = f64::from(self.pace.messages.max(1)) / of as f64;
        let mut due = Instant::now();
        while !self.stop.is_cancelled() {
            let lane = lanes[skewed(&mut chance, lanes.len())];
            let first = next[lane];
            next[lane] += 1 + chance.up_to(PUSH_MAX - 1);
            let numbers = first..next[lane];
            let (queue, partition) = names(lane);
            let items: Vec<Value> = numbers
                .clone()
                .map(|n| {
                    json!({ "queue": queue, "partition": partition,
                            "payload": { "run": self.run, "number": n },
                            "transactionId": format!("{}-{lane}-{n}", self.run) })
                })
                .collect();
            let body = json!({ "items": items });
            let pushed = self.insist(&mut chance, "/api/v1/push", &body, STANDSTILL).await;
            let Some((answer, _)) = pushed else {
                let text = format!("no node took a push for {STANDSTILL:?}");
                self.book().broken(text);
                return;
            };
            let is_there = |one: &Value| one["status"] == "queued" || one["status"] == "duplicate";
            let said = answer.body.as_array().map_or(&[][..], Vec::as_slice);
            if said.len() != items.len() || !said.iter().all(is_there) {
                self.book().broken(format!("{}: pushing was answered {said:?}", name(lane)));
                return;
            }
            self.book().pushed(lane, next[lane]);
            add(&self.place.tally.pushed, items.len());
            due = (due + Duration::from_secs_f64(items.len() as f64 / rate)).max(Instant::now());
            self.rest_until(due).await;
        }
    }

    /// Until it is time for the next push, and there is room for it.
    async fn rest_until(&self, due: Instant) {
        let most = BACKLOG * u64::from(self.pace.messages.max(1));
        let rest = async {
            tokio::time::sleep_until(due.into()).await;
            while self.book().waiting() > most {
                tokio::time::sleep(RETRY).await;
            }
        };
        self.stop.run_until_cancelled(rest).await;
    }

    async fn consume(&self, number: usize) {
        let group = number % GROUPS.len();
        let mut chance = self.chance(1_000 + number as u64);
        // Each looks mostly at one queue, and now and then at any.
        let own = number / GROUPS.len();
        while !self.enough.is_cancelled() {
            let queue = match chance.up_to(3) {
                0 => chance.up_to(QUEUES.len() as u64 - 1) as usize,
                _ => own % QUEUES.len(),
            };
            let path = format!(
                "/api/v1/pop/queue/{}?batch={POP_MAX}&partitions=3&wait=true&timeout={}\
                 &leaseSeconds={}&consumerGroup={}&subscriptionMode=all",
                QUEUES[queue],
                WAIT.as_millis(),
                LEASE.as_secs(),
                GROUPS[group],
            );
            let asked = Instant::now();
            match self.ask(self.node(&mut chance), ("GET", &path), None).await {
                Some(answer) => self.work_on(&answer.body, (group, asked), &mut chance).await,
                None => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// Writes down what came, and acknowledges it.
    async fn work_on(
        &self,
        popped: &Value,
        (group, asked): (usize, Instant),
        chance: &mut SeededChance,
    ) {
        let messages = popped["messages"].as_array().map_or(&[][..], Vec::as_slice);
        if messages.is_empty() {
            return;
        }
        let known = |message: &Value| {
            let data = &message["data"];
            let ours = data["run"] == self.run.as_str();
            let lane = lane_of(message).filter(|_| ours)?;
            Some((Lane { group, lane }, data["number"].as_u64()?))
        };
        let known: Vec<_> = messages.iter().map(known).collect();
        {
            let (received, mut book) = (Instant::now(), self.book());
            for (lane, number) in known.iter().flatten() {
                book.received(*lane, *number, (asked, received), &name);
            }
        }
        let words = messages.iter().map(|one| {
            json!({ "transactionId": one["transactionId"], "partitionId": one["partitionId"],
                    "leaseId": one["leaseId"], "status": "completed" })
        });
        let words: Vec<Value> = words.collect();
        let body = json!({ "consumerGroup": GROUPS[group], "acknowledgments": words });
        // Beyond the lease it is of no use: the messages come again.
        let acked = self.insist(chance, "/api/v1/ack/batch", &body, LEASE).await;
        let mut book = self.book();
        let mut count = 0;
        for (place, known) in known.iter().enumerate() {
            let Some((lane, number)) = known else { continue };
            let (done, once) = match &acked {
                Some((answer, tries)) => (answer.body[place]["success"] == true, *tries == 1),
                None => (false, false),
            };
            // One whose answer was lost, the first or all of them, may have been done all the same.
            if done || !once {
                count += usize::from(book.settled(*lane, *number, asked, done));
            }
        }
        add(&self.place.tally.consumed, count);
    }

    /// What groups have not settled, as nodes say. The book takes what may have been acknowledged
    /// for settled; if it was not, it is still open there, or comes again to those who ask.
    async fn open(&self) -> Vec<String> {
        let mut open = Vec::new();
        for group in GROUPS {
            let path = format!("/api/v1/consumer-groups/{group}");
            match self.place.ask_any("GET", &path, None, SLACK).await {
                Ok(answer) if answer.body["totalLag"] == 0 => {}
                Ok(answer) if answer.is_ok() => open.push(format!(
                    "nodes say that group {group} has not settled {} messages",
                    answer.body["totalLag"]
                )),
                Ok(answer) => open.push(format!("GET {path} was answered {answer}")),
                Err(trouble) => open.push(format!("nobody says what {group} has left: {trouble}")),
            }
        }
        open
    }

    /// Something is consumed all the time, whoever dies.
    async fn watch_for_standstill(&self) {
        let (mut last, mut since) = (0, Instant::now());
        let tick = || tokio::time::sleep(Duration::from_secs(1));
        while self.enough.run_until_cancelled(tick()).await.is_some() {
            let (settled, waiting) = {
                let mut book = self.book();
                book.forget();
                book.troubles().for_each(|text| self.place.weather.notice(text));
                (book.settled_so_far(), book.waiting())
            };
            if settled != last || waiting == 0 {
                (last, since) = (settled, Instant::now());
            } else if since.elapsed() > STANDSTILL {
                let text = format!("{waiting} messages waited, and none came for {STANDSTILL:?}");
                self.book().broken(text);
                since = Instant::now();
            }
        }
    }
}

/// A place of so many; the first is taken most often, the second half as often, and so on.
fn skewed(chance: &mut SeededChance, of: usize) -> usize {
    let weight = |place: usize| 1_000_000 / (place as u64 + 1);
    let sum: u64 = (0..of).map(weight).sum();
    let mut drawn = chance.up_to(sum.saturating_sub(1));
    for place in 0..of {
        match drawn.checked_sub(weight(place)) {
            Some(left) => drawn = left,
            None => return place,
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_found_by_its_names_and_nothing_else_is() {
        for lane in 0..QUEUES.len() * KEYS {
            let (queue, partition) = names(lane);
            let message = json!({ "queue": queue, "partition": partition });
            assert_eq!(lane_of(&message), Some(lane));
        }
        for strange in [
            json!({ "queue": "orders", "partition": "customer-7" }),
            json!({ "queue": "orders", "partition": "customer-0" }),
            json!({ "queue": "other", "partition": "customer-1" }),
        ] {
            assert_eq!(lane_of(&strange), None, "{strange}");
        }
    }

    #[test]
    fn the_first_keys_have_most_of_the_messages_and_all_have_some() {
        let mut chance = SeededChance::new(1);
        let mut drawn = [0; 6];
        (0..6_000).for_each(|_| drawn[skewed(&mut chance, 6)] += 1);
        assert!(drawn.is_sorted_by(|one, next| one > next), "{drawn:?}");
        assert!(drawn[0] > 4 * drawn[5] && drawn[5] > 100, "{drawn:?}");
    }
}
