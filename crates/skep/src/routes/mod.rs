//! The routes of a node: where they come from, and the proxy that serves them.
//!
//! ```text
//!   skep.toml ──► start, SIGHUP, reload ─┐
//!                                        ├─► merge ─► certificates ─► Proxy::apply
//!   database ───► NOTIFY, a look ────────┘
//!   Proxy ─► NodeJournal ─► access log, live stream, database
//! ```
//!
//! Routes of the file work before the database is there, and without it.

mod alerts;
mod events;
mod front;
mod journal;
mod merge;
mod metrics;
mod service;
mod workers;

pub use events::LiveEvent;
pub use front::NodeFront;
pub use journal::NodeJournal;
pub use merge::{Known, KnownRoute, Source, certificate_of};
pub use metrics::RouteCollector;
pub use service::{STOP_LIMIT, run};
pub use workers::NodeWorkers;

use crate::node::State;
use crate::settings::{FileRoute, Settings, policy_flaw, reach_flaws, routes_of_file};
use crate::work::Work;
use anyhow::Context;
use arc_swap::ArcSwap;
use merge::merge;
use serde::{Deserialize, Serialize};
use skep_dial::Dials;
use skep_pools::{Pools, Task, Tier};
use skep_routes::spec::{Flaw, RouteSpec};
use skep_routes::store::{Listing, RouteStore};
use skep_routes::tls::{CertificateProblem, Certificates, HostCertificate};
use skep_routes::{Parts, Proxy};
use skep_sessions::{Sessions, SessionsOptions};
use skep_store::{StoreError, Stores};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Mutex, Notify, oneshot, watch};

/// The kind of the tasks that read files of routes.
const FILES: &str = "certificate-check";

/// The routes of one node.
pub struct NodeRoutes {
    pub proxy: Proxy,
    pub store: RouteStore,
    pub journal: Arc<NodeJournal>,
    pub certificates: Arc<Certificates>,
    workers: Arc<NodeWorkers>,
    sessions: SessionsOptions,
    dials: Dials,
    file: Option<PathBuf>,
    pools: Pools,
    state: watch::Receiver<State>,
    /// Held while routes change, so that changes come one after another.
    sources: Mutex<Sources>,
    known: ArcSwap<Known>,
    /// Rung when the file is to be read again.
    reload_wanted: Notify,
}

/// What was last read.
#[derive(Clone)]
struct Sources {
    file: Vec<FileRoute>,
    /// Whether there was a file: one that was never there need not come.
    file_read: bool,
    stored: Listing,
}

/// What has changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Reloaded {
    /// Routes in use now.
    pub routes: usize,
    /// Names of those that are new.
    pub added: Vec<String>,
    /// Names of those that are different.
    pub changed: Vec<String>,
    /// Names of those that are gone.
    pub removed: Vec<String>,
    /// What works otherwise than somebody will have meant it.
    pub warnings: Vec<String>,
}

/// Why nothing has changed: everything that is wrong with the file, a line each.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct NotReloaded(pub Vec<String>);

/// Routes of the settings cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct BadRoutes(Vec<String>);

impl NodeRoutes {
    /// The routes of the file, served from now on.
    ///
    /// # Errors
    /// If one of their certificates cannot be used.
    pub fn start(
        settings: &Settings,
        node: &str,
        work: &Work,
        stores: &Stores,
        state: &watch::Receiver<State>,
    ) -> anyhow::Result<Arc<Self>> {
        let store = RouteStore::new(stores.database().clone());
        let journal = NodeJournal::new(node, &work.pools, work.access_log.clone(), &store, state);
        let journal = Arc::new(journal);
        let sessions = settings.sessions.options(node);
        let workers = Arc::new(NodeWorkers::new(state, sessions.wait_max));
        let parts = Parts {
            pools: work.pools.clone(),
            journal: journal.clone(),
            workers: Some(workers.clone()),
        };
        let certificates = Certificates::new().context("there can be no encryption")?;
        let file_read = settings.file.as_ref().is_some_and(|file| file.exists());
        let stored = Listing { revision: -1, routes: Vec::new() };
        let sources = Sources { file: settings.routes.clone(), file_read, stored };
        let known = merge(&sources.file, &[], &sessions);
        let problems = certificates.replace(&known.certificates());
        if !problems.is_empty() {
            return Err(BadRoutes(at_lines(&sources.file, &problems)).into());
        }
        let routes = NodeRoutes {
            proxy: Proxy::new(settings.proxy.options(work.dials.dialler("route")), parts),
            store,
            journal,
            certificates: Arc::new(certificates),
            workers,
            sessions,
            dials: work.dials.clone(),
            file: settings.file.clone(),
            pools: work.pools.clone(),
            state: state.clone(),
            sources: Mutex::new(sources),
            known: ArcSwap::default(),
            reload_wanted: Notify::new(),
        };
        routes.use_now(known);
        Ok(Arc::new(routes))
    }

