//! Who owns what: the promised numbers, the life of a cluster, and the laws that hold for any.

use super::*;
use crate::{Chance, SeededChance};
use proptest::prelude::*;

/// A cluster that does what is planned.
#[derive(Clone, Debug)]
struct Cluster {
    nodes: Vec<(String, Candidate<'static>)>,
    keys: Vec<Placed>,
}

impl Cluster {
    fn new(nodes: usize, ids: &[String]) -> Self {
        let mut ids = ids.to_vec();
        ids.sort();
        let keys = ids.iter().map(|id| Placed::new(hash_of(id), None)).collect();
        let mut cluster = Cluster { nodes: Vec::new(), keys };
        for node in 0..nodes {
            cluster.join(&format!("node-{node}"), 1);
        }
        cluster
    }

    fn settled(nodes: usize, ids: &[String]) -> Self {
        let mut cluster = Cluster::new(nodes, ids);
        cluster.settle();
        cluster
    }

    fn join(&mut self, name: &str, weight: u32) {
        let node = Node { name: "", hash: hash_of(name), weight };
        let candidate = Candidate { node, takes: true, stays: true, stable: true };
        self.nodes.push((name.to_owned(), candidate));
    }

    fn candidates(&self) -> Vec<Candidate<'_>> {
        let nodes = self.nodes.iter();
        let named =
            nodes.map(|(name, node)| Candidate { node: Node { name, ..node.node }, ..*node });
        named.collect()
    }

    fn plan(&self) -> Vec<Move> {
        plan(&self.candidates(), &self.keys, &Options::default())
    }

    fn apply(&mut self, moves: &[Move]) {
        for made in moves {
            self.keys[made.key].owner = Some(made.to);
        }
    }

    /// Makes all moves of one plan, after which there must be none.
    fn settle(&mut self) -> Vec<Move> {
        let moves = self.plan();
        self.apply(&moves);
        assert_eq!(self.plan(), [], "not settled by one plan");
        moves
    }

    /// The node is gone, and nobody owns its keys.
    fn die(&mut self, node: u32) -> Vec<usize> {
        self.nodes[node as usize].1.takes = false;
        let lost = (0..self.keys.len()).filter(|&key| self.keys[key].owner == Some(node));
        let lost: Vec<usize> = lost.collect();
        lost.iter().for_each(|&key| self.keys[key].owner = None);
        lost
    }

    fn loads(&self) -> Vec<u64> {
        let mut loads = vec![0; self.nodes.len()];
        let owned = self.keys.iter().filter_map(|key| key.owner.map(|owner| (owner, key)));
        owned.for_each(|(owner, key)| loads[owner as usize] += key.load());
        loads
    }

    fn bounds(&self, node: usize) -> Bounds {
        let weights = self.nodes.iter().filter(|(_, node)| node.is_seat());
        let weights = weights.map(|(_, node)| node.weight()).sum();
        let apart = |key: &Placed| {
            key.owner.is_some_and(|owner| self.nodes[owner as usize].1.keeps_apart())
        };
        let total = self.keys.iter().filter(|key| !apart(key)).map(Placed::load).sum();
        Bounds::new(total, self.nodes[node].1.weight(), weights, &Options::default())
    }

    /// The fewest moves that can bring everybody within bounds, if every key weighs the same.
    fn fewest_moves(&self) -> u64 {
        let loads = self.loads();
        let seats = || (0..loads.len()).filter(|&node| self.nodes[node].1.is_seat());
        let excess = seats().map(|node| loads[node].saturating_sub(self.bounds(node).cap));
        let missing = seats().map(|node| self.bounds(node).floor.saturating_sub(loads[node]));
        excess.sum::<u64>().max(missing.sum())
    }
}

fn sequential(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("ep-{n:05}")).collect()
}

fn urls(count: usize) -> Vec<String> {
    let url = |n| format!("https://host-{}.example.org/health?check={n}", n % 17);
    (0..count).map(url).collect()
}

fn sensors(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("tenant-{:03}/sensor-{:03}", n / 50, n % 50)).collect()
}

fn uuids(count: usize) -> Vec<String> {
    let mut chance = SeededChance::new(7);
    let mut uuid = || {
        let (a, b) = (chance.bits(), chance.bits());
        let (low, mid, high) = (a >> 32, (a >> 16) & 0xFFFF, a & 0xFFF);
        format!("{low:08x}-{mid:04x}-4{high:03x}-a{:03x}-{:012x}", b >> 52, b & 0xFFFF_FFFF_FFFF)
    };
    (0..count).map(|_| uuid()).collect()
}

