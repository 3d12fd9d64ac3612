//! What PostgreSQL alone can do wrong: slow plans, late steps, lost commits, another history.

use crate::common::{Fixture, migrated, postgres_at};
use skep_policy::sessions::{
    Answer, Ask, Checkout, Close, Heartbeat, Hint, Order, Phase, Refusal, Register, Rules, Seat,
    Shape, Standing, Want, WorkerRow,
};
use skep_sessions::{Heard, Hints, PostgresTable, TableStore};
use skep_store::Postgres;
use skep_testkit::{PATIENCE, Proxy, TestDatabase, eventually};
use std::time::Duration;

const GATEWAY: u64 = 7;

/// Enough for any answer of a server that is well, and short enough to wait for in vain.
const SHORT: Duration = Duration::from_millis(300);

fn table(postgres: &Postgres) -> TableStore {
    TableStore::Postgres(PostgresTable::new(postgres))
}

async fn ask(store: &TableStore, ask: Ask) -> Answer {
    store.ask(&ask).await.unwrap_or_else(|error| panic!("{error}: {ask:?}"))
}

fn join(link: u64) -> Ask {
    let (node, ttl_ms) = ("node".to_owned(), 15_000);
    let (carried, waiting) = (Vec::new(), Vec::new());
    Ask::Join { gateway: GATEWAY, link, node, ttl_ms, carried, waiting }
}

fn checkout(ticket: u64) -> Checkout {
    Checkout {
        gateway: GATEWAY,
        link: 1,
        ticket,
        kind: "chromium".into(),
        want: Want::default(),
        key: "".into(),
        key_max: 0,
        avoid: None,
        wait: true,
    }
}

fn register(name: &str) -> Register {
    Register {
        name: name.into(),
        kind: "chromium".into(),
        url: format!("ws://{name}/").into(),
        slots: None,
        shape: Shape::default(),
        start: "1".into(),
        lifetime: 0,
        recycled: true,
        successor: false,
    }
}

fn heartbeat(name: &str, incarnation: u64) -> Heartbeat {
    let (name, phase, due) = (name.to_owned(), Phase::Serving, None);
    Heartbeat { name, incarnation, phase, due, lifetime: 0, old_gone: false }
}

/// A table with a gateway and workers `w1`, `w2`, ….
async fn furnish(store: &TableStore, rules: Rules, workers: u64) {
    assert_eq!(ask(store, Ask::Configure { kind: "chromium".into(), rules }).await, Answer::Done);
    assert!(matches!(ask(store, join(1)).await, Answer::Joined { .. }));
    for number in 1..=workers {
        let registered = ask(store, Ask::Register(register(&format!("w{number}")))).await;
        assert!(matches!(registered, Answer::Registered { worker, .. } if worker == number));
    }
}

async fn seat(store: &TableStore, ticket: u64) -> Seat {
    match ask(store, Ask::Checkout(checkout(ticket))).await {
        Answer::Seated(seat) => seat,
        other => panic!("{other:?}"),
    }
}

async fn close(store: &TableStore, ticket: u64) {
    let how = Close::Ended;
    let closed = ask(store, Ask::Close { gateway: GATEWAY, link: 1, ticket, how }).await;
    assert_eq!(closed, Answer::Done);
}

async fn worker(store: &TableStore, name: &str) -> WorkerRow {
    match ask(store, Ask::Worker { name: name.into() }).await {
        Answer::Workers { mut workers } => workers.remove(0),
        other => panic!("{name}: {other:?}"),
    }
}

async fn sessions(store: &TableStore) -> usize {
    match ask(store, Ask::Sessions { after: None, limit: usize::MAX }).await {
        Answer::Sessions { sessions } => sessions.len(),
        other => panic!("{other:?}"),
    }
}

