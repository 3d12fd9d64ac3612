//! What a node does for itself while nobody asks.

use super::{Shared, process_now};
use crate::access::{RENEW_EVERY, now_ms};
use crate::http::{CERTIFICATE_LOOK, Certificate, CertificateStamp, Point};
use skep_pools::{Task, Tier};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Uses of keys are noted in the database this often, in times of renewing.
const NOTE_USES_EVERY: u32 = 12;

/// Renews the copy of the keys, and notes their uses now and then.
pub(super) async fn renew_keys(shared: Arc<Shared>, stop: CancellationToken) -> anyhow::Result<()> {
    let mut ticks = interval(RENEW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut round: u32 = 0;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        // Before the first copy was made, the stores' own service makes it.
        if shared.access.ring().is_none() {
            continue;
        }
        round = round.wrapping_add(1);
        let database = shared.stores.database();
        // The last copy serves until the database is back; its health is told elsewhere.
        if let Some(Err(error)) = stop.run_until_cancelled(shared.access.renew(database)).await {
            tracing::debug!(%error, "the keys could not be renewed");
        }
        if round.is_multiple_of(NOTE_USES_EVERY) {
            note_key_uses(&shared);
        }
    }
    Ok(())
}

/// When keys were last used is written down in the normal tier: nobody waits for it.
fn note_key_uses(shared: &Arc<Shared>) {
    let noted = shared.clone();
    let task = Task::future("key-uses", move |_| {
        let shared = noted.clone();
        async move { Ok(shared.access.note_uses(shared.stores.database()).await?) }
    });
    if let Err(error) = shared.work.pools.try_submit(Tier::Normal, task) {
        tracing::debug!(%error, "uses of keys are not noted this time");
    }
}

/// Makes a point of each second for the dashboard.
pub(super) async fn count_seconds(
    shared: Arc<Shared>,
    points: watch::Sender<Point>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut cpu) = (Instant::now(), process_now().cpu);
    ticks.tick().await;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let (now, process) = (Instant::now(), process_now());
        let span = now.duration_since(last);
        let busy = process.cpu.saturating_sub(cpu).as_secs_f64() / span.as_secs_f64().max(0.001);
        let point = shared.traffic.tick(now_ms(), span, process.resident_bytes, busy * 100.0);
        if let Some(fleet) = shared.fleet() {
            fleet.polls.beat();
        }
        points.send_replace(point);
        (last, cpu) = (now, process.cpu);
    }
    Ok(())
}

/// Looks at the certificate again and again, in the high tier: reading files blocks.
pub(super) async fn watch_certificate(
    shared: Arc<Shared>,
    certificate: Arc<Certificate>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut ticks = interval(CERTIFICATE_LOOK);
    let seen = certificate.stamp();
    let look = CertificateLook { seen, warned_on: None, told: String::new() };
    let watched = Arc::new((certificate, Mutex::new(look)));
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let watched = watched.clone();
        let task = Task::blocking("certificate", move |_| {
            let (certificate, look) = &*watched;
            look.lock().unwrap_or_else(PoisonError::into_inner).again(certificate);
            Ok(())
        });
        // One look at a time, and none is worth a second attempt: the next one comes soon.
        let task = task.serial_key(CERTIFICATE_KEY).retries(0);
        if let Err(error) = shared.work.pools.try_submit(Tier::High, task) {
            tracing::debug!(%error, "the certificate is not looked at this time");
        }
    }
    Ok(())
}

/// Of the tasks that look at the certificate.
const CERTIFICATE_KEY: u64 = 1;

/// What the last look at the certificate found.
struct CertificateLook {
    seen: CertificateStamp,
    warned_on: Option<i64>,
    told: String,
}

impl CertificateLook {
    /// Reads the certificate again if its files changed, and warns before it ends.
    fn again(&mut self, certificate: &Certificate) {
        let now = certificate.stamp();
        if now != self.seen {
            match certificate.reload() {
                Ok(()) => {
                    (self.seen, self.told) = (now, String::new());
                    tracing::info!("the certificate was replaced");
                }
                // Tried again at each look: rights may be mended without a change of the files.
                Err(error) if error == self.told => {}
                Err(error) => {
                    let what = "the new certificate cannot be used; the old one stays";
                    tracing::warn!(%error, "{what}");
                    self.told = error;
                }
            }
        }
        let today = now_ms() / 86_400_000;
        if let Some(warning) = certificate.warning(now_ms())
            && self.warned_on != Some(today)
        {
            self.warned_on = Some(today);
            tracing::warn!("{warning}");
        }
    }
}
