//! Redis when it is there, away, hostile and back.

use skep_store::{Lua, Outcome, Redis, RedisOptions, StoreError};
use skep_testkit::{Proxy, eventually};
use std::time::{Duration, Instant};

fn connect(url: &str) -> Redis {
    let options = RedisOptions {
        connect_timeout: Duration::from_secs(1),
        call_timeout: Duration::from_secs(2),
    };
    Redis::new(&url.parse().expect("an address"), &options).expect("a handle")
}

fn add() -> Lua {
    Lua::new("return redis.call('INCRBY', KEYS[1], ARGV[1])")
}

async fn add_three(redis: &Redis, lua: &Lua) -> Result<i64, StoreError> {
    redis
        .script(lua, |call| {
            call.key("jar").arg(3);
        })
        .await
}

#[tokio::test]
async fn a_script_is_one_step_and_survives_being_forgotten() {
    let mut server = skep_testkit::Redis::start();
    let redis = connect(&server.url());
    let lua = add();
    assert_eq!(add_three(&redis, &lua).await.expect("runs"), 3);
    assert_eq!(add_three(&redis, &lua).await.expect("runs"), 6);
    let mut flush = ::redis::cmd("SCRIPT");
    redis.command::<()>(flush.arg("FLUSH")).await.expect("forgets");
    assert_eq!(add_three(&redis, &lua).await.expect("is sent again, and ran once"), 9);
    server.restart_empty();
    let _ = redis.ask().await;
    assert_eq!(add_three(&redis, &lua).await.expect("runs on the empty server"), 3);
}

#[tokio::test]
async fn a_script_that_fails_half_way_is_a_doubt_because_it_keeps_what_it_wrote() {
    let server = skep_testkit::Redis::start();
    let redis = connect(&server.url());
    let lua = Lua::new("redis.call('INCR', 'jar'); return redis.call('INCR', 'list')");
    redis.command::<()>(::redis::cmd("LPUSH").arg("list").arg("x")).await.expect("pushes");
    let error = redis.script::<()>(&lua, |_| {}).await.expect_err("a list cannot be counted up");
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    let jar: i64 = redis.command(::redis::cmd("GET").arg("jar")).await.expect("asks");
    assert_eq!(jar, 1);
}

#[tokio::test]
async fn a_command_that_redis_refuses_did_nothing() {
    let server = skep_testkit::Redis::start();
    let redis = connect(&server.url());
    redis.command::<()>(::redis::cmd("LPUSH").arg("list").arg("x")).await.expect("pushes");
    let error = redis.command::<i64>(::redis::cmd("INCR").arg("list")).await;
    let error = error.expect_err("a list cannot be counted up");
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_is_away_is_unreachable_and_found_when_it_is_back() {
    let mut server = skep_testkit::Redis::start();
    let redis = connect(&server.url());
    redis.ask().await.expect("it is there");
    server.kill();
    // The first call may find the connection dead in its middle.
    let _ = redis.ask().await;
    let error = redis.ask().await.expect_err("it is away");
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert!(!redis.health(Duration::from_secs(9)).await.ok);
    server.start_again();
    let _ = redis.ask().await;
    redis.ask().await.expect("it is back");
    assert!(redis.health(Duration::from_secs(9)).await.ok);
}

#[tokio::test]
async fn a_server_that_never_answers_leaves_an_unknown_outcome_within_the_limit() {
    let server = skep_testkit::Redis::start();
    let redis = connect(&server.url());
    let lua = add();
    assert_eq!(add_three(&redis, &lua).await.expect("runs"), 3);
    server.pause();
    let asked = Instant::now();
    let error = add_three(&redis, &lua).await.expect_err("nothing answers");
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    assert!(asked.elapsed() < Duration::from_secs(10));
    server.resume();
    // The doubt was right: the call had been sent and ran after all.
    assert_eq!(add_three(&redis, &lua).await.expect("runs"), 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_lost_on_the_way_leaves_an_unknown_outcome() {
    let server = skep_testkit::Redis::start();
    let proxy = Proxy::start(server.address());
    let through = connect(&format!("redis://127.0.0.1:{}/0", proxy.port()));
    let (lua, direct) = (add(), connect(&server.url()));
    assert_eq!(add_three(&direct, &lua).await.expect("runs"), 3);
    through.ask().await.expect("it is there");
    // The server has the call and has not looked at it yet when the way back is cut.
    server.pause();
    let before = proxy.passed();
    let calling = tokio::spawn({
        let through = through.clone();
        async move { add_three(&through, &add()).await }
    });
    eventually("the call has arrived", || (proxy.passed() > before).then_some(()));
    proxy.cut();
    let error = calling.await.expect("ends").expect_err("it is cut");
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    server.resume();
    let jar: i64 = direct.command(::redis::cmd("GET").arg("jar")).await.expect("asks");
    assert_eq!(jar, 6, "the doubt was right: it ran");
    proxy.heal();
    through.ask().await.expect("it is healed");
}

#[tokio::test]
async fn a_silent_peer_is_left_for_a_new_connection() {
    let server = skep_testkit::Redis::start();
    let proxy = Proxy::start(server.address());
    let through = connect(&format!("redis://127.0.0.1:{}/0", proxy.port()));
    through.ask().await.expect("it is there");
    proxy.freeze();
    let error = through.ask().await.expect_err("nothing comes back");
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    proxy.heal();
    through.ask().await.expect("it is healed");
}

#[tokio::test]
async fn a_password_mended_on_the_server_is_noticed() {
    let server = skep_testkit::Redis::start_with_password("right");
    let (right, wrong) = (connect(&server.url()), connect(&server.url().replace("right", "wrong")));
    let error = wrong.ask().await.expect_err("the password is wrong");
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    let mut change = ::redis::cmd("CONFIG");
    change.arg("SET").arg("requirepass").arg("wrong");
    right.command::<()>(&change).await.expect("changes");
    wrong.ask().await.expect("now it is right");
}

#[tokio::test]
async fn a_wrong_password_is_denied_without_showing_it() {
    let server = skep_testkit::Redis::start_with_password("right");
    connect(&server.url()).ask().await.expect("the password is right");
    for url in [server.url().replace("right", "hunter2"), server.url().replace(":right@", "")] {
        let error = connect(&url).ask().await.expect_err("the password is wrong");
        assert!(matches!(error, StoreError::Denied { .. }), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
