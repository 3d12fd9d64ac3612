//! How a plan is made: first the keys that need an owner, then what is too much and too little.

use super::{Bounds, Candidate, Move, Options, Placed, Why};
use crate::rendezvous::{Appeal, Node, Ranking};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// No seat, or no move.
const NONE: u32 = u32::MAX;
/// A key's rank is first estimated from this many seats, because most keys are never looked at
/// again.
const SEATS_TO_ESTIMATE_FROM: usize = 8;

/// A node that takes keys.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Its index among the candidates.
    pub node: u32,
    weight: u64,
    stable: bool,
    load: u64,
    /// What is right when every node that takes keys has its share.
    bounds: Bounds,
    /// It gives voluntarily above this cap, and gets voluntarily below this floor.
    voluntary: Bounds,
}

impl Seat {
    pub fn new(node: u32, weight: u64, stable: bool, load: u64, bounds: Bounds) -> Self {
        Seat { node, weight, stable, load, bounds, voluntary: bounds }
    }
}

/// While some nodes are not yet stable, what is right without them is right too. So nobody gives
/// keys away for a node that cannot have them yet.
pub fn widen(seats: &mut [Seat], options: &Options) {
    let stable = || seats.iter().filter(|seat| seat.stable);
    let (total, weights) =
        stable().fold((0, 0), |(total, weights), seat| (total + seat.load, weights + seat.weight));
    for seat in seats.iter_mut() {
        seat.voluntary = seat.bounds;
        if seat.stable {
            let alone = Bounds::new(total, seat.weight, weights, options);
            seat.voluntary.cap = seat.bounds.cap.max(alone.cap);
            seat.voluntary.floor = seat.bounds.floor.min(alone.floor);
        }
    }
}

/// Is there anybody who should give and anybody who could take?
pub fn is_uneven(seats: &[Seat]) -> bool {
    VOLUNTARY.iter().any(|round| round.is_worth_it(seats))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// Those above their cap.
    OverCap,
    /// Those above their floor.
    OverFloor,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    /// Those below their floor.
    UnderFloor,
    /// Those below their cap.
    UnderCap,
}

/// One kind of move, made until there is none left.
#[derive(Clone, Copy)]
struct Round {
    from: From,
    to: To,
    /// Of keys that stay where they are otherwise; if not, of keys that move anyhow.
    voluntary: bool,
}

const fn rounds(voluntary: bool) -> [Round; 3] {
    // What is too much here first fills what is too little there: that is one move instead of two.
    [
        Round { from: From::OverCap, to: To::UnderFloor, voluntary },
        Round { from: From::OverCap, to: To::UnderCap, voluntary },
        Round { from: From::OverFloor, to: To::UnderFloor, voluntary },
    ]
}
const VOLUNTARY: [Round; 3] = rounds(true);
const ON_THE_WAY: [Round; 3] = rounds(false);

impl Round {
    fn bounds<'s>(&self, seat: &'s Seat) -> &'s Bounds {
        if self.voluntary { &seat.voluntary } else { &seat.bounds }
    }

    /// How much the seat has above what this round lets it keep.
    fn surplus(&self, seat: &Seat) -> u64 {
        let bounds = self.bounds(seat);
        seat.load.saturating_sub(match self.from {
            From::OverCap => bounds.cap,
            From::OverFloor => bounds.floor,
        })
    }

    fn takes(&self, seat: &Seat) -> bool {
        (seat.stable || !self.voluntary)
            && match self.to {
                To::UnderFloor => seat.load < self.bounds(seat).floor,
                To::UnderCap => seat.load < seat.bounds.cap,
            }
    }

    fn is_worth_it(&self, seats: &[Seat]) -> bool {
        seats.iter().any(|seat| self.surplus(seat) > 0) && seats.iter().any(|seat| self.takes(seat))
    }

    /// May a key of this load go from one seat to the other? Only if the receiver stays within its
    /// cap, and the move leaves less outside the bounds than there was. The latter is why moves
    /// come to an end, whatever the keys weigh.
    fn permits(&self, load: u64, giver: &Seat, receiver: &Seat) -> bool {
        if !self.takes(receiver) || receiver.load + load > receiver.bounds.cap {
            return false;
        }
        let (gives, gets) = (self.bounds(giver), self.bounds(receiver));
        let left = giver.load - load;
        match self.from {
            From::OverFloor => left >= gives.floor,
            From::OverCap => {
                let excess = |load: u64| load.saturating_sub(gives.cap);
                let filled = gets.floor.saturating_sub(receiver.load).min(load);
                let opened = gives.floor.saturating_sub(left);
                opened < excess(giver.load) - excess(left) + filled
            }
        }
    }
}

/// A key, and the seat it likes best of those that may have it. The greatest comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wish {
    key: u32,
    to: u32,
    /// How many seats it likes better; not more than that if it is estimated.
    rank: u32,
    estimated: bool,
    appeal: Appeal,
}

