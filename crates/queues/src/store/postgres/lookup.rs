//! Which messages transaction ids stand for.

use super::Shared;
use super::dedup::Search;
use super::desk::{Desk, LaneKey};
use super::jobs::{items, messages, place_of};
use super::link::{Fail, Link};
use crate::ids::PartitionId;
use crate::record::{Records, print_of};
use crate::store::Job;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

impl Shared {
    /// Finds what transaction ids stand for.
    pub(super) async fn look_up(
        &self,
        link: &mut Link,
        desk: &mut Desk,
        jobs: &[&Job],
    ) -> Result<(), Fail> {
        let mut prints: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        for message in jobs.iter().copied().flat_map(messages) {
            if let Some((_, id)) = desk.places.get(&place_of(message)) {
                prints.entry(*id).or_default().push(message.print);
            }
        }
        let searches = searches(desk, prints);
        desk.originals = self.originals(link, desk.now, &searches).await?;
        let mut wanted: HashMap<LaneKey, HashSet<Arc<str>>> = HashMap::new();
        for (group, item) in jobs.iter().copied().flat_map(items) {
            let Some(id) = item.partition else { continue };
            if let Some(key) = desk.by_group.get(&(id.0, group.clone())) {
                wanted.entry(*key).or_default().insert(item.transaction.clone());
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        self.number_leased(link, desk, &mut wanted).await?;
        self.number_loose(link, desk, wanted).await
    }

    /// Numbers of messages in leased ranges; takes them out of `wanted`.
    async fn number_leased(
        &self,
        link: &mut Link,
        desk: &mut Desk,
        wanted: &mut HashMap<LaneKey, HashSet<Arc<str>>>,
    ) -> Result<(), Fail> {
        let mut keys = HashSet::new();
        for key in wanted.keys() {
            let through = through(desk, key);
            let leased = desk.runs.get(key).into_iter().flatten();
            keys.extend(leased.filter(|run| run.first <= through).map(|run| (key.0, run.first)));
        }
        keys.retain(|(partition, first)| {
            !desk.bodies.contains_key(&(PartitionId(*partition), *first))
        });
        desk.bodies.extend(self.bodies_of(link, keys).await?);
        for (key, wanted) in wanted {
            let (Some(held), Some(runs)) = (desk.lanes.get(key), desk.runs.get(key)) else {
                continue;
            };
            let (cursor, through) = (held.lane.cursor, through(desk, key));
            let numbers: &mut HashMap<Arc<str>, Vec<u64>> = desk.numbers.entry(*key).or_default();
            for run in runs.iter().filter(|run| run.first <= through) {
                let Some(body) = desk.bodies.get(&(PartitionId(key.0), run.first)) else {
                    continue;
                };
                for (number, record) in (run.first..).zip(Records::of(body)) {
                    // The bytes may have more than the segment: what was taken out since.
                    if number <= cursor || number > through.min(run.last()) {
                        continue;
                    }
                    let Ok(record) = record else { break };
                    if let Some(transaction) = wanted.get(&*record.transaction) {
                        numbers.entry(transaction.clone()).or_default().push(number);
                    }
                }
            }
            wanted.retain(|transaction| !numbers.contains_key(transaction));
        }
        Ok(())
    }

    /// Numbers of messages that are not leased: settled already, and somebody says it again, or
    /// still to come.
    async fn number_loose(
        &self,
        link: &mut Link,
        desk: &mut Desk,
        wanted: HashMap<LaneKey, HashSet<Arc<str>>>,
    ) -> Result<(), Fail> {
        let mut prints: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        for (key, transactions) in &wanted {
            let of_it = transactions.iter().map(|transaction| print_of(transaction));
            prints.entry(key.0).or_default().extend(of_it);
        }
        prints.retain(|_, prints| !prints.is_empty());
        let searches = searches(desk, prints);
        let found = self.originals(link, desk.now, &searches).await?;
        for (key, transactions) in wanted {
            for transaction in transactions {
                let original = found.get(&(key.0, print_of(&transaction)));
                if let Some(original) = original.filter(|one| !one.deleted && one.is(&transaction))
                {
                    if let Some(record) = &original.record {
                        let loose = (record.clone(), original.at);
                        desk.loose.insert((key.0, original.number), loose);
                    }
                    let numbers = desk.numbers.entry(key).or_default();
                    numbers.insert(transaction, vec![original.number]);
                }
            }
        }
        Ok(())
    }
}

/// The last number of a lane's lease, also of one that has run out.
fn through(desk: &Desk, key: &LaneKey) -> u64 {
    desk.lanes.get(key).and_then(|held| held.lane.lease).map_or(0, |lease| lease.through)
}

fn searches(desk: &Desk, prints: BTreeMap<i64, Vec<u64>>) -> Vec<Search> {
    let search = |(partition, mut prints): (i64, Vec<u64>)| {
        let shelf = desk.shelves.get(&partition)?;
        prints.sort_unstable();
        prints.dedup();
        let window = shelf.queue.info.options.dedup_window();
        Some(Search { partition, tail: shelf.tail, window, prints })
    };
    prints.into_iter().filter_map(search).collect()
}
