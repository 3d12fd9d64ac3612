//! Servers that lose something, hang, and clients that vanish in the middle.

use crate::common::{Asker, join, keys_of, migrated, owners, postgres_at, redis_at, tick};
use skep_nodes::{PostgresTable, RedisTable, TableStore};
use skep_policy::ownership::{Answer, Ask, Caller, Request};
use skep_store::{Outcome, Redis};
use skep_testkit::{PATIENCE, Proxy, eventually};
use std::time::{Duration, Instant};

/// Enough for any answer of a server that is well, and short enough to wait for in vain.
const SHORT: Duration = Duration::from_millis(300);

fn redis_table(redis: &Redis) -> TableStore {
    TableStore::Redis(RedisTable::new(redis, "test"))
}

/// A node that has a key in a settled epoch.
async fn an_owner(store: &TableStore) -> (Asker, Caller) {
    let mut asker = Asker::of(store);
    let ant = asker.join("ant").await;
    asker.settle(&ant).await;
    assert_eq!(owners(&asker.claim(&ant, &["a"]).await), [ant.session]);
    (asker, ant)
}

/// That the table knows it lost something, and lets nobody claim anything.
async fn assert_new_epoch(asker: &mut Asker, caller: &Caller) {
    let before = asker.seen.epoch;
    let reply = asker.reply(tick(caller, 0, 0)).await;
    assert_eq!((reply.answer, reply.settled), (Answer::OtherEpoch, false));
    assert_eq!(reply.epoch.number, before.number + 1);
    let again = asker.join("ant").await;
    assert_eq!(owners(&asker.claim(&again, &["a"]).await), [0]);
}

#[tokio::test]
async fn a_redis_that_restarted_empty_or_from_its_file_begins_a_new_epoch() {
    let mut server = skep_testkit::Redis::start();
    let redis = redis_at(&server.url());
    let (mut asker, ant) = an_owner(&redis_table(&redis)).await;
    server.restart_empty();
    let _ = redis.ask().await;
    assert_new_epoch(&mut asker, &ant).await;

    let (_, ant) = an_owner(&redis_table(&redis)).await;
    redis.command::<()>(&redis::cmd("SAVE")).await.expect("saves");
    server.restart_empty();
    let _ = redis.ask().await;
    let kept: i64 = redis.command(redis::cmd("DBSIZE").arg(&[0; 0])).await.expect("asks");
    assert!(kept > 0, "it came back with what it had saved");
    assert_new_epoch(&mut asker, &ant).await;
}

#[tokio::test]
async fn a_redis_that_was_flushed_or_threw_a_part_away_begins_a_new_epoch() {
    let server = skep_testkit::Redis::start();
    let redis = redis_at(&server.url());
    let (mut asker, ant) = an_owner(&redis_table(&redis)).await;
    redis.command::<()>(&redis::cmd("FLUSHALL")).await.expect("flushes");
    assert_new_epoch(&mut asker, &ant).await;
    for part in ["meta", "nodes", "rows", "changes", "tombs"] {
        let mut asker = asker.clone();
        let ant = asker.join("ant").await;
        asker.settle(&ant).await;
        asker.claim(&ant, &["a", "b"]).await;
        asker.rows(Ask::Forget(ant.clone(), keys_of(&["b"]))).await;
        let mut drop_it = redis::cmd("DEL");
        let gone: i64 =
            redis.command(drop_it.arg(format!("skep:{{test}}:{part}"))).await.expect("deletes");
        assert_eq!(gone, 1, "{part}");
        assert_new_epoch(&mut asker, &ant).await;
    }
}

#[tokio::test]
async fn a_redis_that_forgot_the_script_is_given_it_again() {
    let server = skep_testkit::Redis::start();
    let redis = redis_at(&server.url());
    let (mut asker, mut ant) = an_owner(&redis_table(&redis)).await;
    redis.command::<()>(redis::cmd("SCRIPT").arg("FLUSH")).await.expect("forgets");
    let ticked = asker.tick(&mut ant, 0, 0).await;
    assert_eq!(owners(&ticked.rows), [ant.session]);
}

#[tokio::test]
async fn a_redis_with_an_older_copy_is_found_out_by_whoever_has_seen_more() {
    let server = skep_testkit::Redis::start();
    let redis = redis_at(&server.url());
    let (mut asker, mut ant) = an_owner(&redis_table(&redis)).await;
    let mut copies = Vec::new();
    for part in ["meta", "nodes", "rows", "changes"] {
        let key = format!("skep:{{test}}:{part}");
        let copy: Vec<u8> = redis.command(redis::cmd("DUMP").arg(&key)).await.expect("copies");
        copies.push((key, copy));
    }
    asker.seen.counter = asker.tick(&mut ant, 0, 0).await.upto;
    for (key, copy) in copies {
        let mut restore = redis::cmd("RESTORE");
        restore.arg(key).arg(0).arg(copy).arg("REPLACE");
        redis.command::<()>(&restore).await.expect("restores");
    }
    assert_new_epoch(&mut asker, &ant).await;
}

