//! What the store promises, on each database.

use skep_polls::store::{self, *};
use skep_store::{DataFolder, Database, Heard, Postgres, PostgresOptions, Sqlite, SqliteOptions};
use skep_testkit::{Folder, PATIENCE, TestDatabase};
use std::sync::Arc;

const MAX: u64 = 1_000;
const HISTORY: u32 = 5;

/// An empty, migrated embedded database.
pub async fn sqlite(folder: &Folder) -> Database {
    let data = Arc::new(DataFolder::open(folder.path()).expect("locks"));
    let sqlite = Sqlite::open(&data, &SqliteOptions::default()).expect("opens");
    let database = Database::Sqlite(sqlite);
    database.migrate(&[store::SCHEMA]).await.expect("migrates");
    database
}

/// The same on a server.
pub async fn postgres(server: &TestDatabase<'_>) -> Database {
    let url = server.url().parse().expect("an address");
    let postgres = Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
    let database = Database::Postgres(postgres);
    database.migrate(&[store::SCHEMA]).await.expect("migrates");
    database
}

async fn on_each_database(check: impl AsyncFn(Database)) {
    check(sqlite(&Folder::new("polls")).await).await;
    let server = skep_testkit::Postgres::shared().database();
    check(postgres(&server).await).await;
}

pub fn new(id: &str, spec: &str) -> NewEndpoint {
    NewEndpoint { id: id.to_owned(), spec: spec.to_owned(), paused: false }
}

pub fn grant(record: &Record, token: (u64, u64), node: &str) -> Grant {
    Grant {
        id: record.id.clone(),
        born: record.born,
        epoch: token.0,
        counter: token.1,
        node: node.to_owned(),
        from: None,
        reason: "{}".to_owned(),
        at_ms: 1,
    }
}

pub fn result(record: &Record, token: (u64, u64), slot: i64, ok: bool) -> ResultRow {
    ResultRow {
        id: record.id.clone(),
        born: record.born,
        epoch: token.0,
        counter: token.1,
        node: "n1".to_owned(),
        slot,
        at_ms: slot * 10,
        ok,
        verdict: if ok { "ok" } else { "status" }.to_owned(),
        status: Some(if ok { 200 } else { 503 }),
        latency_us: ok.then_some(1_234),
        late_us: 5,
        detail: (!ok).then(|| "not well".to_owned()),
    }
}

async fn made(db: &Database, id: &str) -> Record {
    create(db, new(id, "{}"), 1, MAX).await.expect("is created")
}

async fn slots(db: &Database, id: &str) -> Vec<i64> {
    results(db, id, 100).await.expect("reads").iter().map(|row| row.slot).collect()
}

/// Everything since `seen`, page by page.
pub async fn follow(db: &Database, mut seen: Seen) -> (Vec<Record>, Seen, bool) {
    let (mut records, mut full) = (Vec::new(), false);
    loop {
        let page = changes(db, seen, 3).await.expect("reads");
        if page.full {
            (full, records) = (true, Vec::new());
        }
        records.extend(page.records);
        seen = page.seen;
        if !page.more {
            return (records, seen, full);
        }
    }
}

#[tokio::test]
async fn an_endpoint_is_created_once_changed_and_deleted() {
    on_each_database(async |db| {
        let shop = create(&db, new("shop", "{1}"), 10, MAX).await.expect("is created");
        assert_eq!((shop.number, shop.born, shop.version), (1, 1, 1));
        assert_eq!((shop.created_at_ms, shop.updated_at_ms), (10, 10));
        assert_eq!(find(&db, "shop").await.expect("reads"), Some(shop.clone()));
        let again = create(&db, new("shop", "{2}"), 11, MAX).await;
        assert!(matches!(again, Err(CreateError::Exists)));

        let changed = replace(&db, new("shop", "{2}"), Some(1), 12).await.expect("is replaced");
        let expected = Record { spec: "{2}".into(), version: 2, updated_at_ms: 12, ..shop.clone() };
        assert_eq!(changed, expected);
        let late = replace(&db, new("shop", "{3}"), Some(1), 13).await;
        assert!(matches!(late, Err(ReplaceError::Conflict { found: 2 })));
        let same = replace(&db, new("shop", "{2}"), None, 14).await.expect("is the same");
        assert_eq!(same, changed, "nothing changed, the version neither");
        let missing = replace(&db, new("other", "{}"), None, 14).await;
        assert!(matches!(missing, Err(ReplaceError::Missing)));

        assert!(delete(&db, "shop", 15).await.expect("is deleted"));
        assert!(!delete(&db, "shop", 16).await.expect("is gone"));
        assert_eq!(find(&db, "shop").await.expect("reads"), None);
        let gone = replace(&db, new("shop", "{}"), None, 17).await;
        assert!(matches!(gone, Err(ReplaceError::Missing)));
        let reborn = create(&db, new("shop", "{4}"), 18, MAX).await.expect("is created");
        assert_eq!((reborn.number, reborn.born, reborn.created_at_ms), (2, 4, 18));
        assert_eq!(follow(&db, Seen::NOTHING).await.1.version(), 4);
    })
    .await;
}

