//! A node is killed under load: who notices, and for how long?
//!
//! Clients of three nodes push, pop and acknowledge; one is killed, each in its turn. Whoever was
//! connected to it loses a connection and goes to another node. Everybody else must see nothing but
//! answers, and soon: what they wait for is counted from the kill on, without the time for which a
//! pop was to wait.

use crate::stage::{GROUP, Stage};
use skep::report::Report;
use skep_benches::Outcome;
use skep_benches::bodies::{Ack, Ids, Push, pop};
use skep_benches::http::{Answer, Connection};
use skep_benches::peers::durable_postgres;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const NODES: usize = 3;
const CLIENTS: usize = 4;
const QUEUES: usize = 6;
const PARTITIONS: u64 = 64;
const BEFORE: Duration = Duration::from_secs(2);
/// Longer than the others need to see that it is dead, and its breakers to try again.
const AFTER: Duration = Duration::from_secs(8);
/// How long a pop waits.
const WAIT: Duration = Duration::from_millis(200);
/// What a client does between two rounds.
const REST: Duration = Duration::from_millis(20);
/// Faults that are told in full.
const TOLD: usize = 5;

/// What clients saw.
#[derive(Default)]
struct Seen {
    /// Which node was killed, and when.
    killed: Option<(usize, Instant)>,
    over: bool,
    answers: u64,
    /// Connections to the node that was killed.
    broken: u64,
    faults: Vec<String>,
    longest: Duration,
}

impl Seen {
    fn is_dead(&self, place: usize) -> bool {
        self.killed.is_some_and(|(dead, _)| dead == place)
    }

    /// An answer to a request that might wait so long by itself.
    fn answered(&mut self, began: Instant, wait: Duration) {
        self.answers += 1;
        if let Some((_, killed)) = self.killed {
            let late = began.max(killed).elapsed().saturating_sub(wait);
            self.longest = self.longest.max(late);
        }
    }
}

type Shared = Rc<RefCell<Seen>>;

pub async fn run(report: &mut Report) -> Outcome<()> {
    let server = durable_postgres();
    let (mut answers, mut broken, mut longest, mut faults) = (0, 0, Duration::ZERO, Vec::new());
    for place in 0..NODES {
        let mut stage = Stage::start(&server, NODES, &[]);
        (0..QUEUES).try_for_each(|number| stage.make_queue(&queue(number)))?;
        let seen: Shared = Rc::default();
        let mut clients = JoinSet::new();
        let addresses: Vec<String> =
            (0..NODES).map(|place| stage.address(place)).collect::<Outcome<_>>()?;
        for number in 0..NODES * CLIENTS {
            let client = Client { number, addresses: addresses.clone(), seen: seen.clone() };
            clients.spawn_local(client.run());
        }
        tokio::time::sleep(BEFORE).await;
        seen.borrow_mut().killed = Some((place, Instant::now()));
        stage.kill(place);
        tokio::time::sleep(AFTER).await;
        seen.borrow_mut().over = true;
        while let Some(ended) = clients.join_next().await {
            ended?;
        }
        let mut seen = seen.borrow_mut();
        answers += seen.answers;
        broken += seen.broken;
        longest = longest.max(seen.longest);
        faults.append(&mut seen.faults);
    }
    report.figure("kill_answers", answers as f64);
    report.figure("kill_broken_connections_to_it", broken as f64);
    report.figure("kill_errors_elsewhere", faults.len() as f64);
    report.figure("kill_longest_ms", longest.as_secs_f64() * 1e3);
    for fault in faults.iter().take(TOLD) {
        report.fail(format!("after the kill of a node: {fault}"));
    }
    Ok(())
}

fn queue(number: usize) -> String {
    format!("kill-{}", number % QUEUES)
}

/// Somebody who stays with one node as long as it lives.
struct Client {
    number: usize,
    addresses: Vec<String>,
    seen: Shared,
}

impl Client {
    async fn run(self) {
        let mut place = self.number % NODES;
        while !self.seen.borrow().over {
            let fault = match self.work_at(place).await {
                Ok(()) => continue,
                Err(fault) => fault.to_string(),
            };
            let mut seen = self.seen.borrow_mut();
            if seen.is_dead(place) {
                seen.broken += 1;
                place = (place + 1) % NODES;
            } else {
                seen.faults.push(fault);
            }
        }
    }

    /// Pushes, pops and acknowledges until it is over, or something is wrong.
    async fn work_at(&self, place: usize) -> Outcome<()> {
        let mut connection = Connection::open(&self.addresses[place]).await?;
        let mut ack = Ack::new(GROUP);
        let (mut ids, mut turn) = (Ids::new(self.number), self.number);
        let wait = format!("batch=10&partitions=4&wait=true&timeout={}", WAIT.as_millis());
        while !self.seen.borrow().over {
            let queue = queue(turn);
            let mut push = Push::new(&queue, 1);
            let request = push.fresh(&mut ids, |_| turn as u64 % PARTITIONS);
            self.ask(&mut connection, request, Duration::ZERO).await?;
            let popped = self.ask(&mut connection, &pop(&queue, GROUP, &wait), WAIT).await?;
            if popped.status != 204 {
                let (request, _) = ack.of(popped.body)?;
                let answer = self.ask(&mut connection, request, Duration::ZERO).await?;
                Ack::accepted(answer.body)?;
            }
            turn += 1;
            tokio::time::sleep(REST).await;
        }
        Ok(())
    }

    async fn ask<'connection>(
        &self,
        connection: &'connection mut Connection,
        request: &[u8],
        wait: Duration,
    ) -> Outcome<Answer<'connection>> {
        let began = Instant::now();
        let answer = connection.succeed(request).await?;
        self.seen.borrow_mut().answered(began, wait);
        Ok(answer)
    }
}
