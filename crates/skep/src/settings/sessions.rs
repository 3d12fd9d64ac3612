//! The settings of the gateway and of its sessions.

use super::section::section;
use super::value::Value;
use super::{hours, ms};
use skep_dial::Dialler;
use skep_gateway::GatewayOptions;
use skep_policy::Name;
use skep_policy::sessions::{Budget, LIFETIME_MAX, Policy, Rules, SLOTS_MAX};
use skep_sessions::{CutOff, SessionsOptions};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

section! {
    /// The gateway, to which clients connect for a session.
    pub struct GatewaySettings in "gateway" {
        /// Whether there is one.
        enabled: bool = true;
        /// Address and port of the gateway. If not set it is 127.0.0.1:8080, or a free port with a
        /// warning if that is taken.
        listen: Option<SocketAddr> = None;
        /// Address and port for clients that speak TLS, with the certificates of the routes; none
        /// if not set.
        tls_listen: Option<SocketAddr> = None;
        /// Threads that carry sessions; 0 is one a processor.
        threads: usize = 0, in 0..=1_024;
        /// Connections at a time; 0 is as many as the limit on open files allows. More are refused
        /// with a reason.
        connections_max: usize = 0, in 0..=10_000_000;
        /// How long a client may take to send the head of its request.
        header_timeout: Duration = GatewayOptions::default().header_limit, in ms(10)..=hours(1);
        /// How long a client waits for its session at most, in the line and while workers are
        /// dialled.
        connect_deadline: Duration = GatewayOptions::default().connect_deadline,
            in ms(10)..=hours(1);
        /// A worker that has not answered after this time is given a rival, and the first to
        /// answer has the session.
        hedge_after: Duration = GatewayOptions::default().hedge_after, in ms(1)..=hours(1);
        /// How long one worker may take to answer.
        dial_timeout: Duration = GatewayOptions::default().dial_limit, in ms(10)..=hours(1);
        /// A session in which nothing is said for so long is ended; 0 is never.
        idle_timeout: Duration = GatewayOptions::default().idle_timeout,
            in Duration::ZERO..=hours(24 * 365);
        /// How long a session may last; 0 is any time.
        duration_max: Duration = GatewayOptions::default().duration_max,
            in Duration::ZERO..=hours(24 * 365);
        /// Whoever takes nothing for so long while there is something for them loses the session;
        /// 0 is never. At most 64 KiB wait in each direction.
        stall_max: Duration = GatewayOptions::default().stall_max, in Duration::ZERO..=hours(24);
        /// How long open sessions may go on when the node stops.
        drain_timeout: Duration = GatewayOptions::default().drain_limit,
            in Duration::ZERO..=hours(24);
    }
}

section! {
    /// Sessions and the workers that serve them. The same on all nodes.
    pub struct SessionsSettings in "sessions" {
        /// How a worker is chosen and recycled: `budgeted`, `lifetime-first` or `least-loaded`.
        policy: Policy = Policy::Budgeted;
        /// Sessions at once on a worker that announces no number of its own.
        slots: usize = Rules::default().slots as usize, in 1..=SLOTS_MAX as usize;
        /// Sessions in a worker's life, after which it is restarted; 0 is any number.
        lifetime_max: usize = Rules::default().lifetime_max as usize, in 0..=LIFETIME_MAX as usize;
        /// How many workers of a kind may restart at once, `2` or `10%`; never less than one.
        budget: Budget = Budget::default();
        /// A worker that was not heard of for so long is lost.
        heartbeat_timeout: Duration = ms(Rules::default().heartbeat_ms), in ms(1_000)..=hours(24);
        /// How long a worker that takes no more sessions waits for those it has.
        drain_max: Duration = ms(Rules::default().drain_max_ms), in Duration::ZERO..=hours(24);
        /// How long a worker may take to come back from a restart.
        restart_max: Duration = ms(Rules::default().restart_max_ms), in ms(1_000)..=hours(24);
        /// Sessions that may wait for a worker of one kind; more are refused.
        waiting_max: usize = Rules::default().waiting_max as usize, in 0..=1_000_000;
        /// How long a session may wait for a worker.
        wait_max: Duration = ms(30_000), in Duration::ZERO..=hours(1);
        /// Sessions that one API key may have at once, waiting ones too; 0 is any number.
        per_key_max: usize = 0, in 0..=1_000_000;
        /// The kind of worker for a session that names none.
        default_kind: Name = chromium();
        /// How long after its last sign of life a gateway is thought dead and its sessions are
        /// taken back.
        gateway_ttl: Duration = ms(15_000), in ms(1_000)..=hours(1);
        /// What becomes of sessions whose gateway cannot reach the others for that long: `keep`
        /// lets them go on, `end` ends them so that no worker ever has more than its slots.
        cut_off: CutOff = CutOff::Keep;
        /// What is different for some kinds, as in
        /// `firefox: slots=3, lifetime_max=20; gpu: policy=least-loaded, budget=1`.
        kinds: KindRules = KindRules::default();
    }
}

