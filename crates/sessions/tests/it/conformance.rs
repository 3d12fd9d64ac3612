//! What gateways, workers and operators rely on, in every store.

use crate::world::{KIND, World, carried, checkout, worker};
use skep_policy::sessions::{
    Answer, Ask, Budget, Checkout, Close, Ending, GATEWAY_ID_MAX, Hint, News, NewsKind, Order,
    PAGE_ROWS, Phase, Refusal, Register, Rules, Shape, Standing, Version, Want,
};
use skep_sessions::{Heard, Hints};
use skep_store::Outcome;
use skep_testkit::PATIENCE;

fn rules(slots: u32, lifetime_max: u32) -> Rules {
    Rules { slots, lifetime_max, budget: Budget::Count(1), ..Rules::default() }
}

/// Whose news these are, and of which worker.
fn seats(news: &[News]) -> Vec<(u64, String)> {
    let seat = |one: &News| match &one.what {
        NewsKind::Seated(seat) => Some((one.ticket, seat.name.to_string())),
        NewsKind::End(_) => None,
    };
    news.iter().filter_map(seat).collect()
}

#[tokio::test]
async fn a_session_gets_the_least_loaded_worker_and_gives_its_slot_back() {
    for mut world in World::all(rules(2, 50)).await {
        assert_eq!(world.checkout(7, 1, "").await, Answer::Unknown, "nobody has joined");
        world.join(7, 1, Vec::new()).await;
        assert_eq!(world.checkout(7, 1, "").await, Answer::Refused(Refusal::NoWorkers));
        world.workers(&["a", "b"]).await;
        let first = world.begin(7, 1).await;
        assert_eq!((&*first.name, first.lifetime, first.active, first.slots), ("a", 1, 1, 2));
        assert_eq!(first.standings.of(Standing::Ready), 2);
        assert_eq!(&*world.begin(7, 2).await.name, "b");
        world.close(7, 1).await;
        assert_eq!(&*world.begin(7, 3).await.name, "a", "it is idle again");
        let row = world.worker("a").await;
        assert_eq!((row.lifetime, row.active), (2, 1), "{}", world.store());
        let failed = Ask::Close { gateway: 7, link: 1, ticket: 3, how: Close::Failed };
        world.ask(failed).await;
        let row = world.worker("a").await;
        assert_eq!((row.lifetime, row.standing, row.failures), (1, Standing::Suspect, 1));
    }
}

#[tokio::test]
async fn a_session_gets_a_worker_that_fits_or_hears_what_there_is() {
    for mut world in World::all(rules(1, 50)).await {
        world.join(7, 1, Vec::new()).await;
        let labels = |of: &[&str]| of.iter().map(|&label| label.to_owned()).collect();
        let shape =
            Shape { labels: labels(&["eu", "größe=\"L\""]), version: Version::parse("1.62") };
        world.register(Register { shape: shape.clone(), ..worker("a") }).await;
        world.workers(&["b"]).await;
        let want = Want { labels: labels(&["eu"]), version: None };
        let asked = Checkout { want: want.clone(), ..checkout(7, 1) };
        let Answer::Seated(seat) = world.ask(Ask::Checkout(asked)).await else { panic!("no seat") };
        assert_eq!(&*seat.name, "a");
        let busy = Checkout { want, wait: false, ..checkout(7, 2) };
        assert_eq!(world.ask(Ask::Checkout(busy)).await, Answer::Refused(Refusal::Busy));
        let want = Want { labels: labels(&["us"]), version: None };
        let never = Checkout { want, ..checkout(7, 3) };
        let there_is = Refusal::NoMatch {
            labels: shape.labels,
            versions: shape.version.into_iter().collect(),
        };
        assert_eq!(world.ask(Ask::Checkout(never)).await, Answer::Refused(there_is));
    }
}

