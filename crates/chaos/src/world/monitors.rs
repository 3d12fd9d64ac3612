//! Monitors and the servers that they watch, with latency noise: the rules of the selection hold.
//!
//! An agent asks for its assignments and reports results, as `skep agent` does; what it measured is
//! made up, from a distance between the two that stays and noise that does not.

mod rules;

use super::tally::add;
use super::{Pace, Place, Verdict, grouped};
use rules::Looked;
use serde_json::{Value, json};
use skep_policy::{Chance, SeededChance};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What nodes need so that what takes days elsewhere can be watched for a minute.
pub const SETTINGS: &[&str] = &[
    "monitors.target_active=4",
    "monitors.target_testing=3",
    "monitors.globally_active_in_testing=2",
    "monitors.floor_active=2",
    "monitors.floor_testing=2",
    "monitors.samples_for_testing=2",
    "monitors.samples_for_active=4",
    "monitors.measure_active=2s",
    "monitors.measure_testing=2s",
    "monitors.measure_candidate=3s",
    "monitors.review_changed=3s",
    "monitors.review_unchanged=4s",
    "monitors.review_check=300ms",
    "monitors.review_lease=5s",
    "monitors.confirmations=3",
    "monitors.look_back=5m",
    "monitors.silent_after=1m",
    "monitors.recheck_after=20s",
];

/// Who runs monitors; the first runs a server too, which its own monitors may not watch.
pub const ACCOUNTS: [&str; 4] = ["ana", "ben", "cleo", "dan"];
const CITIES: [&str; 12] =
    ["ams", "ber", "gru", "jnb", "lon", "nyc", "par", "sfo", "sin", "syd", "tok", "waw"];
const KINDS: [&str; 3] = ["ntp", "http", "tcp"];
/// How long adding something may take, while nodes come and go.
const ADD_LIMIT: Duration = Duration::from_secs(30);
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Between two rounds of an agent.
const ROUND: Duration = Duration::from_secs(1);
/// Rounds between two questions for assignments.
const ASK_EVERY: u32 = 2;
/// Results that wait for a node at most; the oldest of more go.
const WAITING_MAX: usize = 500;
/// How often the fleet is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Lets monitors watch servers until `stop`, and then waits until the rules hold everywhere.
pub async fn run(place: Arc<Place>, pace: Pace, stop: CancellationToken) -> Verdict {
    let mut broken = Vec::new();
    if let Some(Err(why)) = stop.run_until_cancelled(add_all(&place, &pace)).await {
        broken.push(why);
    }
    let mut agents = JoinSet::new();
    // They go on while the rest settles, because reviews need their samples.
    let settled = CancellationToken::new();
    for number in 0..pace.monitors {
        let agent = Agent {
            place: place.clone(),
            number,
            chance: SeededChance::new(pace.seed ^ (u64::from(number) << 8)),
            servers: Vec::new(),
            measured: HashMap::new(),
            waiting: Vec::new(),
            told: Told::default(),
        };
        agents.spawn(agent.live(settled.clone()));
    }
    let mut was_full = false;
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        was_full = was_full || Looked::at(&place, LIMIT).await.is_some_and(|seen| seen.is_full());
    }
    let looked = settle(&place, pace.settle, was_full).await;
    settled.cancel();
    let mut told = Told::default();
    while let Some(ended) = agents.join_next().await {
        match ended {
            Ok(one) => told.add(one),
            Err(error) => broken.push(format!("an agent broke off: {error}")),
        }
    }
    broken.extend(told.strange.clone());
    let (changes, full) = match looked {
        Ok(looked) => {
            broken.extend(looked.broken(was_full));
            (looked.changes(), looked.full())
        }
        Err(why) => {
            broken.push(why);
            (0, 0)
        }
    };
    if told.accepted == 0 && pace.monitors > 0 {
        broken.push("no result of an agent was ever taken".to_owned());
    }
    let done = format!(
        "{} samples of {} servers by {} monitors, {} changes, {full} servers full",
        grouped(told.accepted),
        pace.servers,
        pace.monitors,
        grouped(changes),
    );
    Verdict { part: "monitors", done, broken }
}

