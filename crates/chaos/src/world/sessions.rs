//! Workers that wear out and clients that come and go: what the table counts is what is really
//! open, nobody is sent away with sessions on it, and never too many are away.

use super::tally::{read, read_to};
use super::{Pace, Place, Verdict, grouped};
use crate::sessions::clients::Clients;
use crate::sessions::roster::{Address, Manners, Roster, SLOTS};
use crate::sessions::table;
use crate::sessions::worker::Worker;
use skep_testkit::pause;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// What nodes need for it: workers wear out quickly, and one at a time restarts.
pub const SETTINGS: &[&str] = &["sessions.lifetime_max=40", "sessions.budget=1"];
/// As in the settings.
const BUDGET: usize = 1;
/// Long enough to be looked at, short enough for many.
const KEPT_MAX: Duration = Duration::from_millis(2_500);
const RESTART_TAKES: Duration = Duration::from_millis(300);
/// How often everything stands still until the counts are right.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// Faults go on meanwhile, so that this is for several of them to pass.
const RIGHT_WITHIN: Duration = Duration::from_secs(60);
/// For so long nobody may get a session.
const STANDSTILL: Duration = Duration::from_secs(60);
/// Between two looks.
const REST: Duration = Duration::from_millis(20);

/// Lets clients come and go until `stop`, and then until all have gone.
pub async fn run(place: Arc<Place>, pace: Pace, stop: CancellationToken) -> Verdict {
    let (tell, told) = tokio::sync::oneshot::channel();
    // Workers and clients are threads, because each waits for one thing at a time.
    thread::spawn(move || {
        let verdict = Fleet::start(place, pace, stop).live();
        let _ = tell.send(verdict);
    });
    told.await.unwrap_or_else(|_| Verdict {
        part: "sessions",
        done: String::new(),
        broken: vec!["the clients and workers broke off".to_owned()],
    })
}

struct Fleet {
    place: Arc<Place>,
    pace: Pace,
    stop: CancellationToken,
    roster: Arc<Roster>,
    workers: Vec<Worker>,
    clients: Clients,
    forgotten: u64,
    /// How often gateways had been cut off when all counts were right, the last time.
    cut_offs: u64,
    /// How often all were.
    right: usize,
    /// The longest time that took.
    longest: Duration,
    /// Sessions served when it was last looked, and since when there are no more.
    served: (usize, Instant),
}

impl Fleet {
    fn start(place: Arc<Place>, pace: Pace, stop: CancellationToken) -> Self {
        let roster = Arc::new(Roster::new(Manners {
            clients: pace.clients as usize,
            kept_max: KEPT_MAX,
            restart_takes: RESTART_TAKES,
            budget: Some(BUDGET),
            key: place.key.clone(),
        }));
        for (number, (api, gateway)) in place.api.iter().zip(&place.gateways).enumerate() {
            let (api, gateway) = (api.clone(), gateway.clone());
            roster.set(number, Address { api, gateway, away: place.is_down(number) });
        }
        let worker = |number| Worker::start(format!("browser-{number}"), roster.clone());
        let workers = (1..=pace.workers.max(1)).map(worker).collect();
        let clients = Clients::start(&roster, pace.seed);
        Fleet {
            forgotten: place.weather.times_forgotten(),
            cut_offs: place.weather.cut_offs(),
            place,
            pace,
            stop,
            roster,
            workers,
            clients,
            right: 0,
            longest: Duration::ZERO,
            served: (0, Instant::now()),
        }
    }

    fn live(mut self) -> Verdict {
        while !self.stop.is_cancelled() {
            let next = Instant::now() + COUNT_EVERY;
            while !self.stop.is_cancelled() && Instant::now() < next {
                self.follow();
                pause(REST);
            }
            if !self.stop.is_cancelled() {
                self.count(RIGHT_WITHIN, false);
            }
        }
        let settle = self.pace.settle;
        self.count(settle, true);
        self.no_drift(settle);
        self.verdict()
    }