/// Rules that some kinds have of their own: field and value, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindRules(BTreeMap<String, Vec<(String, String)>>);

const RULE_NAMES: [&str; 8] = [
    "policy",
    "slots",
    "lifetime_max",
    "budget",
    "heartbeat_timeout",
    "drain_max",
    "restart_max",
    "waiting_max",
];

impl Value for KindRules {
    fn expected() -> String {
        "kinds with their rules, as in `firefox: slots=3, lifetime_max=20; gpu: budget=1`"
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut kinds = BTreeMap::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (kind, fields) =
                part.split_once(':').ok_or_else(|| format!("{part:?} has no `:`"))?;
            let kind = kind.trim();
            if !is_kind(kind) {
                return Err(format!("{kind:?} is no kind"));
            }
            let mut rules = Vec::new();
            for field in fields.split(',').map(str::trim).filter(|field| !field.is_empty()) {
                let (name, value) =
                    field.split_once('=').ok_or_else(|| format!("{field:?} has no `=`"))?;
                let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
                apply(&mut Rules::default(), &name, &value)
                    .map_err(|why| format!("{kind}: {name}={value}: {why}"))?;
                rules.push((name, value));
            }
            if kinds.insert(kind.to_owned(), rules).is_some() {
                return Err(format!("{kind:?} stands there twice"));
            }
        }
        Ok(KindRules(kinds))
    }

    fn show(&self) -> String {
        let rules = |rules: &Vec<(String, String)>| {
            let pairs = rules.iter().map(|(name, value)| format!("{name}={value}"));
            pairs.collect::<Vec<_>>().join(", ")
        };
        let kinds = self.0.iter().map(|(kind, of_kind)| format!("{kind}: {}", rules(of_kind)));
        kinds.collect::<Vec<_>>().join("; ")
    }
}

/// Whether this can be the name of a kind: it goes into URLs, labels and keys as it is.
pub fn is_kind(text: &str) -> bool {
    text.len() <= 64 && text.parse::<Name>().is_ok()
}

fn chromium() -> Name {
    "chromium".parse().unwrap_or_else(|_| unreachable!("it is a name"))
}

fn apply(rules: &mut Rules, name: &str, value: &str) -> Result<(), String> {
    let number = |most: u32| match value.parse::<u32>() {
        Ok(number) if number <= most => Ok(number),
        _ => Err(format!("give a number up to {most}")),
    };
    let span = || {
        let span = Duration::parse(value).map_err(|_| "give a time such as 30s".to_owned())?;
        u64::try_from(span.as_millis()).map_err(|_| "that is too long".to_owned())
    };
    match name {
        "policy" => rules.policy = Policy::parse(value).map_err(|_| Policy::expected())?,
        "slots" => rules.slots = number(SLOTS_MAX)?.max(1),
        "lifetime_max" => rules.lifetime_max = number(LIFETIME_MAX)?,
        "budget" => rules.budget = Budget::parse(value).ok_or_else(Budget::expected)?,
        "heartbeat_timeout" => rules.heartbeat_ms = span()?.max(1_000),
        "drain_max" => rules.drain_max_ms = span()?,
        "restart_max" => rules.restart_max_ms = span()?.max(1_000),
        "waiting_max" => rules.waiting_max = number(1_000_000)?,
        _ => return Err(format!("there is no such rule; there are {}", RULE_NAMES.join(", "))),
    }
    Ok(())
}

