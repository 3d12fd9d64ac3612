//! Endpoints that fail now and then, and write down every poll: none is ever polled twice at once.

use super::tally::read_to;
use super::{Pace, Place, Verdict, grouped};
use crate::polls::check;
use crate::polls::evidence::{Micros, Paused, Poll, Stopwatch, micros};
use crate::polls::target::{Manners, Target};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What nodes need for it: polls say who makes them.
pub const SETTINGS: &[&str] = &["polls.identify=true"];

/// What is polled: a few kinds of things that an installation has, numbered.
const NAMES: [&str; 6] = ["shop", "api", "cdn", "mail", "auth", "search"];
/// Short enough for an endpoint that is polled every second.
const MANNERS: Manners = Manners {
    answer_max: Duration::from_millis(120),
    unwell_in: 150,
    unwell_for: Duration::from_secs(4),
};
/// How long adding an endpoint may take, while nodes come and go.
const ADD_LIMIT: Duration = Duration::from_secs(30);
/// How often polls are checked and forgotten.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Polls that began so long ago are no longer needed to judge others, but for the newest of each
/// endpoint; a poll lasts a second at most.
const REMEMBERED: Duration = Duration::from_secs(20);

/// Lets endpoints be polled until `stop`, and then until each was polled once more.
pub async fn run(place: Arc<Place>, pace: Pace, stop: CancellationToken) -> Verdict {
    let mut watch = match Watch::start(&pace) {
        Ok(watch) => watch,
        Err(why) => return Verdict { part: "polls", done: String::new(), broken: vec![why] },
    };
    if let Err(why) = watch.add_endpoints(&place, &pace, &stop).await {
        watch.broken.insert(why);
    }
    while stop.run_until_cancelled(tokio::time::sleep(CHECK_EVERY)).await.is_some() {
        watch.check(&place);
    }
    watch.until_polled_again(pace.settle).await;
    watch.check(&place);
    watch.verdict(&pace)
}

/// An endpoint's name.
fn name(number: u32) -> String {
    let kinds = NAMES.len() as u32;
    format!("{}-{}", NAMES[(number % kinds) as usize], number / kinds + 1)
}

struct Watch {
    stopwatch: Stopwatch,
    target: Target,
    endpoints: Vec<String>,
    broken: BTreeSet<String>,
    /// Polls that were excused because a process had stood still.
    excused: usize,
    /// How often an endpoint was polled by another than before.
    moved: u64,
    /// Who polled an endpoint last, and when that was.
    last: BTreeMap<String, (String, Micros)>,
    instances: BTreeSet<String>,
}

impl Watch {
    fn start(pace: &Pace) -> Result<Self, String> {
        let stopwatch = Stopwatch::start();
        Ok(Watch {
            stopwatch,
            target: Target::start_with(stopwatch, pace.seed, MANNERS)?,
            endpoints: Vec::new(),
            broken: BTreeSet::new(),
            excused: 0,
            moved: 0,
            last: BTreeMap::new(),
            instances: BTreeSet::new(),
        })
    }

    async fn add_endpoints(
        &mut self,
        place: &Place,
        pace: &Pace,
        stop: &CancellationToken,
    ) -> Result<(), String> {
        for number in 0..pace.endpoints {
            let id = name(number);
            let body = json!({
                "id": id, "url": self.target.url(&id), "timeout": "1s",
                "interval": format!("{}ms", pace.endpoint_every.as_millis()),
                "labels": { "team": NAMES[number as usize % NAMES.len()] },
            });
            let asked = place.ask_any("POST", "/api/v1/polls/endpoints", Some(&body), ADD_LIMIT);
            let answer = match stop.run_until_cancelled(asked).await {
                None => break,
                Some(answer) => answer.map_err(|trouble| trouble.to_string())?,
            };
            // The answer to an earlier try may have been lost.
            if !answer.is_ok() && answer.status != 409 {
                return Err(format!("the endpoint {id} was not added: {answer}"));
            }
            self.endpoints.push(id);
        }
        Ok(())
    }

    /// Looks at everything that is remembered, and then forgets what is not needed any more.
    fn check(&mut self, place: &Place) {
        let polls = self.target.polls();
        self.instances.extend(polls.iter().map(|poll| poll.instance.clone()));
        let pauses = self.pauses(place);
        let verdict = check::polls(&polls, &pauses);
        self.excused = self.excused.max(verdict.declared);
        verdict.failures.iter().for_each(|text| place.weather.notice(text));
        self.broken.extend(verdict.failures);
        self.follow(&polls);
        read_to(&place.tally.polls, self.target.counts().0);
        let before = self.stopwatch.now().saturating_sub(micros(REMEMBERED));
        let newest: BTreeSet<(String, Micros)> = check::by_endpoint(&polls)
            .into_values()
            .filter_map(|polls| polls.into_iter().max_by_key(|poll| (poll.token, poll.began)))
            .map(|poll| (poll.endpoint.clone(), poll.began))
            .collect();
        self.target.forget(|poll| {
            poll.ended.is_some_and(|ended| ended < before)
                && !newest.contains(&(poll.endpoint.clone(), poll.began))
        });
    }

