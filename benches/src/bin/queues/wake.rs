//! How long a message takes from the start of its push to a consumer that waits for it.

use crate::Outcome;
use crate::bodies::{self, Ack, numbers, pop};
use crate::http::Connection;
use crate::paced::{self, Pace};
use crate::stage::{self, SKEP};
use skep::report::Report;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;

const QUEUE: &str = "wake";
const GROUP: &str = "group";
/// Those of the first second only warm up.
const MESSAGES: usize = 11_000;
const WARM_UP: usize = 1_000;
const CONSUMERS: usize = 64;
/// So many partitions that a message seldom waits for the one before it to be acknowledged.
const PACE: Pace = Pace { queue: QUEUE, partitions: 512, a_second: 1_000 };
/// How long the last messages may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// When each push began, and how long its message took.
struct Times {
    began: Vec<Option<Instant>>,
    took: Vec<Option<Duration>>,
    twice: usize,
}

type Shared<T> = Rc<RefCell<T>>;

pub async fn run(report: &mut Report) -> Outcome<()> {
    let folder = stage::folder("queues-wake")?;
    let node = stage::product(&folder, SKEP, &[]);
    let address = node.address();
    let times = Times { began: vec![None; MESSAGES], took: vec![None; MESSAGES], twice: 0 };
    let times = Rc::new(RefCell::new(times));
    // The queue must be there before somebody waits for it.
    let mut first = Connection::open(address).await?;
    let configure = "{\"queue\":\"wake\",\"options\":{}}";
    first.succeed(bodies::request("/api/v1/configure", configure).as_bytes()).await?;
    let mut consumers = JoinSet::new();
    for _ in 0..CONSUMERS {
        let connection = Connection::open(address).await?;
        consumers.spawn_local(consume(connection, times.clone()));
    }
    let pushed_and_come = async {
        let began = times.clone();
        let heard = Rc::new(move |number: usize, _: Instant, took: Option<Duration>| {
            if took.is_none() {
                began.borrow_mut().began[number] = Some(Instant::now());
            }
        });
        paced::push(address, PACE, |number| number < MESSAGES, heard).await?;
        let rest = async {
            while times.borrow().took.iter().any(Option::is_none) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        Outcome::Ok(timeout(PATIENCE, rest).await.is_ok())
    };
    let all_came = tokio::select! {
        came = pushed_and_come => came?,
        Some(ended) = consumers.join_next() => ended?.map(|()| false)?,
    };
    consumers.abort_all();
    let times = times.borrow();
    if !all_came {
        let missing = times.took.iter().filter(|took| took.is_none()).count();
        report.fail(format!("{missing} of {MESSAGES} messages never came to a waiting consumer"));
    }
    if times.twice > 0 {
        report.fail(format!("{} messages came twice", times.twice));
    }
    let mut took: Vec<Duration> = times.took[WARM_UP..].iter().copied().flatten().collect();
    took.sort();
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
        let place = (took.len() as f64 * share) as usize;
        let value = took.get(place.min(took.len().saturating_sub(1)));
        let millis = value.map_or(f64::NAN, |span| span.as_micros() as f64 / 1e3);
        report.figure(&format!("wake_{name}_ms"), millis);
    }
    Ok(())
}

/// Waits for a message, notes when it came, acknowledges it, and waits again.
async fn consume(mut connection: Connection, times: Shared<Times>) -> Outcome<()> {
    let request = pop(QUEUE, GROUP, "batch=1&partitions=1&wait=true&timeout=30000");
    let mut ack = Ack::new(GROUP);
    loop {
        let popped = connection.succeed(&request).await?;
        let now = Instant::now();
        if popped.status == 204 {
            continue;
        }
        for number in numbers(popped.body) {
            let mut times = times.borrow_mut();
            let began = times.began.get(number).copied().flatten().ok_or("an unknown message")?;
            let before = times.took[number].replace(now.duration_since(began));
            times.twice += usize::from(before.is_some());
        }
        let (request, count) = ack.of(popped.body)?;
        if count > 0 {
            Ack::accepted(connection.succeed(request).await?.body)?;
        }
    }
}
