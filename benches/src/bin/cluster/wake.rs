//! How long a message takes from its push on one node to a pop that waits on another.
//!
//! From the answer of the push, when the message is committed, and from the start of its request,
//! to the answer of the pop. One push after the other, at a pace that leaves the processors time.
//! The same with both on one node, so that what the way to the other one takes can be seen. Goals
//! are for a PostgreSQL that does not wait for its disk, because push and pop both commit, and the
//! disk's share is not the cluster's; what it takes with the disk is told too.

use crate::spans::Spans;
use crate::stage::{GROUP, Stage};
use skep::report::Report;
use skep_benches::Outcome;
use skep_benches::bodies::{Ack, Ids, Push, numbers, pop};
use skep_benches::http::Connection;
use skep_benches::peers::durable_postgres;
use skep_testkit::Postgres;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

const ROUNDS: usize = 4;
const PUSHES: usize = 400;
/// Of each round, the first that only warm up.
const WARM_UP: usize = 50;
const CONSUMERS: usize = 8;
const PACE: Duration = Duration::from_millis(8);
/// So many that a message does not wait for the one before it to be acknowledged.
const PARTITIONS: u64 = 64;
/// How long the last messages may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub async fn run(report: &mut Report) -> Outcome<()> {
    let server = Postgres::start();
    compare(&server, "wake", report).await?;
    drop(server);
    compare(&durable_postgres(), "wake_durable", report).await
}

async fn compare(server: &Postgres, name: &str, report: &mut Report) -> Outcome<()> {
    let stage = Stage::start(server, 3, &[]);
    let (mut across, mut here) = (Waking::default(), Waking::default());
    for round in 0..ROUNDS {
        let queue = stage.queue_of(1, &format!("across{round}"))?;
        across.append(measure(&stage, 0, 1, &queue).await?);
        let queue = stage.queue_of(1, &format!("here{round}"))?;
        here.append(measure(&stage, 1, 1, &queue).await?);
    }
    across.push.tell_ms(report, &format!("{name}_push"));
    across.after_answer.tell_ms(report, name);
    across.after_start.tell_ms(report, &format!("{name}_from_start"));
    here.after_answer.tell_ms(report, &format!("{name}_same_node"));
    here.after_start.tell_ms(report, &format!("{name}_same_node_from_start"));
    Ok(())
}

/// What was seen of some pushes.
#[derive(Default)]
pub struct Waking {
    /// From start to answer of each push.
    pub push: Spans,
    /// From the start of a push to the answer of the pop that gets it.
    pub after_start: Spans,
    /// From the answer of the push.
    pub after_answer: Spans,
}

impl Waking {
    pub fn append(&mut self, other: Waking) {
        self.push.append(other.push);
        self.after_start.append(other.after_start);
        self.after_answer.append(other.after_answer);
    }
}

/// When each message came.
type Came = Rc<RefCell<Vec<Option<Instant>>>>;

/// Pushes to one node, while pops wait on another.
pub async fn measure(
    stage: &Stage<'_>,
    pushes_at: usize,
    pops_at: usize,
    queue: &str,
) -> Outcome<Waking> {
    let came: Came = Rc::new(RefCell::new(vec![None; PUSHES]));
    let mut consumers = JoinSet::new();
    for _ in 0..CONSUMERS {
        let connection = Connection::open(&stage.address(pops_at)?).await?;
        consumers.spawn_local(consume(connection, queue.to_owned(), came.clone()));
    }
    stage.wait_for_polls(pops_at, CONSUMERS as u64).await?;
    let producer = Connection::open(&stage.address(pushes_at)?).await?;
    let pushed = tokio::select! {
        pushed = produce(producer, queue, &came) => pushed?,
        Some(ended) = consumers.join_next() => return Err(match ended? {
            Err(error) => error,
            Ok(()) => "a consumer has ended".into(),
        }),
    };
    consumers.abort_all();
    while consumers.join_next().await.is_some() {}
    let came = came.borrow();
    let mut seen = Waking::default();
    for ((began, answered), came) in pushed.iter().zip(&*came).skip(WARM_UP) {
        let came = came.ok_or("a message never came to a waiting consumer")?;
        seen.push.add(*answered - *began);
        seen.after_start.add(came - *began);
        let after = came.saturating_duration_since(*answered).as_secs_f64();
        let before = answered.saturating_duration_since(came).as_secs_f64();
        seen.after_answer.add_us((after - before) * 1e6);
    }
    Ok(seen)
}

/// Pushes at its pace, and waits until all of it has come. When each began, and was answered.
async fn produce(
    mut connection: Connection,
    queue: &str,
    came: &Came,
) -> Outcome<Vec<(Instant, Instant)>> {
    let (mut push, mut ids) = (Push::new(queue, 1), Ids::new(0));
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pushed = Vec::with_capacity(PUSHES);
    for number in 0..PUSHES as u64 {
        push.number(number);
        ticks.tick().await;
        let request = push.fresh(&mut ids, |_| number % PARTITIONS);
        let began = Instant::now();
        connection.succeed(request).await?;
        pushed.push((began, Instant::now()));
    }
    let last = Instant::now();
    while came.borrow().iter().any(Option::is_none) && last.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(pushed)
}

/// Waits for a message, notes when it came, acknowledges it, and waits again.
async fn consume(mut connection: Connection, queue: String, came: Came) -> Outcome<()> {
    let request = pop(&queue, GROUP, "batch=1&partitions=1&wait=true&timeout=30000");
    let mut ack = Ack::new(GROUP);
    loop {
        let popped = connection.succeed(&request).await?;
        let now = Instant::now();
        if popped.status == 204 {
            continue;
        }
        for number in numbers(popped.body) {
            if came.borrow_mut()[number].replace(now).is_some() {
                return Err(format!("message {number} came twice").into());
            }
        }
        let (request, _) = ack.of(popped.body)?;
        Ack::accepted(connection.succeed(request).await?.body)?;
    }
}