type Ids = fn(usize) -> Vec<String>;
const KINDS: [(&str, Ids); 4] =
    [("sequential", sequential), ("url", urls), ("sensor", sensors), ("uuid", uuids)];

#[test]
fn bounds_are_the_share_and_a_twentieth_around_it_rounded_so_that_the_share_is_inside() {
    let bounds = |total, weight, weights| {
        let bounds = Bounds::new(total, weight, weights, &Options::default());
        (bounds.floor, bounds.cap)
    };
    assert_eq!(bounds(9, 1, 3), (3, 3));
    assert_eq!(bounds(10, 1, 3), (3, 4));
    assert_eq!(bounds(200, 1, 10), (19, 21));
    assert_eq!(bounds(400, 1, 10), (38, 42));
    assert_eq!(bounds(1_000, 5, 8), (594, 656));
    assert_eq!(bounds(0, 1, 3), (0, 0));
    assert_eq!(bounds(1, 1, 3), (0, 1));
    assert_eq!(bounds(u64::MAX, u32::MAX.into(), 1), (u64::MAX, u64::MAX));
}

#[test]
fn nine_keys_are_three_for_each_of_three_nodes_whatever_their_names() {
    let mut chance = SeededChance::new(1);
    for set in 0..200 {
        let ids: Vec<String> = (0..9).map(|key| format!("set-{set}/{key}")).collect();
        let mut cluster = Cluster::new(0, &ids);
        for _ in 0..3 {
            cluster.join(&format!("host-{:x}", chance.bits()), 1);
        }
        cluster.settle();
        assert_eq!(cluster.loads(), [3, 3, 3], "set {set}");
    }
}

#[test]
fn nobody_has_a_twentieth_more_than_the_mean_from_twenty_keys_a_node_on() {
    for (kind, ids) in KINDS {
        for nodes in [3, 10, 100] {
            for keys in [20 * nodes, 23 * nodes + 1, 57 * nodes] {
                let cluster = Cluster::settled(nodes, &ids(keys));
                let most = cluster.loads().into_iter().max().unwrap_or(0) as f64;
                let mean = keys as f64 / nodes as f64;
                assert!(most / mean <= 1.05, "{kind}, {keys} on {nodes}: {}", most / mean);
            }
        }
    }
}

/// What is done elsewhere: one hash over both names, and the highest wins.
#[test]
fn hashing_both_names_in_one_go_would_be_uneven() {
    fn fnv1a(text: &str) -> u64 {
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        text.bytes().fold(0xCBF2_9CE4_8422_2325, step)
    }
    fn worst(pick: impl Fn(&str) -> usize) -> f64 {
        let mut loads = [0_u32; 10];
        sequential(2_000).iter().for_each(|id| loads[pick(id)] += 1);
        f64::from(loads.into_iter().max().unwrap_or(0)) / 200.0
    }
    let names: Vec<String> = (0..10).map(|node| format!("node-{node}")).collect();
    let highest = |id: &str, joined: fn(&str, &str) -> String| {
        (0..10).max_by_key(|&node| fnv1a(&joined(&names[node], id))).unwrap_or(0)
    };
    let key_last = worst(|id| highest(id, |node, key| format!("{node}{key}")));
    let key_first = worst(|id| highest(id, |node, key| format!("{key}{node}")));
    assert!(key_last > 1.3 && key_first > 1.3, "{key_last} {key_first}");
    let nodes: Vec<Node<'_>> = names.iter().map(|name| Node::new(name, 1)).collect();
    let ranking = crate::rendezvous::Ranking::new(&nodes);
    let ours = worst(|id| ranking.best(hash_of(id)).unwrap_or(0));
    assert!(ours < 1.2, "{ours}");
}

#[test]
fn weights_are_kept_within_a_twentieth() {
    for (kind, ids) in KINDS {
        let mut cluster = Cluster::new(0, &ids(1_600));
        for (name, weight) in [("small", 1), ("middle", 2), ("big", 5)] {
            cluster.join(name, weight);
        }
        cluster.settle();
        for (load, share) in cluster.loads().into_iter().zip([200_u64, 400, 1_000]) {
            assert!(load.abs_diff(share) <= share / 20, "{kind}: {load} of {share}");
        }
    }
}

