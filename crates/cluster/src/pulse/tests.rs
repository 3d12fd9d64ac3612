//! What a pulse does when the system refuses.

use super::core::Route;
use super::*;
use crate::wire::Message;
use skep_store::BootClock;

struct Deaf;

impl Ears for Deaf {
    fn load(&self) -> Load {
        Load::default()
    }

    fn wake(&self, _queue: &str) {}

    fn moved(&self, _from: &str, _moves: &[MoveRecord]) {}
}

async fn pulse() -> Pulse {
    let options = PulseOptions::new("a", ([127, 0, 0, 1], 0).into());
    let (metrics, clock) = (PulseMetrics::default(), Arc::new(BootClock));
    Pulse::bind(options, Arc::new(Deaf), None, metrics, clock).await.expect("is free")
}

fn record() -> MoveRecord {
    let name: Arc<str> = "a".into();
    MoveRecord {
        key_hash: 1,
        key: name.clone(),
        from: name.clone(),
        node: name.clone(),
        by: name,
        version: 1,
        at: 1,
        used: 1,
        kind: 1,
        load: 0.0,
        best: 0.0,
        improvement: 0.0,
    }
}

#[tokio::test]
async fn what_the_system_refuses_to_send_is_counted_and_names_are_looked_up_again() {
    let pulse = pulse().await;
    let nowhere = Route { address: ([127, 0, 0, 1], 0).into(), to: 1 };
    pulse.core.send(nowhere, &Message::Ask).await;
    assert_eq!(pulse.counts().heartbeats.unsent, 1);
    pulse.core.look_up.notified().await;

    let receiver = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("is free");
    let address = receiver.local_addr().expect("is bound");
    pulse.core.send_heartbeat(Route { address, to: 1 }).await;
    let mut buffer = [0; 2_048];
    let length = receiver.recv(&mut buffer).await.expect("arrives");
    let (envelope, _) = pulse.core.seal.open(&buffer[..length]).expect("is good");
    assert_eq!((envelope.from, envelope.to), ("a", 1));
}

#[tokio::test]
async fn moves_beyond_the_limit_are_dropped_and_counted() {
    let pulse = pulse().await;
    let moves = vec![record(); 6_000];
    pulse.tell_moves(&moves);
    pulse.tell_moves_to("b", &moves);
    assert_eq!(pulse.core.metrics.moves_dropped.get(), 2_000);
    let waiting = pulse.core.take_moves();
    assert_eq!((waiting[&None].len(), waiting[&Some("b".into())].len()), (6_000, 4_000));
}

#[tokio::test]
async fn wakes_beyond_the_limit_are_dropped_and_counted() {
    use crate::wire::{Groups, Line};
    let pulse = pulse().await;
    let queues: Vec<String> = (0..1_100).map(|queue| format!("queue-{queue}")).collect();
    let line = |queue: &String| Line { queue: queue.as_str().into(), groups: Groups::of(vec![1]) };
    pulse.presence().apply(&"b".into(), 1, queues.iter().map(line).collect());
    for _ in 0..2 {
        queues.iter().for_each(|queue| pulse.wakes().wake(queue));
    }
    let dropped = 2 * (1_100 - crate::wakes::WAITING_MAX as u64);
    assert_eq!(pulse.counts().wakes.dropped, dropped);
    assert_eq!(pulse.wakes().take()["b"].len(), crate::wakes::WAITING_MAX);
}
