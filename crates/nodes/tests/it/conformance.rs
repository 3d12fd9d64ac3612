//! What nodes rely on, in every store.

use crate::common::{Asker, Fixture, epoch, join, keys_of, owners, tick};
use skep_policy::ownership::{
    Answer, Ask, Caller, PAGE_ROWS, Request, Row, Seen, Status, TOMBSTONES_MAX, Ticked, Token,
};
use skep_testkit::PATIENCE;
use std::collections::BTreeSet;

/// Two nodes in a settled table.
async fn two_nodes(fixture: &Fixture) -> (Asker, Caller, Caller) {
    let mut asker = fixture.asker();
    let (ant, bee) = (asker.join("ant").await, asker.join("bee").await);
    asker.settle(&ant).await;
    (asker, ant, bee)
}

#[tokio::test]
async fn a_name_belongs_to_one_instance_until_its_session_ends() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let mut asker = fixture.asker();
        let ant = asker.join("ant").await;
        let held = asker.ask(join("ant", "second")).await;
        let Answer::NameHeld { session, seq, instance } = held else { panic!("{held:?}") };
        assert_eq!((session, seq, &*instance), (ant.session, ant.seq, "first"));
        // The first instance had not heard the answer and asks again.
        let again = asker.join("ant").await;
        assert_eq!(again.session, ant.session);
        assert!(again.seq > ant.seq);
        assert_eq!(asker.ask(Ask::Claim(ant, keys_of(&["k"]))).await, Answer::Stale);
        assert_eq!(asker.ask(Ask::Bye(again.clone())).await, Answer::Done);
        let joined = asker.ask(join("ant", "second")).await;
        let Answer::Joined { session, .. } = joined else { panic!("{joined:?}") };
        assert!(session > again.seq, "a session is never used twice");
    }
}

#[tokio::test]
async fn each_renewal_gives_a_new_number_and_shows_everybody() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let (mut asker, mut ant, bee) = two_nodes(&fixture).await;
        let before = ant.seq;
        let first = asker.tick(&mut ant, 0, 0).await;
        assert!(ant.seq > before && ant.seq > bee.seq);
        let names: Vec<&str> = first.nodes.iter().map(|node| &*node.name).collect();
        assert_eq!((names, first.alone), (vec!["ant", "bee"], false));
        assert_eq!((first.upto, first.more, first.full, first.floor), (ant.seq, false, false, 0));
        let ask = Ask::Tick {
            name: bee.name.clone(),
            session: bee.session,
            weight: u32::MAX,
            status: Status::Draining,
            info: "zone: ä|b".into(),
            since: 0,
            floor: 0,
        };
        let Answer::Ticked(Ticked { nodes, .. }) = asker.ask(ask).await else {
            panic!("no answer")
        };
        let said = (nodes[1].weight, nodes[1].status, &*nodes[1].info, &*nodes[1].instance);
        assert_eq!(said, (u32::MAX, Status::Draining, "zone: ä|b", "first"));
        let other = Caller { session: bee.session + 1, ..bee };
        assert_eq!(asker.ask(tick(&other, 0, 0)).await, Answer::NoSession);
    }
}

#[tokio::test]
async fn whoever_is_far_behind_gets_the_rows_page_by_page() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let (mut asker, mut ant, _) = two_nodes(&fixture).await;
        let keys: Vec<String> = (0..PAGE_ROWS + 101).map(|number| format!("k{number}")).collect();
        for part in keys.chunks(200) {
            let part: Vec<&str> = part.iter().map(String::as_str).collect();
            asker.claim(&ant, &part).await;
        }
        let first = asker.tick(&mut ant, 0, 0).await;
        assert_eq!((first.rows.len(), first.more), (PAGE_ROWS, true), "{}", fixture.store.name());
        assert_eq!(first.upto, first.rows[PAGE_ROWS - 1].counter);
        // The first row changes and so comes last.
        let give_up = Ask::Release(ant.clone(), vec![("k0".into(), 7)]);
        let released = asker.rows(give_up).await;
        let second = asker.tick(&mut ant, first.upto, 0).await;
        assert_eq!((second.rows.len(), second.more, second.upto), (102, false, ant.seq));
        assert_eq!(second.rows[101], released[0]);
        let found: Vec<&str> =
            first.rows.iter().chain(&second.rows).map(|row| &*row.key).take(keys.len()).collect();
        assert_eq!(found, keys);
        // Exactly a page is no reason to ask again.
        let since = first.rows[101].counter;
        let exact = asker.tick(&mut ant, since, 0).await;
        assert_eq!((exact.rows.len(), exact.more), (PAGE_ROWS, false));
    }
}

