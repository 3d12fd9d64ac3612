//! What the table keeps.

use super::line::Line;
use crate::sessions::{
    DueBy, Ending, GatewayId, Order, Refusal, Rules, Shape, Standing, Standings, Ticket, Want,
    WorkerNumber,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A worker.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub number: WorkerNumber,
    pub name: Arc<str>,
    pub kind: usize,
    pub shape: usize,
    pub url: Arc<str>,
    pub start: Arc<str>,
    pub incarnation: u64,
    pub slots: u32,
    /// Sessions in this life.
    pub lifetime: u32,
    /// Sessions now, on this incarnation.
    pub active: u32,
    /// Sessions now, on incarnations before.
    pub leaving: u32,
    /// This life did not begin with a restart that was ordered.
    pub fresh: bool,
    pub successor: bool,
    pub permit: Option<Permit>,
    pub down: bool,
    pub drained: bool,
    pub removed: bool,
    /// It said it goes; it is forgotten with its last session.
    pub parting: bool,
    pub lost: bool,
    /// Its patience ended: it takes nothing although its sessions would allow it.
    pub hold: bool,
    pub due_by: Option<DueBy>,
    pub suspect: Option<Suspect>,
    /// Since when it waits to become idle, because it is held or asked to be recycled.
    pub waiting_since: Option<u64>,
    pub since: u64,
    pub heard: u64,
    /// Where it is in the kind's sets; none before it is settled for the first time.
    pub placed: Option<Placed>,
    pub order: Order,
}

impl Worker {
    /// It came from a table that forgot it, and gateways have yet to say what they carry on it.
    /// One that does not answer is no such case, and may well be restarted.
    pub fn is_settling(&self) -> bool {
        self.suspect.is_some_and(|suspect| suspect.failures == 0)
    }
}

/// A worker may restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permit {
    pub since: u64,
    pub step: Step,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It carries sessions until they end, or until this time.
    Draining { until: Option<u64> },
    /// It is away, since then.
    Restarting { since: u64 },
    /// It starts its successor, since then.
    Succeeding { since: u64 },
    /// The successor serves; the predecessor carries sessions until they end, or until this time.
    Succeeded { until: Option<u64> },
}

/// A worker that did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub failures: u32,
    pub probe_at: u64,
}

/// What follows from a worker's state, as it was last settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub standing: Standing,
    pub due: bool,
    pub rank: u64,
    /// Slots a session could have.
    pub free: u32,
    /// Active sessions and slots, as they count for its kind.
    pub active: u32,
    pub slots: u32,
    /// It may have a permit; the first has the most sessions behind it.
    pub ripe: bool,
    pub lifetime: u32,
    pub shape: usize,
    pub permit: bool,
    pub held_idle: bool,
    pub timer: Option<u64>,
}

/// A session, from the moment it is asked for.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub kind: usize,
    pub key: Arc<str>,
    pub state: State,
    pub since: u64,
    pub ending: Option<Ending>,
}

/// Whether it has its worker.
#[derive(Clone, Debug)]
pub(super) enum State {
    Waiting { want: Want, rank: u64, arrival: u64 },
    Seated { worker: WorkerNumber, incarnation: u64, due: bool },
}

/// Workers of one shape that can take a session, best first, as rank and number.
#[derive(Clone, Debug, Default)]
pub(super) struct ShapeRow {
    pub shape: Shape,
    /// Workers of this shape that belong to the fleet.
    pub live: u32,
    pub ready: BTreeSet<(u64, WorkerNumber)>,
    pub due: BTreeSet<(u64, WorkerNumber)>,
}

/// A kind of worker.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub name: String,
    pub rules: Rules,
    pub shapes: Vec<ShapeRow>,
    pub members: BTreeSet<WorkerNumber>,
    pub standings: Standings,
    pub slots: u64,
    pub active: u64,
    pub free: u64,
    pub held_idle: u32,
    /// Who may have a permit: the most sessions first, then the lower number.
    pub ripe: BTreeSet<(u32, WorkerNumber)>,
    pub out: u32,
    /// The number of workers for which the due points were computed.
    pub counted: u32,
    pub line: Line,
    pub started: u64,
    pub recycled: u64,
    pub out_ms: u64,
}

impl Kind {
    pub fn new(name: &str, rules: &Rules) -> Self {
        Kind {
            name: name.to_owned(),
            rules: rules.clone(),
            shapes: Vec::new(),
            members: BTreeSet::new(),
            standings: Standings::default(),
            slots: 0,
            active: 0,
            free: 0,
            held_idle: 0,
            ripe: BTreeSet::new(),
            out: 0,
            counted: 0,
            line: Line::default(),
            started: 0,
            recycled: 0,
            out_ms: 0,
        }
    }

    /// The row of this shape, made if there is none.
    pub fn shape(&mut self, shape: &Shape) -> usize {
        let found = self.shapes.iter().position(|row| row.shape == *shape);
        found.unwrap_or_else(|| {
            self.shapes.push(ShapeRow { shape: shape.clone(), ..ShapeRow::default() });
            self.shapes.len() - 1
        })
    }

    /// What there is instead of what was wanted.
    pub fn no_match(&self) -> Refusal {
        let live = || self.shapes.iter().filter(|row| row.live > 0).map(|row| &row.shape);
        Refusal::NoMatch {
            labels: live().flat_map(|shape| shape.labels.iter().cloned()).collect(),
            versions: live().filter_map(|shape| shape.version).collect(),
        }
    }
}

/// A session's id.
pub(super) type Id = (GatewayId, Ticket);
