//! Words about what was handed out, moving, deleting, and the comparison at the end.

use super::*;

/// Ids and transaction ids by partition.
type Rest = BTreeMap<String, Vec<(u128, String)>>;

impl Trial {
    /// One of those who were handed something, lately rather than long ago.
    fn holder(&mut self) -> Option<Held> {
        let back = self.below(4).min(self.below(12));
        self.held.iter().rev().nth(back).cloned()
    }

    fn verdict(&mut self) -> Verdict {
        match self.below(10) {
            0..5 => Verdict::Completed,
            5..8 => Verdict::Failed,
            8 => Verdict::Retry,
            _ => Verdict::Dead,
        }
    }

    fn words(&mut self, held: &Held) -> Vec<model::Word> {
        let mut words = Vec::new();
        for (partition, transaction) in &held.messages {
            if self.one_in(4) {
                continue;
            }
            let lease = match self.below(10) {
                0 => Some(LeaseId(77)),
                1 => None,
                _ => Some(held.lease),
            };
            let transaction = if self.one_in(20) { "never" } else { transaction }.to_owned();
            let verdict = self.verdict();
            let error = Some(format!("{verdict:?} {transaction}"));
            // At once, or not before the trial is over: the two clocks need not agree.
            let after = self.one_in(6).then(|| Duration::from_secs(self.below(2) as u64 * 3_600));
            words.push(model::Word {
                partition: Some(*partition),
                transaction,
                verdict,
                lease,
                error,
                after,
            });
        }
        for place in (1..words.len()).rev() {
            let other = self.below(place + 1);
            words.swap(place, other);
        }
        // What is told without a lease counts for whoever may have none: it is another story if
        // the same call tells it with one.
        let free = words.iter().all(|word| word.lease.is_none());
        words.retain(|word| free || word.lease.is_some());
        words
    }

    fn item(&self, word: &model::Word) -> SettleItem {
        SettleItem {
            partition: word.partition.and_then(|number| self.ids.get(&number).copied()),
            transaction: word.transaction.as_str().into(),
            verdict: word.verdict,
            lease: word.lease,
            error: word.error.as_deref().map(Into::into),
            after: word.after,
        }
    }