#[tokio::test]
async fn nothing_is_claimed_before_the_grace_is_over() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let mut asker = fixture.asker();
        let ant = asker.join("ant").await;
        let reply = asker.reply(Ask::Claim(ant.clone(), keys_of(&["k"]))).await;
        let none = Row { key: "k".into(), session: 0, counter: 0, due: 0 };
        assert_eq!((reply.settled, reply.answer), (false, Answer::Rows(vec![none])));
        let stranger = Caller { name: "bee".into(), session: 9, seq: 9 };
        assert_eq!(asker.ask(Ask::EndGrace(stranger)).await, Answer::NoSession);
        let reply = asker.reply(Ask::EndGrace(ant.clone())).await;
        assert_eq!((reply.settled, reply.answer), (true, Answer::Done));
        assert_eq!(owners(&asker.claim(&ant, &["k"]).await), [ant.session]);
    }
}

#[tokio::test]
async fn a_claim_takes_what_nobody_has_and_what_the_dead_had() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let (mut asker, ant, bee) = two_nodes(&fixture).await;
        asker.claim(&ant, &["a", "b"]).await;
        let give_up = Ask::Release(ant.clone(), vec![("b".into(), -5)]);
        asker.rows(give_up).await;
        let rows = asker.claim(&bee, &["a", "b", "c", "b"]).await;
        assert_eq!(owners(&rows), [ant.session, bee.session, bee.session, bee.session]);
        assert_eq!((rows[1].due, rows[2].due), (-5, 0), "what is due travels");
        assert_eq!(rows[1], rows[3]);
        assert_eq!(rows[2].counter, rows[1].counter + 1);
        let expire = Ask::Expire { session: ant.session, seq: ant.seq };
        assert_eq!(asker.ask(expire).await, Answer::Expired(true));
        assert_eq!(owners(&asker.claim(&bee, &["a"]).await), [bee.session]);
    }
}

#[tokio::test]
async fn only_the_owner_hands_off_and_only_to_who_takes_work() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let (mut asker, ant, bee) = two_nodes(&fixture).await;
        asker.claim(&ant, &["a", "b"]).await;
        let to = |caller: &Caller, key: &str, target| {
            Ask::Handoff(caller.clone(), vec![(key.into(), target, 3)])
        };
        let stolen = asker.rows(to(&bee, "a", bee.session)).await;
        assert_eq!(owners(&stolen), [ant.session]);
        let to_nobody = asker.rows(to(&ant, "a", u64::MAX)).await;
        assert_eq!(owners(&to_nobody), [ant.session]);
        let given = asker.rows(to(&ant, "a", bee.session)).await;
        assert_eq!((given[0].session, given[0].due), (bee.session, 3));
        let draining = Ask::Tick {
            name: bee.name.clone(),
            session: bee.session,
            weight: 1,
            status: Status::Draining,
            info: "".into(),
            since: 0,
            floor: 0,
        };
        asker.ask(draining).await;
        let refused = asker.rows(to(&ant, "b", bee.session)).await;
        assert_eq!(owners(&refused), [ant.session]);
    }
}

#[tokio::test]
async fn a_released_key_is_nobodys_and_only_the_owner_releases() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let (mut asker, ant, bee) = two_nodes(&fixture).await;
        asker.claim(&ant, &["a"]).await;
        let release = |caller: &Caller| Ask::Release(caller.clone(), vec![("a".into(), i64::MAX)]);
        assert_eq!(owners(&asker.rows(release(&bee)).await), [ant.session]);
        let rows = asker.rows(release(&ant)).await;
        assert_eq!((rows[0].session, rows[0].due), (0, i64::MAX));
    }
}

#[tokio::test]
async fn who_held_a_key_in_an_earlier_epoch_gets_it_back_during_the_grace() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let (mut asker, ant, _) = two_nodes(&fixture).await;
        let held = asker.claim(&ant, &["a"]).await;
        let before = asker.seen.epoch;
        let mut bee = asker.clone();
        fixture.start_anew().await;
        let (ant, bee_now) = (asker.join("ant").await, bee.join("bee").await);
        assert_eq!(asker.seen.epoch.number, before.number + 1);
        let reclaim = |caller: &Caller, epoch| {
            let token = Token { epoch, counter: held[0].counter };
            Ask::Reclaim(caller.clone(), vec![("a".into(), token, 11)])
        };
        // A token of this very epoch is no memory of an earlier one.
        let of_now = asker.rows(reclaim(&ant, before.number + 1)).await;
        assert_eq!(owners(&of_now), [0]);
        let back = asker.rows(reclaim(&ant, before.number)).await;
        assert_eq!((back[0].session, back[0].due), (ant.session, 11));
        assert!(back[0].counter > held[0].counter);
        let late = bee.rows(reclaim(&bee_now, before.number)).await;
        assert_eq!(owners(&late), [ant.session]);
    }
}

