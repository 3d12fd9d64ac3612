//! An account's limit is lowered: its monitors above it leave their servers, the worst first.

use super::{HOME, LIMIT, Stage, array, seconds};
use serde_json::{Value, json};
use skep_chaos::world::monitors::ACCOUNTS;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long reviews may take until it holds everywhere.
const HELD_LIMIT: Duration = Duration::from_secs(25);
const USUAL: u64 = 2;
const LOWERED: u64 = 1;

/// Who is active on a server: monitors by account.
type Active = BTreeMap<String, Vec<String>>;

impl Stage {
    pub(super) async fn limit(&mut self) {
        if let Some(account) = self.lowered.take() {
            let _ = self.set_limit(&account, USUAL).await;
        }
        let Some(servers) = self.active_monitors().await else {
            return self.missed("a node tells who watches which server").await;
        };
        let crowded = |account: &str| {
            let has = |active: &&Active| active.get(account).is_some_and(|some| some.len() > 1);
            servers.values().filter(has).count()
        };
        let Some(account) = ACCOUNTS.into_iter().max_by_key(|account| crowded(account)) else {
            return;
        };
        let count = crowded(account);
        let since = crate::access::now_ms();
        if let Err(why) = self.set_limit(account, LOWERED).await {
            return self.missed(&format!("the limit of {account} can be lowered ({why})")).await;
        }
        self.lowered = Some(account.to_owned());
        let title = format!(
            "account {account} may have {LOWERED} active monitor on a server now, not {USUAL}; \
             {count} servers have more"
        );
        self.narrator.event("limit", &title, "/monitors").await;
        let begun = Instant::now();
        for server in servers.keys() {
            let path = format!("/api/v1/servers/{server}/review");
            let _ = self.place.ask(HOME, "POST", &path, None, LIMIT).await;
        }
        let held = self
            .until(HELD_LIMIT, async |stage: &Stage| {
                let servers = stage.active_monitors().await?;
                let within = |active: &Active| {
                    active.get(account).is_none_or(|some| some.len() as u64 <= LOWERED)
                };
                servers.values().all(within).then_some(())
            })
            .await;
        if held.is_none() {
            let limit = seconds(HELD_LIMIT);
            return self.missed(&format!("the limit holds on every server within {limit}")).await;
        }
        let took = seconds(begun.elapsed());
        self.tell_changes(&servers, account, since, &took).await;
    }

    async fn set_limit(&self, account: &str, limit: u64) -> Result<(), String> {
        let body = json!({ "id": account, "flags": { "monitor_per_server_limit": limit } });
        let path = format!("/api/v1/accounts/{account}");
        let answer = self.place.ask(HOME, "PUT", &path, Some(&body), LIMIT).await;
        let answer = answer.map_err(|trouble| trouble.to_string())?;
        if answer.is_ok() { Ok(()) } else { Err(answer.to_string()) }
    }

    /// By server.
    async fn active_monitors(&self) -> Option<BTreeMap<String, Active>> {
        let listed = self.get(HOME, "/api/v1/servers?limit=1000").await?;
        let mut found = BTreeMap::new();
        for server in array(&listed["servers"]) {
            let id = server["id"].as_str()?;
            let path = format!("/api/v1/servers/{id}/monitors");
            let monitors = self.get(HOME, &path).await?;
            let mut active = Active::new();
            for one in array(&monitors["assignments"]) {
                let names = (one["account"].as_str(), one["monitor"].as_str());
                if let (Some(account), Some(monitor)) = names
                    && one["status"] == "active"
                {
                    active.entry(account.to_owned()).or_default().push(monitor.to_owned());
                }
            }
            found.insert(id.to_owned(), active);
        }
        Some(found)
    }

    async fn tell_changes(
        &mut self,
        servers: &BTreeMap<String, Active>,
        account: &str,
        since: i64,
        took: &str,
    ) {
        let mut left = 0;
        let mut example = None;
        for (server, active) in servers {
            let Some(were) = active.get(account) else { continue };
            let path = format!("/api/v1/servers/{server}/history?limit=50");
            let history = self.get(HOME, &path).await.unwrap_or_default();
            let is_one = |one: &&Value| {
                one["at"].as_i64() >= Some(since)
                    && one["from"] == "active"
                    && were.iter().any(|monitor| one["monitor"] == monitor.as_str())
            };
            for change in array(&history["changes"]).iter().filter(is_one) {
                left += 1;
                let text = |field: &str| change[field].as_str().unwrap_or_default().to_owned();
                let (monitor, to, why) = (text("monitor"), text("to"), text("reason"));
                // Others left for other reasons meanwhile; this is about the limit.
                let fits = why.contains(account);
                let told = format!("{monitor} became {to} on {server}: {why}");
                if example.as_ref().is_none_or(|(_, fitting)| fits && !fitting) {
                    example = Some((told, fits));
                }
            }
        }
        let text = match left {
            0 => format!("nobody had to leave; it held after {took}"),
            _ => format!("{left} of its monitors left their place within {took}"),
        };
        self.narrator.outcome(&text).await;
        if let Some((example, _)) = example {
            self.narrator.because(&example).await;
        }
    }
}
