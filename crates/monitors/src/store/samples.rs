//! What monitors measured, each sample once.

use super::rows::{self, from_millionths, to_millionths};
use super::tx::{Tx, look, step, values};
use crate::model::{SampleRow, cut};
use skep_policy::monitors::{Summary, next_score};
use skep_store::{Database, StoreError};
use std::collections::BTreeMap;

const ERROR_CHARS_MAX: usize = 200;
const AGENT_CHARS_MAX: usize = 100;

/// What a monitor has measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The monitor's number.
    pub monitor: i64,
    /// Samples in any order; they are all of this monitor.
    pub samples: Vec<SampleRow>,
    /// The version of the agent.
    pub agent: Option<String>,
    /// When it came.
    pub now_ms: i64,
    /// Samples before that are not kept any more.
    pub oldest_ms: i64,
    /// Samples after that are a wrong clock's.
    pub newest_ms: i64,
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is kept.
    Accepted,
    /// It was kept already, or is in the report twice.
    Known,
    /// The monitor is nothing to the server, or one of the two is not there.
    NotAssigned,
    /// It is older than what is kept.
    TooOld,
    /// It is from a time to come.
    Future,
}

/// Keeps samples; answers in the order given. The same report again changes nothing. Scores follow
/// the samples in the order of their times; one that is older than the latest is kept, but no
/// longer moves the score.
pub async fn record(db: &Database, report: Report) -> Result<Vec<Recorded>, StoreError> {
    step!(db, tx => keep(tx, &report))
}

/// What a monitor is to a server, as far as samples change it.
struct Standing {
    score: f64,
    last_sample: Option<i64>,
    moved: bool,
}

async fn keep<T: Tx>(tx: &T, report: &Report) -> Result<Vec<Recorded>, StoreError> {
    let Report { monitor, samples, .. } = report;
    see(tx, report).await?;
    let mut standings = standings(tx, *monitor, samples).await?;
    let mut answers: Vec<Recorded> = samples.iter().map(|one| fits(one, report)).collect();
    for (answer, sample) in answers.iter_mut().zip(samples) {
        if *answer == Recorded::Accepted && !standings.contains_key(&sample.server) {
            *answer = Recorded::NotAssigned;
        }
    }
    // Scores are moved in the order of time.
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.retain(|place| answers[*place] == Recorded::Accepted);
    order.sort_by_key(|place| (samples[*place].at_ms, *place));
    let insert = "INSERT INTO skep_monitor_samples
             (server, monitor, at, rtt_us, offset_us, step, error)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (server, monitor, at) DO NOTHING";
    let row = |place: &usize| {
        let one = &samples[*place];
        let error = one.error.as_deref().map(|error| cut(error, ERROR_CHARS_MAX));
        values![
            one.server,
            *monitor,
            one.at_ms,
            one.rtt_us,
            one.offset_us,
            to_millionths(one.step),
            error.as_ref()
        ]
        .to_vec()
    };
    let inserted = tx.run_each(insert, &order.iter().map(row).collect::<Vec<_>>()).await?;
    for (place, inserted) in order.into_iter().zip(inserted) {
        let sample = &samples[place];
        match standings.get_mut(&sample.server) {
            Some(_) if inserted == 0 => answers[place] = Recorded::Known,
            Some(standing) if standing.last_sample < Some(sample.at_ms) => {
                let step = from_millionths(to_millionths(sample.step));
                standing.score = next_score(standing.score, step);
                standing.last_sample = Some(sample.at_ms);
                standing.moved = true;
            }
            _ => {}
        }
    }
    let moved = standings.iter().filter(|(_, standing)| standing.moved);
    let moved = moved.map(|(server, standing)| {
        values![*server, *monitor, standing.score, standing.last_sample].to_vec()
    });
    let update = "UPDATE skep_monitor_assignments SET score = $3, last_sample = $4
                  WHERE server = $1 AND monitor = $2";
    tx.run_each(update, &moved.collect::<Vec<_>>()).await?;
    Ok(answers)
}

