//! Hints from PostgreSQL and Redis: heard, lost, and heard again.

use skep_store::{Heard, Hints, Postgres, PostgresOptions, Redis, RedisOptions};
use skep_testkit::{PATIENCE, Proxy, eventually};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(2);

fn postgres(url: &str) -> Postgres {
    let options = PostgresOptions { connect_timeout: LIMIT, ..Default::default() };
    Postgres::new(&url.parse().expect("an address"), &options).expect("a pool")
}

fn redis(url: &str) -> Redis {
    let options = RedisOptions { connect_timeout: LIMIT, call_timeout: LIMIT };
    Redis::new(&url.parse().expect("an address"), &options).expect("a handle")
}

async fn next(hints: &mut Hints) -> Heard {
    tokio::time::timeout(PATIENCE, hints.next()).await.expect("something is heard")
}

fn notice(channel: &str, payload: &str) -> Heard {
    Heard::Notice { channel: channel.to_owned(), payload: payload.to_owned() }
}

async fn publish(redis: &Redis, payload: &str) {
    let mut publish = ::redis::cmd("PUBLISH");
    redis.command::<i64>(publish.arg("jar").arg(payload)).await.expect("is published");
}

#[tokio::test]
async fn notices_of_postgres_arrive_in_order_from_each_channel() {
    let database = skep_testkit::Postgres::shared().database();
    let mut hints = postgres(&database.url()).listen(&["jar", "Odd \"name\""]);
    assert_eq!(next(&mut hints).await, Heard::Reconnected);
    database.run("NOTIFY jar, '1'; NOTIFY \"Odd \"\"name\"\"\", '2'; NOTIFY other, '3'");
    database.run("NOTIFY jar");
    assert_eq!(next(&mut hints).await, notice("jar", "1"));
    assert_eq!(next(&mut hints).await, notice("Odd \"name\"", "2"));
    assert_eq!(next(&mut hints).await, notice("jar", ""));
}

#[tokio::test]
async fn a_listener_survives_the_end_of_postgres() {
    let mut server = skep_testkit::Postgres::start();
    let url = format!("postgres://skep@127.0.0.1:{}/postgres", server.port());
    let mut hints = postgres(&url).listen(&["jar"]);
    assert_eq!(next(&mut hints).await, Heard::Reconnected);
    server.run("postgres", "NOTIFY jar, 'before'");
    assert_eq!(next(&mut hints).await, notice("jar", "before"));
    server.kill();
    assert_eq!(next(&mut hints).await, Heard::Lost);
    server.start_again();
    assert_eq!(next(&mut hints).await, Heard::Reconnected);
    server.run("postgres", "NOTIFY jar, 'after'");
    assert_eq!(next(&mut hints).await, notice("jar", "after"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_dropped_leaves_no_connection_to_postgres() {
    let database = skep_testkit::Postgres::shared().database();
    let mut hints = postgres(&database.url()).listen(&["jar"]);
    assert_eq!(next(&mut hints).await, Heard::Reconnected);
    let name = database.name();
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'");
    // The asking connection is one of them.
    assert_eq!(database.run(&count), "2");
    drop(hints);
    eventually("it is closed", || (database.run(&count) == "1").then_some(()));
}

#[tokio::test]
async fn a_postgres_that_fell_silent_is_noticed() {
    let server = skep_testkit::Postgres::shared();
    let database = server.database();
    let proxy = Proxy::start(server.address());
    let mut hints = postgres(&database.url_through(proxy.port())).listen(&["jar"]);
    assert_eq!(next(&mut hints).await, Heard::Reconnected);
    proxy.freeze();
    assert_eq!(next(&mut hints).await, Heard::Lost);
    proxy.heal();
    assert_eq!(next(&mut hints).await, Heard::Reconnected);
    database.run("NOTIFY jar, 'after'");
    assert_eq!(next(&mut hints).await, notice("jar", "after"));
}

#[tokio::test]
async fn a_subscription_survives_the_end_of_redis() {
    let mut server = skep_testkit::Redis::start();
    let mut hints = redis(&server.url()).subscribe("jar");
    assert_eq!(next(&mut hints).await, Heard::Reconnected);
    publish(&redis(&server.url()), "before").await;
    assert_eq!(next(&mut hints).await, notice("jar", "before"));
    server.kill();
    assert_eq!(next(&mut hints).await, Heard::Lost);
    server.start_again();
    assert_eq!(next(&mut hints).await, Heard::Reconnected);
    publish(&redis(&server.url()), "after").await;
    assert_eq!(next(&mut hints).await, notice("jar", "after"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_is_dropped_leaves_no_connection_to_redis() {
    let server = skep_testkit::Redis::start();
    let mut hints = redis(&server.url()).subscribe("jar");
    assert_eq!(next(&mut hints).await, Heard::Reconnected);
    let asking = redis(&server.url());
    let mut subscribers = ::redis::cmd("PUBSUB");
    subscribers.arg("NUMSUB").arg("jar");
    let count = || async {
        let (_, count): (String, i64) = asking.command(&subscribers).await.expect("answers");
        count
    };
    assert_eq!(count().await, 1);
    drop(hints);
    let gone = async {
        while count().await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it is closed");
}

#[tokio::test]
async fn a_redis_that_fell_silent_is_noticed() {
    let server = skep_testkit::Redis::start();
    let mut hints = redis(&server.url()).subscribe("jar");
    assert_eq!(next(&mut hints).await, Heard::Reconnected);
    server.pause();
    assert_eq!(next(&mut hints).await, Heard::Lost);
    server.resume();
    assert_eq!(next(&mut hints).await, Heard::Reconnected);
    publish(&redis(&server.url()), "after").await;
    assert_eq!(next(&mut hints).await, notice("jar", "after"));
}