impl Value for Policy {
    fn expected() -> String {
        "budgeted, lifetime-first or least-loaded".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Policy::from_name(text).ok_or_else(String::new)
    }

    fn show(&self) -> String {
        self.name().to_owned()
    }
}

impl Value for Budget {
    fn expected() -> String {
        "a number of workers such as 2, or a share such as 10%".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Budget::parse(text).ok_or_else(String::new)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for CutOff {
    fn expected() -> String {
        "keep or end".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "keep" => Ok(CutOff::Keep),
            "end" => Ok(CutOff::End),
            _ => Err(String::new()),
        }
    }

    fn show(&self) -> String {
        match self {
            CutOff::Keep => "keep".to_owned(),
            CutOff::End => "end".to_owned(),
        }
    }
}

impl GatewaySettings {
    /// Where the gateway listens if nothing is set.
    pub const LISTEN_DEFAULT: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8_080);

    /// What the gateway is told, listening here.
    pub fn options(&self, listen: SocketAddr, dialler: Dialler) -> GatewayOptions {
        GatewayOptions {
            dialler,
            listen,
            tls_listen: self.tls_listen,
            threads: self.threads,
            connections_max: self.connections_max,
            header_limit: self.header_timeout,
            connect_deadline: self.connect_deadline,
            hedge_after: self.hedge_after,
            dial_limit: self.dial_timeout,
            idle_timeout: self.idle_timeout,
            duration_max: self.duration_max,
            stall_max: self.stall_max,
            drain_limit: self.drain_timeout,
        }
    }
}

impl SessionsSettings {
    /// What the sessions of the node with this name are told.
    pub fn options(&self, node: &str) -> SessionsOptions {
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let rules = Rules {
            policy: self.policy,
            slots: small(self.slots),
            lifetime_max: small(self.lifetime_max),
            budget: self.budget,
            heartbeat_ms: millis(self.heartbeat_timeout),
            drain_max_ms: millis(self.drain_max),
            restart_max_ms: millis(self.restart_max),
            waiting_max: small(self.waiting_max),
        };
        let mut kinds = BTreeMap::new();
        for (kind, fields) in &self.kinds.0 {
            let mut of_kind = rules.clone();
            for (name, value) in fields {
                apply(&mut of_kind, name, value).unwrap_or_else(|_| unreachable!("was read"));
            }
            kinds.insert(kind.clone(), of_kind);
        }
        SessionsOptions {
            rules,
            kinds,
            default_kind: self.default_kind.to_string(),
            wait_max: self.wait_max,
            per_key_max: small(self.per_key_max),
            gateway_ttl: self.gateway_ttl,
            cut_off: self.cut_off,
            ..SessionsOptions::new(node)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_rules_of_their_own() {
        let text = "firefox: slots=3, lifetime_max=20; gpu: policy=least-loaded, budget=25%";
        let read = KindRules::parse(text).expect("is right");
        assert_eq!(read.show(), text);
        let mut rules = Rules::default();
        for (name, value) in &read.0["gpu"] {
            apply(&mut rules, name, value).expect("was read");
        }
        assert_eq!((rules.policy, rules.budget), (Policy::LeastLoaded, Budget::Percent(25)));
    }

    #[test]
    fn a_wrong_rule_of_a_kind_says_what_would_be_right() {
        let wrong = |text| KindRules::parse(text).expect_err(text);
        assert_eq!(wrong("firefox"), "\"firefox\" has no `:`");
        assert_eq!(wrong("a b: slots=1"), "\"a b\" is no kind");
        assert_eq!(wrong("x: slots"), "\"slots\" has no `=`");
        assert_eq!(wrong("x: slots=many"), "x: slots=many: give a number up to 1000000");
        assert!(wrong("x: slot=1").contains("there are policy, slots, lifetime_max"));
        assert!(wrong("x: slots=1; x: slots=2").contains("twice"));
    }
}
