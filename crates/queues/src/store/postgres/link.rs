//! Connections, and statements that travel together.
//!
//! A batch wants few round trips: its statements are sent one after the other without waiting for
//! the answers, `BEGIN` with the first and `COMMIT` with the last. PostgreSQL works on them in that
//! order, and once one has failed it refuses the others and makes the commit a rollback.

use futures_util::future::join_all;
use skep_store::{Outcome, Postgres, PostgresClient, StoreError};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Connections used at once, out of the pool's that others need too; more batches wait for one.
/// They are kept for the next batch: the pool asks each whether it is alive before it gives it out,
/// which is a round trip, and these were used a moment ago.
const LINKS_MAX: usize = 8;
/// A batch that met others on its way is tried so often.
const TRIES_MAX: u32 = 8;

/// Every statement goes from a few values to rows by their key. The plans must not depend on how
/// small the tables were when the connection was made, because they are kept with it.
pub(super) const SETTINGS: &str =
    "SET plan_cache_mode = force_generic_plan; SET enable_hashjoin = off;
     SET enable_mergejoin = off; SET enable_seqscan = off; SET jit = off";

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
const UNHURRIED: &str = "SET LOCAL lock_timeout TO DEFAULT";

/// Values of a statement.
pub(super) type Values<'value> = Vec<&'value (dyn ToSql + Sync)>;

/// Why a batch was not done.
#[derive(Debug)]
pub(super) enum Fail {
    /// Nothing was done, because others were in the way; it may work now.
    Conflict(StoreError),
    /// Nothing was done, because what this node remembered is no longer so, or was not there yet.
    /// It has forgotten the one and made the other.
    Stale,
    /// Nothing was done, because somebody has locked something of it for too long.
    Locked(StoreError),
    /// As the error says.
    Store(StoreError),
}

impl From<StoreError> for Fail {
    fn from(error: StoreError) -> Self {
        Fail::Store(error)
    }
}

/// Something to send.
pub(super) enum Call<'value> {
    Begin,
    Commit,
    /// From here on locks are waited for as long as they take, on a link that had no patience.
    Unhurried,
    Query(&'static str, Values<'value>),
}

/// Where links come from.
pub(super) struct Links {
    pub(super) postgres: Postgres,
    kept: Arc<Mutex<Vec<PostgresClient>>>,
    free: Arc<Semaphore>,
}

impl Links {
    pub(super) fn new(postgres: Postgres) -> Self {
        Links { postgres, kept: Arc::default(), free: Arc::new(Semaphore::new(LINKS_MAX)) }
    }

    pub(super) async fn link(&self) -> Result<Link, StoreError> {
        let free = async {
            let permit = self.free.clone().acquire_owned().await;
            permit.map_err(|_| closed())
        };
        let permit = self.postgres.limit(free).await.map_err(|error| self.not_sent(error))?;
        let kept = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            std::iter::from_fn(|| kept.pop()).find(|client| !client.is_closed())
        };
        let client = match kept {
            Some(client) => client,
            None => {
                let client = self.postgres.client().await?;
                let set = async { Ok::<_, StoreError>(client.batch_execute(SETTINGS).await?) };
                self.postgres.limit(set).await.map_err(|error| self.not_sent(error))?;
                client
            }
        };
        let (client, kept) = (Some(client), self.kept.clone());
        Ok(Link { client, kept, open: false, patience: None, _permit: permit })
    }

    /// A link whose transactions wait for each lock so long at most.
    pub(super) async fn link_within(&self, patience: Duration) -> Result<Link, StoreError> {
        let mut link = self.link().await?;
        link.patience = Some(patience);
        Ok(link)
    }

    /// Ends an attempt: `Ok(None)` is to be tried again.
    pub(super) async fn end<T>(
        &self,
        mut link: Link,
        done: Result<T, Fail>,
        tries: &mut u32,
    ) -> Result<Option<T>, StoreError> {
        let fail = match done {
            Ok(value) => {
                link.give_back();
                return Ok(Some(value));
            }
            Err(fail) => fail,
        };
        let known = !matches!(&fail, Fail::Store(error) if error.outcome() == Outcome::Unknown);
        if known {
            let rollback = async { Ok::<_, StoreError>(link.rollback().await) };
            if matches!(self.postgres.limit(rollback).await, Ok(true)) {
                link.give_back();
            }
        }
        *tries += 1;
        match fail {
            Fail::Store(error) | Fail::Locked(error) => Err(error),
            Fail::Conflict(error) if *tries >= TRIES_MAX => Err(error),
            Fail::Stale if *tries >= TRIES_MAX => Err(StoreError::Busy {
                store: "postgres",
                cause: "queues were deleted and made again all the time".to_owned(),
            }),
            Fail::Conflict(_) | Fail::Stale => Ok(None),
        }
    }

    fn not_sent(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Unknown { store, cause } => {
                StoreError::Unreachable { store, target: self.postgres.target().to_owned(), cause }
            }
            other => other,
        }
    }
}

