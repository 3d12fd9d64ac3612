//! What the selection promises, looked at through the API.

use crate::world::Place;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Changes of a server that are looked at, the newest.
const CHANGES: u32 = 500;

/// One look at every server.
pub struct Looked {
    floor: u64,
    per_server_limit: u64,
    /// What accounts say themselves.
    limits: BTreeMap<String, u64>,
    servers: Vec<Seen>,
}

struct Seen {
    id: String,
    account: Option<String>,
    target: u64,
    assignments: Vec<Assigned>,
    /// Oldest first: monitor, from, to.
    changes: Vec<(String, String, String)>,
}

struct Assigned {
    monitor: String,
    account: Option<String>,
    status: String,
}

impl Looked {
    /// Asks for everything; nothing if no node tells.
    pub async fn at(place: &Place, limit: Duration) -> Option<Self> {
        let get = async |path: &str| {
            let answer = place.ask_any("GET", path, None, limit).await.ok()?;
            answer.is_ok().then_some(answer.body)
        };
        let settings = get("/api/v1/monitors/overview").await?["settings"].take();
        let accounts = get("/api/v1/accounts?limit=1000").await?["accounts"].take();
        let listed = get("/api/v1/servers?limit=1000").await?["servers"].take();
        let mut servers = Vec::new();
        for server in array(&listed) {
            let id = server["id"].as_str()?;
            let monitors = get(&format!("/api/v1/servers/{id}/monitors")).await?;
            let history = get(&format!("/api/v1/servers/{id}/history?limit={CHANGES}")).await?;
            servers.push(Seen {
                id: id.to_owned(),
                account: server["account"].as_str().map(str::to_owned),
                target: server["targets"]["active"].as_u64()?,
                assignments: array(&monitors["assignments"]).iter().map(assigned).collect(),
                changes: array(&history["changes"]).iter().rev().map(change).collect(),
            });
        }
        let limit_of = |account: &Value| {
            let limit = account["flags"]["monitor_per_server_limit"].as_u64()?;
            Some((account["id"].as_str()?.to_owned(), limit))
        };
        Some(Looked {
            floor: settings["floor_active"].as_u64()?,
            per_server_limit: settings["per_server_limit"].as_u64()?,
            limits: array(&accounts).iter().filter_map(limit_of).collect(),
            servers,
        })
    }

    /// Whether every server has as many active monitors as it should have.
    pub fn is_full(&self) -> bool {
        !self.servers.is_empty() && self.full() == self.servers.len()
    }

    /// How many servers have.
    pub fn full(&self) -> usize {
        self.servers.iter().filter(|server| server.active() >= server.target).count()
    }

    /// Changes of all servers that are still known.
    pub fn changes(&self) -> u64 {
        self.servers.iter().map(|server| server.changes.len() as u64).sum()
    }

    /// What does not hold. A server that was never full may still lack monitors.
    pub fn broken(&self, was_full: bool) -> Vec<String> {
        let mut broken = Vec::new();
        for server in &self.servers {
            server.check(self, was_full, &mut broken);
        }
        broken
    }
}

impl Seen {
    fn active(&self) -> u64 {
        self.assignments.iter().filter(|one| one.status == "active").count() as u64
    }

    fn check(&self, all: &Looked, was_full: bool, broken: &mut Vec<String>) {
        let (id, active) = (&self.id, self.active());
        if active > self.target {
            broken.push(format!("{id} has {active} active monitors, {} at most", self.target));
        }
        if was_full && active < all.floor {
            broken.push(format!("{id} has {active} active monitors, {} at least", all.floor));
        }
        let mut accounts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for one in &self.assignments {
            let Some(account) = one.account.as_deref() else { continue };
            let (active, both) = accounts.entry(account).or_default();
            let (is_active, is_testing) = (one.status == "active", one.status == "testing");
            *active += u64::from(is_active);
            *both += u64::from(is_active || is_testing);
            if self.account.as_deref() == Some(account) && (is_active || is_testing) {
                let (monitor, status) = (&one.monitor, &one.status);
                broken.push(format!("{monitor} is {status} on {id} of its own account"));
            }
        }
        for (account, (active, both)) in accounts {
            let limit = all.limits.get(account).copied().unwrap_or(all.per_server_limit);
            if active > limit || both > limit + 1 {
                broken.push(format!(
                    "{account} has {active} active monitors on {id} and {both} with those in \
                     testing; its limit is {limit}"
                ));
            }
        }
        self.check_changes(broken);
    }

