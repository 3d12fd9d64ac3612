//! What workers and operators say.

use crate::error::TableError;
use crate::handle::{Sessions, nonsense};
use skep_policy::sessions::{Answer, Ask, Heartbeat, Order, Register, WorkerNumber};
use std::time::{Duration, Instant};

/// Kinds of workers at most. Each has its own rules, line and series of metrics, and stays.
pub const KINDS_MAX: usize = 200;

/// A worker is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    pub worker: WorkerNumber,
    pub incarnation: u64,
    pub slots: u32,
    pub lifetime_max: u32,
}

/// What a worker is to do, and how it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordered {
    pub order: Order,
    pub lifetime: u32,
    pub active: u32,
    pub leaving: u32,
}

impl Sessions {
    /// A worker's program runs. Saying so again changes nothing.
    pub async fn register(&self, register: Register) -> Result<Registered, TableError> {
        let (kind, name) = (register.kind.clone(), register.name.clone());
        let ask = Ask::Register(register);
        let mut answer = self.ask(&ask).await?;
        if answer == Answer::Unconfigured {
            if self.kinds().await?.len() >= KINDS_MAX {
                return Err(TableError::KindsMax(kind));
            }
            self.configure(&kind).await?;
            answer = self.ask(&ask).await?;
        }
        match answer {
            Answer::Registered { worker, incarnation, slots, lifetime_max } => {
                self.shared.metrics.registered();
                Ok(Registered { worker, incarnation, slots, lifetime_max })
            }
            Answer::Replaced => Err(TableError::Replaced(name.to_string())),
            other => Err(nonsense(self.shared.table.name(), &other)),
        }
    }

    /// A worker lives. Answers when its order is another than `known`, or after `wait`.
    pub async fn heartbeat(
        &self,
        heartbeat: Heartbeat,
        known: Option<Order>,
        wait: Duration,
    ) -> Result<Ordered, TableError> {
        let deadline = Instant::now() + wait;
        let name = heartbeat.name.clone();
        let number = self.worker(&name).await?.number;
        let changed = self.listen_for(number);
        let ask = Ask::Heartbeat(heartbeat);
        loop {
            let told = changed.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let ordered = match self.ask(&ask).await? {
                Answer::Ordered { order, lifetime, active, leaving } => {
                    Ordered { order, lifetime, active, leaving }
                }
                Answer::Unknown => return Err(TableError::Unknown(format!("worker {name:?}"))),
                Answer::Replaced => return Err(TableError::Replaced(name)),
                other => return Err(nonsense(self.shared.table.name(), &other)),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if known != Some(ordered.order) || left.is_zero() {
                return Ok(ordered);
            }
            if tokio::time::timeout(left, told).await.is_err() {
                return Ok(ordered);
            }
        }
    }

    /// A worker goes, or an operator sends it away.
    pub async fn remove(&self, name: &str, by_worker: bool) -> Result<(), TableError> {
        self.order(name, &Ask::Remove { name: name.to_owned(), by_worker }).await
    }

    /// Keeps new sessions away from a worker, or no longer does.
    pub async fn set_drained(&self, name: &str, drained: bool) -> Result<(), TableError> {
        self.order(name, &Ask::Drain { name: name.to_owned(), drained }).await
    }

    async fn order(&self, name: &str, ask: &Ask) -> Result<(), TableError> {
        match self.ask(ask).await? {
            Answer::Done => Ok(()),
            Answer::Unknown => Err(TableError::Unknown(format!("worker {name:?}"))),
            other => Err(nonsense(self.shared.table.name(), &other)),
        }
    }
}
