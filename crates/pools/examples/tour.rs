//! A tour of the pools: `cargo run --package skep-pools --example tour`.

use skep_policy::backoff;
use skep_policy::pools::{Ratio, TierRules};
use skep_pools::{BatchOptions, Batcher, Failure, Options, Pools, SubmitError, Task, Tier};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::new(2);
    let high = options.tier_mut(Tier::High);
    let ratio = Ratio::whole(5);
    // One worker, and a helper that stands by, because it can have no more.
    high.rules = TierRules { min: 1, max: 1, up: ratio, down: Ratio::whole(2), overflow: ratio };
    high.queue = 3;
    high.retries = 2;
    high.backoff =
        backoff::Options { base: Duration::from_millis(5), cap: Duration::from_millis(20) };
    let pools = Pools::start(options)?;

    println!("Tiers: each has workers and a queue of its own.");
    let (done, mut watching) = watch::channel(0);
    let done = Arc::new(done);
    for tier in Tier::ALL {
        let done = done.clone();
        let task = Task::blocking("hello", move |context| {
            let thread = std::thread::current();
            println!("  {} runs on {}", context.tier(), thread.name().unwrap_or_default());
            done.send_modify(|count| *count += 1);
            Ok(())
        });
        pools.submit(tier, task).await?;
    }
    watching.wait_for(|count| *count == 4).await?;

    println!("Backpressure: a full queue says so at once, or lets the submitter wait.");
    let (open, door) = watch::channel(false);
    let waits = || {
        let door = door.clone();
        Task::future("waits", move |_| {
            let mut door = door.clone();
            async move {
                door.wait_for(|open| *open).await?;
                Ok(())
            }
        })
    };
    let mut taken = 0;
    let refused = loop {
        match pools.try_submit(Tier::High, waits()) {
            Ok(_) => taken += 1,
            Err(SubmitError::Full(task)) => break task,
            Err(stopped) => return Err(stopped.into()),
        }
    };
    println!("  {taken} were taken, then it was full; the task came back: {refused:?}");
    open.send(true)?;
    let id = pools.submit(Tier::High, refused).await?;
    println!("  with patience it got in, as number {id}");

    println!("Retry: what fails is tried again, with growing waits.");
    let task = Task::blocking("flaky", move |context| {
        println!("  attempt {}", context.attempt());
        if context.attempt() < 3 {
            return Err(Failure::retryable("not yet"));
        }
        done.send_modify(|count| *count += 1);
        Ok(())
    });
    pools.submit(Tier::High, task).await?;
    watching.wait_for(|count| *count == 5).await?;

    println!("Dead letters: what cannot be done is kept, and can be tried again.");
    let task = Task::blocking("doomed", |context| panic!("attempt {}", context.attempt()));
    std::panic::set_hook(Box::new(|panic| println!("  {}", panic.payload_as_str().unwrap_or(""))));
    pools.submit(Tier::High, task.retries(1)).await?;

    println!("Batching: many small writes become few large ones.");
    let write = |batch: skep_pools::Batch<u32>| async move {
        println!("  {} entries, the first is {}", batch.len(), batch[0]);
        if batch.contains(&42) { Err(Failure::permanent("no 42, please")) } else { Ok(()) }
    };
    let give_up = |entry: &u32, failure: &Failure| println!("  {entry} is given up: {failure:?}");
    let batcher = Batcher::new(&pools, BatchOptions::new("entries"), write, give_up);
    for entry in 0..100 {
        batcher.push(entry).await;
    }
    batcher.flush().await;
    println!("  {:?}", batcher.totals());

    println!("Shutdown: everything is finished, or told.");
    let hangs = Task::future("hangs", |_| std::future::pending());
    pools.submit(Tier::Low, hangs).await?;
    let report = pools.shutdown(Duration::from_millis(100)).await;
    println!("  {report:?}");
    for letter in Tier::ALL.iter().flat_map(|tier| pools.letters(*tier)) {
        println!("  {letter:?}");
    }
    for pool in pools.stats() {
        let (done, dead) = (pool.total_processed, pool.total_failed);
        println!("  {}: {done} done, {dead} given up, {} retried", pool.name, pool.totals.retried);
    }
    Ok(())
}
