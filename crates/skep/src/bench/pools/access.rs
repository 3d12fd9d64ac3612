//! The access log, written in batches, against a transaction for each row.

use super::{Options, median, quantile};
use crate::node::SCHEMAS;
use crate::report::Report;
use crate::work::AccessEntry;
use crate::work::store::write_access;
use skep_pools::{Batch, BatchOptions, Batcher, Failure, Options as PoolOptions, Pools};
use skep_store::{Database, StoreOptions, Stores};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

fn entry(number: u64) -> AccessEntry {
    AccessEntry {
        at_ms: i64::try_from(number).unwrap_or(0),
        node: "hive-1".into(),
        route: "shop".into(),
        host: "shop.example".to_owned(),
        method: "GET".into(),
        path: format!("/api/v1/things/{number}?with=some&parameters=behind"),
        status: 200,
        duration_us: 1_234,
        address: "192.0.2.17".to_owned(),
        actor: "somebody with a key (k3f9a1c05d2e7)".to_owned(),
        request_id: format!("r-{number:016x}"),
        upstream: "10.0.0.1:8080".into(),
        bytes_in: 312,
        bytes_out: 5_120,
        tries: 1,
        protocol: "1.1".into(),
        ..AccessEntry::default()
    }
}

/// What became of entries that came at a steady rate.
#[derive(Debug)]
struct Paced {
    per_batch: f64,
    lost: u64,
    dropped: u64,
}

/// An entry and when it came.
type Stamped = (Arc<AccessEntry>, Instant);

struct Log {
    batcher: Batcher<Stamped>,
    /// From coming to being durable, in milliseconds.
    waits: Arc<Mutex<Vec<f64>>>,
}

impl Log {
    fn new(pools: &Pools, stores: &Stores) -> Self {
        let waits: Arc<Mutex<Vec<f64>>> = Arc::default();
        let (kept, stores) = (waits.clone(), stores.clone());
        let write = move |batch: Batch<Stamped>| {
            let (kept, stores) = (kept.clone(), stores.clone());
            async move {
                let rows = batch.iter().map(|(entry, _)| entry.clone()).collect();
                write_access(stores.database(), rows).await?;
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(batch.iter().map(|(_, at)| at.elapsed().as_secs_f64() * 1e3));
                Ok(())
            }
        };
        let options = BatchOptions::new("bench-access");
        let batcher = Batcher::new(pools, options, write, |_, _: &Failure| {});
        Log { batcher, waits }
    }

    /// Entries at this rate for this time; what was done with them and how long they took.
    async fn pace(&self, per_second: f64, time: Duration) -> (Paced, Vec<f64>) {
        let before = self.batcher.totals();
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let (started, mut sent) = (Instant::now(), 0_u64);
        while started.elapsed() < time {
            while (sent as f64) < started.elapsed().as_secs_f64() * per_second {
                self.batcher.push_or_drop((Arc::new(entry(sent)), Instant::now()));
                sent += 1;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The last batch is cut short by the end of the measurement.
        let paced = self.batcher.totals();
        let per_batch = (paced.written - before.written) as f64
            / (paced.batches - before.batches).max(1) as f64;
        self.batcher.flush().await;
        let after = self.batcher.totals();
        let totals = Paced {
            per_batch,
            lost: after.taken - before.taken - (after.written - before.written),
            dropped: after.dropped - before.dropped,
        };
        (totals, self.waits.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Rows a second when there is always another one.
    async fn as_fast_as_possible(&self, time: Duration) -> f64 {
        let (before, started) = (self.batcher.totals().written, Instant::now());
        let mut number = 0;
        while started.elapsed() < time {
            self.batcher.push((Arc::new(entry(number)), Instant::now())).await;
            number += 1;
        }
        self.batcher.flush().await;
        (self.batcher.totals().written - before) as f64 / started.elapsed().as_secs_f64()
    }
}

async fn one_by_one(database: &Database, time: Duration) -> anyhow::Result<f64> {
    let (started, mut rows) = (Instant::now(), 0_u64);
    while started.elapsed() < time {
        write_access(database, vec![Arc::new(entry(rows))]).await?;
        rows += 1;
    }
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}

pub fn run(folder: &Path, options: Options, report: &mut Report) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(measure(folder, options, report))
}

async fn measure(folder: &Path, options: Options, report: &mut Report) -> anyhow::Result<()> {
    let stores = Stores::open(&StoreOptions::embedded(&folder.join("access")))?;
    stores.migrate(SCHEMAS).await?;
    let pools = Pools::start(PoolOptions::new(2))?;
    let log = Log::new(&pools, &stores);
    let turn = Duration::from_millis(if options.quick { 300 } else { 1_000 });
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let single = one_by_one(stores.database(), turn).await?;
        let batched = log.as_fast_as_possible(turn).await;
        rates.push(batched);
        ratios.push(batched / single);
    }
    report.figure("access_rows_per_second", median(rates));
    report.figure("access_ratio_to_one_transaction_a_row", median(ratios));
    let (long, short) = if options.quick { (2, 1) } else { (20, 5) };
    for (name, rate, seconds) in [("sustained", 1_000.0, long), ("spike", 10_000.0, short)] {
        let (totals, mut waits) = log.pace(rate, Duration::from_secs(seconds)).await;
        if totals.dropped + totals.lost > 0 {
            report.fail(format!("at {rate} a second: {totals:?}"));
        }
        let name = |what: &str| format!("access_{name}_{what}");
        report.figure(&name("durable_p99_ms"), quantile(&mut waits, 990));
        report.figure(&name("rows_per_transaction"), totals.per_batch);
        report.figure(&name("dropped"), totals.dropped as f64);
    }
    pools.shutdown(Duration::from_secs(5)).await;
    stores.close().await;
    Ok(())
}
