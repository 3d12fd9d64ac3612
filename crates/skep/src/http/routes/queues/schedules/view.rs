//! A schedule as the API shows it.

use crate::http::routes::queues::write::timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use skep_policy::Time;
use skep_queues::schedule::{CatchUp, When};
use skep_queues::store::Schedule;

/// Times to come that are shown.
const NEXT: usize = 5;

/// Messages that are pushed at certain times.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleView {
    name: String,
    queue: String,
    partition: String,
    #[schema(value_type = serde_json::Value)]
    payload: Box<RawValue>,
    priority: u8,
    cron: Option<String>,
    /// Seconds.
    every: Option<u32>,
    timezone: String,
    /// `latest`, `skip` or `all`.
    #[schema(value_type = String)]
    catch_up: CatchUp,
    paused: bool,
    /// When it pushes next; nothing while it is paused.
    #[schema(example = "2026-01-31T12:00:00.000000Z")]
    next_at: Option<String>,
    /// For which time it pushed last.
    last_at: Option<String>,
    last_message_id: Option<String>,
    /// How often it pushed.
    fired: u64,
    /// The next five times; none while it is paused.
    next: Vec<String>,
    created_at: String,
    updated_at: String,
    version: u64,
}

impl ScheduleView {
    pub fn of(schedule: &Schedule) -> Self {
        let spec = &schedule.spec;
        let (cron, every) = match &spec.when {
            When::Cron(cron) => (Some(cron.to_string()), None),
            When::Every { seconds, .. } => (None, Some(*seconds)),
        };
        // Only what is JSON was ever taken.
        let payload = RawValue::from_string(spec.payload.to_string());
        ScheduleView {
            name: schedule.name.to_string(),
            queue: spec.queue.to_string(),
            partition: spec.partition.to_string(),
            payload: payload.unwrap_or_else(|_| RawValue::NULL.to_owned()),
            priority: spec.priority,
            cron,
            every,
            timezone: spec.zone.to_string(),
            catch_up: spec.catch_up,
            paused: spec.paused,
            next_at: schedule.next_at.map(timestamp),
            last_at: schedule.last_at.map(timestamp),
            last_message_id: schedule.last_message.map(|id| id.to_string()),
            fired: schedule.fired,
            next: next_times(schedule).into_iter().map(timestamp).collect(),
            created_at: timestamp(schedule.created_at),
            updated_at: timestamp(schedule.updated_at),
            version: schedule.version,
        }
    }
}

/// The times to come. Where the zone is not known, only the one that was reckoned elsewhere.
fn next_times(schedule: &Schedule) -> Vec<Time> {
    let following = |time: &Time| schedule.spec.next_after(*time).ok().flatten();
    std::iter::successors(schedule.next_at, following).take(NEXT).collect()
}
