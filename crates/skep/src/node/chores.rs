//! What a node does for itself while nobody asks.

use super::{Shared, process_now};
use crate::access::{RENEW_EVERY, now_ms};
use crate::http::{CERTIFICATE_LOOK, Certificate, Point};
use std::sync::Arc;
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
        let renewing = async {
            shared.access.renew(database).await?;
            if round.is_multiple_of(NOTE_USES_EVERY) {
                shared.access.note_uses(database).await?;
            }
            Ok::<_, skep_store::StoreError>(())
        };
        // The last copy serves until the database is back; its health is told elsewhere.
        if let Some(Err(error)) = stop.run_until_cancelled(renewing).await {
            tracing::debug!(%error, "the keys could not be renewed");
        }
    }
    Ok(())
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
        points.send_replace(point);
        (last, cpu) = (now, process.cpu);
    }
    Ok(())
}

/// Reads the certificate again when its files change, and warns before it ends.
pub(super) async fn watch_certificate(
    certificate: Arc<Certificate>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut ticks = interval(CERTIFICATE_LOOK);
    let mut seen = certificate.stamp();
    let (mut warned_on, mut told) = (None, String::new());
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let now = certificate.stamp();
        if now != seen {
            match certificate.reload() {
                Ok(()) => {
                    (seen, told) = (now, String::new());
                    tracing::info!("the certificate was replaced");
                }
                // Tried again at each look: rights may be mended without a change of the files.
                Err(error) if error == told => {}
                Err(error) => {
                    let what = "the new certificate cannot be used; the old one stays";
                    tracing::warn!(%error, "{what}");
                    told = error;
                }
            }
        }
        let today = now_ms() / 86_400_000;
        if let Some(warning) = certificate.warning(now_ms())
            && warned_on != Some(today)
        {
            warned_on = Some(today);
            tracing::warn!("{warning}");
        }
    }
    Ok(())
}
