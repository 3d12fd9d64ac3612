//! Copying an embedded database to PostgreSQL.

use skep_store::copy::{CopyError, CopyRules, Made, Value, copy, count};
use skep_store::{
    DataFolder, Database, Migration, Postgres, PostgresOptions, SCHEMA, Schema, Sqlite,
    SqliteOptions, StoreError,
};
use skep_testkit::{Folder, TestDatabase};
use std::sync::Arc;

/// Every type there is, a number that goes on, a table that is one of two there, a row that is
/// there from the beginning, and one that only PostgreSQL has.
const JARS: Schema = Schema {
    part: "jars",
    sqlite: &[Migration {
        number: 1,
        name: "0001_jars",
        sql: "CREATE TABLE skep_jars (id INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT,
                  open INTEGER NOT NULL, weight REAL, honey BLOB, key BLOB,
                  made_at TEXT NOT NULL) STRICT;
              CREATE TABLE skep_lids (jar INTEGER PRIMARY KEY, size INTEGER NOT NULL) STRICT;
              CREATE TABLE skep_old_lids (jar INTEGER PRIMARY KEY, size INTEGER NOT NULL) STRICT;
              CREATE TABLE skep_shelf (only_row INTEGER PRIMARY KEY, jars INTEGER NOT NULL) STRICT;
              INSERT INTO skep_shelf VALUES (1, 0);",
    }],
    postgres: &[Migration {
        number: 1,
        name: "0001_jars",
        sql: "CREATE TABLE skep_jars (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                  label TEXT, open BOOLEAN NOT NULL, weight DOUBLE PRECISION, honey BYTEA,
                  key UUID, made_at TIMESTAMPTZ NOT NULL, note TEXT);
              CREATE TABLE skep_lids (jar BIGINT PRIMARY KEY, size SMALLINT NOT NULL,
                  old BOOLEAN NOT NULL, double INTEGER NOT NULL);
              CREATE TABLE skep_shelf (only_row BIGINT PRIMARY KEY, jars BIGINT NOT NULL);
              INSERT INTO skep_shelf VALUES (1, 0);
              CREATE TABLE skep_memory_of_shelves (shelf BIGINT);",
    }],
};
const SCHEMAS: &[Schema] = &[SCHEMA, JARS];

const RULES: CopyRules = CopyRules {
    made: &[Made {
        table: "skep_lids",
        columns: &["jar", "size", "old", "double"],
        select: "SELECT jar, size, 0, 0 FROM skep_lids UNION ALL
                 SELECT jar, size, 1, 0 FROM skep_old_lids",
        derive: Some(|row| {
            if let [_, Value::Integer(size), _, double] = row {
                *double = Value::Integer(2 * *size);
            }
        }),
    }],
    folded: &["skep_old_lids"],
    local: &["skep_memory_"],
    after: &["INSERT INTO skep_memory_of_shelves VALUES (7)"],
    ..CopyRules::NONE
};

struct Bench {
    _folder: Folder,
    source: Sqlite,
    database: TestDatabase<'static>,
    target: Postgres,
}

impl Bench {
    async fn new() -> Self {
        let folder = Folder::new("copy");
        let data = Arc::new(DataFolder::open(folder.path()).expect("locks"));
        let source = Sqlite::open(&data, &SqliteOptions::default()).expect("opens");
        Database::Sqlite(source.clone()).migrate(SCHEMAS).await.expect("migrates");
        let database = skep_testkit::Postgres::shared().database();
        let url = database.url().parse().expect("an address");
        let target = Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
        Bench { _folder: folder, source, database, target }
    }

    async fn run(&self, sql: &'static str) {
        let run = move |db: &rusqlite::Connection| Ok::<_, StoreError>(db.execute_batch(sql)?);
        self.source.write(run).await.expect("works");
    }
}

