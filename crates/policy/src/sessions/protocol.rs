//! What gateways, workers and operators say to the table of sessions, and what it answers.
//!
//! Numbers that the table is given or gives stay below 10^14, so that stores which write numbers
//! as floating point keep them.

use super::{Rules, Shape, Standing, Standings, Version, Want};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One start of a gateway, chosen at random by it.
pub type GatewayId = u64;
/// A session, as its gateway counts them. It is the session's own from the moment it is asked for.
pub type Ticket = u64;
/// A worker, as the table counts them. Numbers of forgotten workers are given again.
pub type WorkerNumber = u64;

/// The largest id of a gateway.
pub const GATEWAY_ID_MAX: u64 = (1 << 46) - 1;
/// How long a worker that came back from a table that forgot it is left alone, so that gateways
/// can say first what they carry on it.
pub const SETTLE_MS: u64 = 2_500;
/// How long a worker that is gone can still be seen.
pub const FORGET_MS: u64 = 600_000;
/// The first wait before a worker that did not answer is asked again, and the longest.
pub const PROBE_FIRST_MS: u64 = 500;
/// The longest wait before a worker that did not answer is asked again.
pub const PROBE_MAX_MS: u64 = 30_000;
/// Workers looked after in one beat at most; the others have their turn in the next.
pub const TIMERS_PER_BEAT: usize = 256;
/// Sessions of a gateway that is gone, closed in one step; the others follow in later ones.
pub const CLOSINGS_PER_STEP: usize = 500;
/// Rows in one page of what can be looked at.
pub const PAGE_ROWS: usize = 1_000;

/// A question to the table. Each is one atomic step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// The rules of a kind, which must be known before anything else about it.
    Configure { kind: String, rules: Rules },
    /// A gateway comes, or comes back after it could not know what became of a question. It says
    /// everything it carries; what the table has beyond that is void. `link` grows each time.
    Join {
        gateway: GatewayId,
        link: u64,
        node: String,
        ttl_ms: u64,
        carried: Vec<Carried>,
        waiting: Vec<Ticket>,
    },
    /// A gateway lives. Looks after workers and gateways on the way.
    Beat { gateway: GatewayId, link: u64 },
    /// A gateway goes, and everything it carried has ended.
    Leave { gateway: GatewayId, link: u64 },
    /// A session wants a worker. Asking again with the same ticket changes nothing.
    Checkout(Checkout),
    /// A session has ended, or was given up.
    Close { gateway: GatewayId, link: u64, ticket: Ticket, how: Close },
    /// A suspect worker was asked again.
    Probed { worker: WorkerNumber, incarnation: u64, good: bool },
    /// A worker's program runs.
    Register(Register),
    /// A worker lives.
    Heartbeat(Heartbeat),
    /// A worker goes (`by_worker`), or an operator sends it away.
    Remove { name: String, by_worker: bool },
    /// An operator keeps new sessions away from a worker, or no longer does.
    Drain { name: String, drained: bool },
    /// An operator ends a session.
    End { gateway: GatewayId, ticket: Ticket },
    /// All kinds.
    Kinds,
    /// Workers with numbers from `from` on.
    Workers { from: WorkerNumber, limit: usize },
    /// The worker of this name.
    Worker { name: String },
    /// Sessions after this one, in the order of gateway and ticket.
    Sessions { after: Option<(GatewayId, Ticket)>, limit: usize },
}

/// A session wants a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkout {
    pub gateway: GatewayId,
    pub link: u64,
    pub ticket: Ticket,
    pub kind: String,
    pub want: Want,
    /// Who asks: the line is fair between these, and each may have `key_max` sessions (0 = any).
    pub key: Arc<str>,
    pub key_max: u32,
    /// A worker that will not do, because it is being tried already.
    pub avoid: Option<WorkerNumber>,
    /// Whether to wait in the line if nobody is free.
    pub wait: bool,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Close {
    /// It was carried.
    Ended,
    /// It never began; it does not count in the worker's life.
    Unused,
    /// The worker did not answer; it does not count, and the worker is suspect.
    Failed,
}

/// A session that a gateway carries, as it says after an interruption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    pub ticket: Ticket,
    pub key: Arc<str>,
    /// The worker's name and the start of its program: numbers may have been given anew.
    pub worker: Arc<str>,
    pub start: Arc<str>,
}

/// A worker's program runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Register {
    pub name: Arc<str>,
    pub kind: String,
    pub url: Arc<str>,
    pub slots: Option<u32>,
    pub shape: Shape,
    /// One start of the program: registering it again is no new life.
    pub start: Arc<str>,
    /// Sessions in this life so far.
    pub lifetime: u32,
    /// It was restarted because it was told to.
    pub recycled: bool,
    /// It can start its successor before it goes.
    pub successor: bool,
}

/// What a worker's program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It runs.
    Serving,
    /// It is being restarted, as ordered.
    Restarting,
    /// It crashed, or does not start.
    Down,
}

/// Why a worker asks to be recycled although its sessions do not say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DueBy {
    /// It holds too much memory.
    Memory,
    /// It has lived too long.
    Age,
}

/// A worker lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub name: String,
    pub incarnation: u64,
    pub phase: Phase,
    pub due: Option<DueBy>,
    /// Sessions in this life as the worker was last told; the table may have lost some.
    pub lifetime: u32,
    /// Its predecessor, which it succeeded while that served, is gone.
    pub old_gone: bool,
}

