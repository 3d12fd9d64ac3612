//! Requests over routes whose servers come and go: each is answered, by a server of its route, and
//! counted.
//!
//! Two routes lead to servers in this process; every few seconds one of them leads to others than
//! before. Clients ask at all gateways. A request may fail only while its node or all servers of
//! its route are away: everything else is the proxy's to mend, by asking another server. A node
//! that has said that it serves a version of a route lets no server answer that was taken out of
//! it, and what it counts is what it was asked.

mod book;

use super::tally::{add, read_to};
use super::upstreams::{HEALTH, ROUTES, of_route};
use super::weather::Who;
use super::{Answer, Pace, Place, Trouble, Verdict, grouped};
use crate::common::lock;
use book::{Book, Heard, Set};
use serde_json::{Value, json};
use skep_policy::{Chance, SeededChance};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Servers that a route leads to at a time: less than there are, so that there is a choice.
const USED: usize = 3;
/// How often requests are sent.
const EVERY: Duration = Duration::from_millis(100);
/// Requests on their way at most; when there are more, nodes are too slow for so many.
const OPEN_MAX: usize = 200;
/// Longer than all tries of a request take together.
const LIMIT: Duration = Duration::from_secs(20);
/// How often nodes are asked which version they serve.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long an answer of the API may take.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// How often a route is changed.
const CHANGE_EVERY: Duration = Duration::from_secs(4);
/// How long adding a route may take, while nodes come and go.
const ADD_LIMIT: Duration = Duration::from_secs(30);
/// Requests of each route to each node at the very end, when everything is whole.
const LAST: usize = 5;
/// Between two looks.
const REST: Duration = Duration::from_millis(100);

/// Sends requests until `stop`, and then until everything was counted.
pub async fn run(place: Arc<Place>, pace: Pace, stop: CancellationToken) -> Verdict {
    if let Err(why) = place.upstreams.start().await {
        return Verdict { part: "routes", done: String::new(), broken: vec![why] };
    }
    let book = Arc::new(Mutex::new(Book::new(place.api.len())));
    let actor = Arc::new(Actor { place, book });
    let mut chance = SeededChance::new(pace.seed ^ 0x0a7e);
    for route in 0..ROUTES.len() {
        // To its end, also if everything is over meanwhile: without routes nothing can be judged.
        if let Err(why) = actor.lead(route, draw(&mut chance, route)).await {
            return Verdict { part: "routes", done: String::new(), broken: vec![why] };
        }
    }
    let looking = tokio::spawn(actor.clone().look(stop.clone()));
    let changing = tokio::spawn(actor.clone().change(chance, stop.clone()));
    actor.send(pace.requests, &stop).await;
    let _ = tokio::join!(looking, changing);
    actor.settle(pace.settle).await
}

/// What a route leads to next.
fn draw(chance: &mut SeededChance, route: usize) -> Set {
    let mut all: Vec<usize> = of_route(route).collect();
    let mut set = Set::new();
    while set.len() < USED && !all.is_empty() {
        set.insert(all.swap_remove(chance.up_to(all.len() as u64 - 1) as usize));
    }
    set
}

struct Actor {
    place: Arc<Place>,
    book: Arc<Mutex<Book>>,
}