#[test]
fn a_node_that_joins_gets_what_it_needs_and_nothing_else_moves() {
    for (kind, ids) in KINDS {
        let mut cluster = Cluster::settled(10, &ids(1_100));
        cluster.join("newcomer", 1);
        let moves = cluster.settle();
        assert!(moves.iter().all(|made| made.to == 10 && made.why.is_voluntary()), "{kind}");
        assert!((95..=115).contains(&moves.len()), "{kind}: {}", moves.len());
        let liked = moves.iter().filter(|made| made.rank == 0).count();
        assert!(liked * 10 > moves.len() * 8, "{kind}: {liked} of {}", moves.len());
    }
}

#[test]
fn when_a_node_leaves_exactly_its_keys_move() {
    for (kind, ids) in KINDS {
        for (nodes, keys) in [(3, 9), (10, 1_000), (10, 57), (100, 3_000)] {
            let mut cluster = Cluster::settled(nodes, &ids(keys));
            let lost = cluster.die(1);
            let mut moved: Vec<usize> = cluster.settle().iter().map(|made| made.key).collect();
            moved.sort_unstable();
            assert_eq!(moved, lost, "{kind}, {keys} on {nodes}");
        }
    }
}

#[test]
fn a_draining_node_hands_over_all_it_has_and_keeps_it_if_nobody_can_take_it() {
    let mut cluster = Cluster::settled(4, &sequential(100));
    cluster.nodes[2].1.stays = false;
    let had = cluster.loads()[2];
    let moves = cluster.settle();
    assert_eq!(moves.len() as u64, had);
    assert!(moves.iter().all(|made| made.from == Some(2) && made.why == Why::Draining));
    assert_eq!(cluster.loads()[2], 0);
    cluster.nodes.iter_mut().for_each(|(_, node)| node.stays = false);
    assert_eq!(cluster.plan(), []);
}

#[test]
fn a_node_that_takes_nothing_but_stays_is_left_out_with_what_it_has() {
    let mut cluster = Cluster::settled(4, &sequential(400));
    let had = cluster.loads()[3];
    cluster.nodes[3].1.takes = false;
    assert_eq!(cluster.plan(), []);
    cluster.die(0);
    cluster.settle();
    let loads = cluster.loads();
    assert_eq!(loads[3], had);
    assert!(loads[1].abs_diff(loads[2]) <= 16, "{loads:?}");
}

#[test]
fn moving_a_twentieth_at_a_time_ends_where_moving_all_at_once_does() {
    let mut cluster = Cluster::settled(10, &sensors(2_200));
    cluster.join("newcomer", 1);
    let fewest = cluster.fewest_moves();
    let (mut made, mut seconds) = (0, 0);
    loop {
        let moves = cluster.plan();
        if moves.is_empty() {
            break;
        }
        let loads = cluster.loads();
        for giver in 0..10 {
            let own: Vec<Move> =
                moves.iter().filter(|made| made.from == Some(giver)).copied().collect();
            let owned = loads[giver as usize] as usize;
            let now = allowed_now(own.len(), owned, 50, Duration::from_secs(1));
            cluster.apply(&own[..now]);
            made += now as u64;
        }
        seconds += 1;
        assert!(seconds < 20, "does not end");
    }
    assert_eq!((made, cluster.fewest_moves()), (fewest, 0));
}

#[test]
fn a_flapping_node_costs_no_more_than_its_own_keys() {
    let mut cluster = Cluster::settled(5, &uuids(500));
    for round in 0..10 {
        let lost = cluster.die(4);
        let moves = cluster.settle();
        assert_eq!(moves.len(), lost.len(), "round {round}");
        cluster.nodes[4].1 = Candidate { stable: false, takes: true, ..cluster.nodes[4].1 };
        assert_eq!(cluster.plan(), [], "round {round}: not before it is stable");
        if round == 5 {
            cluster.nodes[4].1.stable = true;
            let fewest = cluster.fewest_moves();
            assert_eq!(cluster.settle().len() as u64, fewest);
        }
    }
}

#[test]
fn a_node_that_is_not_yet_stable_takes_keys_that_nobody_has() {
    let mut cluster = Cluster::settled(3, &sequential(90));
    cluster.join("newcomer", 1);
    cluster.nodes[3].1.stable = false;
    cluster.die(0);
    let moves = cluster.settle();
    assert!(moves.iter().all(|made| made.from.is_none()));
    assert!(cluster.loads()[3] >= 28, "{:?}", cluster.loads());
}