/// What a worker is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Go on.
    Serve,
    /// Restart the program: nothing is on it.
    Restart,
    /// Start the successor while this one serves.
    Succeed,
    /// Stop the predecessor: nothing is on it any more.
    StopOld,
    /// Stop and end: an operator removed the worker.
    Leave,
}

/// What the table answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// It is done.
    Done,
    /// The kind has no rules yet; configure it and ask again.
    Unconfigured,
    /// The table does not know who asks, or whom it is about.
    Unknown,
    /// A newer start of the worker has its name, or a newer link of the gateway is in use.
    Replaced,
    /// The gateway is in. Those tickets' workers are not known (yet); say them again.
    Joined { unplaced: Vec<Ticket> },
    /// The gateway lives, and this is new.
    Beaten { news: Vec<News>, probes: Vec<Probe>, reaped: u32 },
    /// The session has its worker.
    Seated(Seat),
    /// The session is in the line, with this many in it.
    Waiting { waiting: u32 },
    /// The session cannot have a worker.
    Refused(Refusal),
    /// The worker is in.
    Registered { worker: WorkerNumber, incarnation: u64, slots: u32, lifetime_max: u32 },
    /// The worker is to do this.
    Ordered { order: Order, lifetime: u32, active: u32, leaving: u32 },
    /// What was looked at.
    Kinds { kinds: Vec<KindRow> },
    /// What was looked at.
    Workers { workers: Vec<WorkerRow> },
    /// What was looked at.
    Sessions { sessions: Vec<SessionRow> },
}

/// Why a session cannot have a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Refusal {
    /// There is no worker of this kind.
    NoWorkers,
    /// There are workers, and none of them could ever do; these labels and versions there are.
    NoMatch { labels: BTreeSet<String>, versions: BTreeSet<Version> },
    /// Everybody is busy, and the session does not want to wait.
    Busy,
    /// Everybody is busy, and the line is full.
    LineFull,
    /// The key has as many sessions as it may.
    KeyLimit,
}

/// Something a gateway must know about one of its sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct News {
    pub ticket: Ticket,
    pub what: NewsKind,
}

/// What is new about a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewsKind {
    /// It waited and has its worker.
    Seated(Seat),
    /// It must be closed.
    End(Ending),
}

/// Why a session must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// An operator ended it.
    Operator,
    /// Its worker was removed.
    WorkerRemoved,
    /// Its worker has not been heard of.
    WorkerLost,
    /// Its worker's program crashed.
    WorkerDown,
    /// Its worker's program was started anew.
    WorkerRestarted,
    /// Its worker waited long enough for it.
    DrainLimit,
}

impl Ending {
    /// As it is written in stores, answers and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Ending::Operator => "operator",
            Ending::WorkerRemoved => "worker-removed",
            Ending::WorkerLost => "worker-lost",
            Ending::WorkerDown => "worker-down",
            Ending::WorkerRestarted => "worker-restarted",
            Ending::DrainLimit => "drain-limit",
        }
    }
}

/// A worker that a gateway is to ask whether it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    pub worker: WorkerNumber,
    pub incarnation: u64,
    pub url: Arc<str>,
}

/// A slot of a worker, and the numbers it was chosen by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seat {
    pub worker: WorkerNumber,
    pub name: Arc<str>,
    pub start: Arc<str>,
    pub url: Arc<str>,
    /// Sessions in its life and at once, this one included.
    pub lifetime: u32,
    pub active: u32,
    pub slots: u32,
    /// Whether it was taken although it is nearly worn out.
    pub due: bool,
    /// Where the workers of the kind stood right before.
    pub standings: Standings,
}

/// A kind as it can be looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindRow {
    pub kind: String,
    pub rules: Rules,
    pub standings: Standings,
    /// Slots of live workers, and how many are taken.
    pub slots: u64,
    pub active: u64,
    /// Slots that a session could have now.
    pub free: u64,
    pub waiting: u32,
    /// Workers with a permit to restart, and how many may have one.
    pub out: u32,
    pub out_max: u32,
    /// Of those that are held, how many carry nothing and only wait for a permit.
    pub held_idle: u32,
    /// Sessions begun, workers recycled, and the milliseconds they were out.
    pub started: u64,
    pub recycled: u64,
    pub out_ms: u64,
}

/// A worker as it can be looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    pub number: WorkerNumber,
    pub name: Arc<str>,
    pub kind: String,
    pub url: Arc<str>,
    pub start: Arc<str>,
    pub incarnation: u64,
    pub shape: Shape,
    pub slots: u32,
    pub active: u32,
    /// Sessions on its predecessor.
    pub leaving: u32,
    pub lifetime: u32,
    pub due_at: Option<u32>,
    pub due_by: Option<DueBy>,
    pub standing: Standing,
    pub permit: bool,
    pub drained: bool,
    pub failures: u32,
    /// When it registered this start, and when it was last heard of, on the table's clock.
    pub since_ms: u64,
    pub heard_ms: u64,
}

/// A session as it can be looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRow {
    pub gateway: GatewayId,
    pub node: String,
    pub ticket: Ticket,
    pub kind: String,
    pub key: Arc<str>,
    /// Its worker's number and name; none while it waits.
    pub worker: Option<(WorkerNumber, Arc<str>)>,
    pub since_ms: u64,
    pub ending: Option<Ending>,
}

/// Whom a step concerns beside who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hint {
    /// There is news for this gateway.
    Gateway(GatewayId),
    /// There is another order for this worker.
    Worker(WorkerNumber),
}
