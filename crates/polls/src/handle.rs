//! What the rest of a node holds: endpoints can be changed and looked at.

use crate::Prober;
use crate::courier::Courier;
use crate::metrics::PollsMetrics;
use crate::options::PollsOptions;
use crate::poller::{Beat, Poller};
use crate::publish::Publish;
use crate::registry::{Endpoint, Hub, Registry, key_of};
use crate::spec::{Problem, Spec};
use crate::store::{self, CreateError, ImportError, Imported, Record, ReplaceError, ResultRow};
use serde::Serialize;
use skep_nodes::Nodes;
use skep_policy::Clock;
use skep_policy::ownership::Token;
use skep_store::{Database, StoreError, wall_ms};
use std::sync::Arc;

/// Endpoints and their polls. Clones are the same.
#[derive(Clone)]
pub struct Polls {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) db: Database,
    pub(crate) nodes: Nodes,
    pub(crate) registry: Arc<Registry>,
    pub(crate) poller: Arc<Poller>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) courier: Option<Courier>,
    pub(crate) options: PollsOptions,
    publish: Option<Arc<dyn Publish>>,
}

/// Why an endpoint was not changed. Nothing was, unless the store does not know.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// What was given is not an endpoint.
    #[error("{}", Problem::all(.0))]
    Bad(Vec<Problem>),
    /// It is at an address that is not to be reached.
    #[error("{0}")]
    Denied(Problem),
    /// There is one with this id.
    #[error("there is an endpoint {0:?} already; change it with PUT, or give another id")]
    Exists(String),
    /// There is none with this id.
    #[error("there is no endpoint {0:?}")]
    Missing(String),
    /// Somebody else has changed it meanwhile.
    #[error("the endpoint has version {found} by now; look at it and try again")]
    Conflict {
        /// The version it has.
        found: i64,
    },
    /// There are as many as there may be.
    #[error("there may be at most {max} endpoints, see polls.endpoints_max")]
    Full {
        /// As many as that.
        max: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What an import did or would have done.
#[derive(Debug)]
pub struct ImportReport {
    /// Lines that were wrong.
    pub wrong: Vec<(usize, Vec<Problem>)>,
    /// What was done with the others; `None` if nothing was, because some were wrong.
    pub done: Option<Imported>,
}

/// Which endpoints to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The id contains this.
    pub search: Option<String>,
    /// `http`, `https`, `tcp` or `tls`.
    pub kind: Option<String>,
    /// A label, and its value if given.
    pub label: Option<(String, Option<String>)>,
    /// Whether it is paused.
    pub paused: Option<bool>,
    /// The node that owns it.
    pub owner: Option<String>,
    /// Only those whose last poll found something wrong.
    pub failing: bool,
}

/// An endpoint with its owner and how it is doing.
#[derive(Clone)]
pub struct Listed {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// Who polls it, and under which grant.
    pub owner: Option<(Arc<str>, Token)>,
    /// How it is doing.
    pub state: Option<store::State>,
}

/// An endpoint, and who polls it under which grant.
type Owned = (Arc<Endpoint>, Option<(Arc<str>, Token)>);

/// Owners that are looked up in one go.
const OWNERS_AT_ONCE: usize = 1_000;

/// Lines of an import that are read before others may work on this thread.
const LINES_AT_ONCE: usize = 256;

/// Failing endpoints that are looked at for one page.
const FAILING_MAX: u32 = 10_000;

/// How polling goes on this node.
#[derive(Clone, Debug, Serialize)]
pub struct PollsNow {
    /// Endpoints in the installation.
    pub endpoints: usize,
    /// Those that are paused.
    pub paused: usize,
    /// Those that this node polls.
    pub owned: usize,
    /// Polls in progress on this node.
    pub in_flight: usize,
    /// Results that wait to be written.
    pub waiting: usize,
    /// Results that could not be published to their queues.
    pub unpublished: u64,
}

