//! A step on PostgreSQL.

use super::CHANNEL;
use super::tx::{Row, Tx, Value, damaged};
use bytes::BytesMut;
use deadpool_postgres::Transaction;
use futures_util::future::try_join_all;
use skep_store::{PostgresClient, StoreError};
use std::error::Error;
use tokio_postgres::IsolationLevel;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// A transaction.
pub(super) struct Remote<'a>(Transaction<'a>);

impl<'a> Remote<'a> {
    /// Begins one whose statements each see what was committed before them, whatever the server's
    /// default is: that is what one wants after waiting for a lock.
    pub(super) async fn begin(client: &'a mut PostgresClient) -> Result<Self, StoreError> {
        let transaction = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        Ok(Remote(transaction.start().await?))
    }

    /// Begins one that sees one state of things from its first statement to its last.
    pub(super) async fn look(client: &'a mut PostgresClient) -> Result<Self, StoreError> {
        let level = IsolationLevel::RepeatableRead;
        let transaction = client.build_transaction().isolation_level(level).read_only(true);
        Ok(Remote(transaction.start().await?))
    }

    pub(super) async fn commit(self) -> Result<(), StoreError> {
        Ok(self.0.commit().await?)
    }
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

fn cells(row: &tokio_postgres::Row) -> Result<Row, StoreError> {
    let cell = |place: usize| -> Result<Value, StoreError> {
        let kind = row.columns()[place].type_();
        Ok(match *kind {
            Type::INT8 => row.try_get::<_, Option<i64>>(place)?.into(),
            Type::FLOAT8 => row.try_get::<_, Option<f64>>(place)?.into(),
            Type::BOOL => row.try_get::<_, Option<bool>>(place)?.into(),
            Type::TEXT => row.try_get::<_, Option<&str>>(place)?.into(),
            _ => return Err(damaged(&format!("column {place} is a {kind}"))),
        })
    };
    (0..row.len()).map(cell).collect::<Result<_, _>>().map(Row)
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(number) => checked(number, kind, out),
            Value::Real(number) => checked(number, kind, out),
            Value::Text(text) => checked(text, kind, out),
            Value::Flag(flag) => checked(flag, kind, out),
            Value::Ints(numbers) => checked(numbers, kind, out),
            Value::Texts(texts) => checked(texts, kind, out),
        }
    }

    /// Each value says for itself whether it fits.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn checked<T: ToSql>(
    value: &T,
    kind: &Type,
    out: &mut BytesMut,
) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
    value.to_sql_checked(kind, out)
}

impl Tx for Remote<'_> {
    const LOCK: &'static str = " FOR UPDATE";
    const SHARE: &'static str = " FOR SHARE";
    const SKIP: &'static str = " FOR UPDATE SKIP LOCKED";
    const FIND: &'static str = "strpos";
    const LABELS: &'static str = "jsonb_each_text(CAST(labels AS JSONB))";
    const IN_SERVICE: &'static str = "";
    const REMOVE_OLD: &'static str = "
        DELETE FROM skep_monitor_samples WHERE ctid = ANY(ARRAY(
            SELECT s.place FROM skep_monitor_servers v CROSS JOIN LATERAL (
                SELECT ctid AS place FROM skep_monitor_samples
                WHERE server = v.number AND at < $1 LIMIT $2) s
            LIMIT $2))";
    const REMOVE_OF_SERVER: &'static str = "
        DELETE FROM skep_monitor_samples WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM skep_monitor_samples WHERE server = $1 LIMIT $2))";

    fn one_of(parameter: usize) -> String {
        format!("= ANY(${parameter})")
    }

    fn one_found(query: &str) -> String {
        format!("= ANY(ARRAY({query}))")
    }

    async fn query(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, StoreError> {
        let statement = self.0.prepare_cached(sql).await?;
        let rows = self.0.query(&statement, &parameters(values)).await?;
        rows.iter().map(cells).collect()
    }

    async fn run(&self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let statement = self.0.prepare_cached(sql).await?;
        Ok(self.0.execute(&statement, &parameters(values)).await?)
    }

    async fn run_each(&self, sql: &str, sets: &[Vec<Value>]) -> Result<Vec<u64>, StoreError> {
        let statement = self.0.prepare_cached(sql).await?;
        // All on the way at once; the server takes them in this order.
        let runs = sets.iter().map(|values| async {
            let values = parameters(values);
            self.0.execute(&statement, &values).await
        });
        Ok(try_join_all(runs).await?)
    }

    async fn announce(&self, change: i64) -> Result<(), StoreError> {
        let values = super::tx::values![CHANNEL, &change.to_string()];
        self.query("SELECT 1::BIGINT FROM pg_notify($1, $2)", &values).await.map(|_| ())
    }
}