#[tokio::test]
async fn the_line_is_fair_between_keys_and_its_gateway_is_told() {
    for mut world in World::all(rules(1, 50)).await {
        world.join(7, 1, Vec::new()).await;
        world.join(8, 1, Vec::new()).await;
        world.workers(&["a"]).await;
        world.begin(7, 1).await;
        for (ticket, key, waiting) in [(2, "many", 1), (3, "many", 2), (4, "few", 3)] {
            let gateway = if key == "few" { 8 } else { 7 };
            let answer = world.checkout(gateway, ticket, key).await;
            assert_eq!(answer, Answer::Waiting { waiting });
        }
        let mut order = Vec::new();
        for ending in [(7, 1), (7, 2), (8, 4)] {
            world.close(ending.0, ending.1).await;
            let told = world.hints.clone();
            for gateway in [7, 8] {
                let seated = seats(&world.beat(gateway).await);
                let is_told = told.contains(&Hint::Gateway(gateway));
                assert_eq!(is_told, !seated.is_empty(), "{}: {told:?}", world.store());
                order.extend(seated.into_iter().map(|(ticket, _)| ticket));
            }
        }
        assert_eq!(order, [2, 4, 3], "{}", world.store());
        assert_eq!(world.kind().await.waiting, 0);
    }
}

#[tokio::test]
async fn no_more_than_the_budget_restart_at_once() {
    for mut world in World::all(rules(1, 1)).await {
        world.join(7, 1, Vec::new()).await;
        world.workers(&["a", "b"]).await;
        for ticket in [1, 2] {
            world.begin(7, ticket).await;
        }
        world.close(7, 1).await;
        assert_eq!(world.hints, [Hint::Worker(1)], "it is to restart");
        world.close(7, 2).await;
        assert_eq!(world.heartbeat("a", Phase::Serving).await, Order::Restart);
        assert_eq!(world.heartbeat("b", Phase::Serving).await, Order::Serve);
        assert_eq!(world.worker("b").await.standing, Standing::Held);
        let kind = world.kind().await;
        assert_eq!((kind.out, kind.out_max, kind.held_idle, kind.free), (1, 1, 1, 0));
        world.now += 700;
        world.register(Register { start: "a-2".into(), ..worker("a") }).await;
        let kind = world.kind().await;
        assert_eq!((kind.out, kind.recycled, kind.out_ms, kind.free), (1, 1, 700, 1));
        assert_eq!(world.heartbeat("b", Phase::Serving).await, Order::Restart);
    }
}

#[tokio::test]
async fn a_silent_gateway_has_its_sessions_taken_back() {
    for mut world in World::all(rules(1, 50)).await {
        world.join(7, 1, Vec::new()).await;
        world.join(8, 1, Vec::new()).await;
        world.workers(&["a"]).await;
        world.begin(8, 1).await;
        world.checkout(7, 2, "").await;
        let mut news = Vec::new();
        for _ in 0..4 {
            assert_eq!(news, Vec::new(), "not before its time");
            world.now += 5_000;
            news = world.beat(7).await;
        }
        assert_eq!(seats(&news), [(2, "a".to_owned())], "{}", world.store());
        assert_eq!(world.ask(Ask::Beat { gateway: 8, link: 1 }).await, Answer::Unknown);
        let ids: Vec<u64> = world.sessions(None, 10).await.iter().map(|row| row.ticket).collect();
        assert_eq!(ids, [2]);
    }
}

#[tokio::test]
async fn whoever_did_not_hear_the_answer_asks_again_and_gets_the_same() {
    for mut world in World::all(rules(1, 50)).await {
        world.join(7, 1, Vec::new()).await;
        world.workers(&["a"]).await;
        let first = world.begin(7, 1).await;
        let again = world.begin(7, 1).await;
        assert_eq!((again.worker, again.lifetime, again.active), (first.worker, 1, 1));
        assert_eq!(world.checkout(7, 2, "").await, Answer::Waiting { waiting: 1 });
        assert_eq!(world.checkout(7, 2, "").await, Answer::Waiting { waiting: 1 });
        world.close(7, 1).await;
        world.close(7, 1).await;
        let row = world.worker("a").await;
        assert_eq!((row.lifetime, row.active), (2, 1), "{}", world.store());
    }
}

#[tokio::test]
async fn what_was_sent_under_an_older_link_is_void() {
    for mut world in World::all(rules(3, 50)).await {
        world.join(7, 1, Vec::new()).await;
        world.workers(&["a"]).await;
        world.begin(7, 1).await;
        world.begin(7, 2).await;
        let joined = world.join(7, 2, vec![carried(1, "a")]).await;
        assert_eq!(joined, Answer::Joined { unplaced: Vec::new() });
        assert_eq!(world.worker("a").await.active, 1, "what it did not say has ended");
        assert_eq!(world.checkout(7, 3, "").await, Answer::Replaced);
        let close = Ask::Close { gateway: 7, link: 1, ticket: 1, how: Close::Ended };
        assert_eq!(world.ask(close).await, Answer::Replaced);
        assert_eq!(world.join(7, 1, Vec::new()).await, Answer::Replaced);
        assert_eq!(world.worker("a").await.active, 1, "{}", world.store());
    }
}

