//! What an operator switches off for a while: pushes, which wait on each node's disk then, and
//! pops, which get nothing.

use super::read::{self, Given, object, wrong};
use super::write::timestamp;
use super::{note, queues};
use crate::http::extract::{Asker, RawBody};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use skep_queues::buffer::Buffer;
use skep_queues::store::{Switch, Switches};
use std::sync::Arc;

object! {
    /// On or off.
    SwitchBody<'body> {
        enabled "enabled": Given<'body>,
    }
}

/// On or off.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is read")]
struct SwitchRequest {
    enabled: bool,
}

/// What is switched off.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceAnswer {
    /// Whether pushes are held back, on the disk of each node that takes one.
    maintenance_mode: bool,
    /// Whether pops get nothing.
    pop_maintenance_mode: bool,
    /// Since when the switch that was asked for is as it is; nothing if it was never touched.
    #[schema(example = "2026-01-31T12:00:00.000001Z")]
    since: Option<String>,
    /// Who set it.
    by: Option<String>,
    /// Messages that wait on this node's disk.
    buffered_messages: u64,
    /// Whether this node can keep the next push that is held back.
    buffer_healthy: bool,
    buffer_stats: BufferStats,
}

/// Pushes that wait on this node's disk.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct BufferStats {
    messages: u64,
    bytes: u64,
    /// `queues.buffer_max`.
    bytes_max: u64,
    /// Whether there is a file; it is made when it is first needed.
    open: bool,
}

/// Whether pushes are held back
#[utoipa::path(
    get, path = "/api/v1/system/maintenance", tag = "queues",
    extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "As this node knows it", body = MaintenanceAnswer))
)]
pub async fn show(State(shared): State<Arc<Shared>>) -> Result<Json<MaintenanceAnswer>, Problem> {
    answer(&shared, Switch::Push).map(Json)
}

/// Hold pushes back at every node, or let them go
#[utoipa::path(
    post, path = "/api/v1/system/maintenance", tag = "queues",
    extensions(("x-scope" = json!("admin"))), request_body = SwitchRequest,
    responses((status = 200, description = "Set; other nodes act on it within a second",
               body = MaintenanceAnswer),
              (status = 400, description = "`enabled` is missing or wrong", body = ProblemBody),
              (status = 503, description = "Nothing was set", body = ProblemBody))
)]
pub async fn set(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    RawBody(body): RawBody,
) -> Result<Json<MaintenanceAnswer>, Problem> {
    switch(&shared, &asker, Switch::Push, &body).await.map(Json)
}

/// Whether pops get nothing
#[utoipa::path(
    get, path = "/api/v1/system/maintenance/pop", tag = "queues",
    extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "As this node knows it", body = MaintenanceAnswer))
)]
pub async fn show_pop(
    State(shared): State<Arc<Shared>>,
) -> Result<Json<MaintenanceAnswer>, Problem> {
    answer(&shared, Switch::Pop).map(Json)
}

/// Let pops get nothing at every node, or messages again
#[utoipa::path(
    post, path = "/api/v1/system/maintenance/pop", tag = "queues",
    extensions(("x-scope" = json!("admin"))), request_body = SwitchRequest,
    responses((status = 200, description = "Set; other nodes act on it within a second",
               body = MaintenanceAnswer),
              (status = 400, description = "`enabled` is missing or wrong", body = ProblemBody),
              (status = 503, description = "Nothing was set", body = ProblemBody))
)]
pub async fn set_pop(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    RawBody(body): RawBody,
) -> Result<Json<MaintenanceAnswer>, Problem> {
    switch(&shared, &asker, Switch::Pop, &body).await.map(Json)
}

async fn switch(
    shared: &Shared,
    asker: &Asker,
    switch: Switch,
    body: &[u8],
) -> Result<MaintenanceAnswer, Problem> {
    let queues = queues(shared)?;
    let body: SwitchBody<'_> = read::json(body)?;
    let Given::Truth(on) = body.enabled else {
        return Err(wrong("enabled", "enabled must be true or false"));
    };
    let switches = shared.queues.switches();
    let before = is_on(&switches.known(), switch);
    switches.set(queues, switch, on, &asker.known().actor()).await?;
    if before != on {
        let (target, detail) = (name_of(switch), if on { "on" } else { "off" });
        note(shared, asker, "queues.maintenance", target, detail).await;
    }
    answer(shared, switch)
}

fn name_of(switch: Switch) -> &'static str {
    match switch {
        Switch::Push => "push",
        Switch::Pop => "pop",
    }
}

fn is_on(switches: &Switches, switch: Switch) -> bool {
    match switch {
        Switch::Push => switches.push,
        Switch::Pop => switches.pop,
    }
}

fn answer(shared: &Shared, switch: Switch) -> Result<MaintenanceAnswer, Problem> {
    let queues = queues(shared)?;
    let switches = shared.queues.switches().known();
    let set = match switch {
        Switch::Push => &switches.push_set,
        Switch::Pop => &switches.pop_set,
    };
    let buffer = queues.buffer();
    let bytes_max = shared.settings.queues.buffer_max.0;
    let bytes = buffer.map_or(0, Buffer::bytes);
    let messages = buffer.map_or(0, Buffer::messages);
    Ok(MaintenanceAnswer {
        maintenance_mode: switches.push,
        pop_maintenance_mode: switches.pop,
        since: set.as_ref().map(|set| timestamp(set.since)),
        by: set.as_ref().map(|set| set.by.to_string()),
        buffered_messages: messages,
        buffer_healthy: (buffer.is_some() || !queues.is_held()) && bytes < bytes_max,
        buffer_stats: BufferStats { messages, bytes, bytes_max, open: buffer.is_some() },
    })
}