#[tokio::test]
async fn a_full_redis_does_nothing_instead_of_half() {
    let server = skep_testkit::Redis::start();
    let redis = redis_at(&server.url());
    let (mut asker, ant) = an_owner(&redis_table(&redis)).await;
    let memory = |limit: &'static str| {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory").arg(limit);
        set
    };
    redis.command::<()>(&memory("1")).await.expect("sets");
    let ask = Ask::Release(ant.clone(), vec![("a".into(), 0)]);
    let request = Request { seen: asker.seen, nonce: 1, least: 0, ask };
    asker.store.ask(&request, PATIENCE).await.expect_err("there is no memory");
    redis.command::<()>(&memory("0")).await.expect("sets");
    let mut ant = ant;
    assert_eq!(owners(&asker.tick(&mut ant, 0, 0).await.rows), [ant.session]);
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_an_unknown_outcome_within_the_limit() {
    let server = skep_testkit::Redis::start();
    let redis = redis_at(&server.url());
    let (asker, ant) = an_owner(&redis_table(&redis)).await;
    server.pause();
    let asked = Instant::now();
    let request = Request { seen: asker.seen, nonce: 1, least: 0, ask: tick(&ant, 0, 0) };
    let error = asker.store.ask(&request, SHORT).await.expect_err("nothing answers");
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    assert!(asked.elapsed() < Duration::from_secs(10));
    server.resume();
}

#[tokio::test]
async fn something_else_under_the_keys_is_an_error_and_no_panic() {
    let server = skep_testkit::Redis::start();
    let redis = redis_at(&server.url());
    let (asker, ant) = an_owner(&redis_table(&redis)).await;
    let mut spoil = redis::cmd("HSET");
    spoil.arg("skep:{test}:nodes").arg("ant").arg("what is this");
    redis.command::<i64>(&spoil).await.expect("is spoilt");
    let request = Request { seen: asker.seen, nonce: 1, least: 0, ask: tick(&ant, 0, 0) };
    let error = asker.store.ask(&request, PATIENCE).await.expect_err("makes no sense");
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    let mut spoil = redis::cmd("HSET");
    spoil.arg("skep:{test}:meta").arg("tag").arg("ü");
    redis.command::<i64>(&spoil).await.expect("is spoilt");
    let request =
        Request { seen: Default::default(), nonce: 1, least: 0, ask: join("bee", "first") };
    let error = asker.store.ask(&request, PATIENCE).await.expect_err("makes no sense");
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
}

fn postgres_table(postgres: &skep_store::Postgres) -> TableStore {
    TableStore::Postgres(PostgresTable::new(postgres))
}

#[tokio::test]
async fn a_postgres_that_was_killed_keeps_the_epoch_and_one_that_took_over_begins_another() {
    let mut data = None;
    let mut server = skep_testkit::Postgres::start_prepared(&["restore_command=false"], |folder| {
        data = Some(folder.to_owned());
    });
    let url = format!("postgres://skep@127.0.0.1:{}/postgres", server.port());
    let postgres = migrated(&url).await;
    let (mut asker, mut ant) = an_owner(&postgres_table(&postgres)).await;
    let epoch = asker.seen.epoch;
    assert_eq!(epoch.number, 1, "the first life was begun by the migration");
    server.kill();
    server.start_again();
    let ticked = asker.tick(&mut ant, 0, 0).await;
    assert_eq!((owners(&ticked.rows), asker.seen.epoch), (vec![ant.session], epoch));
    // At the end of what it has it goes on as a server of its own, on a new timeline.
    server.kill();
    std::fs::write(data.expect("has a folder").join("recovery.signal"), "").expect("writes");
    server.start_again();
    assert_new_epoch(&mut asker, &ant).await;
}

#[tokio::test]
async fn a_postgres_with_restored_or_emptied_tables_begins_a_new_epoch() {
    let database = skep_testkit::Postgres::shared().database();
    let (mut asker, ant) = an_owner(&postgres_table(&migrated(&database.url()).await)).await;
    database.run(
        "CREATE TABLE copy (LIKE skep_ownership_meta INCLUDING ALL);
         INSERT INTO copy SELECT * FROM skep_ownership_meta;
         DROP TABLE skep_ownership_meta; ALTER TABLE copy RENAME TO skep_ownership_meta",
    );
    assert_new_epoch(&mut asker, &ant).await;
    let ant = asker.join("ant").await;
    asker.settle(&ant).await;
    database.run("DELETE FROM skep_ownership_meta");
    assert_new_epoch(&mut asker, &ant).await;
    let mut ant = asker.join("ant").await;
    asker.settle(&ant).await;
    asker.seen.counter = asker.tick(&mut ant, 0, 0).await.upto;
    database.run("UPDATE skep_ownership_meta SET counter = counter - 1");
    assert_new_epoch(&mut asker, &ant).await;
}