impl Actor {
    /// Makes a route lead to these servers, and returns when it is known that it does.
    async fn lead(&self, route: usize, set: Set) -> Result<(), String> {
        let version = lock(&self.book).newest(route).map_or(0, |(version, _)| version);
        lock(&self.book).wants(route, set.clone());
        let name = ROUTES[route];
        let address = |number: &usize| self.place.upstreams.address(*number);
        let upstreams: Vec<String> = set.iter().map(address).collect();
        let mut body = json!({
            "name": name, "path": format!("/{name}"), "upstreams": upstreams, "log": false,
            "timeouts": { "head": "5s" }, "retry": { "tries": 2, "budget": 1.0 },
        });
        // One is watched by checks too, the other by its answers alone.
        if route == 0 {
            body["health"] = json!({ "path": HEALTH, "every": "1s", "timeout": "1s" });
        }
        // The version it is made from: whatever of this arrives late changes nothing then.
        let path = format!("/api/v1/routes/{name}?version={version}");
        let deadline = Instant::now() + ADD_LIMIT;
        let mut last = String::new();
        while Instant::now() < deadline {
            let node = self.place.next();
            match self.place.ask(node, "PUT", &path, Some(&body), ASK_LIMIT).await {
                Ok(answer) if answer.is_ok() => {
                    if let Some((version, set)) = self.read(&answer.body) {
                        lock(&self.book).has_been(route, version, set);
                        return Ok(());
                    }
                    last = format!("without a version: {}", answer.body);
                }
                Ok(answer) => {
                    // Perhaps it has been done, and the answer was lost.
                    self.look_at(node).await;
                    if self.is_done(route, version) {
                        return Ok(());
                    }
                    last = answer.to_string();
                }
                Err(trouble) => last = trouble.to_string(),
            }
            tokio::time::sleep(REST).await;
        }
        Err(format!("{name} could not be changed within {ADD_LIMIT:?}: {last}"))
    }

    fn is_done(&self, route: usize, version: i64) -> bool {
        lock(&self.book).newest(route).is_some_and(|(newest, _)| newest > version)
    }

    /// The version of a route and what it leads to, as a node tells it.
    fn read(&self, body: &Value) -> Option<(i64, Set)> {
        let upstreams = body["spec"]["upstreams"].as_array()?.iter();
        let number = |one: &Value| self.place.upstreams.at(one["address"].as_str()?);
        Some((body["version"].as_i64()?, upstreams.map(number).collect::<Option<Set>>()?))
    }

    async fn change(self: Arc<Self>, mut chance: SeededChance, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(CHANGE_EVERY)).await.is_some() {
            let route = chance.up_to(ROUTES.len() as u64 - 1) as usize;
            let set = draw(&mut chance, route);
            // To its end: what is half known could not be judged.
            match self.lead(route, set).await {
                Ok(()) => lock(&self.book).changes += 1,
                Err(why) => {
                    self.place.weather.notice(&why);
                    lock(&self.book).broken.insert(why);
                    return;
                }
            }
        }
    }

    /// Asks the nodes which versions they serve.
    async fn look(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            for node in 0..self.place.api.len() {
                if !self.place.weather.is_away(Who::Node(node)) {
                    self.look_at(node).await;
                }
            }
        }
    }

    async fn look_at(&self, node: usize) {
        for (route, name) in ROUTES.iter().enumerate() {
            let path = format!("/api/v1/routes/{name}");
            let asked = self.place.ask(node, "GET", &path, None, ASK_LIMIT).await;
            let told = asked.ok().filter(Answer::is_ok).and_then(|found| self.read(&found.body));
            if let Some((version, set)) = told {
                let mut book = lock(&self.book);
                book.has_been(route, version, set);
                book.serves(node, route, version);
            }
        }
    }

    /// Sends so many requests in a second to one node after another.
    async fn send(self: &Arc<Self>, in_a_second: u32, stop: &CancellationToken) {
        let mut ticks = tokio::time::interval(EVERY);
        let (mut owed, mut turn) = (0.0, 0);
        let mut open = JoinSet::new();
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            owed += f64::from(in_a_second) * EVERY.as_secs_f64();
            while owed >= 1.0 {
                owed -= 1.0;
                turn += 1;
                if open.len() < OPEN_MAX {
                    let (node, route) = (turn % self.place.api.len().max(1), turn % ROUTES.len());
                    open.spawn(self.clone().request(node, route));
                }
            }
            while open.try_join_next().is_some() {}
        }
        while open.join_next().await.is_some() {}
    }

    async fn request(self: Arc<Self>, node: usize, route: usize) {
        let ticket = lock(&self.book).begin(node, route, &self.place.weather);
        let Some(ticket) = ticket else { return };
        let heard = heard(self.place.through_gateway(node, &ticket.path, LIMIT).await);
        let mut book = lock(&self.book);
        if let Some(wrong) = book.end(&ticket, &heard, &self.place.weather) {
            self.place.weather.notice(&wrong);
        }
        match heard {
            Heard::From(..) => read_to(&self.place.tally.requests, book.answered),
            Heard::Refused(_) | Heard::Nothing(_) => add(&self.place.tally.refused, 1),
        }
    }

    /// Waits until all nodes serve the newest routes, asks all of them once more, and compares what
    /// they have counted.
    async fn settle(self: Arc<Self>, limit: Duration) -> Verdict {
        let deadline = Instant::now() + limit;
        let nodes = self.place.api.len();
        let mut late = nodes;
        while late > 0 && Instant::now() < deadline {
            for node in 0..nodes {
                self.look_at(node).await;
            }
            late = (0..nodes).filter(|node| !lock(&self.book).is_current(*node)).count();
        }
        if late > 0 {
            let text = format!("{late} nodes do not serve the newest routes after {limit:?}");
            lock(&self.book).broken.insert(text);
        }
        for turn in 0..LAST * nodes * ROUTES.len() {
            self.clone().request(turn % nodes, turn / nodes % ROUTES.len()).await;
        }
        let wrong = loop {
            let wrong = self.wrong_counts().await;
            if wrong.is_empty() || Instant::now() >= deadline {
                break wrong;
            }
            tokio::time::sleep(REST).await;
        };
        let mut book = lock(&self.book);
        book.broken.extend(wrong);
        if book.answered == 0 {
            book.broken.insert("no request was ever answered".to_owned());
        }
        let done = format!(
            "{} requests answered, {} met a fault, {} changes of {} routes",
            grouped(book.answered),
            grouped(book.excused),
            grouped(book.changes),
            ROUTES.len(),
        );
        Verdict { part: "routes", done, broken: book.broken.iter().cloned().collect() }
    }

    /// What is wrong with what the nodes have counted.
    async fn wrong_counts(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for node in 0..self.place.api.len() {
            let metrics = match self.place.text(node, "/metrics", ASK_LIMIT).await {
                Ok(metrics) => metrics,
                Err(trouble) => {
                    wrong.push(format!("node {node} does not tell what it counts: {trouble}"));
                    continue;
                }
            };
            let book = lock(&self.book);
            let count = |route: usize| book.check_count(node, route, counted(&metrics, route));
            wrong.extend((0..ROUTES.len()).filter_map(count));
        }
        wrong
    }
}