/// A connection. It is closed when dropped, unless it was given back: what was going on in it ends
/// with it.
pub(super) struct Link {
    client: Option<PostgresClient>,
    kept: Arc<Mutex<Vec<PostgresClient>>>,
    /// Whether a transaction may be open.
    open: bool,
    /// How long a transaction waits for a lock, if not as long as for anything else.
    patience: Option<Duration>,
    _permit: OwnedSemaphorePermit,
}

impl Link {
    /// One statement. Outside a transaction it has to be one that may be done twice.
    pub(super) async fn ask(
        &mut self,
        sql: &'static str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, Fail> {
        let mut answers = self.send(vec![Call::Query(sql, values)]).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Statements that travel together; an answer for each.
    pub(super) async fn send(&mut self, calls: Vec<Call<'_>>) -> Result<Vec<Vec<Row>>, Fail> {
        let Some(client) = &self.client else { return Err(closed().into()) };
        let begins = calls.iter().any(|call| matches!(call, Call::Begin));
        let commits = calls.iter().any(|call| matches!(call, Call::Commit));
        // A statement that is not prepared yet would be overtaken by those after it.
        let mut prepared = Vec::with_capacity(calls.len());
        for call in &calls {
            prepared.push(match call {
                Call::Query(sql, _) => {
                    let statement = client.prepare_cached(sql).await;
                    Some(statement.map_err(|error| fail(error, false))?)
                }
                Call::Begin | Call::Commit | Call::Unhurried => None,
            });
        }
        self.open = self.open || begins;
        let begin = match self.patience {
            None => Cow::Borrowed(BEGIN),
            Some(patience) => {
                Cow::Owned(format!("{BEGIN}; SET LOCAL lock_timeout = {}", patience.as_millis()))
            }
        };
        let (begin, is_hurried) = (&*begin, self.patience.is_some());
        let sent = calls.iter().zip(&prepared).map(|(call, statement)| async move {
            match (call, statement) {
                (Call::Begin, _) => plain(client, begin).await,
                (Call::Commit, _) => plain(client, "COMMIT").await,
                (Call::Unhurried, _) if is_hurried => plain(client, UNHURRIED).await,
                (Call::Unhurried, _) => Ok(Vec::new()),
                (Call::Query(_, values), Some(statement)) => client.query(statement, values).await,
                (Call::Query(..), None) => Ok(Vec::new()),
            }
        });
        let answers = join_all(sent).await;
        let answers: Result<Vec<_>, tokio_postgres::Error> = answers.into_iter().collect();
        let answers = answers.map_err(|error| fail(error, commits))?;
        if commits {
            self.open = false;
        }
        Ok(answers)
    }

    /// Gives up what is open.
    pub(super) async fn undo(&mut self) -> Result<(), Fail> {
        match self.rollback().await {
            true => Ok(()),
            // Nothing of it was committed, so it may be tried on another connection.
            false => {
                let cause = "the connection was lost".to_owned();
                Err(Fail::Conflict(StoreError::Busy { store: "postgres", cause }))
            }
        }
    }

    /// Undoes what is open. Tells whether the connection can be used again.
    async fn rollback(&mut self) -> bool {
        let Some(client) = &self.client else { return false };
        let undone = !self.open || client.batch_execute("ROLLBACK").await.is_ok();
        self.open = self.open && !undone;
        undone && !client.is_closed()
    }

    fn give_back(&mut self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.open {
            kept.extend(self.client.take());
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(PostgresClient::take(client));
        }
    }
}

async fn plain(client: &PostgresClient, sql: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
    client.batch_execute(sql).await.map(|()| Vec::new())
}

fn closed() -> StoreError {
    StoreError::Closed { store: "postgres" }
}

/// What an error means for a batch. Before the commit was sent nothing can have been done.
fn fail(error: tokio_postgres::Error, commits: bool) -> Fail {
    let conflict = error.code().is_some_and(|code| {
        let code = code.code();
        code.starts_with("40") && code != "40003"
    });
    let locked = error.code().is_some_and(|code| code.code() == "55P03");
    match StoreError::from(error) {
        error if locked => Fail::Locked(error),
        error if conflict => Fail::Conflict(error),
        StoreError::Unknown { store, cause } if !commits => {
            Fail::Conflict(StoreError::Busy { store, cause })
        }
        error => Fail::Store(error),
    }
}