    /// Whoever stands still is not known by its instance, so each of them may have been it.
    fn pauses(&self, place: &Place) -> Vec<Paused> {
        let wakes: Vec<Micros> =
            place.weather.resumed().into_iter().map(|at| self.stopwatch.at(at)).collect();
        let paused = |instance: &String, wake: &Micros| Paused {
            instance: instance.clone(),
            from: 0,
            to: *wake,
        };
        let of = |instance| wakes.iter().map(move |wake| paused(instance, wake));
        self.instances.iter().flat_map(of).collect()
    }

    fn follow(&mut self, polls: &[Poll]) {
        for (endpoint, polls) in check::by_endpoint(polls) {
            for poll in polls {
                match self.last.get_mut(endpoint) {
                    Some((_, began)) if *began >= poll.began => {}
                    Some((instance, began)) => {
                        self.moved += u64::from(*instance != poll.instance);
                        instance.clone_from(&poll.instance);
                        *began = poll.began;
                    }
                    None => {
                        let seen = (poll.instance.clone(), poll.began);
                        self.last.insert(endpoint.to_owned(), seen);
                    }
                }
            }
        }
    }

    /// Waits until every endpoint was polled after now: none is forgotten.
    async fn until_polled_again(&mut self, limit: Duration) {
        let since = self.stopwatch.now();
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let polls = self.target.polls();
            let seen: BTreeSet<&str> = polls
                .iter()
                .filter(|poll| poll.began > since)
                .map(|poll| poll.endpoint.as_str())
                .collect();
            let waiting: Vec<&String> = self
                .endpoints
                .iter()
                .filter(|endpoint| !seen.contains(endpoint.as_str()))
                .collect();
            let Some(example) = waiting.first() else { return };
            if tokio::time::Instant::now() >= deadline {
                self.broken.insert(format!(
                    "{} endpoints were not polled within {limit:?} at the end, {example} for \
                     example",
                    waiting.len()
                ));
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn verdict(self, pace: &Pace) -> Verdict {
        let (begun, unwell) = self.target.counts();
        let mut broken: Vec<String> = self.broken.into_iter().collect();
        if begun == 0 && pace.endpoints > 0 {
            broken.push("no endpoint was ever polled".to_owned());
        }
        let at_once = broken.iter().filter(|text| text.contains("two at once")).count();
        let mut done = format!(
            "{} polls of {} endpoints, {} met a failure, {} moved, {at_once} at once",
            grouped(begun),
            grouped(self.endpoints.len() as u64),
            grouped(unwell),
            grouped(self.moved),
        );
        if self.excused > 0 {
            done += &format!(", {} excused after a pause", self.excused);
        }
        Verdict { part: "polls", done, broken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn ask(target: &Target, endpoint: &str, instance: &str, token: &str) {
        let url = target.url(endpoint);
        let address = url.trim_start_matches("http://").split('/').next().expect("has one");
        let mut connection = std::net::TcpStream::connect(address).expect("connects");
        let head = format!(
            "GET /{endpoint} HTTP/1.1\r\nx-skep-endpoint: {endpoint}\r\nx-skep-node: {instance}\
             \r\nx-skep-token: {token}\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).expect("writes");
        connection.read_exact(&mut [0; 12]).expect("is answered");
    }

    fn place() -> Place {
        Place::new(Vec::new(), Vec::new(), None)
    }

    #[tokio::test]
    async fn a_poll_under_an_older_grant_is_found_and_told_once() {
        let mut watch = Watch::start(&Pace::gentle(1)).expect("starts");
        ask(&watch.target, "shop-1", "a", "1.2");
        ask(&watch.target, "shop-1", "b", "1.1");
        watch.check(&place());
        watch.check(&place());
        assert_eq!((watch.broken.len(), watch.moved), (1, 1), "{:?}", watch.broken);
    }

    #[tokio::test]
    async fn polls_are_forgotten_but_not_the_newest_grant() {
        let mut watch = Watch::start(&Pace::gentle(1)).expect("starts");
        ask(&watch.target, "shop-1", "a", "1.2");
        watch.check(&place());
        assert_eq!(watch.target.polls().len(), 1);
        ask(&watch.target, "shop-1", "a", "1.2");
        ask(&watch.target, "shop-1", "b", "1.3");
        watch.target.forget(|poll| poll.token < (1, 3));
        ask(&watch.target, "shop-1", "a", "1.2");
        watch.check(&place());
        assert_eq!((watch.broken.len(), watch.target.counts().0), (1, 4), "{:?}", watch.broken);
    }

    #[tokio::test]
    async fn an_endpoint_that_nobody_polls_at_the_end_is_named() {
        let mut watch = Watch::start(&Pace::gentle(1)).expect("starts");
        watch.endpoints = vec!["shop-1".to_owned()];
        ask(&watch.target, "shop-1", "a", "1.2");
        watch.until_polled_again(Duration::from_millis(100)).await;
        let verdict = watch.verdict(&Pace::gentle(1));
        assert!(verdict.broken[0].contains("shop-1 for example"), "{verdict:?}");
    }
}
