//! What a monitor's agent has to do.

use crate::handle::Monitors;
use crate::model::{Monitor, Server};
use crate::store;
use skep_policy::monitors::{GlobalStatus, Status};
use skep_store::StoreError;
use std::time::Duration;

/// Assignments that are read at once.
const PAGE: u32 = 1_000;

/// Agents ask again after this time at most, and at least.
const REFRESH_MAX: Duration = Duration::from_secs(60);
const REFRESH_MIN: Duration = Duration::from_millis(200);

/// A server to measure.
#[derive(Clone, Debug)]
pub struct Work {
    /// Which.
    pub server: Server,
    /// What the monitor is to it.
    pub status: Status,
    /// How often.
    pub every: Duration,
}

impl Monitors {
    /// What a monitor has to measure: nothing while it is paused, and only where it is in service
    /// while it is not approved.
    pub async fn work_of(
        &self,
        monitor: &Monitor,
        counts_as: GlobalStatus,
    ) -> Result<Vec<Work>, StoreError> {
        let wanted = |status: Status| match counts_as {
            GlobalStatus::Testing | GlobalStatus::Active => true,
            GlobalStatus::Pending => status.in_service(),
            GlobalStatus::Paused | GlobalStatus::Deleted => false,
        };
        let mut work = Vec::new();
        let mut after = None;
        loop {
            let (db, number) = (&self.inner.db, monitor.number);
            let page = store::assignments_of_monitor(db, number, after, PAGE).await?;
            after = page.last().map(|(server, _)| server.id.clone());
            let full = page.len() == PAGE as usize;
            for (server, row) in page {
                if let Some(every) = self.settings().measure_every(row.status)
                    && !server.paused
                    && wanted(row.status)
                {
                    work.push(Work { server, status: row.status, every });
                }
            }
            if !full {
                return Ok(work);
            }
        }
    }

    /// Changes whenever what a monitor has to do does.
    pub fn work_version(&self, monitor: &Monitor, counts_as: GlobalStatus) -> String {
        let settings = self.settings();
        let spans = [settings.measure_active, settings.measure_testing, settings.measure_candidate];
        let spans = spans.map(|span| span.as_millis().to_string()).join(".");
        format!("{}.{}.{counts_as}.{spans}", monitor.number, monitor.index)
    }

    /// When an agent asks again.
    pub fn work_refresh(&self) -> Duration {
        let settings = self.settings();
        let spans = [settings.measure_active, settings.measure_testing, settings.measure_candidate];
        let shortest = spans.into_iter().min().unwrap_or(REFRESH_MAX);
        (shortest / 2).clamp(REFRESH_MIN, REFRESH_MAX)
    }
}
