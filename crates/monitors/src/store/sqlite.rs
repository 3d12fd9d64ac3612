//! A step on the embedded database.

use super::tx::{Row, Tx, Value};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};
use skep_store::StoreError;
use std::future::ready;

/// The writer's connection, or a reader's.
pub(super) struct Embedded<'a>(pub(super) &'a Connection);

impl Embedded<'_> {
    fn rows(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, StoreError> {
        let mut statement = self.0.prepare_cached(&dialect(sql))?;
        let columns = statement.column_count();
        let mut found = statement.query(params_from_iter(values))?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let cells = (0..columns).map(|place| row.get_ref(place).map(cell));
            rows.push(Row(cells.collect::<rusqlite::Result<_>>()?));
        }
        Ok(rows)
    }

    fn changes(&self, sql: &str, sets: &[&[Value]]) -> Result<Vec<u64>, StoreError> {
        let mut statement = self.0.prepare_cached(&dialect(sql))?;
        let mut changes = Vec::with_capacity(sets.len());
        for values in sets {
            changes.push(statement.execute(params_from_iter(*values))? as u64);
        }
        Ok(changes)
    }
}

/// Parameters by their number; with a dollar they would be counted as they come.
fn dialect(sql: &str) -> String {
    sql.replace('$', "?")
}

fn cell(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Null | ValueRef::Blob(_) => Value::Null,
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let list = |json: serde_json::Value| ToSqlOutput::from(json.to_string());
        Ok(match self {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Int(number) => ToSqlOutput::from(*number),
            Value::Real(number) => ToSqlOutput::from(*number),
            Value::Text(text) => ToSqlOutput::from(text.as_str()),
            Value::Flag(flag) => ToSqlOutput::from(*flag),
            Value::Ints(numbers) => list(numbers.as_slice().into()),
            Value::Texts(texts) => list(texts.as_slice().into()),
        })
    }
}

impl Tx for Embedded<'_> {
    // There is one writer.
    const LOCK: &'static str = "";
    const SHARE: &'static str = "";
    const SKIP: &'static str = "";
    const FIND: &'static str = "instr";
    const LABELS: &'static str = "json_each(labels)";
    const IN_SERVICE: &'static str = " INDEXED BY skep_monitor_assignments_service";
    const REMOVE_OLD: &'static str = "
        DELETE FROM skep_monitor_samples WHERE (server, monitor, at) IN (
            SELECT s.server, s.monitor, s.at
            FROM skep_monitor_servers v CROSS JOIN skep_monitor_samples s
            WHERE s.server = v.number AND s.at < $1 LIMIT $2)";
    const REMOVE_OF_SERVER: &'static str = "
        DELETE FROM skep_monitor_samples WHERE (server, monitor, at) IN (
            SELECT server, monitor, at FROM skep_monitor_samples WHERE server = $1 LIMIT $2)";

    fn one_of(parameter: usize) -> String {
        format!("IN (SELECT value FROM json_each(${parameter}))")
    }

    fn one_found(query: &str) -> String {
        format!("IN ({query})")
    }

    fn query(
        &self,
        sql: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send {
        ready(self.rows(sql, values))
    }

    fn run(
        &self,
        sql: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<u64, StoreError>> + Send {
        ready(self.changes(sql, &[values]).map(|changes| changes.iter().sum()))
    }

    fn run_each(
        &self,
        sql: &str,
        sets: &[Vec<Value>],
    ) -> impl Future<Output = Result<Vec<u64>, StoreError>> + Send {
        let sets: Vec<&[Value]> = sets.iter().map(Vec::as_slice).collect();
        ready(self.changes(sql, &sets))
    }

    /// Nobody else has this database.
    fn announce(&self, _: i64) -> impl Future<Output = Result<(), StoreError>> + Send {
        ready(Ok(()))
    }
}
