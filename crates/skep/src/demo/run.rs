//! A demo from the start of its nodes to the summary.

use super::narrator::{Narrator, Say};
use super::nodes::{COUNT, Kind, Nodes};
use super::script::Stage;
use super::story::Told;
use crate::access::now_ms;
use serde::Serialize;
use skep_chaos::world::{self, Pace, Place, Verdict};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// From one event to the next, where nobody says.
const EVERY: Duration = Duration::from_secs(60);
/// A demo that ends by itself shows everything once before.
const EVENTS_WANTED: u32 = 5;
/// What actors may take to settle, whatever they were told.
const SETTLE_MORE: Duration = Duration::from_secs(90);

/// What to do.
pub struct Options {
    /// Where the first node has its dashboard.
    pub listen: SocketAddr,
    /// When it ends by itself.
    pub lasts: Option<Duration>,
    /// It ends when everything has happened so often, too.
    pub rounds: Option<u32>,
    /// From one event to the next.
    pub every: Option<Duration>,
    /// Everything that is left to chance follows from it.
    pub seed: u64,
}

/// The database belongs to somebody.
#[derive(Debug, thiserror::Error)]
#[error(
    "--postgres: the database has {0} already, and a demo would mix its own with them; give it a \
     database of its own"
)]
pub struct DatabaseUsed(&'static str);

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// `demo`.
    pub name: &'static str,
    /// Whether everything that must hold did.
    pub ok: bool,
    pub seed: u64,
    /// How long it ran.
    pub seconds: f64,
    /// A row for each part, and one for the events.
    pub parts: Vec<Part>,
    /// What was told.
    pub events: Vec<Told>,
    /// What did not hold.
    pub failures: Vec<String>,
}

/// A row of the summary.
#[derive(Debug, Serialize)]
pub struct Part {
    pub part: &'static str,
    /// What it did, in figures.
    pub done: String,
    /// What did not hold.
    pub broken: Vec<String>,
}

/// Runs a demo until its time is over or `stop` is cancelled; `begun` is told where it can be seen.
///
/// # Errors
/// If it cannot begin: a port is taken, a server is away, the database is somebody else's.
pub async fn run(
    options: &Options,
    kind: Kind,
    folder: &Path,
    say: Say,
    begun: impl FnOnce(&Place),
    stop: CancellationToken,
) -> anyhow::Result<Outcome> {
    let is_own = matches!(kind, Kind::Inside(_));
    let nodes = Nodes::start(kind, folder, options.listen).await?;
    let place = Arc::new(nodes.place());
    if !is_own {
        refuse_used(&place).await?;
    }
    begun(&place);
    let started = Instant::now();
    let ends = options.lasts.map(|lasts| started + lasts);
    let ends_at = options.lasts.map(|lasts| now_ms() + millis(lasts));
    let names: Vec<String> = (0..COUNT).map(|number| nodes.name(number).to_owned()).collect();
    let mut narrator = Narrator::new(place.clone(), &names, ends_at, say);
    let title =
        format!("{} started, and a fleet's life around them", super::narrator::list(&names));
    narrator.event("start", &title, "/").await;

    let over = CancellationToken::new();
    let actors = actors(&place, &Pace::gentle(options.seed), &over);
    // Cancelled by whoever stops the demo, or by its end.
    let ending = stop.child_token();
    let timer = {
        let ending = ending.clone();
        async move {
            match ends {
                Some(ends) => tokio::time::sleep_until(ends).await,
                None => std::future::pending().await,
            }
            ending.cancel();
        }
    };
    let mut stage = Stage::new(place.clone(), nodes, narrator, ending.clone(), ends);
    let every = options.every.unwrap_or_else(|| usual_every(options.lasts));
    {
        let playing = stage.play(every, options.rounds);
        let timer = async {
            tokio::select! {
                () = timer => {}
                () = ending.cancelled() => {}
            }
        };
        // The scene that is on brings everything back first.
        tokio::join!(playing, timer);
    }
    stage.narrator.event("end", "the demo ends: what is open is settled", "/demo").await;
    over.cancel();
    let mut verdicts = collect(actors).await;
    verdicts.push(stage.verdict());
    stage.narrator.over(None).await;
    let events = stage.narrator.events().to_vec();
    let trouble = stage.nodes.stop().await;
    Ok(judge(options, started.elapsed(), verdicts, events, trouble))
}