/// The monitor was heard. This takes its row first, so that two reports of it come one after
/// another.
async fn see<T: Tx>(tx: &T, report: &Report) -> Result<(), StoreError> {
    let seen = "UPDATE skep_monitor_monitors
         SET agent = coalesce($3, agent),
             seen_at = CASE WHEN seen_at > $2 THEN seen_at ELSE $2 END
         WHERE number = $1";
    let agent = report.agent.as_deref().map(|agent| cut(agent, AGENT_CHARS_MAX));
    tx.run(seen, &values![report.monitor, report.now_ms, agent.as_ref()]).await.map(|_| ())
}

/// Whether a sample's time is one to keep.
fn fits(sample: &SampleRow, report: &Report) -> Recorded {
    match sample.at_ms {
        at if at < report.oldest_ms => Recorded::TooOld,
        at if at > report.newest_ms => Recorded::Future,
        _ => Recorded::Accepted,
    }
}

/// What the monitor is to the servers of these samples, kept from others until the end. Taken in
/// the order of the servers' numbers.
async fn standings<T: Tx>(
    tx: &T,
    monitor: i64,
    samples: &[SampleRow],
) -> Result<BTreeMap<i64, Standing>, StoreError> {
    let mut servers: Vec<i64> = samples.iter().map(|one| one.server).collect();
    servers.sort_unstable();
    servers.dedup();
    let select = format!(
        "SELECT server, score, last_sample FROM skep_monitor_assignments
         WHERE monitor = $1 AND server {} ORDER BY server{}",
        T::one_of(2),
        T::LOCK
    );
    let found = tx.query(&select, &values![monitor, servers]).await?;
    let standing = |row: &super::tx::Row| {
        let (score, last_sample) = (row.get(1)?, row.get(2)?);
        Ok((row.get(0)?, Standing { score, last_sample, moved: false }))
    };
    found.iter().map(standing).collect()
}

/// What the samples of a server since then come to, for each of its monitors.
pub(super) const SUMMARIES: &str = "
    SELECT a.monitor, count(*), CAST(sum(s.step) AS BIGINT), count(s.rtt_us),
           CAST(coalesce(sum(s.rtt_us), 0) AS BIGINT), max(s.at)
    FROM skep_monitor_assignments a CROSS JOIN skep_monitor_samples s
    WHERE a.server = $1 AND s.server = a.server AND s.monitor = a.monitor AND s.at >= $2
    GROUP BY a.monitor ORDER BY a.monitor";

/// What the samples of a server since then come to, by the numbers of its monitors. Those without
/// samples are left out.
pub async fn summaries(
    db: &Database,
    server: i64,
    since_ms: i64,
) -> Result<Vec<(i64, Summary)>, StoreError> {
    look!(db, tx => all_summaries(tx, server, since_ms))
}

async fn all_summaries<T: Tx>(
    tx: &T,
    server: i64,
    since_ms: i64,
) -> Result<Vec<(i64, Summary)>, StoreError> {
    let found = tx.query(SUMMARIES, &values![server, since_ms]).await?;
    found.iter().map(rows::summary).collect()
}

/// Samples of a server, or of one monitor and a server, before then; newest first.
pub async fn samples(
    db: &Database,
    server: i64,
    monitor: Option<i64>,
    before_ms: i64,
    limit: u32,
) -> Result<Vec<SampleRow>, StoreError> {
    look!(db, tx => newest(tx, server, monitor, before_ms, limit))
}

pub(super) fn samples_sql(of_one: bool) -> String {
    let (condition, order) = match of_one {
        true => ("monitor = $4 AND ", "at DESC"),
        false => ("", "at DESC, monitor DESC"),
    };
    format!(
        "SELECT {} FROM skep_monitor_samples WHERE server = $1 AND {condition}at < $2
         ORDER BY {order} LIMIT $3",
        rows::SAMPLE
    )
}

async fn newest<T: Tx>(
    tx: &T,
    server: i64,
    monitor: Option<i64>,
    before_ms: i64,
    limit: u32,
) -> Result<Vec<SampleRow>, StoreError> {
    let mut values = values![server, before_ms, limit].to_vec();
    values.extend(monitor.map(super::tx::Value::from));
    let found = tx.query(&samples_sql(monitor.is_some()), &values).await?;
    found.iter().map(rows::sample).collect()
}
