//! What pushes take while a million messages of another queue are deleted for their age.

use crate::Outcome;
use crate::bodies::{self, Ids, Push};
use crate::http::Connection;
use crate::paced::{self, Pace};
use crate::stage::{self, SKEP};
use serde_json::Value;
use skep::report::Report;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

const OLD: &str = "old";
const MESSAGES: u64 = 1_000_000;
/// Messages of a push: each push is a row to delete.
const BATCH: usize = 100;
const PARTITIONS: u64 = 64;
const PACE: Pace = Pace { queue: "busy", partitions: 64, a_second: 500 };
/// How long pushes are timed without a purge, before it and after it.
const QUIET: Duration = Duration::from_secs(8);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The purge must be over by then.
const PATIENCE: Duration = Duration::from_secs(300);

/// What each push took.
type Took = Rc<RefCell<Vec<Duration>>>;

pub async fn run(report: &mut Report) -> Outcome<()> {
    let folder = stage::folder("queues-purge")?;
    let node = stage::product(&folder, SKEP, &[]);
    let address = node.address();
    fill(address).await?;
    let quiet = Took::default();
    for_a_while(address, &quiet).await?;
    let mut admin = Connection::open(address).await?;
    let options = "{\"retentionEnabled\":true,\"retentionSeconds\":1}";
    let wish = format!("{{\"queue\":\"{OLD}\",\"options\":{options}}}");
    admin.succeed(bodies::request("/api/v1/configure", &wish).as_bytes()).await?;
    let (began, over, during) = (Instant::now(), Rc::new(Cell::new(false)), Took::default());
    let watch = {
        let over = over.clone();
        async move {
            while left(&mut admin).await? > 0 {
                if began.elapsed() > PATIENCE {
                    return Err(format!("the purge takes longer than {PATIENCE:?}").into());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            over.set(true);
            Outcome::Ok(())
        }
    };
    let pushing = push_timed(address, &during, |_| !over.get());
    let (watched, pushed) = tokio::join!(watch, pushing);
    watched?;
    pushed?;
    let purged = began.elapsed();
    for_a_while(address, &quiet).await?;
    report.figure("purge_messages_per_second", MESSAGES as f64 / purged.as_secs_f64());
    for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
        let (quiet, during) = (at(&quiet, share), at(&during, share));
        report.figure(&format!("purge_push_{name}_ms_quiet"), quiet);
        report.figure(&format!("purge_push_{name}_ms_during"), during);
        report.figure(&format!("purge_push_{name}_ratio"), during / quiet);
    }
    Ok(())
}

async fn fill(address: &str) -> Outcome<()> {
    let mut connection = Connection::open(address).await?;
    let (mut push, mut ids) = (Push::new(OLD, BATCH), Ids::new(0));
    for number in 0..MESSAGES / BATCH as u64 {
        connection.succeed(push.fresh(&mut ids, |_| number % PARTITIONS)).await?;
    }
    Ok(())
}

/// Messages that are still kept.
async fn left(admin: &mut Connection) -> Outcome<u64> {
    let request = format!(
        "GET /api/v1/resources/queues/{OLD}?partitions=0 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    );
    let shown: Value = serde_json::from_str(admin.succeed(request.as_bytes()).await?.body)?;
    shown["totals"]["total"].as_u64().ok_or_else(|| format!("no total in {shown}").into())
}

async fn for_a_while(address: &str, took: &Took) -> Outcome<()> {
    let began = Instant::now();
    push_timed(address, took, |_| began.elapsed() < QUIET).await
}

async fn push_timed(address: &str, took: &Took, more: impl Fn(usize) -> bool) -> Outcome<()> {
    let took = took.clone();
    let heard = Rc::new(move |_: usize, _: Instant, span: Option<Duration>| {
        took.borrow_mut().extend(span);
    });
    paced::push(address, PACE, more, heard).await
}

/// Milliseconds at this share of the spans.
fn at(took: &Took, share: f64) -> f64 {
    let mut took = took.borrow_mut();
    took.sort();
    let place = (took.len() as f64 * share) as usize;
    took.get(place).map_or(f64::NAN, |span| span.as_secs_f64() * 1e3)
}
