//! The cluster as tables.

use crate::cli::cells::group_named;
use crate::cli::output::{line, span, table, when};
use crate::cli::push::visible;
use skep_cluster::views::{
    Affinity, Balance, Breaker, Explained, Forwarding, Move, Moves, Server, Status,
};

/// Cells of the bar that shows a load.
const METER: usize = 10;

pub fn balance(balance: &Balance) {
    table(
        &[
            "NODE",
            "STATE",
            "LOAD",
            "IN FLIGHT",
            "POLLS",
            "CPU",
            "BREAKER",
            "KEYS",
            "FORWARDED",
            "FELL BACK",
            "HOP P50/P99",
            "HEARD",
            "ZONE",
            "VERSION",
            "URL",
        ],
        balance.servers.iter().map(server),
    );
    let even = if balance.balanced { "balanced" } else { "not balanced" };
    let moves = &balance.moves;
    line(&format!(
        "\n{even}, imbalance {:.2}; {}; {} migrations and {} breaks, {} in the last minute",
        balance.imbalance_score,
        forwarding(balance.forwarding),
        moves.migrations,
        moves.breaks,
        moves.last_minute
    ));
    if !balance.flows.is_empty() {
        line("");
        table(
            &["FROM", "TO", "FORWARDED"],
            balance.flows.iter().map(|flow| {
                vec![visible(&flow.from), visible(&flow.to), flow.forwarded.to_string()]
            }),
        );
    }
}

fn server(server: &Server) -> Vec<String> {
    let here = if server.here { " (this one)" } else { "" };
    let hop = match (server.hop_p50_us, server.hop_p99_us) {
        (Some(p50), Some(p99)) => format!("{} / {}", span(p50 as f64), span(p99 as f64)),
        _ => "-".to_owned(),
    };
    let heard = match server.here {
        true => "-".to_owned(),
        false => format!("{:.1}s ago", server.last_seen_ms as f64 / 1e3),
    };
    vec![
        format!("{}{here}", visible(&server.server_id)),
        state(server).to_owned(),
        format!("{:.2} {}", server.load_score, meter(server.load_score)),
        server.in_flight.to_string(),
        server.polls.to_string(),
        format!("{:.0}%", server.cpu),
        breaker(server),
        server.affinity_entries.to_string(),
        server.forwarded.to_string(),
        server.fell_back.to_string(),
        hop,
        heard,
        visible(&server.zone),
        visible(&server.version),
        visible(&server.url),
    ]
}

/// How a node is, in a word or two.
fn state(server: &Server) -> &'static str {
    match server {
        Server { alive: false, draining: true, .. } => "left",
        Server { alive: false, .. } => "not heard",
        Server { draining: true, .. } => "draining",
        Server { healthy: true, .. } => "healthy",
        _ => "failing",
    }
}

fn breaker(server: &Server) -> String {
    match (server.breaker, server.breaker_reopens_ms) {
        (Breaker::Open, Some(ms)) => format!("open for {:.1}s", ms as f64 / 1e3),
        (other, _) => other.name().to_owned(),
    }
}

/// A load as a bar. Something is never drawn as nothing, and nothing is drawn beyond the end.
fn meter(load: f64) -> String {
    let cells = (load.clamp(0.0, 1.0) * METER as f64).ceil() as usize;
    format!("{}{}", "█".repeat(cells), "░".repeat(METER - cells))
}

fn forwarding(forwarding: Forwarding) -> &'static str {
    match forwarding {
        Forwarding::On => "forwarding is on",
        Forwarding::Off => "forwarding is off",
        Forwarding::Alone => "this node is alone",
    }
}

