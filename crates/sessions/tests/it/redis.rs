//! What Redis alone can do wrong: forget a part, come back as it was before, grow slow.

use crate::common::{Fixture, redis_at};
use crate::world::{World, carried};
use skep_policy::sessions::{Answer, Ask, Rules, Standing};
use skep_sessions::{RedisTable, TableStore};
use skep_store::Redis;

fn rules() -> Rules {
    Rules { slots: 5, lifetime_max: 0, ..Rules::default() }
}

#[tokio::test]
async fn a_server_that_threw_a_part_away_is_not_believed() {
    for part in ["rows", "index"] {
        let mut world = World::new(Fixture::redis(), rules()).await;
        world.join(7, 1, Vec::new()).await;
        world.workers(&["a"]).await;
        world.begin(7, 1).await;
        let (redis, id) = world.fixture.redis.clone().expect("has its server");
        let mut evict = redis::cmd("DEL");
        evict.arg(format!("skep:{{{id}}}:sessions:{part}"));
        redis.command::<i64>(&evict).await.expect("is gone");
        assert_eq!(world.ask(Ask::Beat { gateway: 7, link: 1 }).await, Answer::Unknown, "{part}");
        world.configure(rules()).await;
        world.join(7, 2, Vec::new()).await;
        world.workers(&["b"]).await;
        assert_eq!(world.worker("b").await.number, 1, "{part}: nobody is left");
        assert_eq!(world.sessions(None, 10).await, []);
    }
}

#[tokio::test]
async fn after_a_restart_everybody_says_again_what_they_carry() {
    let mut server = skep_testkit::Redis::start();
    let redis = redis_at(&server.url());
    let store = TableStore::Redis(RedisTable::new(&redis, "one"));
    let fixture = Fixture { store, redis: None, database: None };
    let mut world = World::new(fixture, rules()).await;
    world.join(7, 1, Vec::new()).await;
    world.join(8, 1, Vec::new()).await;
    world.workers(&["a", "b"]).await;
    world.ask(Ask::Drain { name: "b".to_owned(), drained: true }).await;
    world.begin(7, 1).await;
    server.keep_copy().expect("saves");
    world.begin(7, 2).await;
    world.begin(8, 3).await;
    server.kill();
    server.start_again_from_copy();
    // The first call may find the old connection.
    let beat = Ask::Beat { gateway: 7, link: 1 };
    let mut answer = world.fixture.store.ask(&beat).await;
    while answer.is_err() {
        answer = world.fixture.store.ask(&beat).await;
    }
    assert_eq!(answer.expect("answers"), Answer::Unknown, "its record may be from before");
    let row = world.worker("a").await;
    assert_eq!((row.active, row.standing), (1, Standing::Suspect), "gateways are heard first");
    assert_eq!(world.checkout(8, 4, "").await, Answer::Unknown);
    let placed = Answer::Joined { unplaced: Vec::new() };
    assert_eq!(world.join(7, 2, vec![carried(1, "a"), carried(2, "a")]).await, placed);
    assert_eq!(world.join(8, 2, vec![carried(3, "a")]).await, placed);
    let row = world.worker("a").await;
    assert_eq!((row.active, row.failures), (3, 0));
    let (worker, incarnation) = (row.number, row.incarnation);
    world.ask(Ask::Probed { worker, incarnation, good: true }).await;
    assert_eq!(world.worker("a").await.standing, Standing::Ready);
    assert_eq!(world.worker("b").await.standing, Standing::Drained, "what was kept is kept");
}

/// Commands that the server has run, those within scripts too.
async fn commands(redis: &Redis) -> u64 {
    let mut ask = redis::cmd("INFO");
    ask.arg("commandstats");
    let info: String = redis.command(&ask).await.expect("answers");
    let calls = info.lines().filter_map(|line| line.split_once("calls=")?.1.split(',').next());
    calls.filter_map(|count| count.parse::<u64>().ok()).sum()
}

#[tokio::test]
async fn a_session_costs_as_much_among_a_thousand_workers_as_among_ten() {
    let server = skep_testkit::Redis::start();
    let redis = redis_at(&server.url());
    let mut costs = Vec::new();
    for count in [10, 1_000] {
        let store = TableStore::Redis(RedisTable::new(&redis, &format!("with-{count}")));
        let fixture = Fixture { store, redis: None, database: None };
        let mut world = World::new(fixture, rules()).await;
        world.join(7, 1, Vec::new()).await;
        for number in 0..count {
            world.workers(&[&format!("w{number}")]).await;
        }
        let before = commands(&redis).await;
        for ticket in 0..20 {
            world.begin(7, ticket).await;
        }
        for ticket in 0..20 {
            world.close(7, ticket).await;
        }
        costs.push(commands(&redis).await - before);
    }
    // Now and then a step asks the server who it is.
    let (few, many) = (costs[0], costs[1]);
    assert!(few.abs_diff(many) <= 40, "{few} and {many} commands");
    assert!(many <= 41 * 16, "{many} commands for 40 steps");
}