#[test]
fn keys_that_are_not_settled_stay_where_they_are() {
    let mut cluster = Cluster::settled(2, &sequential(100));
    cluster.join("newcomer", 1);
    cluster.keys.iter_mut().for_each(|key| key.settled = false);
    assert_eq!(cluster.plan(), []);
    let lost = cluster.die(0);
    assert_eq!(cluster.plan().len(), lost.len());
}

#[test]
fn deleting_keys_moves_as_few_as_possible() {
    let mut chance = SeededChance::new(3);
    for _ in 0..20 {
        let mut cluster = Cluster::settled(7, &urls(700));
        let gone = chance.up_to(6) as u32;
        cluster.keys.retain(|key| chance.up_to(9) > if key.owner == Some(gone) { 6 } else { 2 });
        let fewest = cluster.fewest_moves();
        let moves = cluster.settle();
        assert_eq!(moves.len() as u64, fewest);
        assert!(moves.iter().all(|made| made.why.is_voluntary()));
    }
}

#[test]
fn a_key_too_heavy_for_everybody_goes_to_the_one_with_the_least_for_its_weight() {
    let mut cluster = Cluster::settled(3, &sequential(9));
    cluster.nodes[1].1.node.weight = 4;
    cluster.keys.push(Placed { weight: 1_000, ..Placed::new(1, None) });
    let moves = cluster.plan();
    let heavy = moves.iter().find(|made| made.key == 9).expect("is placed");
    assert_eq!(heavy.to, 1);
    cluster.settle();
}

#[test]
fn without_nodes_or_keys_there_is_nothing_to_do() {
    assert_eq!(Cluster::new(0, &sequential(3)).plan(), []);
    assert_eq!(Cluster::new(3, &[]).plan(), []);
}

#[test]
fn an_owner_that_is_not_among_the_nodes_is_none() {
    let mut cluster = Cluster::new(2, &sequential(4));
    cluster.keys[0].owner = Some(77);
    assert!(cluster.settle().iter().all(|made| made.from.is_none()));
}

#[test]
fn a_move_says_why() {
    let mut cluster = Cluster::settled(3, &sequential(90));
    cluster.join("newcomer", 1);
    let given = cluster.plan()[0].reason().to_string();
    assert_eq!(given, "over-cap: load 30, share 22.500, rank 0, cap 23");
    cluster.settle();
    cluster.die(0);
    let taken = cluster.plan()[0].reason().to_string();
    assert!(taken.starts_with("unowned: load 2"), "{taken}");
}

#[test]
fn a_twentieth_of_what_is_owned_moves_in_a_second_and_at_least_one_key() {
    let second = Duration::from_secs(1);
    assert_eq!(allowed_now(500, 1_000, 50, second), 50);
    assert_eq!(allowed_now(20, 1_000, 50, second), 20);
    assert_eq!(allowed_now(500, 1_000, 50, second / 2), 25);
    assert_eq!(allowed_now(500, 1_000, 50, 60 * second), 50);
    assert_eq!(allowed_now(500, 3, 50, second), 1);
    assert_eq!(allowed_now(0, 3, 50, second), 0);
}

fn any_cluster(key_weights: u32, node_weights: u32) -> impl Strategy<Value = Cluster> {
    let often = || prop::bool::weighted(0.8);
    let node = (1..=node_weights, often(), often(), often());
    let nodes = prop::collection::vec(node, 1..8);
    let key = (any::<u64>(), 1..=key_weights, prop::option::weighted(0.8, 0_u32..8), often());
    (nodes, prop::collection::vec(key, 0..80)).prop_map(|(nodes, keys)| {
        let mut cluster = Cluster::new(0, &[]);
        for (index, (weight, takes, stays, stable)) in nodes.into_iter().enumerate() {
            cluster.join(&format!("node-{index}"), weight);
            cluster.nodes[index].1 = Candidate { takes, stays, stable, ..cluster.nodes[index].1 };
        }
        let count = cluster.nodes.len() as u32;
        let place = |(hash, weight, owner, settled): (u64, u32, Option<u32>, bool)| Placed {
            hash,
            weight,
            owner: owner.map(|owner| owner % count),
            settled,
        };
        cluster.keys = keys.into_iter().map(place).collect();
        cluster
    })
}

