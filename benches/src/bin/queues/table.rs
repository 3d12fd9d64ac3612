//! The peer that people write themselves: a table in PostgreSQL behind an HTTP server.
//!
//! It takes the same requests as the product, and is as quick as it can be made without a format of
//! its own: the payload is not parsed, a request is one prepared statement, whatever its size.

use crate::Outcome;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::routing::post;
use axum::serve::ListenerExt;
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio_postgres::NoTls;

const CONNECTIONS: usize = 16;

const SCHEMA: &str = "CREATE TABLE messages (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL, partition text NOT NULL, transaction_id uuid NOT NULL,
    payload text NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (partition, transaction_id))";

const INSERT: &str = "INSERT INTO messages (queue, partition, transaction_id, payload)
    SELECT queue, partition, transaction_id::uuid, payload
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
        AS items (queue, partition, transaction_id, payload)
    ON CONFLICT DO NOTHING RETURNING id";

#[derive(Deserialize)]
struct Request<'body> {
    #[serde(borrow)]
    items: Vec<Item<'body>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item<'body> {
    queue: &'body str,
    partition: &'body str,
    #[serde(borrow)]
    payload: &'body RawValue,
    transaction_id: &'body str,
}

#[derive(Serialize)]
struct Answer<'body> {
    index: usize,
    message_id: i64,
    transaction_id: &'body str,
    status: &'static str,
}

/// Serves until it is ended, and says where.
pub fn run(database: &str) -> Outcome<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(database.parse()?, NoTls, config);
        let pool = Pool::builder(manager).max_size(CONNECTIONS).build()?;
        pool.get().await?.batch_execute(SCHEMA).await?;
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        println!("listening on {}", listener.local_addr()?);
        let listener = listener.tap_io(|stream| {
            // Slower without it, but no worse.
            let _ = stream.set_nodelay(true);
        });
        let router = Router::new().route("/api/v1/push", post(push)).with_state(pool);
        Ok(axum::serve(listener, router).await?)
    })
}

type Accepted = (StatusCode, [(HeaderName, &'static str); 1], String);
type Refusal = (StatusCode, String);

async fn push(State(pool): State<Pool>, body: String) -> Result<Accepted, Refusal> {
    let request: Request<'_> = serde_json::from_str(&body)
        .map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    let ids = insert(&pool, &request.items)
        .await
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    if ids.len() != request.items.len() {
        return Err((StatusCode::CONFLICT, "a transaction id is there already".to_owned()));
    }
    let answers: Vec<Answer<'_>> = (0..)
        .zip(ids)
        .zip(&request.items)
        .map(|((index, message_id), item)| {
            let transaction_id = item.transaction_id;
            Answer { index, message_id, transaction_id, status: "queued" }
        })
        .collect();
    let text = serde_json::to_string(&answers)
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok((StatusCode::CREATED, [(CONTENT_TYPE, "application/json")], text))
}

/// The ids that the messages got.
async fn insert(
    pool: &Pool,
    items: &[Item<'_>],
) -> Result<Vec<i64>, Box<dyn std::error::Error + Send + Sync>> {
    let queues: Vec<&str> = items.iter().map(|item| item.queue).collect();
    let partitions: Vec<&str> = items.iter().map(|item| item.partition).collect();
    let transactions: Vec<&str> = items.iter().map(|item| item.transaction_id).collect();
    let payloads: Vec<&str> = items.iter().map(|item| item.payload.get()).collect();
    let client = pool.get().await?;
    let statement = client.prepare_cached(INSERT).await?;
    let rows = client.query(&statement, &[&queues, &partitions, &transactions, &payloads]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
