//! Which rows go where, found by looking at both databases.

use super::value::{Kind, unknown};
use super::{CopyError, CopyRules, Made};
use crate::{Sqlite, StoreError};
use deadpool_postgres::GenericClient;
use rusqlite::Connection;
use rusqlite::types::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Each database has its own.
const OWN: &str = "skep_migrations";
/// A table with this column has one row from the beginning.
const ONLY_ROW: &str = "only_row";

/// What is to be done, a table of the target after the other.
pub(super) struct Plan {
    pub(super) tables: Vec<Table>,
    pub(super) after: Vec<&'static str>,
}

/// One table of the target.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<(String, Kind)>,
    /// For the source.
    pub(super) select: String,
    pub(super) derive: Option<fn(&mut [Value])>,
    /// It has its one row already.
    pub(super) seeded: bool,
    /// The column that gets its number by itself, and the greatest that was given before.
    pub(super) numbered: Option<(String, i64)>,
}

impl Table {
    fn names(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|(name, _)| quoted(name)).collect();
        names.join(", ")
    }

    /// For the target: here come rows.
    pub(super) fn copy_in(&self) -> String {
        format!("COPY {} ({}) FROM STDIN BINARY", quoted(&self.name), self.names())
    }

    /// For the target: the rows again, in the form of the source.
    pub(super) fn look(&self) -> String {
        let asked = |(name, kind): &(String, Kind)| kind.asked_of_postgres(&quoted(name));
        let asked: Vec<String> = self.columns.iter().map(asked).collect();
        format!("SELECT {} FROM {}", asked.join(", "), quoted(&self.name))
    }
}

pub(super) fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// What a column of the target is.
struct Column {
    name: String,
    kind: String,
    numbered: bool,
    /// It needs no value.
    optional: bool,
}

type Tables<C> = BTreeMap<String, Vec<C>>;

/// Looks at both sides and decides for every table; or names the first that nobody knows of.
pub(super) async fn plan(
    source: &Sqlite,
    target: &impl GenericClient,
    rules: &[CopyRules],
) -> Result<Plan, CopyError> {
    let have: Tables<String> = source.read(sqlite_tables).await?;
    let want = postgres_tables(target).await?;
    let made: BTreeMap<&str, &Made> =
        rules.iter().flat_map(|rules| rules.made).map(|made| (made.table, made)).collect();
    let folded: BTreeSet<&str> = rules.iter().flat_map(|rules| rules.folded).copied().collect();
    let local: Vec<&str> = rules.iter().flat_map(|rules| rules.local).copied().collect();
    let numbers: BTreeMap<&str, &str> =
        rules.iter().flat_map(|rules| rules.numbers).copied().collect();

    for name in have.keys() {
        if !want.contains_key(name) && !folded.contains(name.as_str()) {
            return Err(CopyError::Unknown { what: name.clone() });
        }
    }
    let mut tables = Vec::new();
    for (name, columns) in want {
        let (columns, select, derive) = match (made.get(name.as_str()), have.get(&name)) {
            (Some(made), _) => chosen(&name, columns, made)?,
            (None, Some(found)) => same(&name, columns, found)?,
            (None, None) if local.iter().any(|start| name.starts_with(start)) => continue,
            (None, None) => return Err(CopyError::Unknown { what: name }),
        };
        let numbered = columns.iter().find(|column| column.numbered).map(|one| one.name.clone());
        let numbered = match numbered {
            None => None,
            Some(column) => {
                let given = numbers.get(name.as_str()).map(|sql| (*sql).to_owned());
                Some((column, last_number(source, &name, given).await?))
            }
        };
        let mut typed = Vec::new();
        for column in columns {
            let kind = Kind::of(&column.kind).ok_or_else(|| unknown(&name, &column.name))?;
            typed.push((column.name, kind));
        }
        let select = select.unwrap_or_else(|| {
            let asked = |(name, kind): &(String, Kind)| kind.asked_of_sqlite(&quoted(name));
            let asked: Vec<String> = typed.iter().map(asked).collect();
            format!("SELECT {} FROM {}", asked.join(", "), quoted(&name))
        });
        let seeded = typed.iter().any(|(column, _)| column == ONLY_ROW);
        tables.push(Table { name, columns: typed, select, derive, seeded, numbered });
    }
    Ok(Plan { tables, after: rules.iter().flat_map(|rules| rules.after).copied().collect() })
}