impl Polls {
    /// The polls of a node among `nodes`. They begin when its service runs.
    #[expect(clippy::too_many_arguments, reason = "it is where everything comes together")]
    pub fn new(
        db: Database,
        nodes: Nodes,
        hub: Arc<Hub>,
        prober: Prober,
        publish: Option<Arc<dyn Publish>>,
        options: PollsOptions,
        metrics: PollsMetrics,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let registry = Arc::new(Registry::default());
        let courier = publish
            .clone()
            .map(|publish| Courier::new(publish, registry.clone(), metrics.unpublished.clone()));
        let poller =
            Poller::new(nodes.clone(), registry.clone(), prober, options.clone(), metrics, clock);
        nodes.register(crate::registry::KIND, poller.clone());
        let inner = Inner { db, nodes, registry, poller, hub, courier, options, publish };
        Polls { inner: Arc::new(inner) }
    }

    /// Adds an endpoint.
    pub async fn create(&self, value: &serde_json::Value) -> Result<Endpoint, ChangeError> {
        let spec = self.parse(value)?;
        let id = spec.id.clone();
        let max = self.inner.options.endpoints_max;
        let created = store::create(&self.inner.db, new_endpoint(&spec), wall_ms(), max).await;
        let record = created.map_err(|error| match error {
            CreateError::Exists => ChangeError::Exists(id),
            CreateError::Full { max } => ChangeError::Full { max },
            CreateError::Store(error) => ChangeError::Store(error),
        })?;
        self.changed(record)
    }

    /// Replaces an endpoint; `expected` is the version it must have.
    pub async fn replace(
        &self,
        value: &serde_json::Value,
        expected: Option<i64>,
    ) -> Result<Endpoint, ChangeError> {
        let spec = self.parse(value)?;
        let id = spec.id.clone();
        let replaced =
            store::replace(&self.inner.db, new_endpoint(&spec), expected, wall_ms()).await;
        let record = replaced.map_err(|error| match error {
            ReplaceError::Missing => ChangeError::Missing(id),
            ReplaceError::Conflict { found } => ChangeError::Conflict { found },
            ReplaceError::Store(error) => ChangeError::Store(error),
        })?;
        self.changed(record)
    }

    /// Pauses or resumes an endpoint.
    pub async fn set_paused(&self, id: &str, paused: bool) -> Result<Endpoint, ChangeError> {
        let ids = vec![id.to_owned()];
        let found = store::set_paused(&self.inner.db, ids, paused, wall_ms()).await?;
        let record = found.into_iter().next().flatten();
        self.changed(record.ok_or_else(|| ChangeError::Missing(id.to_owned()))?)
    }

    /// Asks for a poll out of turn, from whichever node owns the endpoint.
    pub async fn poll_now(&self, id: &str) -> Result<Endpoint, ChangeError> {
        let found = store::ask_now(&self.inner.db, id, wall_ms()).await?;
        self.changed(found.ok_or_else(|| ChangeError::Missing(id.to_owned()))?)
    }

    /// Deletes an endpoint and everything known about it.
    pub async fn delete(&self, id: &str) -> Result<(), ChangeError> {
        let found = store::delete(&self.inner.db, id, wall_ms()).await?;
        self.inner.hub.changed();
        if found { Ok(()) } else { Err(ChangeError::Missing(id.to_owned())) }
    }

