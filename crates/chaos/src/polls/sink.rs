//! What the database accepted.

use super::evidence::Accepted;
use skep_testkit::Postgres;
use std::collections::BTreeMap;

const QUERY: &str = "SELECT number, ordinal, slot, token_epoch, token_counter, node, at
                     FROM skep_poll_results ORDER BY number, ordinal";

/// Every result that was ever seen in the database, which itself keeps only the last of each
/// endpoint.
#[derive(Default)]
pub struct Sink {
    results: BTreeMap<(u64, u64), Accepted>,
    /// Results that were others when they were seen before.
    pub changed: Vec<String>,
}

impl Sink {
    /// Reads what there is now.
    pub fn read(&mut self, postgres: &Postgres) -> Result<(), String> {
        for line in postgres.run("postgres", QUERY).lines() {
            let result = parse(line).ok_or_else(|| format!("the database says {line:?}"))?;
            let key = (result.endpoint, result.ordinal);
            let before = self.results.insert(key, result.clone());
            if let Some(before) = before.filter(|before| *before != result) {
                self.changed.push(format!("a result was {before:?} and is {result:?}"));
            }
        }
        Ok(())
    }

    /// All of them, by endpoint and in the order they were accepted.
    pub fn results(&self) -> Vec<Accepted> {
        self.results.values().cloned().collect()
    }
}

fn parse(line: &str) -> Option<Accepted> {
    let mut fields = line.split('|');
    let mut next = || fields.next();
    Some(Accepted {
        endpoint: next()?.parse().ok()?,
        ordinal: next()?.parse().ok()?,
        slot: next()?.parse().ok()?,
        token: (next()?.parse().ok()?, next()?.parse().ok()?),
        node: next()?.to_owned(),
        at_ms: next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_database_is_read() {
        let found = parse("7|0|1234|2|9|node-1|1700000000000").expect("is a result");
        assert_eq!((found.endpoint, found.slot, found.token), (7, 1234, (2, 9)));
        assert_eq!(parse("7|0|x|2|9|node-1|1"), None);
    }
}
