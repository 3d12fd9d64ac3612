//! Clients that open and close sessions all the time.

use super::roster::{KIND, Roster};
use skep_policy::{Chance, SeededChance};
use skep_testkit::WebSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Before another attempt after one that failed.
const RETRY: Duration = Duration::from_millis(50);

/// Clients at work, until the roster says that everything is over.
pub struct Clients {
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    served: AtomicUsize,
    failed: AtomicUsize,
}

impl Clients {
    pub fn start(roster: &Arc<Roster>, seed: u64) -> Self {
        let counts = Arc::new(Counts::default());
        let client = |number: u64| {
            let (roster, counts) = (roster.clone(), counts.clone());
            let chance = SeededChance::new(seed.wrapping_add(number));
            thread::spawn(move || Client { roster, counts, chance }.work())
        };
        let threads = (1..=roster.manners.clients as u64).map(client).collect();
        Clients { counts, threads }
    }

    /// Sessions from beginning to end, and attempts that came to nothing.
    pub fn counts(&self) -> (usize, usize) {
        let Counts { served, failed } = &*self.counts;
        (served.load(Ordering::SeqCst), failed.load(Ordering::SeqCst))
    }

    /// Waits until all have gone.
    pub fn join(&mut self) {
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Client {
    roster: Arc<Roster>,
    counts: Arc<Counts>,
    chance: SeededChance,
}

impl Client {
    fn work(mut self) {
        while self.roster.may_move() {
            let weather = self.roster.weather();
            let gateway = self.roster.node(self.chance.up_to(1_000) as usize).gateway;
            match self.session(&gateway) {
                Ok(()) => drop(self.counts.served.fetch_add(1, Ordering::SeqCst)),
                Err(why) => {
                    self.counts.failed.fetch_add(1, Ordering::SeqCst);
                    if self.roster.was_calm_since(weather) {
                        self.roster.trouble(format!("in good weather, at {gateway}: {why}"));
                    }
                    self.roster.rest(RETRY);
                }
            }
        }
    }

    fn session(&mut self, gateway: &str) -> Result<(), String> {
        let path = format!("/?kind={KIND}");
        let mut session = {
            let headers = self.roster.headers();
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
            WebSocket::try_connect(gateway, &path, &headers).map_err(|e| e.to_string())?
        };
        if session.status() != 101 {
            return Err(session.refusal().to_string());
        }
        let hello = session.echoes("hello");
        let longest = u64::try_from(self.roster.manners.kept_max.as_millis()).unwrap_or(u64::MAX);
        self.roster.rest(Duration::from_millis(self.chance.up_to(longest)));
        self.roster.may_move();
        // One that was cut in between has been missed by nobody until now.
        if hello && session.echoes("goodbye") { Ok(()) } else { Err("cut off".to_owned()) }
    }
}
