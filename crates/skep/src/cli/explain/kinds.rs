//! What can be explained, and how it is named: `KIND:ID`.

use crate::cli::{CliError, Exit};
use crate::settings::nearest;

/// What a decision is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Error,
    Session,
    Wish,
    Worker,
    Poll,
    Monitor,
    Server,
    Change,
    Key,
    Move,
    Node,
    Pool,
    Scale,
    Task,
    Dead,
    Letter,
    Redrive,
    Message,
    Route,
    Event,
    Request,
    Audit,
}

/// A kind, for people.
pub struct Described {
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
    pub fn described(self) -> &'static Described {
        let place = KINDS.iter().position(|one| one.kind == self).unwrap_or(0);
        &KINDS[place]
    }

    /// The id of one of this kind, as it is printed and given.
    pub fn id(self, of: &str) -> String {
        format!("{}:{of}", self.described().word)
    }
}

/// What is asked about.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub kind: Kind,
    pub of: String,
}

/// Reads an id. Some say their kind by how they begin: error codes, sessions, requests.
pub fn parse(id: &str) -> Result<Asked, CliError> {
    let wrong = |message: String| CliError::new(Exit::Usage, message);
    let asked = |kind: Kind, of: &str| Ok(Asked { kind, of: of.to_owned() });
    let begins =
        |with: &str| id.get(..with.len()).is_some_and(|got| got.eq_ignore_ascii_case(with));
    for (begin, kind) in [("E_", Kind::Error), ("s-", Kind::Session), ("r-", Kind::Request)] {
        if begins(begin) {
            return asked(kind, id);
        }
    }
    let (word, of) = id.split_once(':').unwrap_or((id, ""));
    let Some(found) = KINDS.iter().find(|one| one.word.eq_ignore_ascii_case(word)) else {
        let hint = match nearest(word, KINDS.iter().map(|one| one.word)) {
            Some(near) => format!("did you mean {near}:{of}?"),
            None => "`skep explain` lists what can be explained".to_owned(),
        };
        return Err(wrong(match id.contains(':') {
            true => format!("{id:?}: there is no kind {word:?}; {hint}"),
            false => format!("{id:?} says no kind, as poll:shop does; {hint}"),
        }));
    };
    if of.is_empty() {
        let Described { word, form, .. } = found;
        return Err(wrong(format!("{id:?} does not say of which; give {word}:{form}")));
    }
    asked(found.kind, of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_kind_or_shows_it_by_how_it_begins() {
        let is = |id: &str, kind: Kind, of: &str| {
            assert_eq!(parse(id).expect(id), Asked { kind, of: of.to_owned() });
        };
        is("poll:tenant-1/sensor", Kind::Poll, "tenant-1/sensor");
        is("key:orders:mail", Kind::Key, "orders:mail");
        is("route:http://shop.example/a:b", Kind::Route, "http://shop.example/a:b");
        is("E_KEY_MISSING", Kind::Error, "E_KEY_MISSING");
        is("e_key_missing", Kind::Error, "e_key_missing");
        is("s-1f2e3d-42", Kind::Session, "s-1f2e3d-42");
        is("session:s-1f2e3d-42", Kind::Session, "s-1f2e3d-42");
        is("r-6cab547cd74f-18", Kind::Request, "r-6cab547cd74f-18");
    }

    #[test]
    fn every_kind_has_one_word_and_finds_itself() {
        for one in &KINDS {
            let id = one.kind.id("x");
            assert_eq!(parse(&id).expect(&id).kind, one.kind);
            assert_eq!(one.kind.described().word, one.word);
        }
    }

    #[test]
    fn a_slip_is_met_with_what_would_be_right() {
        for (wrong, hint) in [
            ("polll:shop", "did you mean poll:shop?"),
            ("shop", "says no kind"),
            ("xyzzy:1", "`skep explain` lists"),
            ("monitor:", "give monitor:SERVER/MONITOR"),
            ("poll", "give poll:ENDPOINT"),
        ] {
            let error = parse(wrong).expect_err(wrong);
            assert_eq!(error.exit, Exit::Usage);
            assert!(error.message.contains(hint), "{}", error.message);
        }
    }
}
