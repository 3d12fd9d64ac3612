//! Servers and their monitors, held in memory: what can be planned without a store.

use super::flaw::{Flaw, no_such, quoted};
use skep_policy::Time;
use skep_policy::monitors::{
    Assignment, Explanation, Id, Plan, Roster, Server, Settings, explain, plan,
};

/// A server and what each monitor is to it.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The server.
    pub server: Server,
    /// Places are those of the server's roster.
    pub assignments: Vec<Assignment>,
    roster: usize,
}

impl Watched {
    pub(super) fn new(server: Server, assignments: Vec<Assignment>, roster: usize) -> Watched {
        Watched { server, assignments, roster }
    }

    pub(super) fn roster(&self) -> usize {
        self.roster
    }
}

/// A fleet at one moment.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Mostly one. A server that describes monitors differently from others has one of its own.
    rosters: Vec<Roster>,
    servers: Vec<Watched>,
    settings: Settings,
    now: Time,
    dated: bool,
}

impl Fleet {
    /// A fleet that shares one roster.
    pub fn new(roster: Roster, servers: Vec<(Server, Vec<Assignment>)>, now: Time) -> Fleet {
        let settings = *roster.settings();
        let watched = |(server, assignments)| Watched::new(server, assignments, 0);
        let servers = servers.into_iter().map(watched).collect();
        Fleet { rosters: vec![roster], servers, settings, now, dated: true }
    }

    pub(super) fn from_parts(
        rosters: Vec<Roster>,
        servers: Vec<Watched>,
        settings: Settings,
        now: Time,
        dated: bool,
    ) -> Fleet {
        Fleet { rosters, servers, settings, now, dated }
    }

    /// The servers, in their order.
    pub fn servers(&self) -> &[Watched] {
        &self.servers
    }

    /// The rosters of the servers.
    pub(super) fn rosters(&self) -> &[Roster] {
        &self.rosters
    }

    /// The roster of a server.
    pub fn roster(&self, watched: &Watched) -> &Roster {
        &self.rosters[watched.roster]
    }

    /// By which numbers monitors are selected.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// When.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Whether it is known when that was; else only spans mean something.
    pub fn is_dated(&self) -> bool {
        self.dated
    }

    /// What a review of this server would change.
    pub fn plan(&self, watched: &Watched) -> Plan {
        plan(self.roster(watched), &watched.server, &watched.assignments, self.now)
    }

    /// The server with this id, a number as its digits.
    pub fn server(&self, id: &str) -> Result<&Watched, Flaw> {
        let found = self.servers.iter().find(|one| is_called(&one.server.id, id));
        found.ok_or_else(|| {
            let known: Vec<String> =
                self.servers.iter().map(|one| one.server.id.to_string()).collect();
            unknown("server", id, &known)
        })
    }

    /// Why a monitor is to a server what it is.
    pub fn explain(&self, server: &str, monitor: &str) -> Result<Explanation, Flaw> {
        let watched = self.server(server)?;
        let roster = self.roster(watched);
        let id = |one: &Assignment| &roster.monitor(one.monitor).id;
        let found = watched.assignments.iter().find(|one| is_called(id(one), monitor));
        let explained = found.and_then(|one| {
            let plan = self.plan(watched);
            explain(roster, &watched.server, &watched.assignments, &plan, one.monitor)
        });
        explained.ok_or_else(|| {
            let known: Vec<String> =
                watched.assignments.iter().map(|one| id(one).to_string()).collect();
            unknown("monitor", monitor, &known)
        })
    }
}

/// Whether somebody is called this; a number is called by its digits.
pub(super) fn is_called(id: &Id, name: &str) -> bool {
    match id {
        Id::Text(text) => **text == *name,
        Id::Number(number) => name.parse() == Ok(*number),
    }
}

/// There is nobody of this name.
pub(super) fn unknown(what: &str, name: &str, known: &[String]) -> Flaw {
    if known.is_empty() {
        return Flaw::new(what, quoted(name), format!("there is no {what} at all"));
    }
    Flaw::new(what, quoted(name), no_such(what, name, known.iter().map(String::as_str)))
}
