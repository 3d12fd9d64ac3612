//! What people should know of a supervisor.

use super::{Load, Outcome, StartId};
use crate::wire::{Due, Order};
use std::fmt;
use std::time::Duration;

/// Something to know.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the sentences below say what each is")]
pub enum News {
    Starting { start: StartId, recycled: bool },
    Ready { start: StartId, url: String },
    StartFailed { start: StartId, how: String, wait: Duration, failures: u32 },
    Crashed { start: StartId, how: String, wait: Option<Duration> },
    Gone { start: StartId, how: String },
    Registered { worker: String, incarnation: u64, lifetime_max: Option<u64>, slots: u32 },
    Ordered(Order),
    Due { why: Due, load: Load },
    Forgotten,
    LinkLost(String),
    LinkBack,
    Denied(String),
    Draining { limit: Duration },
    Ending(Outcome),
}

/// How much somebody should care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It goes as it should.
    Info,
    /// It does not, and will be seen to.
    Warn,
    /// Somebody has to do something.
    Error,
}

impl News {
    /// How much somebody should care.
    pub fn level(&self) -> Level {
        match self {
            News::StartFailed { .. } | News::Crashed { .. } => Level::Warn,
            News::Forgotten | News::LinkLost(_) => Level::Warn,
            News::Denied(_) | News::Ending(Outcome::Replaced(_) | Outcome::Refused(_)) => {
                Level::Error
            }
            _ => Level::Info,
        }
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Starting { start, recycled: true } => {
                write!(f, "starting the program anew, as ordered ({start})")
            }
            News::Starting { start, recycled: false } => {
                write!(f, "starting the program ({start})")
            }
            News::Ready { start, url } => {
                write!(f, "the program is ready at {} ({start})", without_path(url))
            }
            News::StartFailed { start, how, wait, failures } => {
                write!(f, "the program did not start: {how} ({start}, {failures} in a row); ")?;
                write!(f, "trying again in {wait:.1?}")
            }
            News::Crashed { start, how, wait: Some(wait) } => {
                write!(f, "the program ended by itself: {how} ({start}); ")?;
                write!(f, "starting it again in {wait:.1?}")
            }
            News::Crashed { start, how, wait: None } => {
                write!(f, "the program ended by itself: {how} ({start}); ")?;
                f.write_str("its successor is on its way")
            }
            News::Gone { start, how } => write!(f, "the program is gone: {how} ({start})"),
            News::Registered { worker, incarnation, lifetime_max, slots } => {
                write!(f, "registered as {worker}, incarnation {incarnation}, for {slots} ")?;
                f.write_str("sessions at a time")?;
                match lifetime_max {
                    Some(max) => write!(f, " and {max} in all"),
                    None => Ok(()),
                }
            }
            News::Ordered(order) => write!(f, "the node's order is {order}"),
            News::Due { why, load } => {
                write!(f, "the program should be started anew because of its {why} ")?;
                write!(f, "({} MiB now)", load.rss_bytes >> 20)
            }
            News::Forgotten => f.write_str("the node does not know this worker; registering again"),
            News::LinkLost(why) => {
                write!(f, "{why}; the program keeps running, and the next node is tried")
            }
            News::LinkBack => f.write_str("a node answers again"),
            News::Denied(why) => {
                write!(f, "{why}; give a key with the scope `worker`")
            }
            News::Draining { limit } => {
                write!(f, "stopping after the last session, at the latest in {limit:.0?}; ")?;
                f.write_str("a second signal stops at once")
            }
            News::Ending(Outcome::Stopped) => f.write_str("stopping the program for good"),
            News::Ending(Outcome::Left) => {
                f.write_str("the worker was removed; stopping the program for good")
            }
            News::Ending(Outcome::Replaced(who)) => {
                write!(f, "another has this worker's name, stopping the program: {who}")
            }
            News::Ending(Outcome::Refused(why)) => {
                write!(f, "no node will have this worker, stopping the program: {why}")
            }
        }
    }
}

/// An address as people may see it: whoever knows the path can use the program.
fn without_path(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?']).map_or(url.len(), |at| host + at);
    &url[..end]
}
