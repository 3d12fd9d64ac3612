//! What routes were made of at which time, what was asked of them, and whether the two fit.

use super::super::upstreams::{ROUTES, name};
use super::super::weather::{Weather, Who};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Of more that did not hold only the first are of use.
const BROKEN_MAX: usize = 20;

/// Servers by their numbers.
pub type Set = BTreeSet<usize>;

/// What is remembered of a route.
#[derive(Debug, Default)]
struct Made {
    /// What each version of it leads to.
    versions: BTreeMap<i64, Set>,
    /// What it is to lead to next, while nobody has said whether it does.
    wanted: Option<Set>,
}

/// What is remembered of a node.
#[derive(Clone, Debug, Default)]
struct Node {
    /// The version of each route that it has served at least.
    known: [i64; ROUTES.len()],
    /// How often its process had ended when these began to be counted.
    life: usize,
    /// Requests of each route that it answered, and those that it may have counted.
    sure: [u64; ROUTES.len()],
    maybe: [u64; ROUTES.len()],
}

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Ticket {
    pub node: usize,
    pub route: usize,
    /// Its path, which no other request has.
    pub path: String,
    pub began: Instant,
    known: i64,
    life: usize,
}

/// What was heard of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A server's answer: which, and for which path.
    From(usize, String),
    /// Anything else that a node has said.
    Refused(String),
    /// Nothing.
    Nothing(String),
}

/// Everything that was written down.
#[derive(Debug)]
pub struct Book {
    routes: [Made; ROUTES.len()],
    nodes: Vec<Node>,
    next: u64,
    pub answered: u64,
    /// Requests that failed while their node or all servers of their route were away.
    pub excused: u64,
    pub changes: u64,
    /// What did not hold.
    pub broken: BTreeSet<String>,
}

impl Book {
    pub fn new(nodes: usize) -> Self {
        Book {
            routes: Default::default(),
            nodes: vec![Node::default(); nodes],
            next: 0,
            answered: 0,
            excused: 0,
            changes: 0,
            broken: BTreeSet::new(),
        }
    }

    /// Somebody is about to make a route lead there.
    pub fn wants(&mut self, route: usize, set: Set) {
        self.routes[route].wanted = Some(set);
    }

    /// A route is known to have led there in a version.
    pub fn has_been(&mut self, route: usize, version: i64, set: Set) {
        let made = &mut self.routes[route];
        if made.wanted.as_ref() == Some(&set) {
            made.wanted = None;
        }
        made.versions.insert(version, set);
    }

    /// The newest version of a route, and what it leads to.
    pub fn newest(&self, route: usize) -> Option<(i64, &Set)> {
        self.routes[route].versions.last_key_value().map(|(version, set)| (*version, set))
    }

    /// A node has said that it serves a version of a route.
    pub fn serves(&mut self, node: usize, route: usize, version: i64) {
        let known = &mut self.nodes[node].known[route];
        *known = version.max(*known);
    }

    /// Whether a node serves the newest version of every route.
    pub fn is_current(&self, node: usize) -> bool {
        (0..ROUTES.len()).all(|route| {
            self.newest(route).is_some_and(|(version, _)| self.nodes[node].known[route] == version)
        })
    }

    /// A request begins, unless its node is away or has not heard of the route yet.
    pub fn begin(&mut self, node: usize, route: usize, weather: &Weather) -> Option<Ticket> {
        // In this order: a node that is not away now has not ended since.
        let life = weather.ends(node);
        if weather.is_away(Who::Node(node)) {
            return None;
        }
        let known = self.nodes[node].known[route];
        if known == 0 {
            return None;
        }
        self.next += 1;
        let path = format!("/{}/{}", ROUTES[route], self.next);
        Some(Ticket { node, route, path, began: Instant::now(), known, life })
    }

    /// A request is over; what is wrong with that, if anything.
    pub fn end(&mut self, ticket: &Ticket, heard: &Heard, weather: &Weather) -> Option<String> {
        self.count(ticket, heard, weather);
        let Ticket { node, route, path, began, .. } = ticket;
        let wrong = match heard {
            Heard::From(server, answered) => {
                self.answered += 1;
                let server = *server;
                match self.may_answer(ticket, server) {
                    _ if answered != path => {
                        Some(format!("node {node} answered {path} with what is for {answered}"))
                    }
                    true => None,
                    false => Some(format!(
                        "node {node} let {} answer for {}, which it had said it would not any more",
                        name(server),
                        ROUTES[*route]
                    )),
                }
            }
            Heard::Refused(why) | Heard::Nothing(why) => {
                let away = |who| weather.was_away(who, *began);
                if away(Who::Node(*node)) || away(Who::Route(*route)) {
                    self.excused += 1;
                    None
                } else {
                    Some(format!("a request of {} failed on node {node}: {why}", ROUTES[*route]))
                }
            }
        };
        if self.broken.len() < BROKEN_MAX {
            self.broken.extend(wrong.clone());
        }
        wrong
    }