    /// Tells workers and clients what is known about the nodes.
    fn follow(&mut self) {
        let weather = &self.place.weather;
        for number in 0..self.place.api.len() {
            self.roster.set_away(number, self.place.is_down(number));
        }
        self.roster.cut_offs.store(weather.cut_offs(), Ordering::SeqCst);
        let forgotten = weather.times_forgotten();
        if forgotten != std::mem::replace(&mut self.forgotten, forgotten) {
            self.roster.forget();
        }
        let troubles = self.roster.troubles();
        troubles.iter().for_each(|text| weather.notice(text));
        let served = self.clients.counts().0;
        read_to(&self.place.tally.sessions, served as u64);
        if served != self.served.0 {
            self.served = (served, Instant::now());
        } else if self.served.1.elapsed() > STANDSTILL {
            self.roster.trouble(format!("nobody had a session for {STANDSTILL:?}"));
            self.served.1 = Instant::now();
        }
    }

    /// Keeps every session as it is until the table counts what is open.
    fn count(&mut self, limit: Duration, last: bool) {
        let begun = Instant::now();
        self.roster.moving.store(false, Ordering::SeqCst);
        for turn in 0.. {
            self.follow();
            let before = self.truth();
            let counted = table::counted(&self.roster, turn);
            let truth = self.truth();
            if counted.as_ref() == Some(&truth) && before == truth {
                self.right += 1;
                self.longest = self.longest.max(begun.elapsed());
                self.within_slots(&truth);
                break;
            }
            if begun.elapsed() > limit {
                let text = format!("for {limit:?} the counts were wrong, at last");
                self.roster.trouble(format!("{text} {counted:?}, and open are {truth:?}"));
                break;
            }
            // The last count is another one, with a limit of its own.
            if self.stop.is_cancelled() && !last {
                break;
            }
            pause(REST);
        }
        self.served.1 = Instant::now();
        self.roster.moving.store(true, Ordering::SeqCst);
    }

    fn truth(&self) -> BTreeMap<String, usize> {
        self.workers.iter().map(|worker| (worker.name.clone(), worker.open())).collect()
    }

    /// Nobody has more than its slots, unless a gateway was cut off for longer than its lease.
    fn within_slots(&mut self, truth: &BTreeMap<String, usize>) {
        let cut_offs = self.place.weather.cut_offs();
        let excused = cut_offs != std::mem::replace(&mut self.cut_offs, cut_offs);
        for (name, open) in truth.iter().filter(|(_, open)| **open > SLOTS && !excused) {
            self.roster.trouble(format!("{name} has {open} sessions at once, and {SLOTS} slots"));
        }
    }

    /// When all have gone, nothing is left.
    fn no_drift(&mut self, limit: Duration) {
        self.roster.closing.store(true, Ordering::SeqCst);
        self.clients.join();
        let deadline = Instant::now() + limit;
        for turn in 0.. {
            self.follow();
            let (truth, counted) = (self.truth(), table::counted(&self.roster, turn));
            let open: usize = truth.values().sum();
            let on_record = table::on_record(&self.roster, turn);
            if open == 0 && counted == Some(truth) && on_record == Some(0) {
                return;
            }
            if Instant::now() > deadline {
                let text = "all clients have gone, and left are";
                self.roster.trouble(format!(
                    "{text} {open} open ones, {on_record:?} on record, counted {counted:?}"
                ));
                return;
            }
            pause(REST);
        }
    }

    fn verdict(mut self) -> Verdict {
        let (served, failed) = self.clients.counts();
        read_to(&self.place.tally.sessions, served as u64);
        // The workers' threads look at it.
        self.roster.over.store(true, Ordering::SeqCst);
        let restarts: usize = self.workers.iter().map(Worker::restarts).sum();
        self.workers.clear();
        let mut broken = self.roster.troubles();
        if served == 0 {
            broken.push("nobody ever had a session".to_owned());
        }
        let done = format!(
            "{} sessions, {} cut off or refused, {} restarts of {} workers, counts right {} times, \
             within {:.1?} at most",
            grouped(read(&self.place.tally.sessions)),
            grouped(failed as u64),
            grouped(restarts as u64),
            self.pace.workers.max(1),
            grouped(self.right as u64),
            self.longest,
        );
        Verdict { part: "sessions", done, broken }
    }
}