/// A cluster in which nothing but the load is wrong.
fn uneven_cluster() -> impl Strategy<Value = Cluster> {
    any_cluster(1, 4).prop_map(|mut cluster| {
        for (_, node) in &mut cluster.nodes {
            *node = Candidate { takes: true, stays: true, stable: true, ..*node };
        }
        for key in &mut cluster.keys {
            *key = Placed { owner: Some(key.owner.unwrap_or(0)), settled: true, ..*key };
        }
        cluster
    })
}

proptest! {
    #[test]
    fn every_key_that_needs_an_owner_gets_one_and_only_who_may_take_does(
        cluster in any_cluster(9, 5)
    ) {
        let moves = cluster.plan();
        let anybody = cluster.nodes.iter().any(|(_, node)| node.is_seat());
        let mut after = cluster.clone();
        after.apply(&moves);
        for (index, key) in cluster.keys.iter().enumerate() {
            let of_key: Vec<&Move> = moves.iter().filter(|made| made.key == index).collect();
            prop_assert!(of_key.len() <= 1);
            let stays = |owner: u32| cluster.nodes[owner as usize].1.stays;
            let homeless = !key.owner.is_some_and(stays);
            prop_assert!(!homeless || !anybody || of_key.len() == 1);
            for made in of_key {
                let (to, bounds) = (&cluster.nodes[made.to as usize].1, made.bounds);
                prop_assert!(to.is_seat() && made.from == key.owner && made.from != Some(made.to));
                prop_assert_eq!(made.why.is_voluntary(), !homeless);
                prop_assert!(bounds.floor as f64 <= bounds.share);
                prop_assert!(bounds.share <= bounds.cap as f64);
                if made.why.is_voluntary() {
                    let giver = key.owner.map(|owner| cluster.nodes[owner as usize].1);
                    prop_assert!(key.settled && to.stable && giver.is_some_and(|g| g.is_seat()));
                    let cap = cluster.bounds(made.to as usize).cap;
                    prop_assert!(after.loads()[made.to as usize] <= cap);
                }
            }
        }
    }

    #[test]
    fn the_order_of_the_nodes_does_not_matter(cluster in any_cluster(9, 5), turn in 1_usize..8) {
        let count = cluster.nodes.len();
        let mut turned = cluster.clone();
        turned.nodes.rotate_left(turn % count);
        turned.nodes.reverse();
        let new_index = |old: u32| {
            let name = &cluster.nodes[old as usize].0;
            turned.nodes.iter().position(|(other, _)| other == name).map(|index| index as u32)
        };
        let keys = cluster.keys.iter();
        let keys = keys.map(|key| Placed { owner: key.owner.and_then(new_index), ..*key });
        let keys: Vec<Placed> = keys.collect();
        let expected = cluster.plan().into_iter().map(|made| Move {
            from: made.from.and_then(new_index),
            to: new_index(made.to).unwrap_or(u32::MAX),
            ..made
        });
        let expected: Vec<Move> = expected.collect();
        let turned = Cluster { nodes: turned.nodes.clone(), keys };
        prop_assert_eq!(turned.plan(), expected);
    }

    #[test]
    fn moves_come_to_an_end_whatever_the_keys_weigh(mut cluster in any_cluster(30, 5)) {
        for _ in 0..20 {
            let moves = cluster.plan();
            cluster.apply(&moves);
            if moves.is_empty() {
                return Ok(());
            }
        }
        prop_assert!(false, "still moving: {:?}", cluster.plan());
    }

    #[test]
    fn voluntary_moves_never_raise_the_highest_load(mut cluster in any_cluster(9, 1)) {
        let moves = cluster.plan();
        let (free, forced): (Vec<Move>, Vec<Move>) =
            moves.into_iter().partition(|made| made.why.is_voluntary());
        cluster.apply(&forced);
        let before = cluster.loads().into_iter().max();
        cluster.apply(&free);
        prop_assert!(cluster.loads().into_iter().max() <= before);
    }

    #[test]
    fn as_few_move_as_possible_also_when_only_some_moves_are_made(
        mut cluster in uneven_cluster(), seed: u64,
    ) {
        let fewest = cluster.fewest_moves();
        let mut chance = SeededChance::new(seed);
        let mut made = 0;
        loop {
            let mut moves = cluster.plan();
            prop_assert_eq!(moves.len() as u64, cluster.fewest_moves());
            if moves.is_empty() {
                break;
            }
            moves.retain(|_| chance.up_to(2) == 0);
            made += moves.len() as u64;
            cluster.apply(&moves);
        }
        prop_assert_eq!(made, fewest);
    }
}
