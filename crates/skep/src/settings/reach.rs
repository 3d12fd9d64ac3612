//! Which addresses the node connects to for others.

use super::Settings;
use super::layers::Problem;
use super::routes::Networks;
use super::section::{Reader, section};
use serde_json::Value as Json;
use skep_policy::reach::Reach;
use skep_routes::spec::{Flaw, RouteSpec};

section! {
    /// What endpoints, routes, workers and webhooks may lead to.
    pub struct ReachSettings in "reach" {
        /// Addresses and ranges that this node does not connect to, separated by commas, besides
        /// link-local addresses and those where clouds tell a machine its secrets.
        deny: Networks = Networks::default();
        /// Addresses and ranges that it connects to although they are denied.
        allow: Networks = Networks::default();
    }
}

impl ReachSettings {
    /// The rule.
    pub fn rule(&self) -> Reach {
        Reach { deny: self.deny.0.clone(), allow: self.allow.0.clone() }
    }

    /// What is set elsewhere must be within reach.
    pub(super) fn check_together(&self, settings: &Settings, reader: &mut Reader) {
        let reach = self.rule();
        for (number, route) in settings.routes.iter().enumerate() {
            for flaw in reach_flaws(&route.spec, &reach) {
                let message = format!("routes[{number}].{flaw}");
                reader.layers.problems.push(Problem { origin: route.origin.clone(), message });
            }
        }
        for url in &settings.alerts.webhooks.0 {
            // The address itself may hold a token and is not repeated.
            if let Err(denied) = host_of_url(url).map_or(Ok(()), |host| reach.judge_host(&host)) {
                let message = format!("one of `alerts.webhooks`: {denied}; see `reach.allow`");
                reader.conflict("alerts.webhooks", message);
            }
        }
    }
}

/// The host of a web address.
pub fn host_of_url(url: &str) -> Option<String> {
    url.parse::<hyper::Uri>().ok()?.host().map(str::to_owned)
}

/// What is wrong with the upstreams of a route that are not to be reached from here.
pub fn reach_flaws(spec: &RouteSpec, reach: &Reach) -> Vec<Flaw> {
    let judge = |(number, address): (usize, &str)| {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let denied = reach.judge_host(host).err()?;
        let right = "give another address, or set reach.allow on the nodes";
        let flaw = Flaw::with(&format!("upstreams[{number}]"), &Json::from(address), right);
        Some(flaw.wrong(format!("is not allowed ({denied})")))
    };
    let addresses = spec.upstreams.iter().map(|one| one.address.as_str());
    addresses.enumerate().filter_map(judge).collect()
}