#[tokio::test]
async fn everything_arrives_as_it_was_and_numbers_go_on() {
    let bench = Bench::new().await;
    Database::Sqlite(bench.source.clone()).installation().await.expect("is one");
    bench
        .run(
            "WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < 2500)
             INSERT INTO skep_jars SELECT v, CASE WHEN v % 3 THEN 'jar ' || v || ' ü' END, v % 2,
                 v / 7.0, CASE WHEN v % 5 THEN randomblob(v) END,
                 CASE WHEN v % 2 THEN randomblob(16) END, '2026-01-02T03:04:05.678Z' FROM n;
             INSERT INTO skep_jars VALUES (9000, '', 1, -0.0, x'', NULL, '1969-12-31T23:59:59Z');
             DELETE FROM skep_jars WHERE id = 9000 AND label IS NULL;
             INSERT INTO skep_jars VALUES (9001, 'gone', 1, 0, x'', NULL, '1970-01-01T00:00:00Z');
             DELETE FROM skep_jars WHERE id = 9001;
             INSERT INTO skep_lids VALUES (1, 30), (2, -5);
             INSERT INTO skep_old_lids VALUES (3, 12);
             UPDATE skep_shelf SET jars = 2501;",
        )
        .await;
    let counted = count(&bench.source, &bench.target, SCHEMAS, &[RULES]).await.expect("counts");
    let rows: Vec<(&str, u64)> =
        counted.tables.iter().map(|one| (one.table.as_str(), one.rows)).collect();
    let expected =
        [("skep_installation", 1), ("skep_jars", 2_501), ("skep_lids", 3), ("skep_shelf", 1)];
    assert_eq!(rows, expected);
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'skep%'";
    assert_eq!(bench.database.run(tables).trim(), "0", "counting changes nothing");

    let report = copy(&bench.source, &bench.target, SCHEMAS, &[RULES]).await.expect("copies");
    assert!(report.same && report.mended == 0, "{report:?}");
    for table in &report.tables {
        assert_eq!(Some(table.rows), table.copied, "{table:?}");
        assert_eq!(table.checksum, table.copied_checksum, "{table:?}");
    }
    for (sql, expected) in [
        ("SELECT label || open || (key IS NULL) FROM skep_jars WHERE id = 2", "jar 2 üfalsetrue"),
        ("SELECT octet_length(honey) FROM skep_jars WHERE id = 1999", "1999"),
        ("SELECT extract(epoch FROM made_at) FROM skep_jars WHERE id = 9000", "-1.000000"),
        ("SELECT sum(double) || '/' || count(*) FILTER (WHERE old) FROM skep_lids", "74/1"),
        ("SELECT jars FROM skep_shelf", "2501"),
        ("SELECT shelf FROM skep_memory_of_shelves", "7"),
        ("INSERT INTO skep_jars (open, made_at) VALUES (true, now()) RETURNING id", "9002"),
    ] {
        let said = bench.database.run(sql);
        assert_eq!(said.lines().next().unwrap_or_default().trim(), expected, "{sql}");
    }
    let again = copy(&bench.source, &bench.target, SCHEMAS, &[RULES]).await.expect_err("no");
    assert!(matches!(again, CopyError::NotEmpty { .. }), "{again}");
}

#[tokio::test]
async fn what_cannot_be_copied_is_refused_or_mended_and_leaves_nothing() {
    let bench = Bench::new().await;
    let (source, target) = (&bench.source, &bench.target);
    for (rules, what) in [
        (CopyRules { folded: &[], ..RULES }, "skep_old_lids"),
        (CopyRules { local: &[], ..RULES }, "skep_memory_of_shelves"),
        (CopyRules { made: &[], ..RULES }, "skep_lids.old"),
    ] {
        let error = copy(source, target, SCHEMAS, &[rules]).await.expect_err(what);
        assert!(error.to_string().contains(&format!("copy {what};")), "{error}");
    }
    bench.run("INSERT INTO skep_lids VALUES (1, 70000)").await;
    let error = copy(source, target, SCHEMAS, &[RULES]).await.expect_err("it is too large");
    assert!(error.to_string().contains("skep_lids"), "{error}");
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'skep%'";
    assert_eq!(bench.database.run(tables).trim(), "0", "nothing is left");

    bench.run("DELETE FROM skep_lids").await;
    let nothing = "INSERT INTO skep_jars (id, label, open, made_at)
                   VALUES (1, 'a' || char(0) || 'b', 1, '2026-01-01')";
    bench.run(nothing).await;
    let report = copy(source, target, SCHEMAS, &[RULES]).await.expect("copies");
    assert!(report.same && report.mended == 1, "{report:?}");
    assert_eq!(bench.database.run("SELECT label FROM skep_jars").trim(), "a\u{fffd}b");

    let older = Bench::new().await;
    const LATER: Schema = Schema {
        sqlite: &[JARS.sqlite[0], Migration { number: 2, name: "0002", sql: "SELECT 1" }],
        ..JARS
    };
    let error = copy(&older.source, &older.target, &[SCHEMA, LATER], &[RULES]).await;
    assert!(matches!(error, Err(CopyError::Pending { pending: 1 })), "{error:?}");
}
