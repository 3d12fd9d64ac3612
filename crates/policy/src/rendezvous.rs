//! Which node does a key like best? Weighted rendezvous hashing.
//!
//! Every pair of a node and a key has a score that depends on nothing else. A key likes the node
//! with the highest score best, so a node that joins or leaves changes the answer only for the keys
//! that like it best, and nobody has to keep a table.
//!
//! ```text
//!   node ──► xxh3 ──────────────┐
//!   key  ──► xxh3 ──► rotate ──► xor ──► fmix64 ──► u in (0, 1] ──► weight / -ln u
//! ```
//!
//! Node and key are hashed apart and mixed afterwards, because hashing one text after the other
//! leaves ids that differ in their last letters close together. Everything here is frozen: two
//! nodes with two versions of the program must agree, so the functions never change their results,
//! and the logarithm is computed from the basic operations, which are the same on every machine.

use std::cmp::Reverse;
use xxhash_rust::xxh3::xxh3_64;

/// The hash of a node's or a key's name. Frozen.
pub fn hash_of(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
}

/// How well a key likes a node of this weight. Higher is better; a node of twice the weight is
/// liked best by twice as many keys. Frozen. A weight of 0 counts as 1.
pub fn score(node_hash: u64, key_hash: u64, weight: u32) -> f64 {
    score_of(pair(node_hash, key_hash), weight)
}

/// A node as rendezvous hashing sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// Its name, which settles ties: the smaller one wins.
    pub name: &'a str,
    /// [`hash_of`] its name.
    pub hash: u64,
    /// How much it takes, compared with the others. From 1.
    pub weight: u32,
}

impl<'a> Node<'a> {
    /// The node of this name and weight.
    pub fn new(name: &'a str, weight: u32) -> Self {
        Node { name, hash: hash_of(name), weight }
    }
}

/// Nodes, prepared to be ranked for many keys.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// In the order they were given.
    nodes: Vec<Prepared>,
    /// Equal weights need no logarithm: the scores are in the order of the mixed hashes.
    equal: bool,
}

#[derive(Clone, Copy, Debug)]
struct Prepared {
    hash: u64,
    weight: u32,
    /// Its place when all are sorted by name.
    place: u32,
}

/// How well a key likes a node, in a form that compares quickly. Only values of one [`Ranking`]
/// compare; no two nodes of it have the same appeal for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Appeal {
    bits: u64,
    place: Reverse<u32>,
}

