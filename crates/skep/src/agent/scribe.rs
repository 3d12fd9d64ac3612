//! The thread that writes the file of results, so that a slow disk keeps nobody waiting who
//! measures or reports.
//!
//! What is ordered is done in its order. Orders wait in a bounded line; where that is full the file
//! is left behind, and made whole again by writing it anew once there is room.

use super::journal::Journal;
use super::wire::Measured;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;

/// Orders that may wait for the disk; a line of the file each.
pub const ORDERS_MAX: usize = 4_096;

/// How long the last writes may take.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

enum Order {
    Append(u64, Measured),
    Done(u64),
    Rewrite(Vec<(u64, Measured)>),
    Flush(oneshot::Sender<()>),
}

/// What the thread tells.
#[derive(Default)]
struct Told {
    /// The number of the rewrite after which the file is broken, plus one.
    broken: AtomicU64,
    trouble: Mutex<Option<io::Error>>,
}

pub struct Scribe {
    /// Nothing only while it is dropped.
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    told: Arc<Told>,
    /// Lines in the file, once all orders are done.
    lines: u64,
    /// Rewrites that were ordered.
    rewrites: u64,
    /// Lines were left out since the last one, because too many orders waited.
    is_behind: bool,
    /// Lines that were left out since the file is not whole.
    skipped: u64,
}

impl Scribe {
    pub fn start(journal: Journal) -> io::Result<Self> {
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        let told = Arc::new(Told::default());
        let (lines, tells) = (journal.lines(), told.clone());
        let thread = std::thread::Builder::new()
            .name("agent-buffer".to_owned())
            .spawn(move || write(journal, taken, &tells))?;
        Ok(Scribe {
            orders: Some(orders),
            thread: Some(thread),
            told,
            lines,
            rewrites: 0,
            is_behind: false,
            skipped: 0,
        })
    }

    /// Whether all that was ordered is in the file, or will be.
    pub fn is_whole(&self) -> bool {
        let broken = self.told.broken.load(Ordering::Acquire) == self.rewrites + 1;
        !broken && !self.is_behind && !self.is_lost()
    }

    /// Whether nobody waits for the disk any more.
    pub fn is_lost(&self) -> bool {
        self.thread.is_none()
    }

    /// Whether it is time to try to make it whole again: at first often, then seldom, because all
    /// of it is written.
    pub fn is_to_mend(&self) -> bool {
        let turn = self.skipped.is_power_of_two() || self.skipped.is_multiple_of(1_024);
        !self.is_whole() && turn
    }

    /// Lines in the file, once all orders are done.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    pub fn append(&mut self, number: u64, result: &Measured) {
        if self.has_room() {
            self.order(Order::Append(number, result.clone()));
        }
    }

    /// This result and all before it need not be kept any more.
    pub fn done(&mut self, number: u64) {
        if self.has_room() {
            self.order(Order::Done(number));
        }
    }

    /// Replaces the file by one with these results alone.
    pub fn rewrite<'a>(&mut self, results: impl Iterator<Item = &'a (u64, Measured)>) {
        if self.orders.as_ref().is_none_or(|orders| orders.capacity() == 0) {
            return;
        }
        let results: Vec<_> = results.cloned().collect();
        (self.lines, self.skipped, self.is_behind) = (results.len() as u64, 0, false);
        self.rewrites += 1;
        self.order(Order::Rewrite(results));
    }

    /// Nothing may follow half a line, and nothing a gap.
    fn has_room(&mut self) -> bool {
        let whole = self.is_whole();
        if whole {
            self.lines += 1;
        } else {
            self.skipped += 1;
        }
        whole
    }

    fn order(&mut self, order: Order) {
        let taken = self.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok());
        if !taken {
            (self.is_behind, self.skipped) = (true, 0);
        }
    }

    /// What went wrong since this was asked before.
    pub fn take_trouble(&self) -> io::Result<()> {
        let trouble = self.told.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        trouble.map_or(Ok(()), Err)
    }

    /// Waits until everything that was ordered is done, for a while.
    pub async fn flush(&mut self) -> io::Result<()> {
        let (sender, done) = oneshot::channel();
        let orders = self.orders.clone();
        let flushed = async {
            match orders {
                Some(orders) => {
                    orders.send(Order::Flush(sender)).await.is_ok() && done.await.is_ok()
                }
                None => false,
            }
        };
        match tokio::time::timeout(FLUSH_LIMIT, flushed).await {
            Ok(true) => self.take_trouble(),
            Ok(false) => Err(io::Error::other("the thread that writes it has ended")),
            Err(_) => {
                // It may never come back, so nobody waits for it again.
                self.thread = None;
                Err(io::Error::new(io::ErrorKind::TimedOut, "the disk takes too long"))
            }
        }
    }
}

impl Drop for Scribe {
    /// The file is free for the next one when it is dropped.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked there is nothing more to write.
            let _ = thread.join();
        }
    }
}

fn write(mut journal: Journal, mut orders: Receiver<Order>, told: &Told) {
    let mut rewrites = 0;
    while let Some(order) = orders.blocking_recv() {
        let done = match order {
            Order::Append(number, result) => journal.append(number, &result),
            Order::Done(number) => journal.done(number),
            Order::Rewrite(results) => {
                rewrites += 1;
                journal.rewrite(results.iter())
            }
            Order::Flush(asker) => {
                // Whoever asked may have given up.
                let _ = asker.send(());
                Ok(())
            }
        };
        if let Err(error) = done {
            if !journal.is_whole() {
                told.broken.store(rewrites + 1, Ordering::Release);
            }
            *told.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    fn result(at: i64) -> Measured {
        let server = "s".repeat(200);
        Measured { server, at, rtt_ms: Some(1.5), offset_ms: None, error: None }
    }

    #[test]
    fn whoever_orders_goes_on_while_the_disk_takes_nothing() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut scribe = Scribe::start(Journal::into_pipe(writer)).expect("starts");
        // Far more than a pipe holds that nobody reads from: a write into it waits, as into a disk
        // that is stuck. That this ends at all is what is tested.
        let count = ORDERS_MAX as u64 / 2;
        (1..=count).for_each(|number| scribe.append(number, &result(0)));
        assert!(scribe.is_whole());
        // More than may wait: they are left out, and known to be.
        (0..2 * ORDERS_MAX as u64).for_each(|more| scribe.append(count + 1 + more, &result(0)));
        assert!(!scribe.is_whole());
        // Once the disk moves again, what was taken is there, in its order and without a gap.
        let mut numbers = BufReader::new(reader).lines().map(|line| {
            let line: serde_json::Value =
                serde_json::from_str(&line.expect("reads")).expect("is JSON");
            line["n"].as_u64().expect("a number")
        });
        assert!((1..=count).all(|number| numbers.next() == Some(number)));
        drop(numbers);
    }
}