    /// All routes that this node knows.
    pub fn known(&self) -> Arc<Known> {
        self.known.load_full()
    }

    /// The node has joined the others: there are workers from now on.
    pub fn join(&self, sessions: &Sessions) {
        self.workers.join(sessions);
    }

    /// Asks for the file to be read again. Returns at once.
    pub fn want_reload(&self) {
        self.reload_wanted.notify_one();
    }

    /// What is wrong with where a route leads.
    pub fn flaws_of_reach(&self, spec: &RouteSpec) -> Vec<Flaw> {
        reach_flaws(spec, self.dials.reach())
    }

    /// What is wrong with a route here that could be right elsewhere.
    pub fn flaws_here(&self, spec: &RouteSpec) -> Vec<Flaw> {
        policy_flaw(spec, &self.sessions).into_iter().collect()
    }

    /// Reads the file again, and the database if it can be reached.
    ///
    /// # Errors
    /// With everything that is wrong with the file; then nothing has changed.
    pub async fn reload(&self) -> Result<Reloaded, NotReloaded> {
        let mut sources = self.sources.lock().await;
        let mut warnings = Vec::new();
        let mut next = sources.clone();
        if let Some(file) = self.read_file(sources.file_read).await? {
            (next.file, next.file_read) = (file, true);
        }
        match self.list().await {
            Some(Ok(listing)) => next.stored = listing,
            Some(Err(error)) => warnings.push(format!(
                "the routes of the API stay as they were: they cannot be read: {error}"
            )),
            None => {}
        }
        let mut reloaded = self.apply(&mut sources, next).await;
        reloaded.warnings.extend(warnings);
        Ok(reloaded)
    }

    /// Reads the database again, if it has changed.
    pub async fn sync(&self) -> Result<(), StoreError> {
        let revision = self.store.revision().await?;
        let mut sources = self.sources.lock().await;
        if revision == sources.stored.revision {
            return Ok(());
        }
        let listing = self.store.list().await?;
        // Somebody else may have read it while this one waited.
        if listing.revision == sources.stored.revision {
            return Ok(());
        }
        let next = Sources { stored: listing, ..sources.clone() };
        let done = self.apply(&mut sources, next).await;
        let Reloaded { added, changed, removed, warnings, .. } = done;
        if !(added.is_empty() && changed.is_empty() && removed.is_empty()) {
            tracing::info!(?added, ?changed, ?removed, "the routes of the API have changed");
        }
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        Ok(())
    }

    /// The routes of the database, if the node has reached it.
    async fn list(&self) -> Option<Result<Listing, StoreError>> {
        if matches!(&*self.state.borrow(), State::Starting(_)) {
            return None;
        }
        Some(self.store.list().await)
    }

