//! What must hold between any two steps, checked from the records alone.

use super::Fleet;
use super::records::State;
use crate::sessions::{Policy, Standing, Standings};
use std::collections::BTreeMap;

impl Fleet {
    /// Whether everything that is counted or derived agrees with the records. For tests and
    /// simulators; it looks at everything.
    pub fn check(&self) -> Result<(), String> {
        let mut seated: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
        let mut keys: BTreeMap<&str, u32> = BTreeMap::new();
        let mut waiting = vec![0_u32; self.kinds.len()];
        for (id, session) in &self.sessions {
            *keys.entry(&session.key).or_default() += 1;
            if !self.gateways.contains_key(&id.0) {
                return Err(format!("session {id:?} has no gateway"));
            }
            match session.state {
                State::Waiting { .. } => waiting[session.kind] += 1,
                State::Seated { worker, incarnation, .. } => {
                    let Some(found) = self.worker(worker) else {
                        return Err(format!("session {id:?} sits on worker {worker}, unknown"));
                    };
                    let (active, leaving) = seated.entry(worker).or_default();
                    if incarnation == found.incarnation { *active += 1 } else { *leaving += 1 }
                }
            }
        }
        let counted: BTreeMap<&str, u32> =
            self.keys.iter().map(|(key, &count)| (&**key, count)).collect();
        if counted != keys {
            return Err(format!("keys counted {counted:?}, on record {keys:?}"));
        }
        for worker in self.workers.iter().flatten() {
            let (active, leaving) = seated.get(&worker.number).copied().unwrap_or_default();
            if (worker.active, worker.leaving) != (active, leaving) {
                let counts = (worker.active, worker.leaving);
                return Err(format!("{}: {counts:?} not {active}, {leaving}", worker.name));
            }
        }
        self.check_kinds(&waiting)
    }

    fn check_kinds(&self, waiting: &[u32]) -> Result<(), String> {
        for (index, kind) in self.kinds.iter().enumerate() {
            let members = || self.workers.iter().flatten().filter(|worker| worker.kind == index);
            let mut standings = Standings::default();
            let (mut out, mut free, mut open) = (0, 0, 0_usize);
            for worker in members() {
                let placed = worker.placed.ok_or_else(|| format!("{} unsettled", worker.name))?;
                standings.add(placed.standing);
                out += u32::from(worker.permit.is_some());
                free += u64::from(placed.free);
                open += usize::from(placed.standing.is_open());
                let over = kind.rules.lifetime_max != 0
                    && worker.lifetime > kind.rules.lifetime_max
                    && worker.fresh;
                if over && placed.standing.is_open() {
                    return Err(format!("{} lives past its limit", worker.name));
                }
                let told = matches!(placed.standing, Standing::Restarting) && worker.active > 0;
                if told {
                    return Err(format!("{} restarts with sessions on it", worker.name));
                }
            }
            let sets: usize = kind.shapes.iter().map(|row| row.ready.len() + row.due.len()).sum();
            if standings != kind.standings || out != kind.out || free != kind.free || open != sets {
                return Err(format!("{}: {standings:?}, {out} out, {free} free", kind.name));
            }
            if waiting[index] != kind.line.len() {
                return Err(format!(
                    "{}: {} wait, not {}",
                    kind.name,
                    waiting[index],
                    kind.line.len()
                ));
            }
            let budgeted = kind.rules.policy == Policy::Budgeted;
            if budgeted && !kind.ripe.is_empty() && self.budget_allows(index) {
                return Err(format!("{}: somebody could restart and may not", kind.name));
            }
        }
        Ok(())
    }
}