    /// Several calls of one batch of the store.
    pub(super) async fn settle(&mut self) {
        let (mut jobs, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..if self.one_in(3) { 3 } else { 1 } {
            let Some(held) = self.holder() else { continue };
            let words = self.words(&held);
            for word in &words {
                let lease = word.lease.map(|lease| lease.0 >> 112);
                self.note(format!(
                    "settle {} {:?} {} {:?} {lease:x?}",
                    held.group, word.partition, word.transaction, word.verdict
                ));
            }
            let items = words.iter().map(|word| self.item(word)).collect();
            let (answer, told) = oneshot::channel();
            jobs.push(Job::Settle { group: held.group.into(), items, answer });
            waiting.push((held.group, words, told));
        }
        self.store.run(jobs).await;
        for (group, words, told) in waiting {
            let told = told.await.expect("is answered").expect("works");
            let told: Vec<_> = told.into_iter().map(|item| plain(item.settled)).collect();
            let chance = &mut SeededChance::new(1);
            let expected = self.model.settle(self.now, group, &words, chance);
            let expected: Vec<_> = expected.into_iter().map(plain).collect();
            self.note(format!("  said {told:?}"));
            same_settled(&told, &expected);
        }
    }

    pub(super) async fn transact(&mut self) {
        let Some(held) = self.holder() else { return };
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..self.below(3) {
            let (new, push) = self.message();
            self.note(format!("  push {}/{}/{}", push.queue, push.partition, push.transaction));
            theirs.push(Step::Push(new));
            ours.push(model::Step::Push(push));
        }
        let count = 1 + self.below(3);
        for (partition, transaction) in held.messages.iter().take(count) {
            let lease = if self.one_in(3) { None } else { Some(held.lease) };
            let verdict = if self.one_in(5) { Verdict::Dead } else { Verdict::Completed };
            let word = model::Word {
                partition: Some(*partition),
                transaction: transaction.clone(),
                verdict,
                lease,
                error: None,
                after: None,
            };
            self.note(format!("  settle {partition} {transaction} {verdict:?} {lease:?}"));
            theirs.push(Step::Settle { group: held.group.into(), item: self.item(&word) });
            ours.push(model::Step::Settle { group: held.group.to_owned(), word });
        }
        let mut required = Vec::new();
        if self.one_in(2) {
            required.push(held.lease);
        }
        if self.one_in(10) {
            required.push(LeaseId(78));
        }
        self.note(format!("transact the above as {} requiring {required:x?}", held.group));
        let job = TransactionJob { steps: theirs, required: required.clone(), takes: Vec::new() };
        let told = self.store.try_transact(job).await;
        let expected = self.model.transact(self.now, &ours, &required, &mut SeededChance::new(1));
        match (told, expected) {
            (Ok(Ok(told)), Ok(expected)) => {
                self.note("  done");
                assert_eq!(told.len(), expected.len());
                for (told, expected) in told.iter().zip(&expected) {
                    match (told, expected) {
                        (StepDone::Pushed(told), model::Done::Pushed(expected)) => {
                            self.same_pushed(&[*told], &[*expected]);
                        }
                        (StepDone::Settled(told), model::Done::Settled(expected)) => {
                            same_settled(&[plain(told.settled)], &[plain(*expected)]);
                        }
                        other => panic!("step: {other:?}"),
                    }
                }
            }
            (Ok(Err(NotDone::Lease(told))), Err(model::NotDone::Lease(expected))) => {
                assert_eq!(told, expected);
            }
            (
                Ok(Err(NotDone::Step(at, told))),
                Err(model::NotDone::Step(expected_at, expected)),
            ) => {
                assert_eq!(at, expected_at, "the step that was refused");
                same_settled(&[told.settled], &[expected]);
            }
            (Err(WorkError::Full { queue, .. }), Err(model::NotDone::Full(full))) => {
                assert_eq!(*queue, *full.queue);
            }
            // With two reasons at once either may be told.
            (Err(WorkError::Full { .. }), Err(_)) | (Ok(Err(_)), Err(model::NotDone::Full(_))) => {}
            (told, expected) => panic!("transaction: {told:?} instead of {expected:?}"),
        }
    }

    pub(super) async fn extend_or_release(&mut self) {
        let Some(held) = self.holder() else { return };
        if self.one_in(2) {
            self.note(format!("extend {:x}", held.lease.0 >> 112));
            let told = self.store.extend(held.lease, 900).await.is_some();
            let hold = Duration::from_secs(900);
            assert_eq!(told, self.model.extend(self.now, held.lease, hold).is_some(), "it holds");
        } else {
            self.note(format!("release {:x}", held.lease.0 >> 112));
            let told = self.store.release(held.lease).await;
            assert_eq!(told, self.model.release(self.now, held.lease), "lanes it held");
        }
    }

    pub(super) async fn seek(&mut self) {
        let queue = if self.one_in(10) { "never" } else { QUEUES[self.below(2)] };
        let group = self.pick(&GROUPS);
        let partition = self.one_in(2).then(|| self.pick(&PARTITIONS));
        let moment = match self.below(3) {
            0 => None,
            1 => Some((Time::ZERO, Time::ZERO)),
            _ => self.moments.last().copied(),
        };
        self.note(format!("seek {queue} {group} {partition:?} {moment:?}"));
        let to = moment.map_or(SeekTo::End, |(_, theirs)| SeekTo::Time(theirs));
        let told = self.store.seek_for(group, queue, partition, to).await;
        let ours = moment.map(|(ours, _)| ours);
        let expected = match self.model.seek(self.now, queue, group, partition, ours) {
            Ok(count) => Sought::Moved(count),
            Err(model::Nothing::NoQueue) => Sought::NoQueue,
            Err(_) => Sought::NoPartition,
        };
        assert_eq!(told, expected);
        if partition.is_none() && queue != "never" {
            self.sought.insert((queue, group));
        }
    }

    pub(super) async fn delete(&mut self) {
        let queue = self.pick(&QUEUES);
        let group = self.pick(&GROUPS);
        if self.one_in(3) {
            self.note(format!("delete queue {queue}"));
            assert_eq!(self.store.delete_queue(queue).await, self.model.delete_queue(queue));
            self.sought.retain(|one| one.0 != queue);
            self.configure(queue).await;
        } else if self.one_in(2) {
            self.note(format!("delete group {group} of {queue}"));
            self.store.delete_group(group, Some(queue)).await;
            self.model.delete_group(group, Some(queue));
            self.sought.remove(&(queue, group));
        } else {
            self.note(format!("delete group {group}"));
            self.store.delete_group(group, None).await;
            self.model.delete_group(group, None);
            self.sought.retain(|one| one.1 != group);
        }
    }

    /// Everything that can be read, after a restart.
    pub(super) async fn compare_everything(&mut self) {
        self.reopen().await;
        self.store.tidy_all().await;
        self.note("the end");
        let names = self.store.queues(None, 100).await;
        let names: Vec<String> = names.iter().map(|one| one.queue.name.to_string()).collect();
        assert_eq!(names, self.model.queues().collect::<Vec<_>>(), "queues");
        for queue in QUEUES {
            let shown = self.store.show(queue).await.expect("is there");
            let theirs: BTreeSet<(String, u64)> =
                shown.partitions.iter().map(|one| (one.name.to_string(), one.tail)).collect();
            let ours = self.model.partitions(queue);
            let ours: BTreeSet<(String, u64)> =
                ours.map(|(_, name, all)| (name.to_owned(), all.len() as u64)).collect();
            assert_eq!(theirs, ours, "partitions of {queue}");
            assert_eq!(shown.summary.total, ours.iter().map(|one| one.1).sum::<u64>());
        }
        let filter = DeadFilter { limit: 10_000, ..DeadFilter::default() };
        let dead = self.store.dead_letters(filter).await;
        assert_eq!(dead.total, dead.letters.len() as u64);
        let place = |letter: &DeadLetter| format!("{}/{}", letter.queue, letter.partition);
        let mut theirs: Vec<_> = letters(&dead)
            .into_iter()
            .zip(&dead.letters)
            .map(|(one, letter)| {
                (
                    place(letter),
                    letter.group.to_string(),
                    one,
                    letter.error.as_deref().map(str::to_owned),
                )
            })
            .collect();
        let mut ours: Vec<_> = self
            .model
            .dead_letters()
            .iter()
            .map(|letter| {
                let one = (letter.message.transaction.clone(), letter.failures);
                let place = format!("{}/{}", letter.queue, letter.partition);
                (place, letter.group.clone(), one, letter.error.clone())
            })
            .collect();
        theirs.sort();
        ours.sort();
        assert_eq!(theirs, ours, "dead letters");
        for held in std::mem::take(&mut self.held) {
            let told = self.store.release(held.lease).await;
            assert_eq!(told, self.model.release(self.now, held.lease), "lanes that are leased");
        }
        for queue in QUEUES {
            let known: Vec<&str> = match queue {
                "small" => vec![GROUPS[0], "new"],
                _ => vec![GROUPS[0], GROUPS[1], "new"],
            };
            for group in known {
                self.now = self.now + Duration::from_millis(1);
                let (theirs, ours) = self.drain(queue, group).await;
                assert_eq!(theirs, ours, "what {group} has not settled in {queue}");
            }
        }
    }

    /// Reads to the end on both sides, partition by partition.
    async fn drain(&mut self, queue: &str, group: &str) -> (Rest, Rest) {
        let (mut theirs, mut ours) = (Rest::new(), Rest::new());
        let read_all = || ClaimJob { auto_ack: true, group: group.into(), ..up_to(7, queue) };
        loop {
            let got = self.store.pop(read_all()).await;
            for lane in &got.claimed.lanes {
                let all = theirs.entry(lane.partition.to_string()).or_default();
                all.extend(read(lane).into_iter().map(|one| (one.id.as_u128(), one.transaction)));
            }
            if got.claimed.lanes.is_empty() {
                break;
            }
        }
        let pop = model::Pop {
            target: model::Target::Queue(queue.to_owned()),
            group: group.to_owned(),
            start: Some(Start::All),
            batch: u32::MAX,
            partitions: u32::MAX,
            lease: LeaseId(79),
            hold: None,
            auto_settle: true,
        };
        for lane in self.model.pop(self.now, &pop).lanes {
            let all = lane.messages.into_iter().map(|one| (one.id, one.transaction));
            ours.entry(lane.partition).or_default().extend(all);
        }
        (theirs, ours)
    }
}

/// A word that does not count is refused by both, if not for the same reason where the group or its
/// lane is not there any more.
fn same_settled(told: &[Settled], expected: &[Settled]) {
    assert_eq!(told.len(), expected.len());
    for (told, expected) in told.iter().zip(expected) {
        match (told, expected) {
            (Settled::Refused(Refusal::Stale | Refusal::Unknown), Settled::Refused(_)) => {}
            _ => assert_eq!(told, expected),
        }
    }
}
