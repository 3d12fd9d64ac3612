//! Partitions of several levels: each level is a lane of its own, and of those that are ready the
//! highest goes first.

use super::link::{Call, Fail, Link};
use super::names::{self, Names};
use super::pick::{Crowd, Locked, Open};
use super::rows::{LANE_COLUMNS, level};
use super::take::Want;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub(super) const FIND: &str = "
    SELECT w.n, p.level, p.id
    FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS w (queue, name, n)
    JOIN skep_queue_partitions p ON p.queue = w.queue AND p.name = w.name";
/// Higher levels for which a group has no lane yet.
pub(super) const MISSING: &str = "
    SELECT w.grp, p.id
    FROM unnest($1::bigint[], $2::text[], $3::smallint[], $4::bigint[])
        AS w (queue, name, level, grp)
    JOIN skep_queue_partitions p
        ON p.queue = w.queue AND p.name = w.name AND p.level > w.level AND p.tail > 0
    LEFT JOIN skep_queue_lanes l ON l.partition = p.id AND l.grp = w.grp
    WHERE l.partition IS NULL";

/// Names of a queue and a partition.
pub(super) type Named = (Arc<str>, Arc<str>);

/// What claims by the names of partitions are about.
#[derive(Default)]
pub(super) struct Found {
    /// The levels of a partition, the highest first.
    pub levels: HashMap<Named, Vec<i64>>,
    /// Queues that have no levels, as this node remembers it.
    pub flat: BTreeSet<Arc<str>>,
}

/// Finds the levels of the partitions that claims name.
pub(super) async fn find(
    names: &Names,
    link: &mut Link,
    wants: &[Want<'_>],
    missing: &BTreeSet<Arc<str>>,
) -> Result<Found, Fail> {
    let named = |want: &Want<'_>| Some((want.queue.clone(), want.partition.clone()?));
    let places = wants.iter().filter_map(named).filter(|place| !missing.contains(&place.0));
    let places: BTreeSet<Named> = places.collect();
    let mut found = Found::default();
    let mut deep: Vec<(i64, &Named)> = Vec::new();
    for place in &places {
        match names.seen_as(&place.0) {
            Some(queue) if queue.levels != 0 => deep.push((queue.id, place)),
            _ => drop(found.flat.insert(place.0.clone())),
        }
    }
    let flat = places.iter().filter(|place| found.flat.contains(&place.0));
    let flat = flat.map(|place| (place.0.clone(), place.1.clone(), 0)).collect();
    for (place, (_, id)) in names::find(names, link, &flat).await? {
        found.levels.insert((place.0, place.1), vec![id]);
    }
    if deep.is_empty() {
        return Ok(found);
    }
    let queues: Vec<i64> = deep.iter().map(|one| one.0).collect();
    let partitions: Vec<&str> = deep.iter().map(|one| &*one.1.1).collect();
    let mut levels: BTreeMap<usize, Vec<(u8, i64)>> = BTreeMap::new();
    for row in link.ask(FIND, vec![&queues, &partitions]).await? {
        let place = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
        levels.entry(place).or_default().push((level(row.get(1)), row.get(2)));
    }
    for (place, mut levels) in levels {
        levels.sort_unstable_by(|one, other| other.cmp(one));
        if let Some((_, named)) = deep.get(place) {
            let ids = levels.into_iter().map(|one| one.1).collect();
            found.levels.insert((*named).clone(), ids);
        }
    }
    Ok(found)
}

/// Locks higher levels of what was locked, where they are ready. Tells for which there is no lane
/// yet, by group.
pub(super) async fn lock_higher(
    link: &mut Link,
    crowds: &HashMap<i64, Crowd>,
    asked: &BTreeMap<i64, (i64, i64)>,
    locked: &mut Locked,
) -> Result<BTreeMap<i64, Vec<i64>>, Fail> {
    let (mut queues, mut of_groups) = (Vec::new(), Vec::new());
    let (mut of_names, mut of_levels, mut most) = (Vec::new(), Vec::new(), Vec::new());
    let lines = locked.lines.iter().filter_map(|(group, line)| Some((crowds.get(group)?, line)));
    for (crowd, line) in lines.filter(|(crowd, _)| crowd.queue.levels != 0) {
        for open in line.iter().filter_map(|key| locked.opens.get(key)) {
            if crowd.queue.levels >> (open.level + 1) != 0 {
                queues.push(crowd.queue.id);
                of_names.push(open.name.to_string());
                of_levels.push(i16::from(open.level));
                of_groups.push(crowd.group);
                most.push(asked.get(&crowd.group).map_or(1, |asked| asked.1));
            }
        }
    }
    let mut missing: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    if queues.is_empty() {
        return Ok(missing);
    }
    let higher = vec![
        Call::Query(MISSING, vec![&queues, &of_names, &of_levels, &of_groups]),
        Call::Query(
            super::take::TAKE_HIGHER,
            vec![&queues, &of_names, &of_levels, &of_groups, &most],
        ),
    ];
    let answers = link.send(higher).await?;
    for row in answers.first().into_iter().flatten() {
        missing.entry(row.get(0)).or_default().push(row.get(1));
    }
    for row in answers.last().into_iter().flatten() {
        let open = Open::read(row, row.get(LANE_COLUMNS + super::take::OF_LANE));
        locked.opens.entry(open.held.key()).or_insert(open);
    }
    for (key, open) in &locked.opens {
        if crowds.get(&key.1).is_some_and(|crowd| crowd.queue.levels != 0) {
            let siblings = locked.siblings.entry((key.1, open.name.clone())).or_default();
            siblings.push((open.level, *key));
        }
    }
    for siblings in locked.siblings.values_mut() {
        siblings.sort_unstable_by(|one, other| other.cmp(one));
    }
    Ok(missing)
}
