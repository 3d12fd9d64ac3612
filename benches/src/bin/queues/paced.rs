//! A push at each moment it is due, however long those before it take.

use crate::Outcome;
use crate::bodies::{Ids, Push};
use crate::http::Connection;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// Where, and how often.
#[derive(Clone, Copy)]
pub struct Pace {
    pub queue: &'static str,
    pub partitions: u64,
    pub a_second: u32,
}

/// Who is told about each push: its number, when it was due, and how long it took from then on once
/// that is known.
pub type Heard = Rc<dyn Fn(usize, Instant, Option<Duration>)>;

/// Pushes one message after the other as long as `more` says so of its number.
pub async fn push(
    address: &str,
    pace: Pace,
    more: impl Fn(usize) -> bool,
    heard: Heard,
) -> Outcome<()> {
    // In turn: one that only a burst needed would be idle until the server closes it.
    let idle: Rc<RefCell<VecDeque<(Connection, Push, Ids)>>> = Rc::default();
    let mut under_way = JoinSet::new();
    let mut ticks = interval(Duration::from_secs(1) / pace.a_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in (0..).take_while(|number| more(*number)) {
        let due = ticks.tick().await.into_std();
        let (idle, heard, address) = (idle.clone(), heard.clone(), address.to_owned());
        under_way.spawn_local(async move {
            let free = idle.borrow_mut().pop_front();
            let (mut connection, mut push, mut ids) = match free {
                Some(free) => free,
                None => {
                    let connection = Connection::open(&address).await?;
                    (connection, Push::new(pace.queue, 1), Ids::new(number))
                }
            };
            push.number(number as u64);
            let request = push.fresh(&mut ids, |_| number as u64 % pace.partitions);
            heard(number, due, None);
            connection.succeed(request).await?;
            heard(number, due, Some(due.elapsed()));
            idle.borrow_mut().push_back((connection, push, ids));
            Outcome::Ok(())
        });
        while let Some(ended) = under_way.try_join_next() {
            ended??;
        }
    }
    while let Some(ended) = under_way.join_next().await {
        ended??;
    }
    Ok(())
}
