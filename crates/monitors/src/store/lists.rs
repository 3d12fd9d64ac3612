//! Pages of accounts, monitors and servers, in the order of their names.

use super::tx::{Row, Tx, Value, find};
use skep_policy::monitors::GlobalStatus;
use skep_store::StoreError;

/// So many a page has at most.
const LIMIT_MAX: u32 = 1_000;

/// Which page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Those after this name.
    pub after: Option<String>,
    /// So many at most, and at most 1,000.
    pub limit: u32,
    /// Part of the id, name, address or target; capitals make no difference.
    pub search: Option<String>,
}

impl Default for Page {
    fn default() -> Self {
        Page { after: None, limit: 100, search: None }
    }
}

/// A page.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<T> {
    /// Those of this page.
    pub rows: Vec<T>,
    /// How many there are on all pages.
    pub total: u64,
    /// What the next page comes after, if there is one.
    pub next: Option<String>,
}

/// Which monitors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitorFilter {
    /// Those of this account.
    pub account: Option<String>,
    /// Those of this status; else all that are not deleted.
    pub status: Option<GlobalStatus>,
    /// Those with this label, and this value of it.
    pub label: Option<(String, Option<String>)>,
}

/// Which servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFilter {
    /// Those of this account.
    pub account: Option<String>,
    /// Those with fewer active monitors that are not paused.
    pub below: Option<u32>,
}

/// Conditions, all of which must hold.
#[derive(Default)]
pub(super) struct Where {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Where {
    /// A condition about one value; it is told the parameter's number.
    pub(super) fn add(&mut self, value: impl Into<Value>, condition: impl Fn(usize) -> String) {
        self.values.push(value.into());
        self.conditions.push(condition(self.values.len()));
    }

    /// A condition about nothing else.
    pub(super) fn hold(&mut self, condition: &str) {
        self.conditions.push(condition.to_owned());
    }

    /// That one of the columns has the text in it.
    pub(super) fn search<T: Tx>(&mut self, text: Option<&str>, columns: &[&str]) {
        let Some(text) = text.map(str::to_ascii_lowercase).filter(|text| !text.is_empty()) else {
            return;
        };
        self.add(text.as_str(), |number| {
            let found = |column: &&str| format!("{}(lower({column}), ${number}) > 0", T::FIND);
            let all: Vec<String> = columns.iter().map(found).collect();
            format!("({})", all.join(" OR "))
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    fn sql(&self) -> String {
        match self.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", self.conditions.join(" AND ")),
        }
    }

    /// How many rows of a table there are.
    pub(super) async fn count<T: Tx>(&self, tx: &T, table: &str) -> Result<u64, StoreError> {
        let select = format!("SELECT count(*) FROM {table}{}", self.sql());
        let row = find(tx, &select, &self.values).await?;
        row.map_or(Ok(0), |row| row.get(0))
    }

    /// One page of a table; the first column is the name.
    pub(super) async fn page<T: Tx, R>(
        mut self,
        tx: &T,
        columns: &str,
        table: &str,
        page: &Page,
        read: fn(&Row) -> Result<R, StoreError>,
    ) -> Result<(Vec<R>, Option<String>), StoreError> {
        let limit = page.limit.clamp(1, LIMIT_MAX);
        if let Some(after) = &page.after {
            self.add(after, |number| format!("id > ${number}"));
        }
        let (conditions, place) = (self.sql(), self.values.len() + 1);
        // One more, which says whether there is another page.
        self.values.push(Value::Int(i64::from(limit) + 1));
        let select =
            format!("SELECT {columns} FROM {table}{conditions} ORDER BY id LIMIT ${place}");
        let mut rows = tx.query(&select, &self.values).await?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next = match rows.last().filter(|_| more) {
            Some(last) => Some(last.get(0)?),
            None => None,
        };
        Ok((rows.iter().map(read).collect::<Result<_, _>>()?, next))
    }
}