#[tokio::test]
async fn there_are_never_more_endpoints_than_allowed() {
    on_each_database(async |db| {
        create(&db, new("a", "{}"), 1, 2).await.expect("has room");
        create(&db, new("b", "{}"), 1, 2).await.expect("has room");
        let full = create(&db, new("c", "{}"), 1, 2).await;
        assert!(matches!(full, Err(CreateError::Full { max: 2 })));
        assert!(matches!(create(&db, new("a", "{}"), 1, 2).await, Err(CreateError::Exists)));
        let many = vec![new("a", "{9}"), new("c", "{}")];
        let full = import(&db, many.clone(), 1, 2).await;
        assert!(matches!(full, Err(ImportError::Full { max: 2 })));
        let a = find(&db, "a").await.expect("reads").expect("is there");
        assert_eq!(a.spec, "{}", "all or nothing");
        delete(&db, "b", 1).await.expect("is deleted");
        let imported = import(&db, many, 1, 2).await.expect("has room");
        assert_eq!(imported, Imported { created: 1, changed: 1, unchanged: 0 });
    })
    .await;
}

#[tokio::test]
async fn an_import_creates_changes_and_leaves_alone() {
    on_each_database(async |db| {
        let first: Vec<_> = (0..500).map(|n| new(&format!("e{n}"), "{1}")).collect();
        let imported = import(&db, first.clone(), 1, MAX).await.expect("imports");
        assert_eq!(imported, Imported { created: 500, changed: 0, unchanged: 0 });
        let (_, seen, _) = follow(&db, Seen::NOTHING).await;
        assert_eq!(seen.version(), 500, "each has a version of its own");
        let mut second = first;
        second[7].spec = "{2}".to_owned();
        second[8].paused = true;
        second.push(new("last", "{}"));
        let imported = import(&db, second, 2, MAX).await.expect("imports");
        assert_eq!(imported, Imported { created: 1, changed: 2, unchanged: 498 });
        let sum = summary(&db).await.expect("reads");
        assert_eq!(sum, Summary { endpoints: 501, paused: 1, failing: 0 });
        let (records, seen, _) = follow(&db, Seen::NOTHING).await;
        assert_eq!((records.len(), seen.version()), (501, 503));
        assert!(records.is_sorted_by(|a, b| a.version < b.version));
    })
    .await;
}

#[tokio::test]
async fn asking_for_a_poll_is_a_change_that_every_node_hears_of() {
    on_each_database(async |db| {
        let born = made(&db, "a").await;
        let asked = ask_now(&db, "a", 50).await.expect("asks").expect("is there");
        let again = ask_now(&db, "a", 50).await.expect("asks").expect("is there");
        assert!(born.version < asked.version && asked.version < again.version);
        assert_eq!((born.asked_at_ms, asked.asked_at_ms, again.asked_at_ms), (0, 50, 51));
        let seen = changes(&db, Seen::NOTHING, 10).await.expect("reads").records;
        assert_eq!(seen, std::slice::from_ref(&again));
        assert_eq!(ask_now(&db, "none", 51).await.expect("asks"), None);
        set_paused(&db, vec!["a".to_owned()], true, 52).await.expect("pauses");
        let paused = ask_now(&db, "a", 60).await.expect("asks").expect("is there");
        assert_eq!((paused.paused, paused.asked_at_ms), (true, 51), "a paused one is left alone");
    })
    .await;
}

#[tokio::test]
async fn pausing_is_a_change_only_if_it_makes_a_difference() {
    on_each_database(async |db| {
        made(&db, "a").await;
        made(&db, "b").await;
        let ids = vec!["a".to_owned(), "none".to_owned(), "b".to_owned()];
        let paused = set_paused(&db, ids.clone(), true, 5).await.expect("pauses");
        let versions = |all: &[Option<Record>]| -> Vec<_> {
            all.iter().map(|one| one.as_ref().map(|one| (one.version, one.paused))).collect()
        };
        assert_eq!(versions(&paused), [Some((3, true)), None, Some((4, true))]);
        let again = set_paused(&db, ids, true, 6).await.expect("pauses");
        assert_eq!(again, paused);
        assert_eq!(summary(&db).await.expect("reads").paused, 2);
        delete(&db, "a", 7).await.expect("is deleted");
        assert_eq!(summary(&db).await.expect("reads").paused, 1);
    })
    .await;
}