impl Ranking {
    /// Prepares these nodes. Their order does not matter; indices below refer to it.
    pub fn new(nodes: &[Node<'_>]) -> Self {
        let mut by_name: Vec<u32> = (0..nodes.len() as u32).collect();
        by_name.sort_by_key(|&index| nodes[index as usize].name);
        let prepare = |node: &Node<'_>| Prepared { hash: node.hash, weight: node.weight, place: 0 };
        let mut prepared: Vec<Prepared> = nodes.iter().map(prepare).collect();
        for (place, &index) in by_name.iter().enumerate() {
            prepared[index as usize].place = place as u32;
        }
        let equal = nodes.windows(2).all(|two| two[0].weight == two[1].weight);
        Ranking { nodes: prepared, equal }
    }

    /// How well the key likes the node at this index, which must be one of the ranking's.
    #[inline]
    pub fn appeal(&self, index: usize, key_hash: u64) -> Appeal {
        self.appeal_of(&self.nodes[index], key_hash)
    }

    /// The index of the node that the key likes best; `None` if there are no nodes.
    pub fn best(&self, key_hash: u64) -> Option<usize> {
        let indexed = self.nodes.iter().enumerate();
        indexed.max_by_key(|(_, node)| self.appeal_of(node, key_hash)).map(|(index, _)| index)
    }

    /// Writes the indices of all nodes to `into`, the best liked first.
    pub fn order(&self, key_hash: u64, into: &mut Vec<usize>) {
        into.clear();
        into.extend(0..self.nodes.len());
        into.sort_unstable_by_key(|&index| Reverse(self.appeal(index, key_hash)));
    }

    #[inline]
    fn appeal_of(&self, node: &Prepared, key_hash: u64) -> Appeal {
        let pair = pair(node.hash, key_hash);
        // Scores are positive, and positive floats are in the order of their bits.
        let bits = if self.equal { pair } else { score_of(pair, node.weight).to_bits() };
        Appeal { bits, place: Reverse(node.place) }
    }
}

/// The finaliser of MurmurHash3: every bit of the input changes every bit of the output.
#[inline]
pub(crate) const fn fmix64(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    bits ^ (bits >> 33)
}

/// A number for the pair. The rotation keeps a node and a key of one name from cancelling out.
#[inline]
const fn pair(node_hash: u64, key_hash: u64) -> u64 {
    fmix64(node_hash ^ key_hash.rotate_left(32))
}

#[inline]
fn score_of(pair: u64, weight: u32) -> f64 {
    let unit = ((pair >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    // The logarithm of 1 is 0, and that pair's score infinite: it is the best there is. The
    // standard library's logarithm is the platform's and may differ between two machines in the
    // last digit.
    f64::from(weight.max(1)) / (0.0 - libm::log(unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(nodes: &[Node<'_>], keys: u32) -> Vec<u32> {
        let ranking = Ranking::new(nodes);
        let mut counts = vec![0; nodes.len()];
        for key in 0..keys {
            counts[ranking.best(hash_of(&format!("key-{key:05}"))).expect("has nodes")] += 1;
        }
        counts
    }

    #[test]
    fn the_hash_of_a_text_never_changes() {
        const LONG: &str =
            "https://example.org/a/rather/long/path/that/is/hashed/in/blocks?with=a&query=too";
        let vectors = [
            ("", 0x2D06_8005_38D3_94C2),
            ("a", 0xE6C6_32B6_1E96_4E1F),
            ("node-1", 0x0DB0_9EDF_D945_8385),
            ("ep-00001", 0xFDFB_99C8_69C4_232B),
            ("tenant-001/sensor-017", 0xC729_4298_1204_8C37),
            (LONG, 0x11B0_FD1A_B66E_B00B),
        ];
        for (text, hash) in vectors {
            assert_eq!(hash_of(text), hash, "{text:?}: {:#018X}", hash_of(text));
        }
    }

    #[test]
    fn the_score_of_a_pair_never_changes() {
        let vectors = [
            ("node-1", "ep-00001", 1, 0x4007_9B70_0E24_5C5C),
            ("node-2", "ep-00001", 5, 0x403D_3610_923E_F7C0),
        ];
        for (node, key, weight, bits) in vectors {
            let found = score(hash_of(node), hash_of(key), weight).to_bits();
            assert_eq!(found, bits, "{node} {key}: {found:#018X}");
        }
    }

    #[test]
    fn the_luckiest_pair_has_the_best_score_and_the_unluckiest_still_a_positive_one() {
        assert_eq!(score_of(u64::MAX, 1), f64::INFINITY);
        assert!(score_of(0, 1) > 0.02);
        assert!(score_of(0, 0) > 0.0);
    }

    #[test]
    fn nodes_of_equal_weight_are_liked_equally_often() {
        let nodes = ["a", "b", "c", "d"].map(|name| Node::new(name, 3));
        let counts = counts(&nodes, 40_000);
        assert!(counts.iter().all(|count| (9_700..10_300).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_node_is_liked_as_often_as_its_weight_says() {
        let nodes = [Node::new("a", 1), Node::new("b", 2), Node::new("c", 5)];
        let counts = counts(&nodes, 80_000);
        for (count, expected) in counts.iter().zip([10_000_u32, 20_000, 50_000]) {
            assert!(count.abs_diff(expected) < expected / 25, "{counts:?}");
        }
    }

    #[test]
    fn a_tie_goes_to_the_smaller_name() {
        let twin = |name| Node { name, hash: 7, weight: 1 };
        assert_eq!(Ranking::new(&[twin("b"), twin("a"), twin("c")]).best(9), Some(1));
        let heavy = Node { name: "heavy", hash: 1, weight: 0 };
        let ranking = Ranking::new(&[heavy, twin("b"), twin("a")]);
        let mut order = Vec::new();
        ranking.order(9, &mut order);
        let place = |index| order.iter().position(|&found| found == index);
        assert!(place(2) < place(1));
    }

    #[test]
    fn without_nodes_nobody_is_best() {
        assert_eq!(Ranking::new(&[]).best(1), None);
    }

    proptest! {
        #[test]
        fn a_node_that_leaves_changes_only_the_keys_that_liked_it_best(
            weights in prop::collection::vec(1_u32..9, 2..8), key: u64, gone: prop::sample::Index,
        ) {
            let names: Vec<String> = (0..weights.len()).map(|n| format!("node-{n}")).collect();
            let mut nodes: Vec<Node<'_>> =
                names.iter().zip(weights).map(|(name, weight)| Node::new(name, weight)).collect();
            let before = nodes[Ranking::new(&nodes).best(key).expect("has nodes")];
            let gone = nodes.remove(gone.index(nodes.len()));
            let after = nodes[Ranking::new(&nodes).best(key).expect("has nodes")];
            prop_assert!(after == before || before == gone);
        }

        #[test]
        fn with_equal_weights_the_quick_order_is_the_order_of_the_scores(
            key: u64, weight in 1_u32..9,
        ) {
            let nodes = ["a", "b", "c", "d", "e"].map(|name| Node::new(name, weight));
            let mut quick = Vec::new();
            Ranking::new(&nodes).order(key, &mut quick);
            let mut slow: Vec<usize> = (0..nodes.len()).collect();
            let score = |index: usize| score(nodes[index].hash, key, weight);
            slow.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
            prop_assert_eq!(quick, slow);
        }
    }
}