impl Ord for Wish {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |wish: &Wish| (Reverse(wish.rank), wish.appeal, Reverse(wish.key));
        order(self).cmp(&order(other))
    }
}

impl PartialOrd for Wish {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

pub struct Planner<'a> {
    nodes: &'a [Candidate<'a>],
    keys: &'a [Placed],
    options: Options,
    /// Sorted by name, which is why the order of the nodes does not matter.
    seats: Vec<Seat>,
    ranking: Ranking,
    /// The seat of each node, or `NONE`.
    seat_of_node: Vec<u32>,
    /// The seat of each key in this plan, or `NONE` for those that are not shared out.
    seat_of_key: Vec<u32>,
    /// The move of each key, or `NONE`.
    move_of_key: Vec<u32>,
    moves: Vec<Move>,
    /// How the key in question likes each seat.
    appeals: Vec<Appeal>,
}

impl<'a> Planner<'a> {
    pub fn new(
        nodes: &'a [Candidate<'a>],
        keys: &'a [Placed],
        seats: Vec<Seat>,
        options: Options,
    ) -> Self {
        let ranked: Vec<Node<'_>> =
            seats.iter().map(|seat| nodes[seat.node as usize].node).collect();
        let mut seat_of_node = vec![NONE; nodes.len()];
        for (index, seat) in seats.iter().enumerate() {
            seat_of_node[seat.node as usize] = index as u32;
        }
        Planner {
            nodes,
            keys,
            options,
            ranking: Ranking::new(&ranked),
            appeals: Vec::with_capacity(seats.len()),
            seats,
            seat_of_node,
            seat_of_key: vec![NONE; keys.len()],
            move_of_key: vec![NONE; keys.len()],
            moves: Vec::new(),
        }
    }

    pub fn plan(mut self) -> Vec<Move> {
        let homeless = self.seat_the_owned();
        for key in homeless {
            self.seat_the_homeless(key);
        }
        while self.make_rounds(&ON_THE_WAY) {}
        widen(&mut self.seats, &self.options);
        while self.make_rounds(&VOLUNTARY) {}
        self.moves
    }

    /// The keys that need an owner, in an order that all nodes agree on. The heavy ones come first,
    /// while there is room for them.
    fn seat_the_owned(&mut self) -> Vec<u32> {
        let mut homeless = Vec::new();
        for (index, key) in self.keys.iter().enumerate() {
            let owner = key.owner.map(|owner| owner as usize).filter(|&o| o < self.nodes.len());
            match owner {
                Some(owner) if self.nodes[owner].stays => {
                    self.seat_of_key[index] = self.seat_of_node[owner];
                }
                _ => homeless.push(index as u32),
            }
        }
        let keys = self.keys;
        homeless.sort_unstable_by_key(|&index| {
            let key = &keys[index as usize];
            (Reverse(key.weight), key.hash, index)
        });
        homeless
    }

    fn seat_the_homeless(&mut self, index: u32) {
        let key = &self.keys[index as usize];
        self.appeals.clear();
        let places = 0..self.seats.len();
        self.appeals.extend(places.map(|place| self.ranking.appeal(place, key.hash)));
        let places = || self.seats.iter().enumerate();
        let liked_below = |most: fn(&Bounds) -> u64| {
            places()
                .filter(|(_, seat)| seat.load + key.load() <= most(&seat.bounds))
                .max_by_key(|&(place, _)| self.appeals[place])
        };
        let liked = liked_below(|bounds| bounds.even).or_else(|| liked_below(|bounds| bounds.cap));
        let fullness = |a: &Seat, b: &Seat| {
            let of = |x: &Seat, y: &Seat| u128::from(x.load + key.load()) * u128::from(y.weight);
            of(a, b).cmp(&of(b, a))
        };
        let emptiest = || places().min_by(|(_, a), (_, b)| fullness(a, b));
        let Some((place, seat)) = liked.or_else(emptiest) else { return };
        let better = self.appeals.iter().filter(|&&appeal| appeal > self.appeals[place]);
        let rank = better.count() as u32;
        let from = key.owner.filter(|&owner| (owner as usize) < self.nodes.len());
        let why = match (from, rank) {
            (Some(_), _) => Why::Draining,
            (None, 0) => Why::Unowned,
            (None, _) => Why::UnownedOverflow,
        };
        let (load, bounds) = (seat.load, seat.bounds);
        self.move_of_key[index as usize] = self.moves.len() as u32;
        self.seat_of_key[index as usize] = place as u32;
        let (key, to) = (index as usize, seat.node);
        self.moves.push(Move { key, from, to, why, load, bounds, rank });
        self.seats[place].load += self.keys[key].load();
    }

    fn make_rounds(&mut self, rounds: &[Round; 3]) -> bool {
        let mut any = false;
        for round in rounds {
            any |= self.make_round(*round);
        }
        any
    }

    /// Of those who have too much the one with the most gives first, and of its keys the one that
    /// likes its new owner best. True if anything moved.
    fn make_round(&mut self, round: Round) -> bool {
        if !round.is_worth_it(&self.seats) {
            return false;
        }
        let mut takers: Vec<usize> = (0..self.seats.len()).collect();
        takers.retain(|&place| round.takes(&self.seats[place]));
        let mut wishes = self.wishes(round, &takers);
        let mut any = false;
        while let Some(giver) = (0..self.seats.len())
            .filter(|&seat| !wishes[seat].is_empty() && round.surplus(&self.seats[seat]) > 0)
            .max_by_key(|&seat| (round.surplus(&self.seats[seat]), Reverse(seat)))
        {
            let Some(wish) = wishes[giver].pop() else { break };
            let load = self.keys[wish.key as usize].load();
            if !round.permits(load, &self.seats[giver], &self.seats[wish.to as usize]) {
                // In a round seats only lose what makes them give or take, so what was
                // impossible remains so, and a second choice is never better than a first one.
                wishes[giver].extend(self.wish(round, &takers, wish.key));
            } else if wish.estimated {
                wishes[giver].push(self.measured(wish));
            } else {
                self.make_move(round, giver, wish);
                any = true;
                takers.retain(|&place| round.takes(&self.seats[place]));
                if takers.is_empty() {
                    break;
                }
            }
        }
        any
    }

    /// For each seat that gives, which of its keys would like to go where.
    fn wishes(&self, round: Round, takers: &[usize]) -> Vec<BinaryHeap<Wish>> {
        let mut wishes: Vec<Vec<Wish>> = vec![Vec::new(); self.seats.len()];
        let gives: Vec<bool> = self.seats.iter().map(|seat| round.surplus(seat) > 0).collect();
        for index in 0..self.keys.len() {
            let giver = self.seat_of_key[index] as usize;
            let may_move = match round.voluntary {
                true => self.move_of_key[index] == NONE && self.keys[index].settled,
                false => self.move_of_key[index] != NONE,
            };
            if may_move
                && gives.get(giver) == Some(&true)
                && let Some(wish) = self.wish(round, takers, index as u32)
            {
                wishes[giver].push(wish);
            }
        }
        wishes.into_iter().map(BinaryHeap::from).collect()
    }

    fn wish(&self, round: Round, takers: &[usize], index: u32) -> Option<Wish> {
        let key = &self.keys[index as usize];
        let giver = &self.seats[self.seat_of_key[index as usize] as usize];
        let (appeal, place) = takers
            .iter()
            .filter(|&&place| round.permits(key.load(), giver, &self.seats[place]))
            .map(|&place| (self.ranking.appeal(place, key.hash), place))
            .max()?;
        let seats = self.seats.len().min(SEATS_TO_ESTIMATE_FROM);
        let rank = self.count_better(key.hash, appeal, seats);
        let estimated = seats < self.seats.len();
        Some(Wish { key: index, to: place as u32, rank, estimated, appeal })
    }

    fn measured(&self, wish: Wish) -> Wish {
        let hash = self.keys[wish.key as usize].hash;
        let rank = self.count_better(hash, wish.appeal, self.seats.len());
        Wish { rank, estimated: false, ..wish }
    }

    fn make_move(&mut self, round: Round, giver: usize, wish: Wish) {
        let index = wish.key as usize;
        let (load, place) = (self.keys[index].load(), wish.to as usize);
        let seen = match round.from {
            From::OverCap => &self.seats[giver],
            From::OverFloor => &self.seats[place],
        };
        let made = Move {
            key: index,
            from: self.keys[index].owner,
            to: self.seats[place].node,
            why: if round.from == From::OverCap { Why::OverCap } else { Why::UnderFloor },
            load: seen.load,
            bounds: *round.bounds(seen),
            rank: wish.rank,
        };
        match self.moves.get_mut(self.move_of_key[index] as usize) {
            None => {
                self.move_of_key[index] = self.moves.len() as u32;
                self.moves.push(made);
            }
            Some(planned) => {
                let why = match (planned.why, round.to) {
                    (Why::Draining, _) => Why::Draining,
                    (_, To::UnderFloor) => Why::UnownedUnderFloor,
                    (_, To::UnderCap) => Why::UnownedOverflow,
                };
                let (from, receiver) = (planned.from, &self.seats[place]);
                let (load, bounds) = (receiver.load, receiver.bounds);
                *planned = Move { why, from, load, bounds, ..made };
            }
        }
        self.seat_of_key[index] = wish.to;
        self.seats[giver].load -= load;
        self.seats[place].load += load;
    }

    /// How many of the first `seats` the key likes better than one of this appeal.
    fn count_better(&self, key_hash: u64, appeal: Appeal, seats: usize) -> u32 {
        (0..seats).filter(|&place| self.ranking.appeal(place, key_hash) > appeal).count() as u32
    }
}