#[tokio::test]
async fn a_follower_learns_of_changes_and_deletions_page_by_page() {
    on_each_database(async |db| {
        for n in 0..7 {
            made(&db, &format!("e{n}")).await;
        }
        let (records, seen, full) = follow(&db, Seen::NOTHING).await;
        assert_eq!((records.len(), seen.version(), full), (7, 7, false));
        delete(&db, "e3", 2).await.expect("is deleted");
        replace(&db, new("e1", "{2}"), None, 3).await.expect("is replaced");
        let page = changes(&db, seen, 1).await.expect("reads");
        assert_eq!((page.version, page.more, page.full), (9, true, false));
        assert!(page.records[0].deleted && page.records[0].spec.is_empty());
        let (records, after, full) = follow(&db, seen).await;
        let found: Vec<_> = records.iter().map(|one| (&*one.id, one.deleted)).collect();
        assert_eq!(found, [("e3", true), ("e1", false)]);
        assert!(!full);
        assert!(follow(&db, after).await.0.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_follower_that_missed_forgotten_deletions_starts_anew() {
    on_each_database(async |db| {
        for n in 0..5 {
            made(&db, &format!("e{n}")).await;
        }
        let (_, before, _) = follow(&db, Seen::NOTHING).await;
        delete(&db, "e0", 10).await.expect("is deleted");
        delete(&db, "e1", 20).await.expect("is deleted");
        let (_, between, _) = follow(&db, before).await;
        delete(&db, "e2", 30).await.expect("is deleted");
        assert_eq!(forget_deleted(&db, 10).await.expect("forgets"), 0);
        assert_eq!(forget_deleted(&db, 25).await.expect("forgets"), 2);
        assert_eq!(forget_deleted(&db, 25).await.expect("forgets"), 0);

        let (records, seen, full) = follow(&db, before).await;
        let found: Vec<_> = records.iter().map(|one| (&*one.id, one.deleted)).collect();
        assert_eq!(found, [("e3", false), ("e4", false), ("e2", true)]);
        assert!(full && seen.version() == 8);
        let (records, _, full) = follow(&db, between).await;
        assert_eq!((records.len(), full), (1, false), "it had seen the forgotten ones");
        let (records, _, full) = follow(&db, Seen::NOTHING).await;
        assert_eq!((records.len(), full), (3, true));
    })
    .await;
}

#[tokio::test]
async fn a_follower_in_the_middle_of_everything_starts_anew_if_more_is_forgotten() {
    on_each_database(async |db| {
        for n in 0..6 {
            made(&db, &format!("e{n}")).await;
        }
        delete(&db, "e5", 10).await.expect("is deleted");
        forget_deleted(&db, 11).await.expect("forgets");
        let first = changes(&db, Seen::NOTHING, 2).await.expect("reads");
        assert!(first.full && first.more);
        let second = changes(&db, first.seen, 2).await.expect("reads");
        assert!(!second.full, "it goes on");
        assert_eq!(second.records[0].id, "e2");
        // It has read e0, and would never hear of this.
        delete(&db, "e0", 20).await.expect("is deleted");
        forget_deleted(&db, 21).await.expect("forgets");
        let third = changes(&db, second.seen, 10).await.expect("reads");
        let found: Vec<_> = third.records.iter().map(|one| &*one.id).collect();
        assert!(third.full);
        assert_eq!(found, ["e1", "e2", "e3", "e4"]);
    })
    .await;
}

#[tokio::test]
async fn the_newest_owner_is_announced_once_and_older_ones_are_told() {
    on_each_database(async |db| {
        let shop = made(&db, "shop").await;
        let current = Announced::Current { last_slot: None, last_at_ms: None };
        let mut first = grant(&shop, (1, 5), "n1");
        first.reason = "{\"zero\":\0}".to_owned();
        let mut second = grant(&shop, (1, 7), "n2");
        second.from = Some("n1".to_owned());
        let other = Grant { id: "none".to_owned(), ..first.clone() };
        let stale = Grant { born: 99, ..second.clone() };
        let all = vec![first.clone(), other, second.clone(), first.clone(), second.clone(), stale];
        let answers = announce(&db, all).await.expect("announces");
        let (older, gone) = (Announced::Older, Announced::Gone);
        let expected = [&current, &gone, &current, &older, &current, &gone].map(Clone::clone);
        assert_eq!(answers, expected);
        let kept = moves(&db, "shop").await.expect("reads");
        let found: Vec<_> = kept.iter().map(|one| (&*one.node, one.from.as_deref())).collect();
        assert_eq!(found, [("n2", Some("n1")), ("n1", None)]);
        assert_eq!(kept[1].reason, "{\"zero\":\u{fffd}}", "a zero does no harm");
        // The epoch comes first.
        let next = grant(&shop, (2, 1), "n3");
        record(&db, vec![result(&shop, (1, 7), 4, true)], HISTORY).await.expect("records");
        let answers = announce(&db, vec![next]).await.expect("announces");
        assert_eq!(answers, [Announced::Current { last_slot: Some(4), last_at_ms: Some(40) }]);
    })
    .await;
}

#[tokio::test]
async fn the_last_moves_are_kept_even_if_many_come_at_once() {
    on_each_database(async |db| {
        let shop = made(&db, "shop").await;
        let all = (1..=50).map(|n| Grant { at_ms: n, ..grant(&shop, (1, n as u64), "n") });
        let answers = announce(&db, all.collect()).await.expect("announces");
        assert!(answers.iter().all(|one| matches!(one, Announced::Current { .. })));
        let more = Grant { at_ms: 51, ..grant(&shop, (1, 51), "n") };
        announce(&db, vec![more]).await.expect("announces");
        let times: Vec<i64> =
            moves(&db, "shop").await.expect("reads").iter().map(|one| one.at_ms).collect();
        assert_eq!(times, (32..=51).rev().collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn results_are_kept_in_a_ring_and_summed_up() {
    on_each_database(async |db| {
        let shop = made(&db, "shop").await;
        let good = result(&shop, (1, 1), 1, true);
        let mut bad = result(&shop, (1, 1), 2, false);
        bad.detail = Some("zero \0 here".to_owned());
        let answers = record(&db, vec![good.clone(), bad.clone()], HISTORY).await.expect("records");
        assert_eq!(answers, [Recorded::Accepted; 2]);
        bad.detail = Some("zero \u{fffd} here".to_owned());
        assert_eq!(results(&db, "shop", 9).await.expect("reads"), [bad, good]);
        record(&db, vec![result(&shop, (1, 1), 3, false)], HISTORY).await.expect("records");
        let state = states(&db, &["none".to_owned(), "shop".to_owned()]).await.expect("reads");
        let state = state[1].clone().expect("is there");
        assert_eq!((state.results, state.failures, state.changed_at_ms), (3, 2, Some(20)));
        let last = state.last.expect("has one");
        assert_eq!(
            (last.slot, last.ok, &*last.verdict, last.latency_us),
            (3, false, "status", None)
        );
        assert_eq!(summary(&db).await.expect("reads").failing, 1);
        let many = (4..=20).map(|slot| result(&shop, (1, 1), slot, slot % 2 == 0)).collect();
        record(&db, many, HISTORY).await.expect("records");
        record(&db, vec![result(&shop, (1, 2), 21, true)], HISTORY).await.expect("records");
        assert_eq!(slots(&db, "shop").await, [21, 20, 19, 18, 17]);
        assert_eq!(results(&db, "shop", 2).await.expect("reads").len(), 2);
        assert_eq!(summary(&db).await.expect("reads").failing, 0);
    })
    .await;
}

#[tokio::test]
async fn a_result_with_an_older_token_is_refused() {
    on_each_database(async |db| {
        let (a, b) = (made(&db, "a").await, made(&db, "b").await);
        announce(&db, vec![grant(&a, (3, 3), "n1")]).await.expect("announces");
        let gone = ResultRow { born: 77, ..result(&b, (9, 9), 1, true) };
        let none = ResultRow { id: "none".to_owned(), ..gone.clone() };
        let rows = vec![
            result(&a, (3, 2), 1, true),
            result(&b, (1, 1), 1, true),
            result(&a, (3, 3), 2, true),
            gone,
            none,
            result(&a, (3, 4), 3, true),
            result(&a, (3, 3), 4, true),
            result(&a, (2, 9), 5, true),
        ];
        use Recorded::{Accepted, Fenced, Gone};
        let answers = record(&db, rows, HISTORY).await.expect("records");
        assert_eq!(answers, [Fenced, Accepted, Accepted, Gone, Gone, Accepted, Fenced, Fenced]);
        assert_eq!(slots(&db, "a").await, [3, 2]);
        let older = announce(&db, vec![grant(&a, (3, 3), "n1")]).await.expect("announces");
        assert_eq!(older, [Announced::Older], "a result moves the fence too");
    })
    .await;
}

#[tokio::test]
async fn a_result_that_comes_again_is_accepted_and_kept_once() {
    on_each_database(async |db| {
        let shop = made(&db, "shop").await;
        let rows: Vec<_> = (1..=3).map(|slot| result(&shop, (1, 1), slot, true)).collect();
        for _ in 0..2 {
            let answers = record(&db, rows.clone(), HISTORY).await.expect("records");
            assert_eq!(answers, [Recorded::Accepted; 3]);
        }
        let twice = vec![rows[1].clone(), result(&shop, (1, 1), 4, true), rows[0].clone()];
        record(&db, twice.into_iter().chain(rows).collect(), HISTORY).await.expect("records");
        assert_eq!(slots(&db, "shop").await, [4, 3, 2, 1]);
        // A new owner may poll the same slot again, even if it has announced itself before.
        announce(&db, vec![grant(&shop, (1, 2), "n2")]).await.expect("announces");
        record(&db, vec![result(&shop, (1, 2), 4, true)], HISTORY).await.expect("records");
        assert_eq!(slots(&db, "shop").await, [4, 4, 3, 2, 1]);
        // Slots that are counted anew are not taken for old ones.
        record(&db, vec![result(&shop, (1, 2), 2, true)], HISTORY).await.expect("records");
        assert_eq!(slots(&db, "shop").await, [2, 4, 4, 3, 2]);
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_that_is_created_again_knows_nothing_of_the_old_one() {
    on_each_database(async |db| {
        let old = made(&db, "shop").await;
        announce(&db, vec![grant(&old, (5, 5), "n1")]).await.expect("announces");
        record(&db, vec![result(&old, (5, 5), 1, false)], HISTORY).await.expect("records");
        delete(&db, "shop", 2).await.expect("is deleted");
        let gone = record(&db, vec![result(&old, (5, 5), 2, true)], HISTORY).await;
        assert_eq!(gone.expect("records"), [Recorded::Gone]);
        assert_eq!(states(&db, &["shop".to_owned()]).await.expect("reads"), [None]);
        let reborn = made(&db, "shop").await;
        assert!(moves(&db, "shop").await.expect("reads").is_empty());
        assert!(results(&db, "shop", 9).await.expect("reads").is_empty());
        let rows = vec![result(&old, (5, 5), 2, true), result(&reborn, (1, 1), 1, true)];
        let answers = record(&db, rows, HISTORY).await.expect("records");
        assert_eq!(answers, [Recorded::Gone, Recorded::Accepted], "its tokens begin anew");
        assert_eq!(summary(&db).await.expect("reads").failing, 0);
    })
    .await;
}

#[tokio::test]
async fn epochs_grow_by_one() {
    on_each_database(async |db| {
        for expected in 1..=3 {
            assert_eq!(next_epoch(&db).await.expect("counts"), expected);
        }
    })
    .await;
}

#[tokio::test]
async fn many_rows_fit_into_one_call() {
    on_each_database(async |db| {
        let many = (0..5_000).map(|n| new(&format!("e{n}"), "{}")).collect();
        import(&db, many, 1, 10_000).await.expect("imports");
        let (records, ..) = follow(&db, Seen::NOTHING).await;
        let grants = records.iter().map(|one| grant(one, (1, 1), "n1")).collect();
        let answers = announce(&db, grants).await.expect("announces");
        assert!(answers.iter().all(|one| matches!(one, Announced::Current { .. })));
        let rows = records.iter().take(2_000).map(|one| result(one, (1, 1), 1, true)).collect();
        let answers = record(&db, rows, HISTORY).await.expect("records");
        assert_eq!(answers, [Recorded::Accepted; 2_000]);
    })
    .await;
}

#[tokio::test]
async fn postgres_says_each_change() {
    let server = skep_testkit::Postgres::shared().database();
    let db = postgres(&server).await;
    let Database::Postgres(store) = &db else { unreachable!() };
    let mut hints = store.listen(&[store::CHANNEL]);
    let mut hear = async || tokio::time::timeout(PATIENCE, hints.next()).await.expect("is heard");
    assert_eq!(hear().await, Heard::Reconnected);
    made(&db, "shop").await;
    let many = vec![new("a", "{}"), new("b", "{}")];
    import(&db, many.clone(), 1, MAX).await.expect("imports");
    import(&db, many, 1, MAX).await.expect("changes nothing, and says nothing");
    delete(&db, "shop", 1).await.expect("is deleted");
    for version in ["1", "3", "4"] {
        let (channel, payload) = (store::CHANNEL.to_owned(), version.to_owned());
        assert_eq!(hear().await, Heard::Notice { channel, payload });
    }
}
