//! The review of one server: what is known, what follows, and putting it into effect.
//!
//! ```text
//!   claim (a token) ─► facts, one snapshot ─► plan ─► apply ─┬─► applied
//!                        ▲                                   ├─► fenced: somebody newer has it
//!                        └── stale: something moved ◄────────┘
//! ```

use crate::handle::{Monitors, unfit};
use crate::metrics::Held;
use crate::model::{AssignmentRow, Server};
use crate::roster::{Book, id};
use crate::store::{self, Applied, Apply, Change, Claim, Facts, Mark};
use skep_policy::Time;
use skep_policy::monitors::{
    self as policy, Assignment, Challenge, Plan, Settings, Status, Stored, Summary,
};
use skep_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// How often a server is looked at again because something moved meanwhile.
const LOOKS_MAX: usize = 3;

/// When a server is due again whose review was overtaken by other changes.
const OVERTAKEN_AGAIN_MS: i64 = 1_000;

/// What came of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reviewed {
    /// So many of its monitors are something else now.
    Changed(usize),
    /// Nothing had to change.
    Unchanged,
    /// Somebody else has claimed it since; nothing was done.
    Fenced,
    /// Accounts, monitors or assignments kept changing; nothing was done, it is due again soon.
    Stale,
    /// It was deleted meanwhile.
    Gone,
}

/// A server and its monitors at one moment, ready to be decided about.
pub struct Look {
    /// What the database said.
    pub server: Server,
    /// The state of its assignments that this is.
    pub index: i64,
    /// The state of accounts and monitors that this is.
    pub roster_version: i64,
    /// Its assignments.
    pub rows: Vec<AssignmentRow>,
    /// All monitors.
    pub book: Arc<Book>,
    /// The server for the selection.
    pub subject: policy::Server,
    /// The assignments for the selection, in the order of `rows`.
    pub assignments: Vec<Assignment>,
    /// When.
    pub now_ms: i64,
}

/// The numbers of the selection under which servers are looked at, with the monitors made ready for
/// them.
pub struct Lens {
    settings: Settings,
    book: Option<Arc<Book>>,
}

impl Lens {
    /// Looks through these numbers.
    pub fn new(settings: Settings) -> Self {
        Lens { settings, book: None }
    }

    fn book(&mut self, plain: &Arc<Book>) -> Result<Arc<Book>, StoreError> {
        if *plain.roster.settings() == self.settings {
            return Ok(plain.clone());
        }
        if let Some(book) = self.book.as_ref().filter(|book| book.version == plain.version) {
            return Ok(book.clone());
        }
        let book = Arc::new(plain.under(self.settings).map_err(unfit)?);
        self.book = Some(book.clone());
        Ok(book)
    }
}

/// Milliseconds since 1970 on the clock of the selection.
pub(crate) fn time(ms: i64) -> Time {
    Time::from_millis(u64::try_from(ms).unwrap_or(0))
}