    /// Whether a server belongs to what the node may have served when the request began or later.
    fn may_answer(&self, ticket: &Ticket, server: usize) -> bool {
        let made = &self.routes[ticket.route];
        let mut since = made.versions.range(ticket.known..).map(|(_, set)| set);
        since.any(|set| set.contains(&server))
            || made.wanted.as_ref().is_some_and(|set| set.contains(&server))
    }

    fn count(&mut self, ticket: &Ticket, heard: &Heard, weather: &Weather) {
        let life = weather.ends(ticket.node);
        let node = &mut self.nodes[ticket.node];
        if node.life != life {
            (node.life, node.sure, node.maybe) = (life, Default::default(), Default::default());
        }
        match heard {
            Heard::From(..) if ticket.life == life => node.sure[ticket.route] += 1,
            _ => node.maybe[ticket.route] += 1,
        }
    }

    /// What is wrong with what a node says it has counted of a route since it started.
    pub fn check_count(&self, node: usize, route: usize, counted: u64) -> Option<String> {
        let (sure, maybe) = (self.nodes[node].sure[route], self.nodes[node].maybe[route]);
        let right = (sure..=sure + maybe).contains(&counted);
        (!right).then(|| {
            let more = if maybe > 0 { format!(" to {}", sure + maybe) } else { String::new() };
            format!(
                "node {node} has counted {counted} requests of {}, and there were {sure}{more}",
                ROUTES[route]
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::weather::Leave;
    use super::*;

    fn set(numbers: &[usize]) -> Set {
        numbers.iter().copied().collect()
    }

    fn started() -> (Book, Weather) {
        let mut book = Book::new(2);
        book.has_been(0, 1, set(&[0, 1]));
        book.serves(0, 0, 1);
        (book, Weather::default())
    }

    fn ask(book: &mut Book, weather: &Weather) -> Ticket {
        book.begin(0, 0, weather).expect("it is there")
    }

    #[test]
    fn a_server_that_was_taken_out_answers_nothing_from_when_the_node_says_so() {
        let (mut book, weather) = started();
        let from = |ticket: &Ticket, server| Heard::From(server, ticket.path.clone());
        book.wants(0, set(&[1, 2]));
        let early = ask(&mut book, &weather);
        assert_eq!(book.end(&early, &from(&early, 2), &weather), None, "it may have been made");
        book.has_been(0, 2, set(&[1, 2]));
        let before = ask(&mut book, &weather);
        book.serves(0, 0, 2);
        let after = ask(&mut book, &weather);
        assert_eq!(book.end(&before, &from(&before, 0), &weather), None);
        let wrong = book.end(&after, &from(&after, 0), &weather).expect("is wrong");
        assert!(wrong.contains("let a-1 answer for world-a"), "{wrong}");
        let never = ask(&mut book, &weather);
        assert!(book.end(&never, &from(&never, 5), &weather).is_some(), "of the other route");
        let mixed = ask(&mut book, &weather);
        let wrong = book.end(&mixed, &from(&never, 1), &weather).expect("is wrong");
        assert!(wrong.contains("with what is for"), "{wrong}");
        assert!(book.is_current(0) == book.newest(1).is_some());
    }

    #[test]
    fn a_failure_is_excused_only_by_a_node_or_all_servers_that_were_away() {
        let (mut book, weather) = started();
        let heard = Heard::Refused("502".to_owned());
        let alone = ask(&mut book, &weather);
        assert!(book.end(&alone, &heard, &weather).is_some());
        weather.leaves(Who::Route(1), Leave::Killed);
        let other = ask(&mut book, &weather);
        assert!(book.end(&other, &heard, &weather).is_some());
        let met = ask(&mut book, &weather);
        weather.leaves(Who::Route(0), Leave::Killed);
        assert_eq!(book.end(&met, &heard, &weather), None);
        weather.leaves(Who::Node(0), Leave::Paused);
        assert!(book.begin(0, 0, &weather).is_none());
        assert!(book.begin(1, 0, &weather).is_none(), "it does not know the route");
        assert_eq!((book.excused, book.answered), (1, 0));
    }

    #[test]
    fn counts_of_a_life_are_exact_but_for_what_was_not_answered() {
        let (mut book, weather) = started();
        for _ in 0..3 {
            let ticket = ask(&mut book, &weather);
            book.end(&ticket, &Heard::From(0, ticket.path.clone()), &weather);
        }
        assert_eq!(book.check_count(0, 0, 3), None);
        assert!(book.check_count(0, 0, 4).is_some() && book.check_count(0, 0, 2).is_some());
        let ticket = ask(&mut book, &weather);
        book.end(&ticket, &Heard::Nothing("cut".to_owned()), &weather);
        assert_eq!((book.check_count(0, 0, 3), book.check_count(0, 0, 4)), (None, None));
        weather.leaves(Who::Node(0), Leave::Killed);
        weather.returns(Who::Node(0));
        let ticket = ask(&mut book, &weather);
        book.end(&ticket, &Heard::From(0, ticket.path.clone()), &weather);
        assert_eq!(book.check_count(0, 0, 1), None);
        assert!(book.check_count(0, 0, 5).is_some(), "what it counted before is gone");
    }
}
