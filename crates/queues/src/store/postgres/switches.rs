//! What operators switch off for maintenance.

use super::PostgresQueues;
use super::rows::time;
use crate::store::switches::{Switch, Switches};
use skep_store::StoreError;

pub(super) const ALL: &str = "SELECT name, is_on, since, set_by FROM skep_queue_switches";
pub(super) const SET: &str = "
    INSERT INTO skep_queue_switches AS s (name, is_on, since, set_by)
    VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $3)
    ON CONFLICT (name) DO UPDATE SET
        is_on = excluded.is_on, since = excluded.since, set_by = excluded.set_by
    WHERE s.is_on <> excluded.is_on";

impl PostgresQueues {
    /// All switches.
    pub async fn switches(&self) -> Result<Switches, StoreError> {
        let mut switches = Switches::default();
        for row in self.shared.ask(ALL, &[]).await? {
            switches.note(row.get(0), row.get(1), time(row.get(2)), row.get(3));
        }
        Ok(switches)
    }

    /// Sets one.
    pub async fn set_switch(
        &self,
        switch: Switch,
        on: bool,
        by: &str,
    ) -> Result<Switches, StoreError> {
        self.shared.ask(SET, &[&switch.name(), &on, &by]).await?;
        self.switches().await
    }
}
