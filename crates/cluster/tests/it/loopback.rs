//! Nodes that find, lose and tell each other, over real sockets.

use crate::common::{self, Found, Network, Node, a_move, impatient, options};
use skep_cluster::{Change, Discover, Discovered, Member, PulseError, PulseOptions, State};
use skep_testkit::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const LOOPBACK: &str = "127.0.0.1:0";

fn changes(node: &Node) -> Vec<Change> {
    node.kept.changes.lock().expect("works").clone()
}

fn member(node: &Node, name: &str) -> Option<Member> {
    node.pulse.members().iter().find(|member| *member.name == *name).cloned()
}

async fn pair() -> (Node, Node) {
    pair_with(options("a", LOOPBACK, &[])).await
}

async fn pair_with(a: PulseOptions) -> (Node, Node) {
    let a = Node::start(a, None).await;
    let b = Node::start(options("b", LOOPBACK, &[a.address()]), None).await;
    eventually("a sees b", || a.sees("b"));
    eventually("b sees a", || b.sees("a"));
    (a, b)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_know_each_other_although_only_one_has_the_others_address() {
    let began = Instant::now();
    let (a, b) = pair().await;
    println!("both know after {:?}", began.elapsed());
    b.kept.busy.store(77, Ordering::Relaxed);
    let found = eventually("a hears how busy b is", || {
        member(&a, "b").filter(|member| member.load.outstanding == 77)
    });
    assert_eq!((&*found.api, found.load.cpu), ("http://b.test:6632", 2.5));
    assert_eq!(found.address, b.address());
    assert!(!found.program.is_empty() && !found.draining);
    assert_eq!(&*b.pulse.peers()[0].name.clone().expect("is known"), "a");
    assert!(a.pulse.counts().heartbeats.rejected.values().all(|count| *count == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_are_discovered_and_one_more_that_comes_later() {
    let found = Arc::new(Found::default());
    let mut nodes = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let discover: Arc<dyn Discover> = found.clone();
        let node = Node::start(options(name, LOOPBACK, &[]), Some(discover)).await;
        let udp = node.address().to_string();
        found.0.lock().expect("works").push(Discovered { name: name.into(), udp });
        nodes.push((name, node));
        for (name, node) in &nodes {
            for (other, _) in nodes.iter().filter(|(other, _)| other != name) {
                eventually(&format!("{name} sees {other}"), || node.sees(other));
            }
        }
    }
    let peers = eventually("all are looked up", || {
        let peers = nodes[0].1.pulse.peers();
        (peers.len() == 3).then_some(peers)
    });
    assert!(peers.iter().all(|peer| peer.origin == "discovered" && peer.error.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_may_name_everybody_this_node_included() {
    let first = Node::start(options("first", LOOPBACK, &[]), None).await;
    let mut both = options("a", LOOPBACK, &[first.address()]);
    let port = std::net::UdpSocket::bind(LOOPBACK).expect("is free");
    both.listen = port.local_addr().expect("is bound");
    drop(port);
    let mine = format!("localhost:{}", both.listen.port());
    both.peers.push(mine.parse().expect("is an address"));
    let a = Node::start(both, None).await;
    eventually("they meet", || a.sees("first"));
    assert_eq!(a.state("a"), None);
    let peers = eventually("the name is looked up", || {
        let peers = a.pulse.peers();
        (!peers[1].resolved.is_empty()).then_some(peers)
    });
    assert_eq!(peers[1].error, None);
    assert!(a.pulse.doubled().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_find_each_other_over_ipv6() {
    let a = Node::start(options("a", "[::1]:0", &[]), None).await;
    let b = Node::start(options("b", "[::1]:0", &[a.address()]), None).await;
    eventually("a sees b", || a.sees("b"));
    eventually("b sees a", || b.sees("a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_for_both_families_talks_to_a_node_on_ipv4() {
    let a = Node::start(options("a", LOOPBACK, &[]), None).await;
    let b = Node::start(options("b", "[::]:0", &[a.address()]), None).await;
    eventually("a sees b", || a.sees("b"));
    eventually("b sees a", || b.sees("a"));
    assert_eq!(member(&b, "a").expect("is known").address, a.address());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_is_dead_after_a_while_and_lives_again_as_another_incarnation() {
    let (a, b) = pair_with(impatient("a", LOOPBACK, &[])).await;
    let waiting = b.pulse.presence().register("orders", "mail");
    eventually("a knows b's consumers", || {
        (!a.pulse.presence().nodes_with("orders").is_empty()).then_some(())
    });
    let before = member(&a, "b").expect("is known").incarnation;
    drop(waiting);
    let address = b.kill().await;
    let killed = Instant::now();
    eventually("a takes b for dead", || (a.state("b") == Some(State::Dead)).then_some(()));
    let took = killed.elapsed();
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(10), "{took:?}");
    assert!(a.pulse.presence().nodes_with("orders").is_empty(), "nobody waits on a dead node");

    let again = options("b", &address.to_string(), &[a.address()]);
    let b = Node::start(again, None).await;
    eventually("a sees b again", || a.sees("b"));
    eventually("b sees a", || b.sees("a"));
    assert!(member(&a, "b").expect("is known").incarnation > before);
    let of_b = |change: &Change| matches!(change, Change::Died(_) | Change::Restarted(_));
    let told: Vec<Change> = changes(&a).into_iter().filter(of_b).collect();
    assert_eq!(told, [Change::Died("b".into()), Change::Restarted("b".into())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quick_restart_is_noticed_at_once_without_a_death() {
    let (a, b) = pair().await;
    let address = b.kill().await;
    let again = options("b", &address.to_string(), &[a.address()]);
    let _b = Node::start(again, None).await;
    let restarted = Change::Restarted("b".into());
    eventually("a hears of the restart", || changes(&a).contains(&restarted).then_some(()));
    assert!(!changes(&a).contains(&Change::Died("b".into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_says_goodbye_has_left_at_once() {
    let (a, b) = pair().await;
    b.end().await;
    eventually("b has left", || (a.state("b") == Some(State::Left)).then_some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_is_told_at_once() {
    let mut slow = options("b", LOOPBACK, &[]);
    slow.heartbeat = Duration::from_secs(30);
    slow.dead_after = Duration::from_secs(90);
    let b = Node::start(slow, None).await;
    let a = Node::start(options("a", LOOPBACK, &[b.address()]), None).await;
    eventually("b sees a", || b.sees("a"));
    eventually("a sees b", || a.sees("b"));
    let began = Instant::now();
    b.pulse.set_draining(true);
    eventually("a knows", || member(&a, "b").filter(|member| member.draining));
    assert!(began.elapsed() < Duration::from_secs(10), "before the next heartbeat");
    assert!(b.pulse.is_draining());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_lost_is_noticed_asked_for_and_told_in_pages() {
    let network = Network::new().await;
    let first = options("a", LOOPBACK, &[network.to_second]);
    let (a, b) = network.between(first, options("b", LOOPBACK, &[network.to_first])).await;
    eventually("b sees a", || b.sees("a"));
    eventually("a sees b", || a.sees("b"));
    let (on_a, on_b) = (a.pulse.presence(), b.pulse.presence());
    let first = on_a.register("first", "g");
    eventually("b knows the first", || (on_b.nodes_with("first").len() == 1).then_some(()));

    let asks = Arc::new(AtomicU32::new(0));
    let counted = asks.clone();
    network.lose(move |kind| {
        counted.fetch_add(u32::from(kind == "ask"), Ordering::Relaxed);
        kind == "changes" || kind == "page"
    });
    let many: Vec<_> = (0..500).map(|queue| on_a.register(&format!("q{queue}"), "g")).collect();
    eventually("b asks in vain", || (asks.load(Ordering::Relaxed) > 1).then_some(()));
    assert_eq!(on_b.list(0).1, 1, "everything was lost");

    let mut turn = 0;
    network.lose(move |kind| {
        turn += 1;
        kind == "page" && turn % 3 == 0
    });
    eventually("b knows all in spite of losses", || (on_b.list(0).1 == 501).then_some(()));
    assert_eq!(on_b.groups_of("q499"), 1);
    drop((first, many));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_told_unasked_too() {
    let network = Network::new().await;
    network.lose(|kind| kind == "ask" || kind == "changes");
    let mut first = options("a", LOOPBACK, &[network.to_second]);
    first.pages_every = Duration::from_millis(100);
    let (a, b) = network.between(first, options("b", LOOPBACK, &[network.to_first])).await;
    let waiting = a.pulse.presence().register("orders", "g");
    eventually("b knows", || b.pulse.presence().look("orders", |_| ()));
    drop(waiting);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_queues_are_told_in_a_moment() {
    let (a, b) = pair().await;
    let began = Instant::now();
    let register = |queue| b.pulse.presence().register(&format!("queue-{queue}"), "g");
    let waiting: Vec<_> = (0..5_000).map(register).collect();
    eventually("a knows all", || (a.pulse.presence().list(0).1 == 5_000).then_some(()));
    println!("5000 queues told in {:?}", began.elapsed());
    drop(waiting);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_where_nobody_listens_harms_nobody() {
    let gone = std::net::UdpSocket::bind(LOOPBACK).expect("is free");
    let nowhere = gone.local_addr().expect("is bound");
    drop(gone);
    let a = Node::start(options("a", LOOPBACK, &[nowhere]), None).await;
    let b = Node::start(options("b", LOOPBACK, &[a.address(), nowhere]), None).await;
    eventually("a sees b", || a.sees("b"));
    let beats = |node: &Node| node.pulse.counts().heartbeats.received;
    let before = beats(&a);
    eventually("they go on", || (beats(&a) > before + 5).then_some(()));
    drop(b);
}

#[tokio::test(flavor = "multi_thread")]
async fn moves_are_told_to_all_to_one_and_again() {
    let (a, b) = pair().await;
    let heard = |node: &Node, key: &str| {
        let moves = node.kept.moves.lock().expect("works").clone();
        moves.into_iter().filter(|(_, one)| *one.key == *key).collect::<Vec<_>>()
    };
    a.pulse.tell_moves(&[a_move("orders:mail", "b")]);
    let told = eventually("b hears it", || heard(&b, "orders:mail").pop());
    assert_eq!(told, ("a".to_owned(), a_move("orders:mail", "b")));
    let many: Vec<_> = (0..100).map(|_| a_move("to-one", "b")).collect();
    a.pulse.tell_moves_to("b", &many);
    eventually("b hears them", || (heard(&b, "to-one").len() == 100).then_some(()));
    a.pulse.tell_moves_to("nobody", &many);
    *a.kept.repeat.lock().expect("works") = vec![a_move("again", "b")];
    eventually("b hears it again and again", || (heard(&b, "again").len() > 2).then_some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_wakes_who_waits_elsewhere_and_nobody_else() {
    let (a, b) = pair().await;
    let waiting = b.pulse.presence().register("orders", "mail");
    eventually("a knows", || a.pulse.presence().look("orders", |_| ()));
    a.pulse.wakes().wake("nobody waits for this");
    a.pulse.wakes().wake("orders");
    let woken = |node: &Node| node.kept.wakes.lock().expect("works").clone();
    eventually("b is woken", || (woken(&b) == ["orders"]).then_some(()));
    assert_eq!(a.pulse.counts().wakes.sent, 1);

    let any = b.pulse.presence().register(skep_cluster::ANY_QUEUE, "mail");
    eventually("a knows", || a.pulse.presence().look(skep_cluster::ANY_QUEUE, |_| ()));
    a.pulse.wakes().wake("something else");
    eventually("b is woken for any queue", || (woken(&b).len() == 2).then_some(()));
    b.pulse.wakes().wake("orders");
    assert_eq!(b.pulse.counts().wakes.sent, 0, "its own consumers hear of it without");
    drop((waiting, any));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_takes_about_a_millisecond_and_a_flood_is_few_datagrams() {
    let (a, b) = pair().await;
    let queues: Vec<String> = (0..200).map(|queue| format!("queue-{queue}")).collect();
    let waiting: Vec<_> =
        queues.iter().map(|queue| b.pulse.presence().register(queue, "g")).collect();
    eventually("a knows all", || (a.pulse.presence().list(0).1 == 200).then_some(()));

    let mut took = Vec::new();
    for _ in 0..500 {
        let began = Instant::now();
        a.pulse.wakes().wake("queue-7");
        b.kept.on_wake.notified().await;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    let (half, most) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("wake p50 {half:?}, p99 {most:?}");
    assert!(half < Duration::from_millis(5), "{half:?}");

    for _ in 0..100 {
        queues.iter().for_each(|queue| a.pulse.wakes().wake(queue));
    }
    eventually("b hears of all", || {
        let woken = b.kept.wakes.lock().expect("works").clone();
        queues.iter().all(|queue| woken.contains(queue)).then_some(())
    });
    let counts = a.pulse.counts().wakes;
    let datagrams = counts.datagrams - 500;
    println!("20000 wakes became {datagrams} datagrams");
    assert!(datagrams < 5_000, "{counts:?}");
    drop(waiting);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_of_one_name_are_told_to_everybody() {
    let (a, b) = pair_with(impatient("a", LOOPBACK, &[])).await;
    let twin = Node::start(options("b", LOOPBACK, &[a.address(), b.address()]), None).await;
    let doubled = eventually("a tells it", || a.pulse.doubled().pop());
    assert_eq!((&*doubled.name, doubled.newer), ("b", Some(twin.address())));
    assert_eq!(doubled.other, b.address());
    eventually("so does b itself", || b.pulse.doubled().pop());
}

#[tokio::test]
async fn what_cannot_be_listened_on_is_told() {
    use skep_cluster::{Pulse, PulseMetrics};
    let bind = |options| {
        let (kept, clock) = (Arc::new(common::Kept::default()), Arc::new(skep_store::BootClock));
        Pulse::bind(options, kept, None, PulseMetrics::default(), clock)
    };
    let mut open = options("a", "0.0.0.0:0", &[]);
    open.secret = None;
    let error = bind(open).await.err().expect("is refused");
    assert!(matches!(error, PulseError::NeedsSecret(_)), "{error}");

    let first = bind(options("a", LOOPBACK, &[])).await.expect("is free");
    let taken = first.local_addr().to_string();
    let error = bind(options("b", &taken, &[])).await.err().expect("is taken").to_string();
    assert!(error.contains(&taken) && error.contains("cluster.listen"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_secret_nodes_talk_on_loopback_and_not_to_those_with_one() {
    let open = |name: &str, peers: &[_]| {
        let mut open = options(name, LOOPBACK, peers);
        open.secret = None;
        open
    };
    let a = Node::start(open("a", &[]), None).await;
    let b = Node::start(open("b", &[a.address()]), None).await;
    let signed = Node::start(options("c", LOOPBACK, &[a.address()]), None).await;
    eventually("a sees b", || a.sees("b"));
    eventually("a refuses c", || (a.rejected("forged") > 0).then_some(()));
    assert_eq!((a.state("c"), signed.state("a")), (None, None));
    assert!(!a.pulse.is_signed() && signed.pulse.is_signed());
    drop(b);
}