    /// Reviews at once would change what the other has changed already.
    fn check_changes(&self, broken: &mut Vec<String>) {
        let mut states: BTreeMap<&str, &str> = BTreeMap::new();
        for (monitor, from, to) in &self.changes {
            let before = states.insert(monitor, to);
            if let Some(before) = before.filter(|before| before != from) {
                broken.push(format!(
                    "{monitor} became {to} on {} from {from}, but it was {before}",
                    self.id
                ));
            }
        }
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[][..], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn assigned(value: &Value) -> Assigned {
    Assigned {
        monitor: text(&value["monitor"]),
        account: value["account"].as_str().map(str::to_owned),
        status: text(&value["status"]),
    }
}

fn change(value: &Value) -> (String, String, String) {
    (text(&value["monitor"]), text(&value["from"]), text(&value["to"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(assignments: &[(&str, &str, &str)]) -> Looked {
        let assigned = |(monitor, account, status): &(&str, &str, &str)| Assigned {
            monitor: (*monitor).to_owned(),
            account: Some((*account).to_owned()),
            status: (*status).to_owned(),
        };
        let server = Seen {
            id: "ntp-1".to_owned(),
            account: Some("eve".to_owned()),
            target: 3,
            assignments: assignments.iter().map(assigned).collect(),
            changes: Vec::new(),
        };
        let limits = BTreeMap::from([("ana".to_owned(), 1)]);
        Looked { floor: 2, per_server_limit: 2, limits, servers: vec![server] }
    }

    #[test]
    fn a_server_within_all_limits_is_fine() {
        let fine = looked(&[
            ("a", "ana", "active"),
            ("b", "ana", "testing"),
            ("c", "ben", "active"),
            ("d", "ben", "active"),
            ("e", "eve", "candidate"),
        ]);
        assert_eq!(fine.broken(true), Vec::<String>::new());
        assert!(fine.is_full());
    }

    #[test]
    fn each_rule_is_told_when_it_is_broken() {
        let broken = |assignments: &[_]| looked(assignments).broken(true).join("; ");
        let ben = |count: usize| vec![("b", "ben", "active"); count];
        assert!(broken(&ben(4)).contains("4 active monitors, 3 at most"));
        assert!(broken(&ben(1)).contains("1 active monitors, 2 at least"));
        assert!(looked(&ben(1)).broken(false).is_empty(), "it was never full");
        let over = [("a", "ana", "active"), ("b", "ana", "active")];
        assert!(broken(&over).contains("ana has 2 active"), "{}", broken(&over));
        let own = [("a", "eve", "testing"), ("b", "ben", "active"), ("c", "ben", "active")];
        assert!(broken(&own).contains("its own account"));
    }

    #[test]
    fn a_change_from_what_was_not_so_is_told() {
        let mut looked = looked(&[("b", "ben", "active"), ("c", "ben", "active")]);
        let step = |from: &str, to: &str| ("b".to_owned(), from.to_owned(), to.to_owned());
        looked.servers[0].changes = vec![step("candidate", "testing"), step("testing", "active")];
        assert_eq!(looked.broken(true), Vec::<String>::new());
        looked.servers[0].changes.push(step("testing", "candidate"));
        assert!(looked.broken(true)[0].contains("but it was active"));
    }
}
