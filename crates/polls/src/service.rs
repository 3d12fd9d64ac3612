//! Keeps the copy of the endpoints up to date and lets the poller work.

use crate::handle::Polls;
use crate::outbox::Written;
use crate::registry::KIND;
use crate::store::{self, CHANNEL, Recorded, ResultRow};
use skep_store::{Database, Heard};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the endpoints' version is read although nobody said that it changed.
const LOOK_WHILE_LISTENING: Duration = Duration::from_secs(30);

/// The same while the database cannot tell us.
const LOOK_WHILE_DEAF: Duration = Duration::from_millis(800);

/// How long a deleted endpoint is remembered, so that every node hears of its end.
const FORGET_AFTER_MS: i64 = 60 * 60 * 1_000;

/// How often what was deleted long ago is forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(10 * 60);

/// Polls until `stop` is cancelled, then writes what is left. The node must have given everything
/// away by then, so this service stops after that of the nodes.
pub async fn run(polls: Polls, stop: CancellationToken) {
    let inner = polls.inner.clone();
    let poller = inner.poller.clone();
    let told = Told(polls.clone());
    let couriers_stop = CancellationToken::new();
    let courier = async {
        if let Some(courier) = &inner.courier {
            courier.run(couriers_stop.clone()).await;
        }
    };
    let working = async {
        tokio::join!(
            follow(&polls, stop.clone()),
            forget(&polls, stop.clone()),
            poller.follow_agenda(stop.clone()),
            poller.announce_grants(&inner.db, stop.clone()),
            poller.outbox.run(
                &inner.db,
                inner.options.history,
                &poller.metrics,
                &told,
                stop.clone()
            ),
        );
        couriers_stop.cancel();
    };
    tokio::join!(working, courier);
}

/// Tells the poller and the queues what became of results.
struct Told(Polls);

impl Written for Told {
    fn written(&self, results: &[(ResultRow, Option<Recorded>)]) {
        let inner = &self.0.inner;
        if let Some(courier) = &inner.courier {
            for (row, recorded) in results {
                if *recorded == Some(Recorded::Accepted) {
                    courier.take(row);
                }
            }
        }
        for (row, recorded) in results {
            if *recorded == Some(Recorded::Fenced) {
                tracing::info!(
                    instance = %inner.nodes.instance(), event = "fenced", key = row.id,
                    token = %format!("{}.{}", row.epoch, row.counter), "lease"
                );
            }
        }
        inner.poller.written(results);
    }
}

async fn follow(polls: &Polls, stop: CancellationToken) {
    let inner = &polls.inner;
    let mut hub = inner.hub.listen();
    let mut listener = match &inner.db {
        Database::Postgres(postgres) => Some(postgres.listen(&[CHANNEL])),
        Database::Sqlite(_) => None,
    };
    let mut deaf = listener.is_some();
    let mut failed = false;
    loop {
        match inner.registry.sync(&inner.db).await {
            Ok(difference) => {
                if std::mem::take(&mut failed) {
                    tracing::info!("the endpoints can be read again");
                }
                for endpoint in &difference.changed {
                    inner.poller.endpoint_changed(endpoint);
                }
                inner.nodes.want(KIND, difference.wanted);
            }
            Err(error) if !std::mem::replace(&mut failed, true) => {
                tracing::warn!(%error, "the endpoints cannot be read; those known are polled on");
            }
            Err(_) => {}
        }
        let look = if deaf || failed { LOOK_WHILE_DEAF } else { LOOK_WHILE_LISTENING };
        let heard = async {
            match listener.as_mut() {
                Some(listener) => listener.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            heard = heard => deaf = matches!(heard, Heard::Lost),
            _ = hub.changed() => {}
            () = tokio::time::sleep(look) => {}
            () = stop.cancelled() => return,
        }
    }
}

async fn forget(polls: &Polls, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(FORGET_EVERY) => {}
            () = stop.cancelled() => return,
        }
        let older_than_ms = polls.inner.nodes.store_ms() - FORGET_AFTER_MS;
        if let Err(error) = store::forget_deleted(&polls.inner.db, older_than_ms).await {
            tracing::debug!(%error, "deleted endpoints are not forgotten yet");
        }
    }
}