    /// Adds or replaces many endpoints, one line of JSON each. If a line is wrong nothing is done,
    /// unless `partial`.
    pub async fn import(&self, text: &[u8], partial: bool) -> Result<ImportReport, ChangeError> {
        let mut wrong = Vec::new();
        let mut good = Vec::new();
        let lines = crate::spec::import(text, self.inner.nodes.timing());
        for (count, (line, parsed)) in (1_usize..).zip(lines) {
            let checked = parsed.and_then(|spec| {
                self.can_reach(&spec).map_err(|problem| vec![problem])?;
                self.can_publish(&spec).map(|()| spec)
            });
            match checked {
                Ok(spec) => good.push(new_endpoint(&spec)),
                Err(problems) => wrong.push((line, problems)),
            }
            if count.is_multiple_of(LINES_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
        if !wrong.is_empty() && !partial {
            return Ok(ImportReport { wrong, done: None });
        }
        let max = self.inner.options.endpoints_max;
        let done = store::import(&self.inner.db, good, wall_ms(), max).await;
        let done = done.map_err(|error| match error {
            ImportError::Full { max } => ChangeError::Full { max },
            ImportError::Store(error) => ChangeError::Store(error),
        })?;
        self.inner.hub.changed();
        Ok(ImportReport { wrong, done: Some(done) })
    }

    /// At most `limit` endpoints after `after` by id, and how many there are in all.
    pub async fn list(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Listed>, usize), StoreError> {
        let among = if filter.failing {
            let first = after.unwrap_or_default();
            Some(store::failing(&self.inner.db, first, FAILING_MAX).await?)
        } else {
            None
        };
        let (page, total) = self.page(filter, among.as_deref(), after, limit);
        let ids: Vec<String> = page.iter().map(|(one, _)| one.spec.id.clone()).collect();
        let states = store::states(&self.inner.db, &ids).await?;
        let listed = page.into_iter().zip(states);
        let listed = listed.map(|((endpoint, owner), state)| Listed { endpoint, owner, state });
        Ok((listed.collect(), total))
    }

    /// One endpoint.
    pub async fn show(&self, id: &str) -> Result<Option<Listed>, StoreError> {
        let Some(record) = store::find(&self.inner.db, id).await? else { return Ok(None) };
        let Some(endpoint) = Endpoint::from_record(&record).map(Arc::new) else { return Ok(None) };
        let owner = self.inner.nodes.owner_of(&key_of(id));
        let state = store::states(&self.inner.db, &[id.to_owned()]).await?.pop().flatten();
        Ok(Some(Listed { endpoint, owner, state }))
    }

    /// Every endpoint that is polled with its owner, by id.
    pub fn owners(&self) -> Vec<(Arc<str>, Option<Arc<str>>)> {
        let ids: Vec<(Arc<str>, _)> = {
            let known = self.inner.registry.read();
            let polled = known.by_id().iter().filter(|(_, one)| !one.spec.paused);
            polled.map(|(id, one)| (id.clone(), one.key.clone())).collect()
        };
        // In pieces, because it holds up whoever wants to poll.
        let owners = ids
            .chunks(OWNERS_AT_ONCE)
            .flat_map(|piece| self.inner.nodes.owners_of(piece.iter().map(|(_, key)| &**key)));
        let named = ids.iter().zip(owners);
        named.map(|((id, _), owner)| (id.clone(), owner.map(|(name, _)| name))).collect()
    }

    /// The newest results of an endpoint.
    pub async fn results(&self, id: &str, limit: u32) -> Result<Vec<ResultRow>, StoreError> {
        store::results(&self.inner.db, id, limit).await
    }

    /// Who had an endpoint when, and why, newest first.
    pub async fn moves(&self, id: &str) -> Result<Vec<store::Move>, StoreError> {
        store::moves(&self.inner.db, id).await
    }

    /// Counts over all endpoints.
    pub async fn summary(&self) -> Result<store::Summary, StoreError> {
        store::summary(&self.inner.db).await
    }

    /// How polling goes on this node.
    pub fn now(&self) -> PollsNow {
        let (endpoints, paused) = self.inner.registry.counts();
        let (owned, in_flight) = self.inner.poller.now();
        let waiting = self.inner.poller.outbox.len();
        let unpublished = self.inner.courier.as_ref().map_or(0, Courier::dropped);
        PollsNow { endpoints, paused, owned, in_flight, waiting, unpublished }
    }

    /// Ends a second of the plots.
    pub fn beat(&self) {
        let (owned, in_flight) = self.inner.poller.now();
        self.inner.poller.beats.end_second(wall_ms(), owned, in_flight);
    }

    /// The last second.
    pub fn last_beat(&self) -> Option<Beat> {
        self.inner.poller.beats.last()
    }

    /// The seconds that are kept.
    pub fn beats(&self) -> Vec<Beat> {
        self.inner.poller.beats.kept()
    }

    /// Brings the gauges up to date, before a scrape.
    pub fn refresh_metrics(&self) {
        let now = self.now();
        let metrics = &self.inner.poller.metrics;
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        metrics.endpoints.set(whole(now.endpoints));
        metrics.owned.set(whole(now.owned));
        metrics.in_flight.set(whole(now.in_flight));
        metrics.waiting.set(whole(now.waiting));
    }

    fn page(
        &self,
        filter: &Filter,
        among: Option<&[String]>,
        after: Option<&str>,
        limit: usize,
    ) -> (Vec<Owned>, usize) {
        let found: Vec<Arc<Endpoint>> = {
            let known = self.inner.registry.read();
            let all = known.by_id();
            match among {
                None => all.values().filter(|one| filter.fits(one)).cloned().collect(),
                Some(ids) => {
                    let known = ids.iter().filter_map(|id| all.get(id.as_str()));
                    known.filter(|one| filter.fits(one)).cloned().collect()
                }
            }
        };
        let with_owners = |found: Vec<Arc<Endpoint>>| -> Vec<Owned> {
            let owners = self.inner.nodes.owners_of(found.iter().map(|one| &*one.key));
            found.into_iter().zip(owners).collect()
        };
        let after = after.unwrap_or_default();
        let Some(wanted) = &filter.owner else {
            // Owners are asked for only where they are shown: it holds up whoever wants to poll.
            let total = found.len();
            let rest = found.into_iter().skip_while(|one| one.spec.id.as_str() <= after);
            return (with_owners(rest.take(limit).collect()), total);
        };
        let mut owned = with_owners(found);
        owned.retain(|(_, owner)| owner.as_ref().is_some_and(|(name, _)| **name == **wanted));
        let total = owned.len();
        let rest = owned.into_iter().skip_while(|(one, _)| one.spec.id.as_str() <= after);
        (rest.take(limit).collect(), total)
    }

    fn parse(&self, value: &serde_json::Value) -> Result<Spec, ChangeError> {
        let spec = Spec::parse(value, self.inner.nodes.timing()).map_err(ChangeError::Bad)?;
        self.can_reach(&spec).map_err(ChangeError::Denied)?;
        self.can_publish(&spec).map_err(ChangeError::Bad)?;
        Ok(spec)
    }

    /// A name is judged with each poll.
    fn can_reach(&self, spec: &Spec) -> Result<(), Problem> {
        let (field, written, host) = spec.host();
        self.inner.poller.reach().judge_host(host).map_err(|denied| {
            let right = "give another address, or set reach.allow on the nodes";
            Problem::with(field, &serde_json::json!(written), right)
                .wrong(format!("is not allowed ({denied})"))
        })
    }

    fn can_publish(&self, spec: &Spec) -> Result<(), Vec<Problem>> {
        let Some(queue) = &spec.publish_to else { return Ok(()) };
        let checked = match &self.inner.publish {
            Some(publish) => publish.check(queue),
            None => Err("this node has no queues; leave it out".to_owned()),
        };
        checked.map_err(|right| vec![Problem::with("publish_to", &serde_json::json!(queue), right)])
    }

    fn changed(&self, record: Record) -> Result<Endpoint, ChangeError> {
        self.inner.hub.changed();
        Endpoint::from_record(&record).ok_or(ChangeError::Missing(record.id))
    }
}

impl Filter {
    fn fits(&self, endpoint: &Endpoint) -> bool {
        let spec = &endpoint.spec;
        let labelled = |(name, value): &(String, Option<String>)| match value {
            Some(value) => spec.labels.get(name) == Some(value),
            None => spec.labels.contains_key(name),
        };
        self.search.as_ref().is_none_or(|text| spec.id.contains(text.as_str()))
            && self.kind.as_ref().is_none_or(|kind| spec.kind().as_str() == kind)
            && self.paused.is_none_or(|paused| spec.paused == paused)
            && self.label.as_ref().is_none_or(labelled)
    }
}

fn new_endpoint(spec: &Spec) -> store::NewEndpoint {
    store::NewEndpoint {
        id: spec.id.clone(),
        spec: serde_json::json!(spec).to_string(),
        paused: spec.paused,
    }
}