fn usual_every(lasts: Option<Duration>) -> Duration {
    lasts.map_or(EVERY, |lasts| EVERY.min(lasts / EVENTS_WANTED))
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// A demo makes queues, endpoints and servers, and would mix them with those of somebody else.
async fn refuse_used(place: &Place) -> anyhow::Result<()> {
    for (path, list) in [
        ("/api/v1/polls/endpoints?limit=1", "endpoints"),
        ("/api/v1/servers?limit=1", "servers"),
        ("/api/v1/resources/queues?limit=1", "queues"),
    ] {
        let answer = place.ask_any("GET", path, None, Duration::from_secs(10)).await;
        let answer = answer.map_err(|trouble| anyhow::anyhow!("{trouble}"))?;
        if answer.body[list].as_array().is_some_and(|found| !found.is_empty()) {
            return Err(DatabaseUsed(list).into());
        }
    }
    Ok(())
}

type Actors = JoinSet<Verdict>;

fn actors(place: &Arc<Place>, pace: &Pace, over: &CancellationToken) -> Actors {
    let mut actors = JoinSet::new();
    let (p, a, o) = (|| place.clone(), || pace.clone(), || over.clone());
    actors.spawn(world::queues::run(p(), a(), o()));
    actors.spawn(world::sessions::run(p(), a(), o()));
    actors.spawn(world::polls::run(p(), a(), o()));
    actors.spawn(world::monitors::run(p(), a(), o()));
    actors.spawn(world::tasks::run(p(), a(), o()));
    actors.spawn(world::routes::run(p(), a(), o()));
    actors
}

/// What all actors say, by their parts.
async fn collect(mut actors: Actors) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let deadline = Instant::now() + SETTLE_MORE;
    loop {
        match tokio::time::timeout_at(deadline, actors.join_next()).await {
            Ok(Some(Ok(verdict))) => verdicts.push(verdict),
            Ok(Some(Err(error))) => verdicts.push(broken_off(format!("an actor: {error}"))),
            Ok(None) => break,
            Err(_) => {
                let left = actors.len();
                let why = format!("{left} actors had not settled after {SETTLE_MORE:?}");
                verdicts.push(broken_off(why));
                break;
            }
        }
    }
    verdicts.sort_by_key(|verdict| verdict.part);
    verdicts
}

fn broken_off(why: String) -> Verdict {
    Verdict { part: "demo", done: "broken off".to_owned(), broken: vec![why] }
}

fn judge(
    options: &Options,
    took: Duration,
    verdicts: Vec<Verdict>,
    events: Vec<Told>,
    trouble: Vec<String>,
) -> Outcome {
    let mut failures: Vec<String> = Vec::new();
    for verdict in &verdicts {
        failures.extend(verdict.broken.iter().map(|text| format!("{}: {text}", verdict.part)));
    }
    failures.extend(trouble);
    let part =
        |verdict: Verdict| Part { part: verdict.part, done: verdict.done, broken: verdict.broken };
    Outcome {
        name: "demo",
        ok: failures.is_empty(),
        seed: options.seed,
        seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
        parts: verdicts.into_iter().map(part).collect(),
        events,
        failures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_that_ends_shows_everything_before() {
        let every = |seconds| usual_every(Some(Duration::from_secs(seconds)));
        assert_eq!(every(60), Duration::from_secs(12));
        assert_eq!(every(3_600), Duration::from_secs(60));
        assert_eq!(usual_every(None), Duration::from_secs(60));
    }

    #[test]
    fn one_broken_invariant_is_named_and_makes_the_whole_fail() {
        let verdict = |broken: &[&str]| Verdict {
            part: "polls",
            done: String::new(),
            broken: broken.iter().map(|text| (*text).to_owned()).collect(),
        };
        let local = ([127, 0, 0, 1], 0).into();
        let options = Options { listen: local, lasts: None, rounds: None, every: None, seed: 7 };
        let judge = |verdicts| judge(&options, Duration::ZERO, verdicts, Vec::new(), Vec::new());
        assert!(judge(vec![verdict(&[])]).ok);
        let bad = judge(vec![verdict(&[]), verdict(&["shop-1: two at once"])]);
        assert_eq!((bad.ok, &*bad.failures[0]), (false, "polls: shop-1: two at once"));
    }
}
