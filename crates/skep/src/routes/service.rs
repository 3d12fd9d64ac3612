//! What the routes of a node do beside serving: follow the database, look at certificates, alert.

use super::alerts::matters;
use super::events::event_of;
use super::{FILES, NodeRoutes};
use crate::access::now_ms;
use crate::node::{Shared, State};
use skep_policy::Time;
use skep_policy::routes::alerts::Watch;
use skep_pools::{Task, Tier};
use skep_routes::store::CHANNEL;
use skep_routes::{Journal, RouteView};
use skep_store::{Database, Heard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

/// How often the database is asked whether routes have changed, where it tells by itself too.
const LOOK: Duration = Duration::from_secs(5);

/// The same where it does not.
const LOOK_WHILE_DEAF: Duration = Duration::from_secs(1);

/// Certificates are looked at so often, in seconds.
const CERTIFICATES_EVERY: u64 = 5;

/// How long the last minutes may take to be written, and then the last events.
const LAST_WRITES_LIMIT: Duration = Duration::from_secs(4);

/// How long the routes may take to stop.
pub const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Of the tasks that look at certificates.
const CERTIFICATES_KEY: u64 = 2;

/// Cares for the routes while the node lives. Stops after the gateway, whose requests it counts.
pub async fn run(shared: Arc<Shared>, stop: CancellationToken) -> anyhow::Result<()> {
    let routes = &shared.routes;
    let (proxy, store) = (routes.proxy.clone(), routes.store.clone());
    let chores = skep_routes::run(proxy, store, shared.name.as_str(), stop.clone());
    let chores = async {
        tokio::select! {
            () = chores => {}
            // Whoever stops does not wait for a database that hangs.
            () = time_after(&stop, LAST_WRITES_LIMIT) => {
                tracing::warn!("the last minutes of the routes are not written in time");
            }
        }
    };
    tokio::join!(
        chores,
        stop.run_until_cancelled(follow(&shared)),
        stop.run_until_cancelled(reload(routes)),
        attend(&shared, &stop)
    );
    if tokio::time::timeout(LAST_WRITES_LIMIT, routes.journal.finish()).await.is_err() {
        tracing::warn!("the last events of the routes are not written");
    }
    Ok(())
}

/// Comes a while after somebody has asked to stop.
async fn time_after(stop: &CancellationToken, span: Duration) {
    stop.cancelled().await;
    sleep(span).await;
}

/// Reads the file again whenever somebody asks for it.
async fn reload(routes: &NodeRoutes) {
    loop {
        routes.reload_wanted.notified().await;
        match routes.reload().await {
            Ok(done) => {
                let super::Reloaded { routes, added, changed, removed, warnings } = done;
                tracing::info!(routes, ?added, ?changed, ?removed, "the routes were read again");
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
            }
            Err(wrong) => {
                for line in &wrong.0 {
                    tracing::error!("the routes stay as they were: {line}");
                }
                let what = format!("the routes stay as they were: {wrong}");
                routes.journal.tell(event_of("", "reload", what));
            }
        }
    }
}

/// Follows the routes of the database.
async fn follow(shared: &Shared) {
    let mut state = shared.state.clone();
    if state.wait_for(|state| *state == State::Ready).await.is_err() {
        return;
    }
    let mut listener = match shared.stores.database() {
        Database::Postgres(postgres) => Some(postgres.listen(&[CHANNEL])),
        Database::Sqlite(_) => None,
    };
    // An embedded database is changed by this process alone, which looks after each change.
    let mut deaf = listener.is_some();
    let mut failed = false;
    loop {
        match shared.routes.sync().await {
            Ok(()) => {
                if std::mem::take(&mut failed) {
                    tracing::info!("the routes can be read again");
                }
            }
            Err(error) if !std::mem::replace(&mut failed, true) => {
                tracing::warn!(%error, "the routes cannot be read; those known are served on");
            }
            Err(_) => {}
        }
        let heard = async {
            match listener.as_mut() {
                Some(listener) => listener.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            heard = heard => deaf = matches!(heard, Heard::Lost),
            () = sleep(if deaf || failed { LOOK_WHILE_DEAF } else { LOOK }) => {}
        }
    }
}

/// Does what is to be done every second or so.
async fn attend(shared: &Arc<Shared>, stop: &CancellationToken) {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut watch, began) = (Watch::default(), Instant::now());
    let mut second: u64 = 0;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        second += 1;
        shared.routes.journal.pass_time();
        alert(shared, &mut watch, Time::ZERO + began.elapsed());
        if second.is_multiple_of(CERTIFICATES_EVERY) {
            look_at_certificates(&shared.routes);
        }
    }
}

fn alert(shared: &Shared, watch: &mut Watch, now: Time) {
    let routes = &shared.routes;
    let views = routes.proxy.overview();
    let known = routes.known();
    let encrypted =
        |view: &RouteView| known.get(&view.name).is_some_and(|route| route.spec.tls.is_some());
    let ends: BTreeMap<String, i64> =
        routes.certificates.ends().into_iter().map(|end| (end.host, end.expires_at_ms)).collect();
    let end = |view: &RouteView| ends.get(&view.host).copied().filter(|_| encrypted(view));
    for change in watch.observe(now, &matters(&views, end, now_ms())) {
        let (route, kind) = change.about;
        let about = format!("routes:{route}");
        shared.work.alerts.change(about, kind, change.firing, change.reason);
    }
}

/// Reads certificates again whose files have changed, in the high tier: reading files blocks.
fn look_at_certificates(routes: &Arc<NodeRoutes>) {
    if routes.certificates.config().is_none() && routes.known().certificates().is_empty() {
        return;
    }
    let looked = routes.clone();
    let task = Task::blocking(FILES, move |_| {
        let look = looked.certificates.look();
        for host in &look.replaced {
            tracing::info!(host, "the certificate was replaced");
            let detail = format!("the certificate of {host} was replaced");
            looked.journal.tell(event_of("", "certificate", detail));
        }
        for problem in &look.problems {
            let what = "the certificate cannot be used; the one before stays";
            tracing::warn!(%problem, "{what}");
            looked.journal.tell(event_of("", "certificate", format!("{what}: {problem}")));
        }
        Ok(())
    });
    // One look at a time, and none is worth a second attempt: the next one comes soon.
    let task = task.serial_key(CERTIFICATES_KEY).retries(0);
    if let Err(error) = routes.pools.try_submit(Tier::High, task) {
        tracing::debug!(%error, "certificates are not looked at this time");
    }
}