/// The requests of a route in a node's metrics, however they ended.
fn counted(metrics: &str, route: usize) -> u64 {
    let start = format!("skep_route_requests_total{{route=\"{}\"", ROUTES[route]);
    let lines = metrics.lines().filter(|line| line.starts_with(&start));
    let value = |line: &str| line.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok());
    lines.filter_map(value).sum::<f64>() as u64
}

fn heard(answer: Result<Answer, Trouble>) -> Heard {
    match answer {
        Err(trouble) => Heard::Nothing(trouble.to_string()),
        Ok(answer) => {
            let server = answer.body["upstream"].as_u64().filter(|_| answer.status == 200);
            match (server, answer.body["path"].as_str()) {
                (Some(server), Some(path)) => Heard::From(server as usize, path.to_owned()),
                _ => {
                    let code = answer.body["code"].as_str().unwrap_or("no code");
                    Heard::Refused(format!("{answer} ({code})"))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_added_up_over_all_classes_of_one_route() {
        let metrics = "# TYPE skep_route_requests counter\n\
            skep_route_requests_total{route=\"world-a\",class=\"2xx\"} 7\n\
            skep_route_requests_total{route=\"world-a\",class=\"refused\"} 2\n\
            skep_route_requests_total{route=\"world-b\",class=\"2xx\"} 5\n\
            skep_route_retries_total{route=\"world-a\"} 9\n";
        assert_eq!((counted(metrics, 0), counted(metrics, 1)), (9, 5));
    }

    #[test]
    fn a_route_leads_to_some_of_its_own_servers() {
        let mut chance = SeededChance::new(3);
        for turn in 0..50 {
            let set = draw(&mut chance, turn % 2);
            assert_eq!(set.len(), USED);
            assert!(set.iter().all(|number| of_route(turn % 2).contains(number)));
        }
    }
}