pub fn status(status: &Status) {
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let rejected = &status.heartbeats.rejected;
    let (beats, wakes) = (&status.heartbeats, &status.wakes);
    let mut rows = vec![
        ("node", visible(&status.here)),
        ("forwarding", forwarding(status.forwarding).to_owned()),
        ("writes", format!("done {}", status.writes.name())),
        ("signed", yes(status.signed)),
        ("hears at", status.udp.clone().unwrap_or_else(|| "nowhere".to_owned())),
        (
            "heartbeats",
            format!("{} sent, {} unsent, {} received", beats.sent, beats.unsent, beats.received),
        ),
        (
            "refused",
            format!(
                "{} forged, {} replayed, {} malformed, {} of another version, {} stale, {} crowded",
                rejected.forged,
                rejected.replayed,
                rejected.malformed,
                rejected.version,
                rejected.stale,
                rejected.crowded
            ),
        ),
        (
            "wake-ups",
            format!("{} sent, {} received, {} dropped", wakes.sent, wakes.received, wakes.dropped),
        ),
        ("queues with consumers", status.presence_total.to_string()),
    ];
    if status.draining {
        rows.push(("draining", "it takes nothing new".to_owned()));
    }
    table(&["", ""], rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]));
    if !status.peers.is_empty() {
        line("");
        table(
            &["PEER", "ADDRESS", "KNOWN BY", "MEANS"],
            status.peers.iter().map(|peer| {
                let means = match &peer.error {
                    Some(error) => format!("nothing: {}", visible(error)),
                    None => peer.resolved.join(", "),
                };
                vec![
                    peer.name.as_deref().map_or("-".to_owned(), visible),
                    visible(&peer.address),
                    peer.origin.name().to_owned(),
                    means,
                ]
            }),
        );
    }
    if !status.presence.is_empty() {
        line("");
        table(
            &["QUEUE", "CONSUMERS ON"],
            status
                .presence
                .iter()
                .map(|one| vec![visible(&one.queue), visible(&one.nodes.join(", "))]),
        );
    }
}

pub fn explained(explained: &Explained) {
    let here = if explained.here { " (this one)" } else { "" };
    let mut rows = vec![
        ("key", key(&explained.key)),
        ("for", explained.purpose.name().to_owned()),
        ("goes to", format!("{}{here}", visible(&explained.place))),
        ("because", visible(&explained.text)),
        ("would change it", explained.would_change.clone()),
    ];
    if let Some(id) = &explained.explain {
        rows.push(("more", format!("skep explain '{}'", visible(id))));
    }
    table(&["", ""], rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]));
}

/// A key whose group is that of those who name none, as people know it.
fn key(key: &str) -> String {
    match key.rsplit_once(':') {
        Some((rest, group)) => format!("{}:{}", visible(rest), group_named(group)),
        None => visible(key),
    }
}

pub fn affinity(affinity: &Affinity) {
    if affinity.entries.is_empty() {
        return line("nobody has popped anything lately");
    }
    table(
        &["KEY", "NODE", "BY", "REQUESTS", "SINCE", "LAST USED"],
        affinity.entries.iter().map(|entry| {
            vec![
                key(&entry.key),
                visible(&entry.node),
                if entry.moved { "a move" } else { "its name" }.to_owned(),
                entry.requests.to_string(),
                when(entry.assigned_at_ms),
                format!("{} ago", span(entry.last_used_ms as f64 * 1e3)),
            ]
        }),
    );
    line(&format!("\n{} of {}", affinity.entries.len(), affinity.total));
}

const MOVE_HEADINGS: [&str; 8] = ["ID", "WHEN", "KEY", "FROM", "TO", "WHAT", "WHY", "BY"];

pub fn moves(moves: &Moves) {
    if moves.moves.is_empty() {
        return line("no key has moved");
    }
    table(&MOVE_HEADINGS, moves.moves.iter().map(one_move));
}

/// Later ones, under the same heading.
pub fn more_moves(moves: &Moves) {
    for one in &moves.moves {
        line(&one_move(one).join("  "));
    }
}

fn one_move(one: &Move) -> Vec<String> {
    vec![
        visible(&one.explain),
        when(one.at_ms),
        key(&one.key),
        one.from.as_deref().map_or("-".to_owned(), visible),
        visible(&one.to),
        one.kind.name().to_owned(),
        why(one),
        visible(&one.by),
    ]
}

/// The numbers it was decided by, if this node knows them.
fn why(one: &Move) -> String {
    match (one.load, one.best, one.improvement) {
        (Some(load), Some(best), Some(improvement)) => {
            format!("load {load:.2} to {best:.2}, better by {improvement:.2}")
        }
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_drawn_within_its_bar() {
        assert_eq!(meter(0.0), "░░░░░░░░░░");
        assert_eq!(meter(0.01), "█░░░░░░░░░");
        assert_eq!(meter(0.45), "█████░░░░░");
        assert_eq!([meter(1.0), meter(7.0)], ["██████████", "██████████"]);
        assert_eq!([meter(-1.0), meter(f64::NAN)].map(|bar| bar.chars().count()), [10, 10]);
    }

    #[test]
    fn the_group_of_those_who_name_none_is_named_for_people_and_nothing_steers_a_terminal() {
        assert_eq!(key("orders:__QUEUE_MODE__"), "orders:(those who name none)");
        assert_eq!(key("orders:7:mail"), "orders:7:mail");
        assert_eq!(key("or\u{1b}ders"), "or\\u{1b}ders");
    }
}