#[tokio::test]
async fn forgotten_keys_are_told_and_who_missed_it_starts_over() {
    for fixture in Fixture::all(2).await {
        let (mut asker, mut ant, mut bee) = two_nodes(&fixture).await;
        asker.claim(&ant, &["a", "b", "c"]).await;
        asker.claim(&bee, &["d"]).await;
        let known = asker.tick(&mut bee, 0, 0).await;
        let forget = |caller: &Caller, keys: &[&str]| Ask::Forget(caller.clone(), keys_of(keys));
        let rows = asker.rows(forget(&ant, &["a", "d", "never"])).await;
        assert_eq!(owners(&rows), [0, bee.session, 0], "another's key is not forgotten");
        assert_eq!((rows[0].due, rows[2].counter), (0, 0));
        let told = asker.tick(&mut bee, known.upto, known.floor).await;
        assert_eq!((told.rows.len(), told.full, told.floor), (1, false, 0));
        assert_eq!(told.rows[0], rows[0]);
        // Twice is once.
        assert_eq!(asker.rows(forget(&ant, &["a"])).await[0], rows[0]);
        // A forgotten key that is wanted again is not forgotten any more.
        asker.claim(&ant, &["a"]).await;
        let rows = asker.rows(forget(&ant, &["a", "b", "c", "a"])).await;
        assert_eq!(rows[3].counter, 0, "the third pushed the first out");
        let floor = rows[0].counter;
        let behind = asker.tick(&mut bee, known.upto, known.floor).await;
        assert_eq!((behind.full, behind.floor), (true, floor));
        let keys: Vec<&str> = behind.rows.iter().map(|row| &*row.key).collect();
        assert_eq!(keys, ["d", "b", "c"]);
        // Who knows the floor, or all that came after it, goes on from where it is.
        assert!(!asker.tick(&mut ant, known.upto, floor).await.full);
        assert!(!asker.tick(&mut ant, floor, 0).await.full);
    }
}

#[tokio::test]
async fn a_renewal_saves_a_node_from_being_removed() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let (mut asker, mut ant, _) = two_nodes(&fixture).await;
        let watched = ant.seq;
        asker.tick(&mut ant, 0, 0).await;
        let expire = |seq| Ask::Expire { session: ant.session, seq };
        assert_eq!(asker.ask(expire(watched)).await, Answer::Expired(false));
        assert_eq!(asker.ask(expire(ant.seq)).await, Answer::Expired(true));
        assert_eq!(asker.ask(expire(ant.seq)).await, Answer::Expired(false));
        assert_eq!(asker.ask(tick(&ant, 0, 0)).await, Answer::NoSession);
        assert_eq!(asker.ask(Ask::Claim(ant, keys_of(&["k"]))).await, Answer::NoSession);
    }
}

#[tokio::test]
async fn what_was_sent_before_the_last_renewal_is_void() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let (mut asker, mut ant, bee) = two_nodes(&fixture).await;
        asker.claim(&ant, &["a"]).await;
        let old = ant.clone();
        asker.tick(&mut ant, 0, 0).await;
        let token = Token { epoch: 0, counter: 0 };
        for ask in [
            Ask::Claim(old.clone(), keys_of(&["b"])),
            Ask::Reclaim(old.clone(), vec![("b".into(), token, 0)]),
            Ask::Handoff(old.clone(), vec![("a".into(), bee.session, 0)]),
            Ask::Release(old.clone(), vec![("a".into(), 0)]),
            Ask::Forget(old.clone(), keys_of(&["a"])),
            Ask::Bye(old),
        ] {
            assert_eq!(asker.ask(ask).await, Answer::Stale);
        }
        let rows = asker.tick(&mut ant, 0, 0).await.rows;
        assert_eq!(owners(&rows), [ant.session]);
    }
}

#[tokio::test]
async fn requests_of_another_epoch_are_void_and_say_which_one_it_is() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let (mut asker, mut ant, _) = two_nodes(&fixture).await;
        fixture.start_anew().await;
        let mut late = asker.clone();
        asker.join("cat").await;
        let reply = late.reply(tick(&ant, 0, 0)).await;
        assert_eq!((reply.answer, reply.epoch), (Answer::OtherEpoch, asker.seen.epoch));
        assert!(!reply.settled);
        // It knows now; its session is one of the past.
        assert_eq!(late.ask(tick(&ant, 0, 0)).await, Answer::NoSession);
        ant = late.join("ant").await;
        assert_eq!(late.tick(&mut ant, 0, 0).await.nodes.len(), 2);
    }
}

