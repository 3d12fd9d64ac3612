//! Partitions in several levels: one name, an order of its own for each priority.

use super::rows::{GroupRow, PartitionRow, QueueRow};
use super::work::Work;
use crate::ids::{GroupId, PartitionId};
use crate::record::PRIORITY_MAX;
use std::sync::Arc;

impl QueueRow {
    /// Whether any of its partitions is more than one.
    pub(super) fn has_levels(&self) -> bool {
        self.levels != 0
    }

    /// Notes that there is a partition of this level.
    pub(super) fn add_level(&mut self, level: u8) {
        if level > 0 {
            self.levels |= 1 << level;
        }
    }

    /// The levels that its partitions may have, the highest first.
    pub(super) fn levels_down(&self) -> impl Iterator<Item = u8> + use<> {
        let levels = self.levels;
        let higher = (1..=PRIORITY_MAX).rev().filter(move |level| levels >> level & 1 == 1);
        higher.chain([0])
    }
}

impl Work<'_> {
    /// The partitions of this name, the highest level first.
    pub(super) fn partitions_named(
        &mut self,
        queue: &QueueRow,
        name: &Arc<str>,
    ) -> rusqlite::Result<Vec<(PartitionId, PartitionRow)>> {
        let mut found = Vec::new();
        for level in queue.levels_down() {
            found.extend(self.partition_named(queue.info.id, name, level)?);
        }
        Ok(found)
    }

    /// Of a partition that is to be served: the highest of its levels that has something now,
    /// without those in `except`.
    pub(super) fn highest_ready(
        &mut self,
        queue: &QueueRow,
        served: (PartitionId, PartitionRow),
        (group, row): (GroupId, &GroupRow),
        except: &[PartitionId],
    ) -> rusqlite::Result<(PartitionId, PartitionRow)> {
        for level in queue.levels_down().take_while(|level| *level > served.1.level) {
            let sibling = self.partition_named(queue.info.id, &served.1.name, level)?;
            let Some((id, partition)) = sibling.filter(|(id, _)| !except.contains(id)) else {
                continue;
            };
            let lane = self.lane_or_new(queue, (id, group), &partition, row)?;
            // One that waits for room of its key has the same key: there is room if the other has.
            let waits = lane.blocked_key.is_some();
            if waits || lane.ready_at.is_some_and(|at| at <= self.now) {
                return Ok((id, partition));
            }
        }
        Ok(served)
    }
}