    /// The routes of the file, if there is one; every certificate of theirs can be used.
    async fn read_file(&self, expected: bool) -> Result<Option<Vec<FileRoute>>, NotReloaded> {
        let Some(path) = self.file.clone() else { return Ok(None) };
        let (sessions, dials) = (self.sessions.clone(), self.dials.clone());
        self.in_pool(move || {
            if !expected && !path.exists() {
                return Ok(None);
            }
            let routes = routes_of_file(&path).map_err(|invalid| {
                NotReloaded(invalid.0.iter().map(ToString::to_string).collect())
            })?;
            let mut problems = Vec::new();
            for (number, route) in routes.iter().enumerate() {
                let flaws = reach_flaws(&route.spec, dials.reach());
                for flaw in flaws.into_iter().chain(policy_flaw(&route.spec, &sessions)) {
                    problems.push(format!("{}: routes[{number}].{flaw}", route.origin));
                }
            }
            let wanted: Vec<HostCertificate> =
                routes.iter().filter_map(|route| certificate_of(&route.spec)).collect();
            if let Err(wrong) = Certificates::load(&wanted) {
                problems.extend(at_lines(&routes, &wrong));
            }
            if problems.is_empty() { Ok(Some(routes)) } else { Err(NotReloaded(problems)) }
        })
        .await
        .unwrap_or_else(|why| Err(NotReloaded(vec![why])))
    }

    /// Serves what was just read from now on. Whoever asked for it may go away in the middle; then
    /// it does not count as read, and the next one does it.
    async fn apply(&self, sources: &mut Sources, next: Sources) -> Reloaded {
        let mut known = merge(&next.file, &next.stored.routes, &self.sessions);
        let (certificates, wanted) = (self.certificates.clone(), known.certificates());
        let replaced = self.in_pool(move || {
            let problems = certificates.replace(&wanted);
            // Files that were replaced under the same names are read again too.
            let look = certificates.look();
            [problems, look.problems].concat()
        });
        match replaced.await {
            Ok(problems) => known.warnings.extend(problems.iter().map(ToString::to_string)),
            Err(why) => known.warnings.push(why),
        }
        *sources = next;
        self.use_now(known)
    }

    fn use_now(&self, known: Known) -> Reloaded {
        let specs: Vec<Arc<RouteSpec>> = known.used().map(|one| one.spec.clone()).collect();
        let before = self.known.load_full();
        let by_name = |known: &Known| -> BTreeMap<String, Arc<RouteSpec>> {
            known.used().map(|one| (one.spec.name.clone(), one.spec.clone())).collect()
        };
        let (old, new) = (by_name(&before), by_name(&known));
        let gone = |name: &&String| !new.contains_key(*name);
        let changed = |(name, spec): &(&String, &Arc<RouteSpec>)| {
            old.get(*name).is_some_and(|old| old != *spec)
        };
        let reloaded = Reloaded {
            routes: specs.len(),
            added: new.keys().filter(|name| !old.contains_key(*name)).cloned().collect(),
            changed: new.iter().filter(changed).map(|(name, _)| name.clone()).collect(),
            removed: old.keys().filter(gone).cloned().collect(),
            warnings: known.warnings.clone(),
        };
        let told: BTreeSet<&String> = before.warnings.iter().collect();
        for warning in known.warnings.iter().filter(|warning| !told.contains(warning)) {
            let event = events::event_of("", "reload", warning.clone());
            skep_routes::Journal::tell(&*self.journal, event);
        }
        self.proxy.apply(&specs);
        self.known.store(Arc::new(known));
        reloaded
    }

    /// Reads files where that may block.
    async fn in_pool<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let (answer, answered) = oneshot::channel();
        let task = Task::once(FILES, move |_| {
            // Whoever asked may have gone.
            let _ = answer.send(read());
            Ok(())
        });
        if let Err(error) = self.pools.try_submit(Tier::High, task) {
            return Err(format!("files cannot be read now: {error}"));
        }
        answered.await.map_err(|_| "files could not be read in time".to_owned())
    }
}

/// Problems of certificates at the lines of the routes that ask for them.
fn at_lines(routes: &[FileRoute], problems: &[CertificateProblem]) -> Vec<String> {
    let line = |problem: &CertificateProblem| {
        let of_host = routes
            .iter()
            .enumerate()
            .find(|(_, route)| route.spec.tls.is_some() && route.spec.host == problem.host);
        match of_host {
            Some((number, route)) => {
                let (origin, field) = (&route.origin, problem.field);
                format!("{origin}: routes[{number}].tls.{field}: {}", problem.message)
            }
            None => problem.to_string(),
        }
    };
    problems.iter().map(line).collect()
}
