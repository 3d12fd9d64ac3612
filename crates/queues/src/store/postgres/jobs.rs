//! What the jobs of a batch are about, and their answers.

use super::names::Place;
use super::takes::Wanted;
use crate::ids::lease_tag;
use crate::record::PRIORITY_MAX;
use crate::store::{
    ItemSettled, Job, NewMessage, NotDone, Pushed, SettleItem, Step, StepDone, WorkError,
};
use skep_policy::Time;
use skep_policy::queues::LeaseId;
use skep_store::StoreError;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// What came of a job.
pub(super) enum Done {
    Pushed(Result<Vec<Pushed>, WorkError>),
    Settled(Vec<ItemSettled>),
    Transacted(Result<Result<Vec<StepDone>, NotDone>, WorkError>),
    Extended(Option<Time>),
    Released(usize),
}

/// What a batch needs, gathered from its jobs.
#[derive(Default)]
pub(super) struct Needs {
    pub places: BTreeSet<Place>,
    /// Partitions and groups of settlements.
    pub lanes: BTreeSet<(i64, Arc<str>)>,
    pub leases: BTreeSet<u128>,
    /// Partitions of settlements whose leases others gave out.
    pub elsewhere: BTreeSet<i64>,
    pub takes: Wanted,
}

impl Needs {
    /// `here` is the mark of the leases that this node gives out.
    pub(super) fn of<'job>(jobs: impl IntoIterator<Item = &'job Job>, here: u16) -> Self {
        let mut needs = Needs::default();
        for job in jobs {
            let mut last: Option<&NewMessage> = None;
            for message in messages(job) {
                let same = last.is_some_and(|last| {
                    last.queue == message.queue
                        && last.partition == message.partition
                        && last.level == message.level
                });
                if !same {
                    needs.places.insert(place_of(message));
                }
                last = Some(message);
            }
            for (group, item) in items(job) {
                if let Some(id) = item.partition {
                    needs.lanes.insert((id.0, group.clone()));
                    let is_elsewhere = |lease: LeaseId| lease_tag(Uuid::from_u128(lease.0)) != here;
                    if item.lease.is_some_and(is_elsewhere) {
                        needs.elsewhere.insert(id.0);
                    }
                }
            }
            match job {
                Job::Transaction(job, _) => {
                    needs.leases.extend(job.required.iter().map(|id| id.0));
                    needs.takes.add(&job.takes);
                }
                Job::Extend { lease, .. } | Job::Release { lease, .. } => {
                    needs.leases.insert(lease.0);
                }
                _ => {}
            }
        }
        needs
    }
}

/// Where a message goes.
pub(super) fn place_of(message: &NewMessage) -> Place {
    (message.queue.clone(), message.partition.clone(), message.level.min(PRIORITY_MAX))
}

/// The messages that a job pushes.
pub(super) fn messages(job: &Job) -> impl Iterator<Item = &NewMessage> {
    let (plain, steps): (&[NewMessage], &[Step]) = match job {
        Job::Push(messages, _) => (messages, &[]),
        Job::Transaction(job, _) => (&[], &job.steps),
        _ => (&[], &[]),
    };
    plain.iter().chain(steps.iter().filter_map(|step| match step {
        Step::Push(message) => Some(message),
        Step::Settle { .. } => None,
    }))
}

/// What a job settles.
pub(super) fn items(job: &Job) -> impl Iterator<Item = (&Arc<str>, &SettleItem)> {
    let (named, plain, steps): (_, &[SettleItem], &[Step]) = match job {
        Job::Settle { group, items, .. } => (Some(group), items, &[]),
        Job::Transaction(job, _) => (None, &[], &job.steps),
        _ => (None, &[], &[]),
    };
    let plain = plain.iter().filter_map(move |item| Some((named?, item)));
    plain.chain(steps.iter().filter_map(|step| match step {
        Step::Settle { group, item } => Some((group, item)),
        Step::Push(_) => None,
    }))
}

/// Nobody may be waiting for it any more.
pub(super) fn answer(job: Job, done: Done) {
    let _ = match (job, done) {
        (Job::Push(_, answer), Done::Pushed(done)) => answer.send(done).is_ok(),
        (Job::Settle { answer, .. }, Done::Settled(done)) => answer.send(Ok(done)).is_ok(),
        (Job::Transaction(_, answer), Done::Transacted(done)) => answer.send(done).is_ok(),
        (Job::Extend { answer, .. }, Done::Extended(until)) => answer.send(Ok(until)).is_ok(),
        (Job::Release { answer, .. }, Done::Released(lanes)) => answer.send(Ok(lanes)).is_ok(),
        (job, _) => {
            super::refuse(job, &StoreError::Closed { store: "postgres" });
            false
        }
    };
}
