//! From rows to what they mean.

use super::tx::{Row, damaged};
use crate::model::{
    Account, AssignmentRow, Flags, Monitor, Probe, ReviewTimes, SampleRow, Server, Tally,
};
use skep_policy::Time;
use skep_policy::monitors::{Status, Summary};
use skep_store::StoreError;
use std::collections::BTreeMap;
use std::net::IpAddr;

pub(super) const ACCOUNT: &str =
    "id, number, name, flags, monitors, servers, created_at, updated_at";

pub(super) fn account(row: &Row) -> Result<Account, StoreError> {
    Ok(Account {
        id: row.get(0)?,
        number: row.get(1)?,
        name: row.get(2)?,
        flags: Flags::read_stored(&row.get::<String>(3)?),
        monitors: row.get(4)?,
        servers: row.get(5)?,
        created_at_ms: row.get(6)?,
        updated_at_ms: row.get(7)?,
    })
}

pub(super) const MONITOR: &str =
    "id, number, account, ip, status, labels, key_id, check_index, candidates, testings, actives,
     pauses, created_at, updated_at, seen_at, agent";

pub(super) fn monitor(row: &Row) -> Result<Monitor, StoreError> {
    Ok(Monitor {
        id: row.get(0)?,
        number: row.get(1)?,
        account: row.get(2)?,
        ip: row.word(3)?,
        status: row.word(4)?,
        labels: labels(&row.get::<String>(5)?)?,
        key_id: row.get(6)?,
        index: row.get(7)?,
        counts: tally(row, 8)?,
        created_at_ms: row.get(12)?,
        updated_at_ms: row.get(13)?,
        seen_at_ms: row.get(14)?,
        agent: row.get(15)?,
    })
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, StoreError> {
    serde_json::from_str(text).map_err(|error| damaged(&format!("labels {text:?}: {error}")))
}

/// How many columns [`SERVER`] has.
pub(super) const SERVER_COLUMNS: usize = 20;

pub(super) const SERVER: &str =
    "id, number, account, ip, probe_kind, probe_target, probe_timeout_ms, probe_status, paused,
     check_index, candidates, testings, actives, pauses, reviewed_at, next_review_at, changed_at,
     created_at, updated_at, family";

pub(super) fn server(row: &Row) -> Result<Server, StoreError> {
    let kind: String = row.get(4)?;
    let status: Option<u32> = row.get(7)?;
    Ok(Server {
        id: row.get(0)?,
        number: row.get(1)?,
        account: row.get(2)?,
        ip: row.word(3)?,
        probe: Probe {
            kind: kind.parse().map_err(|()| damaged(&format!("a probe of kind {kind:?}")))?,
            target: row.get(5)?,
            timeout_ms: row.get(6)?,
            expect_status: status.and_then(|status| status.try_into().ok()),
        },
        paused: row.get(8)?,
        index: row.get(9)?,
        counts: tally(row, 10)?,
        review: ReviewTimes {
            last_at_ms: row.get(14)?,
            next_at_ms: row.get(15)?,
            changed_at_ms: row.get(16)?,
        },
        created_at_ms: row.get(17)?,
        updated_at_ms: row.get(18)?,
    })
}

fn tally(row: &Row, from: usize) -> Result<Tally, StoreError> {
    Ok(Tally {
        candidate: row.get(from)?,
        testing: row.get(from + 1)?,
        active: row.get(from + 2)?,
        paused: row.get(from + 3)?,
    })
}

pub(super) const ASSIGNMENT: &str =
    "server, monitor, status, status_since, score, violation, violation_since, pause_reason,
     last_check, challenge, challenge_reviews, last_sample";

/// An assignment whose columns begin at this place.
pub(super) fn assignment(row: &Row, from: usize) -> Result<AssignmentRow, StoreError> {
    let kind = row.maybe_word(from + 5)?;
    let since: Option<i64> = row.get(from + 6)?;
    let incumbent: Option<i64> = row.get(from + 9)?;
    let reviews: Option<u32> = row.get(from + 10)?;
    Ok(AssignmentRow {
        server: row.get(from)?,
        monitor: row.get(from + 1)?,
        status: row.word(from + 2)?,
        status_since_ms: row.get(from + 3)?,
        score: row.get(from + 4)?,
        violation: kind.zip(since),
        pause_reason: row.get(from + 7)?,
        last_check_ms: row.get(from + 8)?,
        challenge: incumbent.zip(reviews),
        last_sample_ms: row.get(from + 11)?,
    })
}

/// Steps are kept in millionths, so that their sum does not depend on their order.
const MILLIONTHS: f64 = 1e6;

pub(super) fn to_millionths(step: f64) -> i64 {
    // Beyond the range it saturates, and what is not a number becomes 0.
    (step * MILLIONTHS).round() as i64
}

pub(super) fn from_millionths(step: i64) -> f64 {
    step as f64 / MILLIONTHS
}

pub(super) const SAMPLE: &str = "server, monitor, at, rtt_us, offset_us, step, error";

pub(super) fn sample(row: &Row) -> Result<SampleRow, StoreError> {
    Ok(SampleRow {
        server: row.get(0)?,
        monitor: row.get(1)?,
        at_ms: row.get(2)?,
        rtt_us: row.get(3)?,
        offset_us: row.get(4)?,
        step: from_millionths(row.get(5)?),
        error: row.get(6)?,
    })
}

/// The monitor's number and what its samples come to.
pub(super) fn summary(row: &Row) -> Result<(i64, Summary), StoreError> {
    let rtt_us: i64 = row.get(4)?;
    let latest: i64 = row.get(5)?;
    let summary = Summary {
        count: row.get(1)?,
        steps: from_millionths(row.get(2)?),
        rtts: row.get(3)?,
        rtt_ms: rtt_us as f64 / 1_000.0,
        latest: Some(Time::from_millis(u64::try_from(latest).unwrap_or(0))),
    };
    Ok((row.get(0)?, summary))
}

/// The column that counts assignments of this status.
pub(super) const fn counter(status: Status) -> &'static str {
    match status {
        Status::Candidate => "candidates",
        Status::Testing => "testings",
        Status::Active => "actives",
        Status::Paused => "pauses",
    }
}

/// Only addresses of one family reach each other.
pub(super) const fn family(ip: IpAddr) -> i64 {
    match ip {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 6,
    }
}
