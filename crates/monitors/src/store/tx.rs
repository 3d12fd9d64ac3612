//! One step on either database.
//!
//! A step is written once, as an async function over [`Tx`]. On PostgreSQL it runs in a
//! transaction; on the embedded database it runs on the writer's thread, where nothing ever waits,
//! so that it is over when it was polled once. The few words that differ are constants of [`Tx`].

use futures_util::FutureExt;
use skep_store::StoreError;
use std::str::FromStr;

/// A transaction, and the words of its dialect.
pub(super) trait Tx {
    /// Put after a `SELECT`: nobody else changes these rows until the end.
    const LOCK: &'static str;
    /// The same, but others may hold them like this too.
    const SHARE: &'static str;
    /// Like `LOCK`, without those that somebody else holds.
    const SKIP: &'static str;
    /// The function that finds a text in a text.
    const FIND: &'static str;
    /// The keys and values of the JSON object in the column `labels`.
    const LABELS: &'static str;
    /// Put after the table of assignments: looks at those who work somewhere alone. A planner that
    /// has no statistics would walk through all candidates of a server.
    const IN_SERVICE: &'static str;
    /// Removes up to `$2` samples that are older than `$1`, server by server.
    const REMOVE_OLD: &'static str;
    /// Removes up to `$2` samples of the server `$1`.
    const REMOVE_OF_SERVER: &'static str;

    /// A condition: one of the values in the parameter.
    fn one_of(parameter: usize) -> String;

    /// A condition: one of what a query finds, which runs once.
    fn one_found(query: &str) -> String;

    /// Runs a query.
    fn query(
        &self,
        sql: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;

    /// Runs a statement; how many rows it changed.
    fn run(
        &self,
        sql: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Runs a statement for each set of values, in their order; how many rows each changed.
    fn run_each(
        &self,
        sql: &str,
        sets: &[Vec<Value>],
    ) -> impl Future<Output = Result<Vec<u64>, StoreError>> + Send;

    /// Tells everybody once this is over.
    fn announce(&self, change: i64) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The one row of a query, if there is one.
pub(super) async fn find<T: Tx>(
    tx: &T,
    sql: &str,
    values: &[Value],
) -> Result<Option<Row>, StoreError> {
    Ok(tx.query(sql, values).await?.pop())
}

/// A value of a row or a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    Flag(bool),
    Ints(Vec<i64>),
    Texts(Vec<String>),
}

/// Parameters, in order.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::store::tx::Value::from($value)),*] };
}
pub(super) use values;

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Value::Int(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Real(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Flag(value)
    }
}

impl From<&str> for Value {
    /// PostgreSQL keeps no text with a zero in it, and a text from anywhere may have one.
    fn from(value: &str) -> Self {
        Value::Text(value.replace('\0', "\u{fffd}"))
    }
}

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Value::from(value.as_str())
    }
}

impl From<Vec<i64>> for Value {
    fn from(values: Vec<i64>) -> Self {
        Value::Ints(values)
    }
}

impl From<&[String]> for Value {
    fn from(values: &[String]) -> Self {
        Value::Texts(values.iter().map(|value| value.replace('\0', "\u{fffd}")).collect())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// A row of an answer.
pub(super) struct Row(pub(super) Vec<Value>);

/// What can be read from a row.
pub(super) trait FromValue: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for i64 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }
}

impl FromValue for u32 {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value)?.try_into().ok()
    }
}

impl FromValue for u64 {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value)?.try_into().ok()
    }
}

impl FromValue for f64 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Real(number) => Some(*number),
            _ => None,
        }
    }
}

impl FromValue for bool {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Flag(flag) => Some(*flag),
            // The embedded database has no other flags.
            Value::Int(number) => Some(*number != 0),
            _ => None,
        }
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl Row {
    /// The value at this place.
    pub(super) fn get<T: FromValue>(&self, place: usize) -> Result<T, StoreError> {
        let value = self.0.get(place);
        let read = value.and_then(T::from_value);
        read.ok_or_else(|| damaged(&format!("column {place} holds {value:?}")))
    }

    /// The word at this place, read.
    pub(super) fn word<T: FromStr>(&self, place: usize) -> Result<T, StoreError> {
        let word: String = self.get(place)?;
        word.parse().map_err(|_| damaged(&format!("column {place} holds the word {word:?}")))
    }

    /// The same, where there may be none.
    pub(super) fn maybe_word<T: FromStr>(&self, place: usize) -> Result<Option<T>, StoreError> {
        match self.0.get(place) {
            Some(Value::Null) => Ok(None),
            _ => self.word(place).map(Some),
        }
    }
}

/// A row that this program would not have written.
pub(super) fn damaged(cause: &str) -> StoreError {
    let target = "a table of the monitors".to_owned();
    StoreError::Damaged { target, cause: cause.to_owned() }
}

/// Runs a step on the embedded database to its end.
pub(super) fn finished<T, E: From<StoreError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    work.now_or_never().unwrap_or_else(|| {
        let cause = "a step of the embedded database waited".to_owned();
        Err(StoreError::Refused { store: "sqlite", cause }.into())
    })
}

/// The same on a server, in a transaction that begins in this way.
macro_rules! at_server {
    ($store:ident, $begin:ident, $tx:ident => $work:expr) => {{
        let mut client = $store.client().await?;
        let work = async {
            let remote = $crate::store::postgres::Remote::$begin(&mut client).await?;
            let $tx = &remote;
            let answer = match $work.await {
                Ok(answer) => answer,
                Err(error) => return Err(error),
            };
            remote.commit().await?;
            Ok(answer)
        };
        $store.limit(work).await
    }};
}
pub(super) use at_server;

/// Takes a step: all of it or nothing.
macro_rules! step {
    ($db:expr, $tx:ident => $work:expr) => {
        match $db {
            skep_store::Database::Sqlite(store) => {
                let work = move |connection: &rusqlite::Connection| {
                    let $tx = &$crate::store::sqlite::Embedded(connection);
                    $crate::store::tx::finished($work)
                };
                store.write(work).await
            }
            skep_store::Database::Postgres(store) => {
                $crate::store::tx::at_server!(store, begin, $tx => $work)
            }
        }
    };
}
pub(super) use step;

/// Looks at one state of things, beside whoever changes them.
macro_rules! look {
    ($db:expr, $tx:ident => $work:expr) => {
        match $db {
            skep_store::Database::Sqlite(store) => {
                let work = move |connection: &rusqlite::Connection| {
                    connection.execute_batch("BEGIN").map_err(skep_store::StoreError::from)?;
                    let $tx = &$crate::store::sqlite::Embedded(connection);
                    $crate::store::tx::finished($work)
                };
                store.read(work).await
            }
            skep_store::Database::Postgres(store) => {
                $crate::store::tx::at_server!(store, look, $tx => $work)
            }
        }
    };
}
pub(super) use look;