#[tokio::test]
async fn a_role_with_no_rights_beyond_its_tables_is_enough() {
    let database = skep_testkit::Postgres::shared().database();
    let role = format!("plain_{}", database.name());
    database.run(&format!("CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA public TO {role}"));
    {
        let url = database.url().replace("skep@", &format!("{role}@"));
        let postgres = migrated(&url).await;
        an_owner(&postgres_table(&postgres)).await;
        postgres.close();
    }
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

/// Waits until somebody waits for the table's lock.
fn await_a_waiter(database: &skep_testkit::TestDatabase<'_>) {
    eventually("a step waits for the lock", || {
        let waiting = database.run(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND wait_event_type = 'Lock' AND query LIKE 'CALL%'",
        );
        (waiting == "1").then_some(())
    });
}

/// A request that has arrived and not begun when `harm` comes over its client.
async fn in_the_middle(harm: impl FnOnce(&Proxy)) {
    let server = skep_testkit::Postgres::shared();
    let database = server.database();
    let direct = migrated(&database.url()).await;
    let (mut asker, ant) = an_owner(&postgres_table(&direct)).await;
    let proxy = Proxy::start(server.address());
    let through = postgres_table(&postgres_at(&database.url_through(proxy.port())));
    let mut behind = Asker::of(&through);
    let bee = {
        // What it says of itself is more than fits into the sockets on the way back.
        let Ask::Join { name, instance, weight, status, .. } = join("bee", "first") else {
            unreachable!()
        };
        let info = "x".repeat(20 << 20).into();
        match behind.ask(Ask::Join { name: name.clone(), instance, weight, status, info }).await {
            Answer::Joined { session, seq } => Caller { name, session, seq },
            other => panic!("{other:?}"),
        }
    };
    let Ask::Tick { name, session, weight, status, since, floor, .. } = tick(&bee, 0, 0) else {
        unreachable!()
    };
    let info = "x".repeat(20 << 20).into();
    let ask = Ask::Tick { name, session, weight, status, info, since, floor };

    let holder = direct.client().await.expect("a connection");
    holder
        .batch_execute("BEGIN; SELECT FROM skep_ownership_meta FOR UPDATE")
        .await
        .expect("holds the lock");
    let asking = tokio::spawn(async move { behind.ask(ask).await });
    await_a_waiter(&database);
    harm(&proxy);
    asking.abort();
    holder.batch_execute("COMMIT").await.expect("lets go");
    // Whatever became of that client, nobody waits for it, and what it asked was done.
    eventually("it was done", || {
        let seq = database.run("SELECT seq FROM skep_ownership_nodes WHERE name = 'bee'");
        (seq != bee.seq.to_string()).then_some(())
    });
    let give_up = Ask::Release(ant.clone(), vec![("a".into(), 0)]);
    let request = Request { seen: asker.seen, nonce: 1, least: 0, ask: give_up };
    let reply = asker.store.ask(&request, PATIENCE).await.expect("others go on");
    assert!(matches!(reply.answer, Answer::Rows(_)), "{reply:?}");
    assert_eq!(asker.ask(Ask::Bye(ant)).await, Answer::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanished_after_asking_holds_nobody_up() {
    in_the_middle(Proxy::cut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_its_answer_holds_nobody_up() {
    in_the_middle(Proxy::freeze).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_too_long_for_the_others_gives_up_and_leaves_nothing_behind() {
    let database = skep_testkit::Postgres::shared().database();
    let postgres = migrated(&database.url()).await;
    let (mut asker, mut ant) = an_owner(&postgres_table(&postgres)).await;
    let holder = postgres.client().await.expect("a connection");
    holder
        .batch_execute("BEGIN; SELECT FROM skep_ownership_meta FOR UPDATE")
        .await
        .expect("holds the lock");
    let request = Request { seen: asker.seen, nonce: 1, least: 0, ask: tick(&ant, 0, 0) };
    let asked = Instant::now();
    asker.store.ask(&request, SHORT).await.expect_err("the lock is held");
    assert!(asked.elapsed() < Duration::from_secs(10));
    eventually("nobody waits any more", || {
        let waiting = database.run(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND wait_event_type = 'Lock'",
        );
        (waiting == "0").then_some(())
    });
    holder.batch_execute("COMMIT").await.expect("lets go");
    assert_eq!(owners(&asker.tick(&mut ant, 0, 0).await.rows), [ant.session]);
}