pub(crate) fn millis(time: Time) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Look {
    fn new(facts: Facts, book: Arc<Book>, now_ms: i64) -> Look {
        let Facts { server, assignments: mut rows, summaries, .. } = facts;
        let summaries: HashMap<i64, Summary> = summaries.into_iter().collect();
        // One that is in one of the two reads only is decided about the next time.
        rows.retain(|row| book.place(row.monitor).is_some());
        let (settings, now) = (*book.roster.settings(), time(now_ms));
        let ready = |row: &AssignmentRow| {
            let summary = summaries.get(&row.monitor).copied().unwrap_or_default();
            let challenge = row.challenge.and_then(|(incumbent, reviews)| {
                Some(Challenge { incumbent: book.place(incumbent)?, reviews })
            });
            Assignment {
                monitor: book.place(row.monitor).unwrap_or_default(),
                status: row.status,
                measured: summary.measured(time(row.status_since_ms), now, &settings),
                violation: row.violation.map(|(kind, since)| Stored { kind, since: time(since) }),
                last_check: row.last_check_ms.map(time),
                challenge,
            }
        };
        let assignments = rows.iter().map(ready).collect();
        let subject = policy::Server {
            id: id(&server.id),
            account: server.account.as_deref().map(id),
            ip: Some(server.ip),
        };
        let (index, roster_version) = (server.index, book.version);
        Look { server, index, roster_version, rows, book, subject, assignments, now_ms }
    }

    /// When, on the clock of the selection.
    pub fn now(&self) -> Time {
        time(self.now_ms)
    }

    /// What a review would do now.
    pub fn plan(&self) -> Plan {
        policy::plan(&self.book.roster, &self.subject, &self.assignments, self.now())
    }

    /// The plan as steps of the database, with what the next review must know.
    fn steps(&self, plan: &Plan) -> (Vec<Change>, Vec<Mark>) {
        let rows: HashMap<i64, &AssignmentRow> =
            self.rows.iter().map(|row| (row.monitor, row)).collect();
        // Words are made only where something changes.
        let view = (!plan.changes.is_empty()).then(|| plan.view(&self.book.roster, &self.subject));
        let told = view.into_iter().flat_map(|view| view.changes);
        let changes = plan.changes.iter().zip(told).map(|(change, told)| {
            let cause = plan.verdict(change.monitor).map(|(_, verdict)| verdict.cause.as_str());
            Change {
                monitor: self.book.number(change.monitor),
                from: change.from,
                to: change.to,
                pause_reason: cause.filter(|_| change.to == Status::Paused).map(str::to_owned),
                rule: change.rule.as_str().to_owned(),
                reason: told.reason,
            }
        });
        let marks = plan.verdicts.iter().filter_map(|verdict| {
            let monitor = self.book.number(verdict.monitor);
            let row = rows.get(&monitor)?;
            let mark = Mark {
                monitor,
                violation: verdict.violation.map(|one| (one.kind, millis(one.since))),
                last_check_ms: if verdict.checked { Some(self.now_ms) } else { row.last_check_ms },
                challenge: verdict
                    .challenge
                    .map(|one| (self.book.number(one.incumbent), one.reviews)),
            };
            let known = (row.violation, row.challenge, row.last_check_ms);
            ((mark.violation, mark.challenge, mark.last_check_ms) != known).then_some(mark)
        });
        (changes.collect(), marks.collect())
    }
}

impl Monitors {
    /// Reads a server with its monitors; `None` if there is none with this number.
    pub async fn look(&self, server: i64) -> Result<Option<Look>, StoreError> {
        self.look_through(server, &mut Lens::new(*self.settings())).await
    }

    /// The same under other numbers of the selection.
    pub async fn look_through(
        &self,
        server: i64,
        lens: &mut Lens,
    ) -> Result<Option<Look>, StoreError> {
        let look_back = i64::try_from(lens.settings.look_back.as_millis()).unwrap_or(i64::MAX);
        let now_ms = self.now_ms();
        let since_ms = now_ms.saturating_sub(look_back);
        let Some(facts) = store::facts(&self.inner.db, server, since_ms).await? else {
            return Ok(None);
        };
        // The monitors may be newer than the assignments. Whoever applies a plan names both, so one
        // that does not go together is refused.
        let book = self.book(facts.roster_version).await?;
        Ok(Some(Look::new(facts, lens.book(&book)?, now_ms)))
    }