#[tokio::test]
async fn a_store_that_lost_everything_learns_it_from_those_who_carry() {
    for mut world in World::all(rules(2, 50)).await {
        world.join(7, 1, Vec::new()).await;
        world.workers(&["a"]).await;
        world.begin(7, 1).await;
        world.fixture.lose().await;
        assert_eq!(world.ask(Ask::Beat { gateway: 7, link: 1 }).await, Answer::Unknown);
        assert_eq!(world.ask(Ask::Register(worker("a"))).await, Answer::Unconfigured);
        assert_eq!(world.ask(Ask::Kinds).await, Answer::Kinds { kinds: Vec::new() });
        world.configure(rules(2, 50)).await;
        let unplaced = Answer::Joined { unplaced: vec![1] };
        assert_eq!(world.join(7, 2, vec![carried(1, "a")]).await, unplaced);
        world.register(Register { lifetime: 1, ..worker("a") }).await;
        assert_eq!(world.worker("a").await.standing, Standing::Suspect, "gateways are heard first");
        let placed = Answer::Joined { unplaced: Vec::new() };
        assert_eq!(world.join(7, 3, vec![carried(1, "a")]).await, placed);
        let row = world.worker("a").await;
        assert_eq!((row.lifetime, row.active), (1, 1), "{}", world.store());
    }
}

#[tokio::test]
async fn a_workers_end_is_told_to_whoever_carries_on_it() {
    for mut world in World::all(rules(2, 50)).await {
        world.join(7, 1, Vec::new()).await;
        world.join(8, 1, Vec::new()).await;
        world.workers(&["a"]).await;
        world.begin(8, 2).await;
        world.begin(7, 1).await;
        world.ask(Ask::Remove { name: "a".to_owned(), by_worker: false }).await;
        assert_eq!(world.hints, [Hint::Gateway(7), Hint::Gateway(8), Hint::Worker(1)]);
        let end = |ticket| News { ticket, what: NewsKind::End(Ending::WorkerRemoved) };
        assert_eq!(world.beat(7).await, [end(1)], "{}", world.store());
        assert_eq!(world.beat(8).await, [end(2)]);
        assert_eq!(world.heartbeat("a", Phase::Serving).await, Order::Leave);
    }
}

#[tokio::test]
async fn the_tables_time_never_goes_back() {
    for mut world in World::all(rules(2, 50)).await {
        world.join(7, 1, Vec::new()).await;
        let latest = world.now;
        world.now -= 60_000;
        world.workers(&["a"]).await;
        let row = world.worker("a").await;
        assert_eq!((row.since_ms, row.heard_ms), (latest, latest), "{}", world.store());
    }
}

#[tokio::test]
async fn without_a_given_time_it_is_the_stores_own() {
    for fixture in crate::common::Fixture::all().await {
        let rules = Rules::default();
        let (before, store) = (skep_store::wall_ms(), fixture.store);
        for ask in [Ask::Configure { kind: KIND.to_owned(), rules }, Ask::Register(worker("a"))] {
            store.ask(&ask).await.expect("answers");
        }
        let row = store.ask(&Ask::Worker { name: "a".to_owned() }).await.expect("answers");
        let Answer::Workers { workers } = row else { panic!("{row:?}") };
        let since = i64::try_from(workers[0].since_ms).expect("is a time");
        let slack = 5_000;
        assert!((before - slack..=skep_store::wall_ms() + slack).contains(&since), "{since}");
    }
}

