//! What the tables of queues cost the database.

use super::PostgresQueues;
use super::rows::{time, unsigned};
use crate::store::tables::{DatabaseStats, TableStats};
use skep_store::StoreError;
use std::sync::Arc;

/// Of the server's own books; nothing of ours is read.
const TABLES: &str = "
    SELECT s.relname, pg_total_relation_size(s.relid), pg_indexes_size(s.relid),
        s.n_live_tup, s.n_dead_tup,
        (extract(epoch FROM greatest(s.last_vacuum, s.last_autovacuum)) * 1000000)::bigint
    FROM pg_stat_user_tables s
    WHERE s.schemaname = ANY (current_schemas(false)) AND s.relname LIKE 'skep\\_queue%'
    ORDER BY 2 DESC, 1";

const WHOLE: &str = "
    SELECT pg_database_size(current_database()), d.blks_hit, d.blks_read, d.numbackends,
        current_setting('max_connections')::bigint,
        (SELECT count(*) FROM pg_stat_activity a
         WHERE a.datname = current_database() AND a.wait_event_type = 'Lock')
    FROM pg_stat_database d WHERE d.datname = current_database()";

impl PostgresQueues {
    /// What the queues cost the database.
    pub async fn database_stats(&self) -> Result<DatabaseStats, StoreError> {
        let (tables, whole) =
            tokio::try_join!(self.shared.ask(TABLES, &[]), self.shared.ask(WHOLE, &[]))?;
        let table = |row: &tokio_postgres::Row| TableStats {
            name: Arc::from(row.get::<_, &str>(0)),
            bytes: unsigned(row.get(1)),
            index_bytes: unsigned(row.get(2)),
            rows: unsigned(row.get(3)),
            dead_rows: unsigned(row.get(4)),
            vacuumed_at: row.get::<_, Option<i64>>(5).map(time),
        };
        let whole = whole.first();
        let number = |column: usize| whole.map_or(0, |row| unsigned(row.get(column)));
        let (hit, read) = (number(1), number(2));
        Ok(DatabaseStats {
            tables: tables.iter().map(table).collect(),
            bytes: number(0),
            cache_hits: (hit + read > 0).then(|| hit as f64 / (hit + read) as f64),
            connections: whole.map_or(0, |row| row.get::<_, i32>(3).max(0) as u64),
            connections_max: number(4),
            waiting_for_locks: number(5),
        })
    }
}
