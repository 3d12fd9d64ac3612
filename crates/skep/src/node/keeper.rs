//! Keeps the stores: waits for them, brings them up to date, watches the embedded one.

use super::{SCHEMAS, Shared, State};
use crate::fleet::Fleet;
use crate::queues::PollResults;
use skep_policy::{Decision, DecisionId, SeededChance, Time, backoff};
use skep_store::{MigrateError, StoreError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Waits for the stores, brings them up to date, says that the node is ready, and then watches that
/// the embedded one stays alive.
pub(super) struct StoreKeeper {
    shared: Arc<Shared>,
    state: Arc<watch::Sender<State>>,
    /// The node was asked to stop. Services stop one after the other, but from then on no store is
    /// waited for and none is changed.
    node_stop: CancellationToken,
}

impl StoreKeeper {
    pub(super) fn new(
        shared: Arc<Shared>,
        state: Arc<watch::Sender<State>>,
        node_stop: CancellationToken,
    ) -> Self {
        StoreKeeper { shared, state, node_stop }
    }

    pub(super) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let ready = self.node_stop.run_until_cancelled(self.prepare()).await;
        match ready {
            Some(Err(error)) => return Err(error),
            Some(Ok(())) => self.set_state(State::Ready),
            None => {}
        }
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            () = self.shared.stores.failed() => Err(StoreEnded.into()),
        }
    }

    async fn prepare(&self) -> anyhow::Result<()> {
        self.insist(Step::BringUpToDate).await?;
        self.check_exposure()?;
        self.insist(Step::ReadRoutes).await?;
        self.insist(Step::JoinQueues).await?;
        self.shared.cluster.join(&self.shared).await?;
        self.insist(Step::JoinFleet).await
    }

    /// Takes a step, again and again while a store is away.
    async fn insist(&self, step: Step) -> anyhow::Result<()> {
        let stores = &self.shared.stores;
        let tell = |error: &StoreError, wait: &Decision<Duration>| self.tell(error, wait);
        let take = || async move {
            stores.wait_until_reachable(tell).await?;
            self.take(step).await
        };
        again_while_it_passes(&stores.retry(), &mut by_chance(), take, tell).await
    }

    async fn take(&self, step: Step) -> anyhow::Result<()> {
        let Shared { name, settings, stores, queues, .. } = &*self.shared;
        match step {
            Step::BringUpToDate => bring_up_to_date(&self.shared).await?,
            // Whoever is told that the node is ready sends requests, and they must find their way.
            Step::ReadRoutes => self.shared.routes.sync().await?,
            Step::JoinQueues => queues.join(name.as_str(), settings, stores).await?,
            Step::JoinFleet => self.join_fleet().await?,
        }
        Ok(())
    }

    async fn join_fleet(&self) -> anyhow::Result<()> {
        let Shared { name, settings, stores, address, .. } = &*self.shared;
        let cluster = self.shared.cluster.info(&settings.cluster);
        let info = serde_json::json!({
            "api": address.to_string(), "version": env!("CARGO_PKG_VERSION"), "cluster": cluster,
        });
        let counted = (&self.shared.fleet_metrics, &self.shared.work.dials);
        let clock = self.shared.clock.clone();
        let publish = self.shared.queues.get().cloned().map(PollResults::to);
        let fleet =
            Fleet::join(name.as_str(), settings, &info, stores, publish, counted, clock).await?;
        self.shared.routes.join(&fleet.sessions);
        // Set once, here.
        let _ = self.shared.fleet.set(fleet);
        Ok(())
    }

    /// A node that others can reach and nobody guards does not start by accident.
    fn check_exposure(&self) -> anyhow::Result<()> {
        let address = self.shared.address;
        let guarded = self.shared.access.ring().is_some_and(|ring| !ring.is_empty());
        if address.ip().is_loopback() || guarded {
            return Ok(());
        }
        if self.shared.settings.api.insecure {
            tracing::warn!("--insecure: anybody who reaches {address} may do anything");
            return Ok(());
        }
        Err(Exposed(address).into())
    }

    fn tell(&self, error: &StoreError, wait: &Decision<Duration>) {
        let decision = DecisionId::new(wall_clock(), &mut by_chance());
        let (reason, seconds) = (&wait.reason, wait.chosen.as_secs_f64());
        tracing::warn!(%error, %decision, %reason, "trying again in {seconds:.1} s");
        self.set_state(State::Starting(error.to_string()));
    }

    /// A node that is draining stays so.
    fn set_state(&self, new: State) {
        self.state.send_if_modified(|state| {
            let starting = matches!(state, State::Starting(_));
            if starting {
                *state = new;
            }
            starting
        });
    }
}