#[tokio::test]
async fn thousands_of_sessions_are_said_in_one_question_and_seen_page_by_page() {
    for mut world in World::all(rules(10_000, 0)).await {
        world.join(7, 1, Vec::new()).await;
        world.workers(&["a"]).await;
        let count = PAGE_ROWS + 300;
        let many = (1..=count as u64).map(|ticket| carried(ticket, "a")).collect();
        assert_eq!(world.join(7, 2, many).await, Answer::Joined { unplaced: Vec::new() });
        assert_eq!(world.worker("a").await.active as usize, count);
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let page = world.sessions(after, usize::MAX).await;
            assert!(page.len() <= PAGE_ROWS);
            let Some(last) = page.last() else { break };
            after = Some((last.gateway, last.ticket));
            seen.extend(page.iter().map(|row| row.ticket));
        }
        assert!(seen.into_iter().eq(1..=count as u64), "{}", world.store());
        world.join(7, 3, Vec::new()).await;
        let row = world.worker("a").await;
        assert_eq!((row.active, world.kind().await.active), (0, 0));
        assert_eq!(world.sessions(None, 1).await, []);
    }
}

#[tokio::test]
async fn a_number_that_no_store_could_keep_is_refused_and_nothing_is_done() {
    for world in World::all(Rules::default()).await {
        let ask = Ask::Beat { gateway: GATEWAY_ID_MAX + 1, link: 1 };
        let error = world.fixture.store.ask(&ask).await.expect_err("is refused");
        assert_eq!(error.outcome(), Outcome::NotApplied);
        assert!(error.to_string().contains("gateway: 70368744177664"), "{error}");
    }
}

async fn next_hint(hints: &mut Hints) -> Hint {
    loop {
        match tokio::time::timeout(PATIENCE, hints.next()).await.expect("a hint comes") {
            Heard::Hint(hint) => return hint,
            Heard::Missed => {}
        }
    }
}

#[tokio::test]
async fn hints_are_heard_by_whoever_listens_in_the_order_of_the_step() {
    for mut world in World::all(rules(2, 50)).await {
        let mut hints = world.fixture.store.hints();
        if world.store() != "memory" {
            let first = tokio::time::timeout(PATIENCE, hints.next()).await.expect("it connects");
            assert_eq!(first, Heard::Missed, "whoever has just begun to listen looks first");
        }
        world.join(7, 1, Vec::new()).await;
        world.join(8, 1, Vec::new()).await;
        world.workers(&["a"]).await;
        world.begin(8, 1).await;
        world.begin(7, 1).await;
        world.ask(Ask::Remove { name: "a".to_owned(), by_worker: false }).await;
        for expected in [Hint::Gateway(7), Hint::Gateway(8), Hint::Worker(1)] {
            assert_eq!(next_hint(&mut hints).await, expected, "{}", world.store());
        }
        world.ask(Ask::End { gateway: 8, ticket: 1 }).await;
        assert_eq!(next_hint(&mut hints).await, Hint::Gateway(8), "{}", world.store());
    }
}

#[tokio::test]
async fn a_gateway_that_carried_very_much_is_taken_back_in_several_steps() {
    for mut world in World::all(rules(2_000, 0)).await {
        world.join(7, 1, Vec::new()).await;
        world.workers(&["a"]).await;
        let all = (0..1_200).map(|ticket| carried(ticket, "a")).collect();
        assert_eq!(world.join(8, 1, all).await, Answer::Joined { unplaced: Vec::new() });
        assert_eq!(world.ask(Ask::Leave { gateway: 8, link: 1 }).await, Answer::Done);
        assert_eq!(world.worker("a").await.active, 700, "{}", world.store());
        let late = Ask::Close { gateway: 8, link: 1, ticket: 900, how: Close::Ended };
        assert_eq!(world.ask(late).await, Answer::Replaced);
        for (beats, left) in [(15, 200), (1, 0)] {
            for _ in 0..beats {
                world.now += 1_000;
                world.beat(7).await;
            }
            assert_eq!(world.worker("a").await.active, left, "{}", world.store());
        }
    }
}

#[tokio::test]
async fn a_session_that_was_ended_while_it_waited_ends_also_if_it_is_seated_first() {
    for mut world in World::all(rules(1, 0)).await {
        world.join(7, 1, Vec::new()).await;
        world.workers(&["a"]).await;
        world.begin(7, 1).await;
        assert_eq!(world.checkout(7, 2, "").await, Answer::Waiting { waiting: 1 });
        world.ask(Ask::End { gateway: 7, ticket: 2 }).await;
        world.close(7, 1).await;
        let end = News { ticket: 2, what: NewsKind::End(Ending::Operator) };
        assert_eq!(world.beat(7).await, [end], "{}", world.store());
    }
}