#[tokio::test]
async fn a_request_that_was_long_on_its_way_begins_no_life_of_the_past() {
    let seconds = || std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let name = fixture.store.name();
        let before = seconds();
        let late =
            Request { seen: Seen::default(), nonce: 1, least: 1_000, ask: join("ant", "first") };
        let reply = fixture.store.ask(&late, PATIENCE).await.expect("answers");
        assert!((before..=seconds()).contains(&reply.epoch.number), "{name}: {:?}", reply.epoch);
        // A clock that is ahead of the store's counts as before.
        fixture.start_anew().await;
        let ahead = Request { least: 1 << 40, ..late };
        let reply = fixture.store.ask(&ahead, PATIENCE).await.expect("answers");
        assert_eq!(reply.epoch.number, 1 << 40, "{name}");
    }
}

#[tokio::test]
async fn a_table_that_knows_less_than_a_requester_begins_a_new_epoch() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let name = fixture.store.name();
        let (mut asker, ant, _) = two_nodes(&fixture).await;
        let first = asker.seen.epoch;
        // A higher counter in the same epoch.
        asker.seen.counter = ant.seq + 1_000;
        assert_eq!(asker.ask(tick(&ant, 0, 0)).await, Answer::OtherEpoch, "{name}");
        assert_eq!(asker.seen.epoch.number, first.number + 1);
        let after = asker.join("ant").await;
        assert!(after.seq > ant.seq + 1_000, "{name}: numbers go on from the highest known");
        // The same number from another store.
        let second = asker.seen.epoch;
        let twin = Seen { epoch: epoch(second.number, second.tag ^ 1), counter: 0 };
        asker.seen = twin;
        assert_eq!(asker.ask(tick(&after, 0, 0)).await, Answer::OtherEpoch, "{name}");
        assert_eq!(asker.seen.epoch.number, second.number + 1);
        // A higher number.
        asker.seen.epoch = epoch(100, 7);
        let joined = asker.join("ant").await;
        assert_eq!(asker.seen.epoch.number, 101);
        assert!(joined.session > after.seq);
        // Who knows nothing may come any time.
        let mut fresh = fixture.asker();
        fresh.join("bee").await;
        assert_eq!(fresh.seen.epoch, asker.seen.epoch);
    }
}

#[tokio::test]
async fn an_empty_request_is_answered_with_no_rows() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let (mut asker, ant, _) = two_nodes(&fixture).await;
        let calls = fixture.store.calls();
        for ask in [
            Ask::Claim(ant.clone(), Vec::new()),
            Ask::Reclaim(ant.clone(), Vec::new()),
            Ask::Handoff(ant.clone(), Vec::new()),
            Ask::Release(ant.clone(), Vec::new()),
            Ask::Forget(ant.clone(), Vec::new()),
        ] {
            assert_eq!(asker.ask(ask).await, Answer::Rows(Vec::new()));
        }
        assert_eq!(fixture.store.calls(), calls + 5);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_claim_the_same_at_once_never_get_the_same() {
    for fixture in Fixture::all(TOMBSTONES_MAX).await {
        let mut asker = fixture.asker();
        let mut nodes = Vec::new();
        for number in 0..8 {
            nodes.push(asker.join(&format!("node{number}")).await);
        }
        asker.settle(&nodes[0]).await;
        let claiming = nodes.into_iter().map(|node| {
            let mut asker = asker.clone();
            tokio::spawn(async move {
                let mut mine = Vec::new();
                for round in 0..30 {
                    let keys: Vec<String> = (0..5).map(|one| format!("{round}/{one}")).collect();
                    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                    let rows = asker.claim(&node, &keys).await;
                    mine.extend(rows.into_iter().filter(|row| row.session == node.session));
                }
                mine
            })
        });
        let claiming: Vec<_> = claiming.collect();
        let mut granted = Vec::new();
        for one in claiming {
            granted.extend(one.await.expect("ends"));
        }
        let keys: BTreeSet<_> = granted.iter().map(|row| row.key.clone()).collect();
        let counters: BTreeSet<_> = granted.iter().map(|row| row.counter).collect();
        assert_eq!((granted.len(), keys.len(), counters.len()), (150, 150, 150));
    }
}