/// What is done with the stores before the node is ready. Each is whole or has done nothing, so
/// that it can be repeated.
#[derive(Clone, Copy)]
enum Step {
    BringUpToDate,
    ReadRoutes,
    JoinQueues,
    JoinFleet,
}

fn by_chance() -> SeededChance {
    SeededChance::new(uuid::Uuid::new_v4().as_u64_pair().1)
}

/// Does something until it succeeds or fails for good. What passes by itself is told, and waited
/// for longer each time.
async fn again_while_it_passes<Taking: Future<Output = anyhow::Result<()>>>(
    retry: &backoff::Options,
    chance: &mut SeededChance,
    take: impl Fn() -> Taking,
    tell: impl Fn(&StoreError, &Decision<Duration>),
) -> anyhow::Result<()> {
    let mut attempt = 0;
    while let Err(error) = take().await {
        // It was there a moment ago, or has no room now.
        let Some(passing) = passing(&error) else { return Err(error) };
        attempt += 1;
        let wait = backoff::wait_before_attempt(attempt, retry, chance);
        tell(passing, &wait);
        tokio::time::sleep(wait.chosen).await;
    }
    Ok(())
}

/// The trouble with a store that passes by itself, if the error is that.
fn passing(error: &anyhow::Error) -> Option<&StoreError> {
    let found = error.chain().find_map(|cause| match cause.downcast_ref::<MigrateError>() {
        Some(MigrateError::Store(error)) => Some(error),
        _ => cause.downcast_ref::<StoreError>(),
    });
    found.filter(|error| error.is_temporary())
}

/// The node would listen beyond this machine, and there is no key.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} can be reached from other machines and there is no key, so anybody could do anything; \
     make one first with `skep keys add --name admin --scopes admin` (with the same --data or \
     --database), or listen on 127.0.0.1, or start with --insecure"
)]
pub struct Exposed(SocketAddr);

/// The embedded store's writer ended although nobody had closed it.
#[derive(Debug, thiserror::Error)]
#[error("the embedded database's writer ended; restart the node, nothing acknowledged is lost")]
pub struct StoreEnded;

/// Now, for ids that people sort by time across nodes and restarts; never for deciding.
fn wall_clock() -> Time {
    let now = jiff::Timestamp::now().as_millisecond();
    Time::from_millis(u64::try_from(now).unwrap_or(0))
}

async fn bring_up_to_date(shared: &Shared) -> Result<(), MigrateError> {
    for applied in shared.stores.migrate(SCHEMAS).await? {
        let (part, name) = (&applied.part, &applied.name);
        tracing::info!(part, migration = name, "database brought up to date");
    }
    shared.access.renew(shared.stores.database()).await?;
    let installation = shared.stores.installation().await?;
    // Set before only by an earlier round of this same loop, to the same value.
    let _ = shared.installation.set(installation);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    fn busy() -> StoreError {
        StoreError::Busy { store: "postgres", cause: "a lock".to_owned() }
    }

    /// How often it was tried until it had failed so often, and the waits that were told.
    async fn tried(fails: usize, error: fn() -> anyhow::Error) -> (bool, usize, Vec<Duration>) {
        let (tries, waits) = (Cell::new(0), RefCell::new(Vec::new()));
        let retry =
            backoff::Options { base: Duration::from_millis(1), cap: Duration::from_millis(4) };
        let take = || async {
            tries.set(tries.get() + 1);
            if tries.get() > fails { Ok(()) } else { Err(error()) }
        };
        let tell = |_: &StoreError, wait: &Decision<Duration>| waits.borrow_mut().push(wait.chosen);
        let done = again_while_it_passes(&retry, &mut SeededChance::new(7), take, tell).await;
        (done.is_ok(), tries.get(), waits.into_inner())
    }

    #[tokio::test]
    async fn a_step_is_taken_again_while_its_trouble_passes_and_every_wait_is_told() {
        let (done, tries, waits) = tried(5, || busy().into()).await;
        assert!(done);
        assert_eq!((tries, waits.len()), (6, 5));
        assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(4)), "{waits:?}");
    }

    #[tokio::test]
    async fn a_step_that_fails_for_good_is_not_taken_again() {
        let (done, tries, waits) = tried(5, || anyhow::anyhow!("a newer schema")).await;
        assert_eq!((done, tries, waits.len()), (false, 1, 0));
    }

    #[test]
    fn what_passes_is_found_however_it_is_wrapped_and_nothing_else_is() {
        assert!(passing(&busy().into()).is_some());
        assert!(passing(&MigrateError::from(busy()).into()).is_some());
        let wrapped = anyhow::Error::from(busy()).context("while it starts");
        assert!(passing(&wrapped).is_some());
        assert!(passing(&anyhow::anyhow!("something else")).is_none());
        assert!(passing(&StoreEnded.into()).is_none());
    }
}
