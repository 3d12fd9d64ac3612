//! Load from one thread: connections that push, or pop and acknowledge, as fast as they are served.

use crate::Outcome;
use crate::bodies::{Ack, Ids, Push, payload, pop};
use crate::http::Connection;
use crate::nats::Nats;
use crate::stage::{Line, NATS, NATS_BATCHES};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long a consumer that got nothing waits before it asks again.
const EMPTY_HANDED: Duration = Duration::from_millis(1);

/// When a load ends, whatever it has done by then.
#[derive(Clone, Copy)]
pub enum Until {
    Over(Duration),
    /// So many messages, all connections together.
    Sent(u64),
}

/// What pushers push.
#[derive(Clone, Copy)]
pub struct Pushes<'name> {
    pub queue: &'name str,
    pub batch: usize,
    pub connections: usize,
    pub partitions: u64,
    /// Whether the messages of one push go to different partitions.
    pub spread: bool,
    pub until: Until,
}

/// What consumers ask for.
#[derive(Clone, Copy)]
pub struct Pops<'name> {
    pub queue: &'name str,
    pub group: &'name str,
    pub batch: usize,
    pub partitions: usize,
    pub connections: usize,
    /// So many messages are there.
    pub messages: u64,
    pub limit: Duration,
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub messages: u64,
    /// Messages a second.
    pub rate: f64,
    /// Microseconds that the server's processes computed for a message.
    pub cpu_us: f64,
}

impl Done {
    fn of(line: &Line, before: f64, messages: u64, took: Duration) -> Outcome<Self> {
        if messages == 0 {
            return Err(format!("{} has not served a single message", line.name).into());
        }
        let cpu_us = (line.cpu_seconds()? - before) / messages as f64 * 1e6;
        Ok(Done { messages, rate: messages as f64 / took.as_secs_f64(), cpu_us })
    }
}

/// How much of a load is still to be done, for all its connections.
struct Left {
    until: Until,
    began: Instant,
    sent: Cell<u64>,
}

impl Left {
    /// Whether there is one more batch to send.
    fn take(&self, batch: usize) -> bool {
        let more = match self.until {
            Until::Over(span) => self.began.elapsed() < span,
            Until::Sent(count) => self.sent.get() < count,
        };
        if more {
            self.sent.set(self.sent.get() + batch as u64);
        }
        more
    }
}

/// Pushes over all connections at once.
pub async fn push(line: &Line, pushes: Pushes<'_>) -> Outcome<Done> {
    enum Client {
        Http(Connection, Push),
        Nats(Nats, bool),
    }
    let mut clients = Vec::new();
    for number in 0..pushes.connections {
        clients.push(match line.name {
            NATS | NATS_BATCHES => {
                let whole = line.name == NATS_BATCHES && pushes.batch > 1;
                Client::Nats(Nats::open(&line.address, number + 1).await?, whole)
            }
            _ => {
                let request = Push::new(pushes.queue, pushes.batch);
                Client::Http(Connection::open(&line.address).await?, request)
            }
        });
    }
    let before = line.cpu_seconds()?;
    let left = Left { until: pushes.until, began: Instant::now(), sent: Cell::new(0) };
    let left = Rc::new(left);
    let mut all = JoinSet::new();
    let Pushes { batch, partitions, spread, .. } = pushes;
    for (number, client) in clients.into_iter().enumerate() {
        let left = left.clone();
        all.spawn_local(async move {
            let mut turn = number as u64;
            match client {
                Client::Http(mut connection, mut request) => {
                    let mut ids = Ids::new(number);
                    while left.take(batch) {
                        let step = u64::from(spread);
                        let place = |item: usize| (turn + step * item as u64) % partitions;
                        let answer = connection.succeed(request.fresh(&mut ids, place)).await?;
                        all_queued(answer.body, batch)?;
                        turn += 1;
                    }
                }
                Client::Nats(mut client, whole) => {
                    let text = payload(0);
                    while left.take(batch) {
                        let partition = turn % partitions;
                        match whole {
                            true => client.publish_batch(partition, &text, batch).await?,
                            false => client.publish(partition, &text, batch).await?,
                        }
                        turn += 1;
                    }
                }
            }
            Outcome::Ok(())
        });
    }
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    Done::of(line, before, left.sent.get(), left.began.elapsed())
}

/// Pops and acknowledges over all connections at once, until nothing is left or time is up.
pub async fn pop_and_ack(line: &Line, pops: Pops<'_>) -> Outcome<Done> {
    enum Client {
        Http(Connection),
        Nats(Nats),
    }
    let mut clients = Vec::new();
    for number in 0..pops.connections {
        clients.push(match line.name {
            NATS => Client::Nats(Nats::open(&line.address, number + 1).await?),
            _ => Client::Http(Connection::open(&line.address).await?),
        });
    }
    let query = format!("batch={}&partitions={}", pops.batch, pops.partitions);
    let request: Rc<[u8]> = pop(pops.queue, pops.group, &query).into();
    let before = line.cpu_seconds()?;
    let began = Instant::now();
    // How many messages are done, and when the last of them was.
    let done = Rc::new(Cell::new((0, Duration::ZERO)));
    let mut all = JoinSet::new();
    for mut client in clients {
        let (request, done) = (request.clone(), done.clone());
        let (group, mut ack) = (pops.group.to_owned(), Ack::new(pops.group));
        let Pops { batch, messages, limit, .. } = pops;
        all.spawn_local(async move {
            while began.elapsed() < limit && done.get().0 < messages {
                let acked = match &mut client {
                    Client::Http(connection) => pop_once(connection, &request, &mut ack).await?,
                    Client::Nats(client) => client.fetch(&group, batch).await?,
                };
                if acked == 0 {
                    // Others have all that can be had now.
                    tokio::time::sleep(EMPTY_HANDED).await;
                } else {
                    done.set((done.get().0 + acked, began.elapsed()));
                }
            }
            Outcome::Ok(())
        });
    }
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    let (messages, took) = done.get();
    Done::of(line, before, messages, took)
}

/// Whether every message of a push was taken, and for the first time.
fn all_queued(answer: &str, count: usize) -> Outcome<()> {
    if answer.matches("\"status\":\"queued\"").count() != count {
        return Err(format!("not every message was queued: {answer:.500}").into());
    }
    Ok(())
}

/// One pop and the acknowledgement of what came; says how many.
async fn pop_once(connection: &mut Connection, request: &[u8], ack: &mut Ack) -> Outcome<u64> {
    let popped = connection.succeed(request).await?;
    if popped.status == 204 {
        return Ok(0);
    }
    let (request, count) = ack.of(popped.body)?;
    if count > 0 {
        Ack::accepted(connection.succeed(request).await?.body)?;
    }
    Ok(count)
}
