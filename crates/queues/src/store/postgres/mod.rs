//! Queues in PostgreSQL, for any number of nodes on one database.
//!
//! A batch is a transaction (READ COMMITTED) of two trips: what it is about is locked and read,
//! then decided here with the policy, then written together with the commit. Pushes, settlements
//! and claims of one call travel beside each other on connections of their own. What somebody else
//! has locked is not waited for among others, see [`aside`]. The time is the database's.

mod admin;
mod arriving;
mod aside;
mod blocked;
mod browse;
mod claim;
mod dead;
mod dedup;
mod desk;
mod frontier;
mod groups;
mod jobs;
mod later;
mod levels;
mod limits;
mod link;
mod lookup;
mod marks;
mod matching;
mod moves;
mod names;
mod partitions;
mod pick;
mod places;
mod redrives;
mod remove;
mod rows;
mod schedules;
mod stats;
mod switches;
mod tables;
mod take;
mod takes;
mod tidy;
mod traces;
mod work;
mod write;

#[cfg(test)]
mod tests;

use super::{Aside, Job, Ran, Wake, WorkError};
use crate::bodies::Bodies;
use crate::options::QueuesOptions;
use crate::prints::Prints;
pub use arriving::COPY;
use link::Links;
use marks::{Marks, PATIENCE};
use names::Names;
use skep_policy::Time;
use skep_store::{Postgres, StoreError};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// The channel on which nodes tell each other (`NOTIFY`) that something became ready. The payload
/// is names of queues, one a line; an empty one means any.
pub const CHANNEL: &str = "skep_queues";

const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Rows over which a sum is spread.
const SLOTS: u32 = 16;

/// The store. Clones share everything.
#[derive(Clone)]
pub struct PostgresQueues {
    shared: Arc<Shared>,
}

struct Shared {
    links: Links,
    names: Names,
    prints: Mutex<Prints>,
    bodies: Bodies,
    turn: AtomicU32,
    rounds: Mutex<tidy::Rounds>,
    errands: Mutex<blocked::Errands>,
    marks: Marks,
    /// The mark of the leases that this node gives out.
    lease_tag: u16,
}

impl Shared {
    /// Which of the rows of a sum to add to: another each time, beginning anywhere.
    fn slot(&self) -> i16 {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % SLOTS;
        i16::try_from(turn).unwrap_or(0)
    }

    async fn clock(&self) -> Result<Time, StoreError> {
        let client = self.links.postgres.client().await?;
        let ask = async {
            let statement = client.prepare_cached(NOW).await?;
            Ok::<_, StoreError>(client.query_one(&statement, &[]).await?)
        };
        Ok(rows::time(self.links.postgres.limit(ask).await?.get(0)))
    }
}

impl PostgresQueues {
    /// Connects to nothing yet. The tables are those of [`super::SCHEMA`].
    pub fn new(postgres: Postgres, options: &QueuesOptions) -> Self {
        let shared = Shared {
            links: Links::new(postgres),
            names: Names::default(),
            prints: Mutex::new(Prints::new(options.dedup_bytes)),
            bodies: Bodies::new(options.cache_bytes),
            turn: AtomicU32::new(uuid::Uuid::new_v4().as_fields().0),
            rounds: Mutex::default(),
            errands: Mutex::default(),
            marks: Marks::default(),
            lease_tag: options.lease_tag,
        };
        PostgresQueues { shared: Arc::new(shared) }
    }

    /// Does jobs, answers each once it is durable, and returns who should look now. Several calls
    /// may be under way at once.
    pub async fn run(&self, jobs: Vec<Job>) -> Vec<Wake> {
        let mut ran = self.start(jobs).await;
        while !ran.aside.is_empty() {
            let aside = std::mem::take(&mut ran.aside);
            ran.add(Box::pin(self.again(aside)).await);
        }
        ran.wakes
    }

    /// The same, except that jobs which would have to wait for what somebody else has locked are
    /// not done, but returned for [`PostgresQueues::again`].
    pub async fn start(&self, jobs: Vec<Job>) -> Ran {
        let (mut pushes, mut settles, mut mixed) = (Vec::new(), Vec::new(), Vec::new());
        let mut claims = Vec::new();
        let since = Instant::now();
        for job in jobs {
            match job {
                Job::Claim(job, answer) => claims.push((job, answer)),
                Job::Push(..) => pushes.push(Aside { job, since }),
                Job::Transaction(..) => mixed.push(Aside { job, since }),
                Job::Settle { .. } | Job::Extend { .. } | Job::Release { .. } => {
                    settles.push(Aside { job, since });
                }
            }
        }
        // Large futures: whoever calls this should not have to carry four of them about.
        let (mut ran, settled, transacted, claimed) = tokio::join!(
            Box::pin(self.work(pushes, PATIENCE)),
            Box::pin(self.work(settles, PATIENCE)),
            Box::pin(self.work(mixed, PATIENCE)),
            Box::pin(self.claims(claims))
        );
        ran.add(settled);
        ran.add(transacted);
        ran.add(claimed);
        ran
    }

    /// The database's time.
    pub async fn now(&self) -> Result<Time, StoreError> {
        self.shared.clock().await
    }
}

/// Answers a job that could not be done.
fn refuse(job: Job, error: &StoreError) {
    job.refuse(WorkError::Store(error.clone()));
}
