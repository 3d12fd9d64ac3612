//! What happened in queues because of one request, added to the tally once for each queue.

use crate::store::{ClaimedLane, ItemSettled, NewMessage, Pushed, StatCounts, StatRow, minute_of};
use crate::tally::Tally;
use skep_policy::Time;
use skep_policy::queues::{Settled, Verdict};
use std::sync::Arc;

/// Queues of one request that are added up before they go to the tally.
const QUEUES_AT_ONCE: usize = 32;

/// Now, by this machine's clock: it decides about the minute that something counts for.
pub(crate) fn now() -> Time {
    let nanos = jiff::Timestamp::now().as_nanosecond();
    Time::from_nanos(u64::try_from(nanos).unwrap_or_default())
}

/// Sums of one request by queue.
pub(crate) struct Counting<'tally> {
    tally: &'tally Tally,
    now: Time,
    queues: Vec<(Arc<str>, StatCounts)>,
}

impl<'tally> Counting<'tally> {
    pub(crate) fn new(tally: &'tally Tally, now: Time) -> Self {
        Counting { tally, now, queues: Vec::new() }
    }

    /// Messages as they were kept. One that waits for its time counts when that has come, and one
    /// that had come before does not count.
    pub(crate) fn pushed(&mut self, message: &NewMessage, pushed: &Pushed) {
        let now = self.now;
        if !pushed.duplicate && message.due.is_none_or(|due| due <= now) {
            let counts = self.of(&message.queue);
            counts.pushed += 1;
            counts.bytes += message.record.len() as u64;
        }
    }

    /// Messages that were handed out, and settled with it if `auto_ack`.
    pub(crate) fn popped(&mut self, lanes: &[ClaimedLane], auto_ack: bool) {
        for lane in lanes {
            let messages: u64 = lane.parts.iter().map(|part| u64::from(part.count)).sum();
            let counts = self.of(&lane.queue);
            counts.popped += messages;
            counts.acked += if auto_ack { messages } else { 0 };
        }
    }

    /// What came of a consumer's word.
    pub(crate) fn settled(&mut self, verdict: Verdict, item: &ItemSettled) {
        let Some(queue) = &item.queue else { return };
        let failed = u64::from(verdict == Verdict::Failed);
        match item.settled {
            Settled::Done { .. } => self.of(queue).acked += 1,
            Settled::Dead { .. } => {
                let counts = self.of(queue);
                counts.dead += 1;
                counts.failed += failed;
            }
            Settled::Again { .. } => self.of(queue).failed += failed,
            Settled::Noop | Settled::Refused(_) => {}
        }
    }

    fn of(&mut self, queue: &Arc<str>) -> &mut StatCounts {
        let known = self.queues.iter().rposition(|(name, _)| name == queue);
        let place = known.unwrap_or_else(|| {
            if self.queues.len() >= QUEUES_AT_ONCE {
                self.flush();
            }
            self.queues.push((queue.clone(), StatCounts::default()));
            self.queues.len() - 1
        });
        &mut self.queues[place].1
    }

    fn flush(&mut self) {
        for (queue, counts) in self.queues.drain(..) {
            self.tally.add(&queue, self.now, &counts);
        }
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Sums on their way to the store. What is left when this is dropped was not written.
pub(crate) struct Unwritten<'tally> {
    tally: &'tally Tally,
    pub(crate) rows: Vec<StatRow>,
}

impl<'tally> Unwritten<'tally> {
    pub(crate) fn take(tally: &'tally Tally) -> Self {
        Unwritten { tally, rows: tally.take() }
    }
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        self.tally.put_back(std::mem::take(&mut self.rows));
    }
}

/// Messages that were deleted for their age. Of which queue is not known.
pub(crate) fn removed(tally: &Tally, messages: u64) {
    if messages > 0 {
        let counts = StatCounts { expired: messages, ..StatCounts::default() };
        tally.put_back(vec![StatRow { queue: None, minute: minute_of(now()), counts }]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PartitionId;
    use crate::record::{Record, Wishes};
    use std::borrow::Cow;
    use uuid::Uuid;

    fn message(queue: &str, due: Option<Time>) -> NewMessage {
        let record = Record {
            id: Uuid::nil(),
            transaction: Cow::Borrowed("t"),
            trace: None,
            producer: None,
            wishes: Wishes { due, ..Wishes::default() },
            encrypted: false,
            payload: b"1",
        };
        NewMessage::of(queue.into(), "p".into(), &record, record.encode())
    }

    #[test]
    fn a_request_counts_once_for_each_of_its_queues_however_many_there_are() {
        let (tally, now) = (Tally::default(), Time::from_millis(120_000));
        let pushed = |duplicate| Pushed { id: Uuid::nil(), partition: PartitionId(1), duplicate };
        let mut counting = Counting::new(&tally, now);
        for round in 0..3 {
            for number in 0..100 {
                counting.pushed(&message(&format!("q{number}"), None), &pushed(round == 2));
            }
        }
        let later = now + std::time::Duration::from_secs(1);
        counting.pushed(&message("q0", Some(later)), &pushed(false));
        counting.pushed(&message("q0", Some(now)), &pushed(false));
        drop(counting);
        let rows = tally.take();
        let of = |queue: Option<&str>| {
            let row = rows.iter().find(|row| row.queue.as_deref() == queue).expect("is there");
            (row.minute, row.counts.pushed)
        };
        assert_eq!((rows.len(), of(None)), (101, (2, 201)));
        assert_eq!((of(Some("q0")), of(Some("q99"))), ((2, 3), (2, 2)));
    }

    #[test]
    fn words_count_for_what_came_of_them() {
        let tally = Tally::default();
        let mut counting = Counting::new(&tally, Time::ZERO);
        let mut say = |verdict, settled, queue: Option<&str>| {
            let item = ItemSettled { settled, queue: queue.map(Arc::from), partition: None };
            counting.settled(verdict, &item);
        };
        let q = Some("q");
        say(Verdict::Completed, Settled::Done { released: true }, q);
        say(Verdict::Completed, Settled::Noop, q);
        say(Verdict::Failed, Settled::Again { at: Time::ZERO }, q);
        say(Verdict::Retry, Settled::Again { at: Time::ZERO }, q);
        say(Verdict::Failed, Settled::Dead { failures: 1, released: true }, q);
        say(Verdict::Completed, Settled::Done { released: true }, None);
        drop(counting);
        let counts = tally.take()[0].counts;
        assert_eq!((counts.acked, counts.failed, counts.dead), (1, 2, 1));
    }
}