/// Looks until everything holds, or the time is over.
async fn settle(place: &Place, limit: Duration, was_full: bool) -> Result<Looked, String> {
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        let looked = Looked::at(place, LIMIT).await;
        let holds = looked.as_ref().is_some_and(|looked| looked.broken(was_full).is_empty());
        if holds || tokio::time::Instant::now() >= deadline {
            return looked.ok_or_else(|| format!("no node told about monitors within {limit:?}"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn monitor_name(number: u32) -> String {
    let cities = CITIES.len() as u32;
    format!("{}-{}", CITIES[(number % cities) as usize], number / cities + 1)
}

/// A network of its own for each, but the last has that of the first, so that one of the two has
/// to stand back.
fn monitor_address(number: u32, of: u32) -> String {
    match number + 1 == of && of > 1 {
        true => "10.20.1.7".to_owned(),
        false => format!("10.{}.{}.7", 20 + number / 16, number % 16 * 16),
    }
}

async fn add_all(place: &Place, pace: &Pace) -> Result<(), String> {
    for id in ACCOUNTS {
        let body = json!({ "id": id, "flags": { "monitor_per_server_limit": 2 } });
        add_one(place, "/api/v1/accounts", &body).await?;
    }
    for number in 0..pace.servers {
        let kind = KINDS[number as usize % KINDS.len()];
        let id = format!("{kind}-{}", number as usize / KINDS.len() + 1);
        let target = match kind {
            "http" => format!("http://{id}.example/"),
            _ => format!("{id}.example:123"),
        };
        let mut body = json!({
            "id": id, "ip": format!("192.0.{}.{}", 2 + number / 200, number % 200 + 1),
            "probe": { "kind": kind, "target": target },
        });
        if number == 0 {
            body["account"] = json!(ACCOUNTS[0]);
        }
        add_one(place, "/api/v1/servers", &body).await?;
    }
    for number in 0..pace.monitors {
        let body = json!({
            "id": monitor_name(number), "ip": monitor_address(number, pace.monitors),
            "account": ACCOUNTS[number as usize % ACCOUNTS.len()], "status": "active",
            "key": false,
        });
        add_one(place, "/api/v1/monitors", &body).await?;
    }
    Ok(())
}

async fn add_one(place: &Place, path: &str, body: &Value) -> Result<(), String> {
    let answer = place.ask_any("POST", path, Some(body), ADD_LIMIT).await;
    let answer = answer.map_err(|trouble| trouble.to_string())?;
    // The answer to an earlier try may have been lost.
    match answer.is_ok() || answer.status == 409 {
        true => Ok(()),
        false => Err(format!("{} was not added at {path}: {answer}", body["id"])),
    }
}

/// What came of an agent's work.
#[derive(Default)]
struct Told {
    accepted: u64,
    /// Refusals that nothing explains.
    strange: Vec<String>,
}

impl Told {
    fn add(&mut self, other: Told) {
        self.accepted += other.accepted;
        self.strange.extend(other.strange);
    }
}

struct Agent {
    place: Arc<Place>,
    number: u32,
    chance: SeededChance,
    servers: Vec<(String, Duration)>,
    /// When each server was measured last.
    measured: HashMap<String, tokio::time::Instant>,
    /// Results that no node has taken yet; the same are sent again.
    waiting: Vec<Value>,
    told: Told,
}

impl Agent {
    async fn live(mut self, stop: CancellationToken) -> Told {
        let name = monitor_name(self.number);
        // Not all in the same moment.
        let first = ROUND * (self.number % 16) / 16;
        let mut round = 0;
        let mut rest = first;
        while stop.run_until_cancelled(tokio::time::sleep(rest)).await.is_some() {
            if round % ASK_EVERY == 0 {
                self.ask(&name).await;
            }
            self.measure();
            self.report(&name).await;
            round += 1;
            rest = ROUND;
        }
        self.told
    }

    async fn ask(&mut self, name: &str) {
        let path = format!("/api/v1/agent/assignments?monitor={name}");
        let answer = self.place.ask(self.place.next(), "GET", &path, None, LIMIT).await;
        // Who gets no answer goes on with what it knows.
        let Some(answer) = answer.ok().filter(|answer| answer.is_ok()) else { return };
        let servers = answer.body["servers"].as_array().map_or(&[][..], Vec::as_slice);
        self.servers = servers
            .iter()
            .filter_map(|one| {
                let every = Duration::from_millis(one["interval_ms"].as_u64()?);
                Some((one["server"].as_str()?.to_owned(), every))
            })
            .collect();
    }

    fn measure(&mut self) {
        let now = tokio::time::Instant::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        for (server, every) in &self.servers {
            let last = self.measured.get(server);
            // A round early rather than a round late.
            if last.is_some_and(|last| now + ROUND / 2 < *last + *every) {
                continue;
            }
            self.measured.insert(server.clone(), now);
            let mut noise = |most: u64| self.chance.up_to(most) as f64;
            let result = match noise(99) as u32 {
                0 => json!({ "server": server, "at": at, "error": "timeout" }),
                _ => {
                    let rtt = distance(self.number, server) * (0.9 + noise(200) / 1_000.0);
                    let offset = noise(200) / 10.0 - 10.0;
                    json!({ "server": server, "at": at, "rtt_ms": rtt, "offset_ms": offset })
                }
            };
            self.waiting.push(result);
        }
        let surplus = self.waiting.len().saturating_sub(WAITING_MAX);
        self.waiting.drain(..surplus);
    }

    async fn report(&mut self, name: &str) {
        if self.waiting.is_empty() {
            return;
        }
        let path = format!("/api/v1/agent/results?monitor={name}");
        let body = json!({ "agent": "made up", "results": self.waiting });
        let node = self.place.next();
        let answer = match self.place.ask(node, "POST", &path, Some(&body), LIMIT).await {
            Ok(answer) if answer.is_ok() => answer,
            Ok(answer) if answer.status < 500 && answer.status != 429 => {
                self.told.strange.push(format!("a report of {name} was answered {answer}"));
                self.waiting.clear();
                return;
            }
            Ok(_) | Err(_) => return,
        };
        self.waiting.clear();
        let accepted = answer.body["accepted"].as_u64().unwrap_or(0);
        add(&self.place.tally.samples, accepted as usize);
        self.told.accepted += accepted;
    }
}

/// How far a server is from a monitor, in milliseconds; the same every time.
fn distance(monitor: u32, server: &str) -> f64 {
    let mixed = server.bytes().fold(u64::from(monitor) + 7, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    6.0 + SeededChance::new(mixed).up_to(900) as f64 / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitors_have_networks_of_their_own_but_the_last() {
        let address = |number| monitor_address(number, 40);
        assert_eq!(address(0), "10.20.0.7");
        assert_eq!(address(17), "10.21.16.7");
        assert_eq!(address(39), "10.20.1.7");
        assert_eq!((monitor_name(0), monitor_name(13)), ("ams-1".into(), "ber-2".into()));
    }

    #[test]
    fn distances_stay_and_differ() {
        assert_eq!(distance(1, "ntp-1"), distance(1, "ntp-1"));
        assert_ne!(distance(1, "ntp-1"), distance(2, "ntp-1"));
    }
}