    /// Reviews a claimed server, and says when it is due again whatever happens.
    pub async fn review(&self, claim: &Claim) -> Result<Reviewed, StoreError> {
        let started = Instant::now();
        let reviewed = self.try_review(claim).await;
        let metrics = &self.inner.metrics;
        let result = match &reviewed {
            Ok(Reviewed::Changed(_)) => "changed",
            Ok(Reviewed::Unchanged | Reviewed::Gone) => "unchanged",
            Ok(Reviewed::Fenced) => "fenced",
            Ok(Reviewed::Stale) => "stale",
            Err(_) => "failed",
        };
        metrics.reviewed(result, started.elapsed());
        self.inner.tally.reviewed(result);
        match &reviewed {
            Ok(Reviewed::Fenced) => {
                let (server, token) = (&claim.server.id, claim.token);
                tracing::info!(
                    server,
                    token,
                    "a review was overtaken; another node has the server"
                );
            }
            Ok(Reviewed::Stale) => {
                let again = self.now_ms().saturating_add(OVERTAKEN_AGAIN_MS);
                self.put_off(claim, again).await;
            }
            Err(error) => {
                let server = &claim.server.id;
                tracing::warn!(server, %error, "a server could not be reviewed; the next one can");
                let policy = &self.inner.options.policy;
                let again = policy.next_review(time(self.now_ms()), false);
                self.put_off(claim, millis(again)).await;
            }
            Ok(_) => {}
        }
        reviewed
    }

    async fn try_review(&self, claim: &Claim) -> Result<Reviewed, StoreError> {
        let mut decided = 0;
        for _ in 0..LOOKS_MAX {
            let Some(look) = self.look(claim.server.number).await? else {
                return Ok(Reviewed::Gone);
            };
            let plan = look.plan();
            decided = plan.changes.len();
            let (changes, marks) = look.steps(&plan);
            let next = self.inner.options.policy.next_review(look.now(), decided > 0);
            let apply = Apply {
                server: look.server.number,
                fence: Some(claim.token),
                index: look.index,
                roster_version: look.roster_version,
                changes,
                marks,
                next_review_ms: millis(next),
                now_ms: look.now_ms,
            };
            let applied = store::apply(&self.inner.db, apply).await;
            match applied.inspect_err(|_| self.inner.metrics.not_applied(decided))? {
                Applied::Done { .. } => {
                    self.done(&look, &plan);
                    return Ok(match decided {
                        0 => Reviewed::Unchanged,
                        some => Reviewed::Changed(some),
                    });
                }
                Applied::Fenced => {
                    self.inner.metrics.not_applied(decided);
                    return Ok(Reviewed::Fenced);
                }
                Applied::Stale { .. } => {}
                Applied::Gone => return Ok(Reviewed::Gone),
            }
        }
        self.inner.metrics.not_applied(decided);
        Ok(Reviewed::Stale)
    }

    /// Counts and tells what was put into effect.
    fn done(&self, look: &Look, plan: &Plan) {
        let metrics = &self.inner.metrics;
        metrics.evaluated(plan.verdicts.len());
        self.inner.tally.hold(look.server.number, Held::of(plan), look.now_ms);
        let before: HashMap<i64, _> =
            look.rows.iter().map(|row| (row.monitor, row.violation)).collect();
        for verdict in &plan.verdicts {
            let known = before.get(&look.book.number(verdict.monitor)).copied().flatten();
            if let Some(new) = verdict.violation
                && known.is_none_or(|(kind, _)| kind != new.kind)
            {
                metrics.began(new.kind);
            }
        }
        if plan.changes.is_empty() {
            return;
        }
        for change in &plan.changes {
            metrics.changed(change.from, change.to, change.rule);
        }
        for change in plan.view(&look.book.roster, &look.subject).changes {
            let (server, monitor) = (&look.server.id, &change.id);
            let (from, to) = (change.from.as_str(), change.to.as_str());
            let (rule, reason) = (change.rule.as_str(), &change.reason);
            tracing::info!(server, %monitor, from, to, rule, reason, "monitor changed");
        }
        self.inner.changed.notify_one();
    }

    async fn put_off(&self, claim: &Claim, next_ms: i64) {
        let number = claim.server.number;
        let released = store::release(&self.inner.db, number, claim.token, next_ms).await;
        if let Err(error) = released {
            // Its lease ends by itself, and it is due again.
            tracing::debug!(server = claim.server.id, %error, "a claim was not given back");
        }
    }
}