/// The rows that one checkout and its close read by index, and by reading a table through.
async fn rows_read(database: &TestDatabase<'_>) -> (i64, i64) {
    // A new connection, because others still count what they did before.
    let client = postgres_at(&database.url()).client().await.expect("a connection");
    let question = |ask: &Ask| serde_json::to_string(ask).expect("is JSON");
    let begin = question(&Ask::Checkout(checkout(1_000_000)));
    let (gateway, link, ticket, how) = (GATEWAY, 1, 1_000_000, Close::Ended);
    let end = question(&Ask::Close { gateway, link, ticket, how });
    // Not committed in between, because what is counted is what one transaction did.
    client.batch_execute("BEGIN").await.expect("begins");
    for ask in [begin, end] {
        let step = "SELECT said::TEXT FROM skep_session_apply($1::TEXT::JSONB, NULL)";
        client.query_one(step, &[&ask]).await.expect("is asked");
    }
    let row = client
        .query_one(
            "SELECT sum(idx_tup_fetch)::BIGINT, sum(seq_tup_read)::BIGINT
             FROM pg_stat_xact_user_tables
             WHERE relname LIKE 'skep_session_%' AND relname <> 'skep_session_meta'",
            &[],
        )
        .await
        .expect("is counted");
    client.batch_execute("ROLLBACK").await.expect("ends");
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn a_checkout_reads_as_few_rows_among_a_thousand_workers_as_among_ten() {
    let database = skep_testkit::Postgres::shared().database();
    let store = table(&migrated(&database.url()).await);
    furnish(&store, Rules::default(), 10).await;
    let among_ten = rows_read(&database).await;
    let names = (11..=1_000).map(|number| format!("w{number}"));
    for name in names {
        ask(&store, Ask::Register(register(&name))).await;
    }
    let among_thousand = rows_read(&database).await;
    assert_eq!((among_ten.1, among_thousand.1), (0, 0), "nothing is read through");
    assert_eq!(among_thousand.0, among_ten.0);
}

#[tokio::test]
async fn a_thousand_workers_that_fell_silent_together_are_lost_in_one_checkout() {
    let database = skep_testkit::Postgres::shared().database();
    let store = table(&migrated(&database.url()).await);
    furnish(&store, Rules::default(), 1_000).await;
    database.run("UPDATE skep_session_workers SET heard = heard - 3600000");
    let refused = Answer::Refused(Refusal::NoWorkers);
    assert_eq!(ask(&store, Ask::Checkout(checkout(1))).await, refused);
    assert_eq!(worker(&store, "w1000").await.standing, Standing::Lost);
}

#[tokio::test]
async fn the_best_worker_is_the_first_entry_of_an_index() {
    let database = skep_testkit::Postgres::shared().database();
    let postgres = migrated(&database.url()).await;
    furnish(&table(&postgres), Rules::default(), 50).await;
    // The statement as it is in the function, with values for its arguments.
    let body = database.run("SELECT prosrc FROM pg_proc WHERE proname = 'skep_session_best'");
    let from = body.find("SELECT first.*").expect("is in it");
    let statement = body[from..].split_once(';').expect("ends").0.replace("INTO w", "");
    let values = [
        ("of_kind", "1"),
        ("of_standing", "'ready'"),
        ("of_labels", "'{}'::TEXT[]"),
        ("of_version", "''"),
        ("avoid", "0"),
    ];
    let statement =
        values.into_iter().fold(statement, |text, (name, value)| text.replace(name, value));
    let settings = database
        .run("SELECT unnest(proconfig) FROM pg_proc WHERE proname = 'skep_session_apply'")
        .lines()
        .filter(|setting| setting.starts_with("enable_"))
        .fold(String::new(), |all, setting| all + "SET " + setting + "; ");
    let plan = database.run(&format!("{settings} EXPLAIN (COSTS OFF) {statement}"));
    let inner = plan.split_once("Limit").expect("one is enough").1;
    let inner = inner.split_once("Limit").expect("and one of each shape").1;
    assert!(inner.contains("Index Scan using skep_session_places"), "{plan}");
    assert!(inner.contains("standing = 'ready'"), "{plan}");
    assert!(!inner.contains("Sort") && !plan.contains("Seq Scan"), "{plan}");
}

/// A connection that a question can be sent on without another word before it.
async fn call(client: &skep_store::PostgresClient, ask: &Ask) -> Answer {
    let question = serde_json::to_string(ask).expect("is JSON");
    let row = client
        .query_one("CALL skep_session_step($1, '', NULL, 60000)", &[&question])
        .await
        .expect("is answered");
    serde_json::from_str(row.get(0)).expect("is an answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_arrives_after_its_gateway_joined_again_is_void() {
    let server = skep_testkit::Postgres::shared();
    let database = server.database();
    let store = table(&migrated(&database.url()).await);
    furnish(&store, Rules::default(), 1).await;
    let proxy = Proxy::start(server.address());
    let through = postgres_at(&database.url_through(proxy.port()));
    let client = through.client().await.expect("a connection");
    call(&client, &Ask::Kinds).await;
    proxy.freeze();
    let late = tokio::spawn(async move { call(&client, &Ask::Checkout(checkout(1))).await });
    assert!(matches!(ask(&store, join(2)).await, Answer::Joined { .. }));
    proxy.heal();
    assert_eq!(late.await.expect("is answered"), Answer::Replaced);
    let row = worker(&store, "w1").await;
    assert_eq!((row.active, row.lifetime, sessions(&store).await), (0, 0, 0));
}

async fn hold(postgres: &Postgres) -> skep_store::PostgresClient {
    let holder = postgres.client().await.expect("a connection");
    let lock = "BEGIN; SELECT FROM skep_session_meta FOR UPDATE";
    holder.batch_execute(lock).await.expect("holds the lock");
    holder
}

/// Waits until so many steps wait for the table's lock.
fn await_waiters(database: &TestDatabase<'_>, count: u32) {
    eventually("steps wait for the lock", || {
        let waiting = database.run(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND wait_event_type = 'Lock'",
        );
        (waiting == count.to_string()).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_still_waiting_when_its_gateway_joins_again_leaves_nothing_behind() {
    let server = skep_testkit::Postgres::shared();
    let database = server.database();
    let postgres = migrated(&database.url()).await;
    let store = table(&postgres);
    furnish(&store, Rules::default(), 1).await;
    let holder = hold(&postgres).await;
    let proxy = Proxy::start(server.address());
    let behind = table(&postgres_at(&database.url_through(proxy.port())));
    let early = tokio::spawn(async move { behind.ask(&Ask::Checkout(checkout(1))).await });
    await_waiters(&database, 1);
    proxy.cut();
    early.await.expect("ends").expect_err("nobody answers");
    let again = store.clone();
    let joining = tokio::spawn(async move { ask(&again, join(2)).await });
    await_waiters(&database, 2);
    holder.batch_execute("COMMIT").await.expect("lets go");
    assert!(matches!(joining.await.expect("ends"), Answer::Joined { .. }));
    await_waiters(&database, 0);
    assert_eq!((worker(&store, "w1").await.active, sessions(&store).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_too_long_for_the_others_gives_up_and_leaves_nothing_behind() {
    let database = skep_testkit::Postgres::shared().database();
    let postgres = migrated(&database.url()).await;
    let store = table(&postgres);
    furnish(&store, Rules::default(), 1).await;
    let holder = hold(&postgres).await;
    let hasty = TableStore::Postgres(PostgresTable::new(&postgres).with_limit(SHORT));
    hasty.ask(&Ask::Checkout(checkout(1))).await.expect_err("the lock is held");
    await_waiters(&database, 0);
    holder.batch_execute("COMMIT").await.expect("lets go");
    assert_eq!((worker(&store, "w1").await.active, sessions(&store).await), (0, 0));
}

#[tokio::test]
async fn what_can_be_looked_at_is_shown_while_a_step_lasts() {
    let database = skep_testkit::Postgres::shared().database();
    let postgres = migrated(&database.url()).await;
    let store = table(&postgres);
    furnish(&store, Rules::default(), 1).await;
    let holder = hold(&postgres).await;
    assert_eq!(worker(&store, "w1").await.standing, Standing::Ready);
    holder.batch_execute("COMMIT").await.expect("lets go");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seat_and_a_permit_that_were_answered_survive_a_crash() {
    // Neither is on the disk by itself before the test is over.
    let mut server =
        skep_testkit::Postgres::start_with(&["synchronous_commit=off", "wal_writer_delay=10s"]);
    // Not a database of its own, which would be dropped while the server is away.
    let url = format!("postgres://skep@127.0.0.1:{}/postgres", server.port());
    let store = table(&migrated(&url).await);
    furnish(&store, Rules { slots: 1, lifetime_max: 1, ..Rules::default() }, 2).await;
    seat(&store, 1).await;
    close(&store, 1).await;
    let sent = worker(&store, "w1").await;
    assert_eq!((sent.standing, sent.permit), (Standing::Restarting, true));
    assert_eq!(seat(&store, 2).await.worker, 2);
    server.kill();
    let lost = store.ask(&Ask::Beat { gateway: GATEWAY, link: 1 }).await;
    assert!(lost.is_err(), "{lost:?}");
    server.start_again();
    assert_eq!(worker(&store, "w1").await, sent);
    assert_eq!(worker(&store, "w2").await.active, 1);
    assert!(matches!(ask(&store, Ask::Checkout(checkout(3))).await, Answer::Waiting { .. }));
}

#[tokio::test]
async fn who_only_says_that_it_lives_does_not_wait_for_the_disk() {
    let server = skep_testkit::Postgres::start_with(&["wal_writer_delay=10s"]);
    let database = server.database();
    let store = table(&migrated(&database.url()).await);
    furnish(&store, Rules::default(), 1).await;
    let unwritten = || {
        let lag = "SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()";
        database.run(lag).parse::<u64>().expect("is a number")
    };
    seat(&store, 1).await;
    let before = unwritten();
    let incarnation = worker(&store, "w1").await.incarnation;
    let heartbeat = heartbeat("w1", incarnation);
    ask(&store, Ask::Heartbeat(Heartbeat { lifetime: 1, ..heartbeat })).await;
    ask(&store, Ask::Beat { gateway: GATEWAY, link: 1 }).await;
    assert!(unwritten() > before, "{before} then {}", unwritten());
}

#[tokio::test]
async fn a_table_from_another_history_forgets_and_is_told_everything_again() {
    let fixture = Fixture::postgres().await;
    let store = &fixture.store;
    furnish(store, Rules::default(), 2).await;
    seat(store, 1).await;
    let before = worker(store, "w2").await.incarnation;
    let database = fixture.database.as_ref().expect("has its database");
    database.run("UPDATE skep_session_meta SET run = 'another'");
    assert_eq!(ask(store, Ask::Kinds).await, Answer::Kinds { kinds: Vec::new() });
    assert_eq!(ask(store, Ask::Beat { gateway: GATEWAY, link: 1 }).await, Answer::Unknown);
    let heartbeat = heartbeat("w2", before);
    assert_eq!(ask(store, Ask::Heartbeat(heartbeat.clone())).await, Answer::Unknown);
    furnish(store, Rules::default(), 1).await;
    ask(store, Ask::Register(register("w2"))).await;
    let incarnation = worker(store, "w2").await.incarnation;
    assert!(incarnation > before, "no number means two starts");
    let ordered = ask(store, Ask::Heartbeat(Heartbeat { incarnation, ..heartbeat })).await;
    assert!(matches!(ordered, Answer::Ordered { order: Order::Serve, .. }), "{ordered:?}");
}

#[tokio::test]
async fn a_role_with_no_rights_beyond_its_tables_is_enough() {
    let database = skep_testkit::Postgres::shared().database();
    let role = format!("plain_{}", database.name());
    database.run(&format!("CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA public TO {role}"));
    {
        let url = database.url().replace("skep@", &format!("{role}@"));
        let postgres = migrated(&url).await;
        let store = table(&postgres);
        furnish(&store, Rules::default(), 1).await;
        seat(&store, 1).await;
        postgres.close();
    }
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

async fn heard(hints: &mut Hints) -> Heard {
    tokio::time::timeout(PATIENCE, hints.next()).await.expect("something is heard")
}

#[tokio::test]
async fn hints_reach_other_nodes_and_a_lost_listener_knows_that_it_missed_some() {
    let database = skep_testkit::Postgres::shared().database();
    let store = table(&migrated(&database.url()).await);
    let other_node = table(&postgres_at(&database.url()));
    furnish(&store, Rules { slots: 1, ..Rules::default() }, 1).await;
    let mut hints = other_node.hints();
    assert_eq!(heard(&mut hints).await, Heard::Missed, "it has just begun to listen");
    seat(&store, 1).await;
    let waits = ask(&store, Ask::Checkout(checkout(2))).await;
    assert_eq!(waits, Answer::Waiting { waiting: 1 });
    close(&store, 1).await;
    assert_eq!(heard(&mut hints).await, Heard::Hint(Hint::Gateway(GATEWAY)));
    ask(&store, Ask::Remove { name: "w1".into(), by_worker: false }).await;
    assert_eq!(heard(&mut hints).await, Heard::Hint(Hint::Gateway(GATEWAY)));
    assert_eq!(heard(&mut hints).await, Heard::Hint(Hint::Worker(1)));
    database.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND query ILIKE 'LISTEN%'",
    );
    assert_eq!(heard(&mut hints).await, Heard::Missed);
}
