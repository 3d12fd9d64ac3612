//! Decisions by their ids: what can be explained, how it is named (`KIND:ID`), and what would make
//! a decision come out otherwise. API, command line and dashboard tell what stands here.

pub mod would;

use std::fmt;

/// What a decision is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An error code.
    Error,
    /// A session and its worker.
    Session,
    /// What a session would get.
    Wish,
    /// A worker.
    Worker,
    /// An endpoint and who polls it.
    Poll,
    /// A monitor and a server.
    Monitor,
    /// A server and its monitors.
    Server,
    /// A change of what a monitor is to a server.
    Change,
    /// A key and its node.
    Key,
    /// A key that went to another node.
    Move,
    /// A node.
    Node,
    /// A pool and its workers.
    Pool,
    /// A worker more, or one less.
    Scale,
    /// A task that runs for too long.
    Task,
    /// A task that was given up.
    Dead,
    /// A message that was set aside.
    Letter,
    /// Messages that go back.
    Redrive,
    /// A message.
    Message,
    /// A request, and who would serve it.
    Route,
    /// Something that happened to a route.
    Event,
    /// A request that was answered.
    Request,
    /// Something that somebody changed.
    Audit,
}

/// A kind, for people.
#[derive(Debug)]
pub struct Described {
    /// Which.
    pub kind: Kind,
    /// The word before the colon.
    pub word: &'static str,
    /// What stands behind it.
    pub form: &'static str,
    /// Which question is answered.
    pub asks: &'static str,
    /// For how long it can be.
    pub kept: &'static str,
}

const NOW: &str = "always: it is decided anew when it is asked";

/// All of them, in the order in which they are listed.
pub const KINDS: [Described; 22] = [
    Described {
        kind: Kind::Error,
        word: "error",
        form: "E_CODE",
        asks: "what an error code means, and what to do",
        kept: "always",
    },
    Described {
        kind: Kind::Session,
        word: "session",
        form: "ID",
        asks: "why a session got its worker, or none",
        kept: "the last 256 choices of each node, until it stops",
    },
    Described {
        kind: Kind::Wish,
        word: "kind",
        form: "KIND[,LABEL…][@VERSION]",
        asks: "which worker a session of this kind would get now",
        kept: NOW,
    },
    Described {
        kind: Kind::Worker,
        word: "worker",
        form: "NAME",
        asks: "why a worker gets sessions, or none",
        kept: NOW,
    },
    Described {
        kind: Kind::Poll,
        word: "poll",
        form: "ENDPOINT[@GRANT]",
        asks: "why a node polls an endpoint",
        kept: "the last 20 changes of each endpoint",
    },
    Described {
        kind: Kind::Monitor,
        word: "monitor",
        form: "SERVER/MONITOR",
        asks: "why a monitor is to a server what it is",
        kept: NOW,
    },
    Described {
        kind: Kind::Server,
        word: "server",
        form: "SERVER",
        asks: "which monitors watch a server, and what its next review would change",
        kept: NOW,
    },
    Described {
        kind: Kind::Change,
        word: "change",
        form: "SERVER/NUMBER",
        asks: "why a monitor became something else to a server",
        kept: "`monitors.history_keep`, 30 days if nothing else is set",
    },
    Described {
        kind: Kind::Key,
        word: "key",
        form: "QUEUE:GROUP",
        asks: "on which node the pops with a key are served",
        kept: NOW,
    },
    Described {
        kind: Kind::Move,
        word: "move",
        form: "[NODE/]NUMBER",
        asks: "why a key went to another node",
        kept: "the last 1,000 that each node heard of, until it stops",
    },
    Described {
        kind: Kind::Node,
        word: "node",
        form: "NAME",
        asks: "why a node gets requests of others, or none",
        kept: NOW,
    },
    Described {
        kind: Kind::Pool,
        word: "pool",
        form: "[NODE/]NAME",
        asks: "why a pool has as many workers as it has",
        kept: "the last 256 decisions of each node, until it stops",
    },
    Described {
        kind: Kind::Scale,
        word: "scale",
        form: "[NODE/]NUMBER",
        asks: "why a pool was given a worker more, or one less",
        kept: "the last 256 decisions of each node, until it stops",
    },
    Described {
        kind: Kind::Task,
        word: "task",
        form: "[NODE/]ID",
        asks: "why a task counts as stuck",
        kept: "while it runs",
    },
    Described {
        kind: Kind::Dead,
        word: "dead",
        form: "ID",
        asks: "why a task was given up",
        kept: "until it is tried again or discarded, `pools.dead_letters_max` of each node at most",
    },
    Described {
        kind: Kind::Letter,
        word: "letter",
        form: "ID",
        asks: "why a message was set aside",
        kept: "until it is pushed again or deleted",
    },
    Described {
        kind: Kind::Redrive,
        word: "redrive",
        form: "ID",
        asks: "what dead letters went back, and which did not",
        kept: "30 days after its end",
    },
    Described {
        kind: Kind::Message,
        word: "message",
        form: "PARTITION_ID/TRANSACTION_ID",
        asks: "what became of a message, for each group",
        kept: "as long as the message, which its queue's options say",
    },
    Described {
        kind: Kind::Route,
        word: "route",
        form: "URL",
        asks: "which route and upstream a request would get now",
        kept: NOW,
    },
    Described {
        kind: Kind::Event,
        word: "event",
        form: "NUMBER",
        asks: "what happened to a route or its upstream",
        kept: "30 days, the last 100,000 at most",
    },
    Described {
        kind: Kind::Request,
        word: "request",
        form: "ID",
        asks: "what became of a request, by its X-Request-Id",
        kept: "`access_log.keep`, 7 days if nothing else is set",
    },
    Described {
        kind: Kind::Audit,
        word: "audit",
        form: "NUMBER",
        asks: "who changed something",
        kept: "the last 100,000 changes",
    },
];

impl Kind {
    /// For people.
    pub fn described(self) -> &'static Described {
        let place = KINDS.iter().position(|one| one.kind == self).unwrap_or(0);
        &KINDS[place]
    }

    /// The id of one of this kind, as it is printed and given.
    pub fn id(self, of: impl fmt::Display) -> String {
        format!("{}:{of}", self.described().word)
    }

    /// The id of one that each node counts for itself.
    pub fn id_at(self, node: &str, of: impl fmt::Display) -> String {
        format!("{}:{node}/{of}", self.described().word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_described_once_under_a_word_of_its_own() {
        for (place, one) in KINDS.iter().enumerate() {
            assert_eq!(one.kind.described().word, one.word);
            let same = KINDS.iter().filter(|other| other.word == one.word).count();
            assert_eq!((same, place), (1, one.kind as usize), "{}", one.word);
        }
    }

    #[test]
    fn an_id_names_its_kind_and_if_it_must_its_node() {
        assert_eq!(Kind::Poll.id("shop"), "poll:shop");
        assert_eq!(Kind::Wish.id("chromium,eu@1.62"), "kind:chromium,eu@1.62");
        assert_eq!(Kind::Scale.id_at("web-1", 7), "scale:web-1/7");
    }
}