type Chosen = (Vec<Column>, Option<String>, Option<fn(&mut [Value])>);

/// The columns that a rule names, in its order.
fn chosen(table: &str, mut columns: Vec<Column>, made: &Made) -> Result<Chosen, CopyError> {
    let mut chosen = Vec::new();
    for name in made.columns {
        let at = columns.iter().position(|column| column.name == *name);
        chosen.push(columns.swap_remove(at.ok_or_else(|| unknown(table, name))?));
    }
    // All of them: one that was added later is not to be empty without a word.
    match columns.first() {
        Some(left) => Err(unknown(table, &left.name)),
        None => Ok((chosen, Some(made.select.to_owned()), made.derive)),
    }
}

/// All columns, which must be those of the source.
fn same(table: &str, columns: Vec<Column>, found: &[String]) -> Result<Chosen, CopyError> {
    let missing = found.iter().find(|name| columns.iter().all(|column| column.name != **name));
    if let Some(name) = missing {
        return Err(unknown(table, name));
    }
    let (both, alone): (Vec<Column>, Vec<Column>) =
        columns.into_iter().partition(|column| found.contains(&column.name));
    match alone.iter().find(|column| !column.optional) {
        Some(column) => Err(unknown(table, &column.name)),
        None => Ok((both, None, None)),
    }
}

fn sqlite_tables(db: &Connection) -> Result<Tables<String>, StoreError> {
    let sql = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
               WHERE t.type = 'table' AND t.name LIKE 'skep\\_%' ESCAPE '\\' AND t.name <> ?1";
    let mut select = db.prepare(sql)?;
    let rows = select.query_map([OWN], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut tables: Tables<String> = BTreeMap::new();
    for row in rows {
        let (table, column) = row?;
        tables.entry(table).or_default().push(column);
    }
    Ok(tables)
}

async fn postgres_tables(client: &impl GenericClient) -> Result<Tables<Column>, StoreError> {
    let sql = "SELECT c.table_name::text, c.column_name::text, c.udt_name::text,
                      c.is_identity = 'YES', c.is_nullable = 'YES' OR c.column_default IS NOT NULL
               FROM information_schema.columns c
               JOIN information_schema.tables t USING (table_schema, table_name)
               WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE'
                 AND c.table_name LIKE 'skep\\_%' AND c.table_name <> $1
               ORDER BY c.table_name, c.ordinal_position";
    let mut tables: Tables<Column> = BTreeMap::new();
    for row in client.query(sql, &[&OWN]).await? {
        let column = Column {
            name: row.get(1),
            kind: row.get(2),
            numbered: row.get(3),
            optional: row.get(4),
        };
        tables.entry(row.get(0)).or_default().push(column);
    }
    Ok(tables)
}

/// The greatest number that a table has given, those of rows that are gone too.
async fn last_number(
    source: &Sqlite,
    table: &str,
    given: Option<String>,
) -> Result<i64, StoreError> {
    let table = table.to_owned();
    let look = move |db: &Connection| {
        let (sql, of) = match &given {
            Some(sql) => (sql.as_str(), vec![]),
            None => ("SELECT max(seq) FROM sqlite_sequence WHERE name = ?1", vec![table]),
        };
        let last = db.query_row(sql, rusqlite::params_from_iter(of), |row| row.get(0));
        Ok::<Option<i64>, StoreError>(last?)
    };
    Ok(source.read(look).await?.unwrap_or(0))
}
