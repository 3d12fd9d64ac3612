//! What a schedule shall do, as it is sent.

use crate::http::problem::Problem;
use crate::http::routes::queues::read::{Given, given_name, object, wrong};
use serde_json::value::RawValue;
use skep_policy::Time;
use skep_queues::record::PRIORITY_MAX;
use skep_queues::schedule::{
    CatchUp, CronExpression, EVERY_SECONDS_MAX, EveryError, UTC, When, Zone,
};
use skep_queues::store::{DEFAULT_PARTITION, Schedule, ScheduleSpec};
use std::sync::Arc;

/// Bytes of a payload, at most: it is read whenever schedules are.
const PAYLOAD_BYTES_MAX: usize = 256 << 10;

object! {
    /// A schedule as somebody wants it.
    ScheduleBody<'body> {
        name "name": Given<'body>,
        queue "queue": Given<'body>,
        partition "partition": Given<'body>,
        payload "payload": Option<&'body RawValue>,
        priority "priority": Given<'body>,
        cron "cron": Given<'body>,
        every "every": Given<'body>,
        timezone "timezone": Given<'body>,
        catch_up "catchUp": Given<'body>,
        paused "paused": Given<'body>,
        version "version": Given<'body>,
    }
}

/// A schedule as somebody wants it.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is read")]
pub struct ScheduleRequest {
    /// At most 255 bytes.
    name: String,
    /// Where it pushes; made if it is not there.
    queue: String,
    /// `Default` if left out.
    partition: Option<String>,
    /// Any JSON, 256 KiB at most; null if left out.
    payload: Option<serde_json::Value>,
    /// 0 to 9; 0 if left out.
    priority: Option<u8>,
    /// Minute, hour, day of the month, month, day of the week; six fields begin with the second.
    /// Or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
    #[schema(example = "0 9 * * mon-fri")]
    cron: Option<String>,
    /// Every so many seconds, instead of `cron`.
    every: Option<u32>,
    /// By the clock of which zone `cron` is meant; `UTC` if left out.
    #[schema(example = "Europe/Berlin")]
    timezone: Option<String>,
    /// What becomes of times that nobody was there for: `latest` fires the last of them, `skip`
    /// none, `all` up to a thousand. `latest` if left out.
    catch_up: Option<String>,
    /// Whether it does nothing for now.
    paused: Option<bool>,
    /// Of a change: only if it has this version.
    version: Option<u64>,
}

impl ScheduleBody<'_> {
    /// The version that is to be changed, if it is said.
    pub fn version(&self) -> Result<Option<u64>, Problem> {
        match self.version {
            Given::Nothing => Ok(None),
            Given::Number(version) if version >= 1 => Ok(Some(version)),
            _ => Err(wrong("version", "version must be a whole number from 1 on")),
        }
    }

    /// What it does. One that is every so many seconds keeps its rhythm if it had it before.
    pub fn spec(&self, now: Time, before: Option<&Schedule>) -> Result<ScheduleSpec, Problem> {
        let queue = given_name("queue", &self.queue)?;
        let queue = queue.ok_or_else(|| wrong("queue", "queue is required"))?;
        let partition = given_name("partition", &self.partition)?;
        let payload = self.payload.map_or("null", RawValue::get);
        if payload.len() > PAYLOAD_BYTES_MAX {
            let length = payload.len();
            let words = format!("payload has {length} bytes, at most {PAYLOAD_BYTES_MAX} may be");
            return Err(wrong("payload", words));
        }
        let priority = match self.priority {
            Given::Nothing => 0,
            Given::Number(number) => u8::try_from(number).unwrap_or(u8::MAX),
            _ => u8::MAX,
        };
        if priority > PRIORITY_MAX {
            let words = format!("priority must be a whole number from 0 to {PRIORITY_MAX}");
            return Err(wrong("priority", words));
        }
        let paused = match self.paused {
            Given::Nothing => false,
            Given::Truth(paused) => paused,
            _ => return Err(wrong("paused", "paused must be true or false")),
        };
        Ok(ScheduleSpec {
            queue,
            partition: partition.unwrap_or_else(|| Arc::from(DEFAULT_PARTITION)),
            priority,
            payload: Arc::from(payload),
            when: self.when(now, before)?,
            zone: self.zone()?,
            catch_up: self.catch_up()?,
            paused,
        })
    }

    fn when(&self, now: Time, before: Option<&Schedule>) -> Result<When, Problem> {
        match (&self.cron, &self.every) {
            (Given::Text(text), Given::Nothing) => {
                let cron: Result<CronExpression, _> = text.parse();
                cron.map(When::Cron).map_err(|error| wrong("cron", error.to_string()))
            }
            (Given::Nothing, Given::Number(seconds)) => {
                let seconds = u32::try_from(*seconds).unwrap_or(u32::MAX);
                let anchor = match before.map(|before| &before.spec.when) {
                    Some(When::Every { seconds: was, anchor }) if *was == seconds => *anchor,
                    _ => now,
                };
                When::every(seconds, anchor).map_err(|EveryError { seconds }| {
                    let right = format!("a whole number of seconds from 1 to {EVERY_SECONDS_MAX}");
                    wrong("every", format!("every cannot be {seconds}, it must be {right}"))
                })
            }
            (Given::Nothing, Given::Nothing) => {
                Err(wrong("cron", "cron or every is required: when shall it push?"))
            }
            (Given::Text(_), _) => {
                Err(wrong("every", "cron and every cannot both be given; give one of them"))
            }
            (Given::Nothing, _) => {
                let right = format!("a whole number of seconds from 1 to {EVERY_SECONDS_MAX}");
                Err(wrong("every", format!("every must be {right}")))
            }
            _ => Err(wrong("cron", "cron must be a string such as \"0 9 * * mon-fri\"")),
        }
    }

    fn zone(&self) -> Result<Arc<str>, Problem> {
        match &self.timezone {
            Given::Nothing => Ok(Arc::from(UTC)),
            Given::Text(text) => match Zone::named(text) {
                Ok(zone) => Ok(Arc::from(zone.name())),
                Err(error) => Err(bad_zone(&error.name)),
            },
            _ => Err(wrong("timezone", "timezone must be a string such as \"Europe/Berlin\"")),
        }
    }

    fn catch_up(&self) -> Result<CatchUp, Problem> {
        match &self.catch_up {
            Given::Nothing => Ok(CatchUp::default()),
            Given::Text(text) if text == "latest" => Ok(CatchUp::Latest),
            Given::Text(text) if text == "skip" => Ok(CatchUp::Skip),
            Given::Text(text) if text == "all" => Ok(CatchUp::All),
            _ => Err(wrong("catchUp", "catchUp must be \"latest\", \"skip\" or \"all\"")),
        }
    }
}

/// A zone that this system does not know.
pub fn bad_zone(name: &str) -> Problem {
    let shown: String = name.chars().take(60).collect();
    let right = "UTC, or a name like Europe/Berlin that this system's time zone database has";
    wrong("timezone", format!("timezone cannot be {shown:?}, it must be {right}"))
}
