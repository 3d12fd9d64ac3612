//! The store of queues, whichever database it is.

use super::{
    Aside, Configure, Configured, Job, PostgresQueues, QueueDetail, QueueInfo, QueueSummary, Ran,
    Round, SeekTo, Sought, SqliteQueues, Tidied, Wake,
};
use crate::options::QueuesOptions;
use skep_store::{Database, StoreError};

/// Batches under way at once in PostgreSQL: while one waits for its commit the next can work.
const POSTGRES_BATCHES: usize = 4;

/// The store of queues. Clones share it.
#[derive(Clone)]
pub enum QueueStore {
    /// In the embedded database.
    Sqlite(SqliteQueues),
    /// In PostgreSQL.
    Postgres(PostgresQueues),
}

/// Does the same with either store.
macro_rules! either {
    ($self:ident, $store:ident => $what:expr) => {
        match $self {
            $crate::store::QueueStore::Sqlite($store) => $what,
            $crate::store::QueueStore::Postgres($store) => $what,
        }
    };
}
pub(super) use either;

impl QueueStore {
    /// Uses `database`, whose tables must be there.
    pub async fn open(database: &Database, options: &QueuesOptions) -> Result<Self, StoreError> {
        Ok(match database {
            Database::Sqlite(sqlite) => {
                QueueStore::Sqlite(SqliteQueues::open(sqlite.clone(), options).await?)
            }
            Database::Postgres(postgres) => {
                QueueStore::Postgres(PostgresQueues::new(postgres.clone(), options))
            }
        })
    }

    /// How many batches it may have at once.
    pub fn batches_at_once(&self) -> usize {
        match self {
            // There is one writer.
            QueueStore::Sqlite(_) => 1,
            QueueStore::Postgres(_) => POSTGRES_BATCHES,
        }
    }

    /// Does jobs together and answers each once it is durable. Tells who should look.
    pub async fn run(&self, jobs: Vec<Job>) -> Vec<Wake> {
        either!(self, store => store.run(jobs).await)
    }

    /// The same, except that jobs which would wait for what somebody else has locked are returned,
    /// for [`QueueStore::again`]: they must not hold up others.
    pub(crate) async fn start(&self, jobs: Vec<Job>) -> Ran {
        match self {
            // Nobody else writes there.
            QueueStore::Sqlite(store) => Ran { wakes: store.run(jobs).await, aside: Vec::new() },
            QueueStore::Postgres(store) => store.start(jobs).await,
        }
    }

    /// Tries jobs again, after a while at most.
    pub(crate) async fn again(&self, asides: Vec<Aside>) -> Ran {
        match self {
            QueueStore::Sqlite(store) => {
                let jobs = asides.into_iter().map(|one| one.job).collect();
                Ran { wakes: store.run(jobs).await, aside: Vec::new() }
            }
            QueueStore::Postgres(store) => store.again(asides).await,
        }
    }

    /// Makes or changes a queue.
    pub async fn configure(&self, wish: Configure) -> Result<Configured, StoreError> {
        either!(self, store => store.configure(wish).await)
    }

    /// A queue by its name.
    pub async fn queue(&self, name: &str) -> Result<Option<QueueInfo>, StoreError> {
        either!(self, store => store.queue(name).await)
    }

    /// Queues by name, after `after`.
    pub async fn queues(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<QueueSummary>, StoreError> {
        either!(self, store => store.queues(after, limit).await)
    }

    /// A queue with its groups and the first of its partitions.
    pub async fn show(
        &self,
        name: &str,
        partitions: u32,
    ) -> Result<Option<QueueDetail>, StoreError> {
        either!(self, store => store.show(name, partitions).await)
    }

    /// Deletes a queue and all that is in it. Tells whether it was there.
    pub async fn delete_queue(&self, name: &str) -> Result<bool, StoreError> {
        either!(self, store => store.delete_queue(name).await)
    }

    /// Lets a group go on reading elsewhere, in one partition or all.
    pub async fn seek(
        &self,
        queue: &str,
        group: &str,
        partition: Option<&str>,
        to: SeekTo,
    ) -> Result<Sought, StoreError> {
        either!(self, store => store.seek(queue, group, partition, to).await)
    }

    /// Deletes what is past its time.
    pub async fn tidy(&self, round: impl Into<Round>) -> Result<Tidied, StoreError> {
        either!(self, store => store.tidy(round).await)
    }
}
