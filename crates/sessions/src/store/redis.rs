//! The table in Redis: a question is one run of one script.

use super::{Hints, hints};
use skep_policy::sessions::{
    Ask, Checkout, Close, DueBy, GatewayId, Heartbeat, Phase, Register, Reply, Ticket,
};
use skep_store::{Lua, Redis, StoreError};
use std::fmt::Display;
use std::sync::Arc;

pub(super) const NAME: &str = "redis";

/// The script. What sessions do not need all the time is in a part that they skip.
const SCRIPT: &str = concat!(
    include_str!("redis/records.lua"),
    include_str!("redis/settle.lua"),
    include_str!("redis/recycle.lua"),
    include_str!("redis/line.lua"),
    include_str!("redis/checkout.lua"),
    "\nif T.is_rare then\n",
    include_str!("redis/rules.lua"),
    include_str!("redis/workers.lua"),
    include_str!("redis/gateways.lua"),
    include_str!("redis/look.lua"),
    "\nend\n",
    include_str!("redis/step.lua"),
);

/// The table in Redis. Clones share its connection.
#[derive(Clone)]
pub struct RedisTable {
    shared: Arc<Shared>,
}

struct Shared {
    redis: Redis,
    script: Lua,
    keys: [String; 2],
    channel: String,
}

impl RedisTable {
    /// The table of the installation with this id. Several may share a server.
    pub fn new(redis: &Redis, installation: &str) -> Self {
        // One hash tag: in a cluster all keys are on one server.
        let key = |name: &str| format!("skep:{{{installation}}}:sessions:{name}");
        let shared = Shared {
            redis: redis.clone(),
            script: Lua::new(SCRIPT),
            keys: ["rows", "index"].map(key),
            channel: key("hints"),
        };
        RedisTable { shared: Arc::new(shared) }
    }

    pub(super) async fn step(&self, ask: &Ask, now_ms: Option<u64>) -> Result<Reply, StoreError> {
        let shared = &self.shared;
        let now = now_ms.map_or_else(String::new, |now| now.to_string());
        let mut words = Words(Vec::with_capacity(12));
        let name = words.question(ask).map_err(|error| StoreError::Refused {
            store: NAME,
            cause: format!("the question cannot be written: {error}"),
        })?;
        let answer = shared.redis.script::<(String, String)>(&shared.script, |call| {
            for key in &shared.keys {
                call.key(key);
            }
            call.arg(name).arg(&now).arg(&shared.channel);
            for word in &words.0 {
                call.arg(word);
            }
        });
        let (answer, hints) = answer.await?;
        read(&answer, &hints).map_err(|problem| StoreError::Unknown {
            store: NAME,
            cause: format!("the answer of {} makes no sense: {problem}", shared.redis.target()),
        })
    }

    pub(super) fn hints(&self) -> Hints {
        Hints::from_server(self.shared.redis.subscribe(&self.shared.channel))
    }
}

fn read(answer: &str, said: &str) -> Result<Reply, String> {
    let answer = serde_json::from_str(answer).map_err(|error| format!("{error}: {answer}"))?;
    let hints = hints::read(said).ok_or_else(|| format!("{said:?} where hints belong"))?;
    Ok(Reply { answer, hints })
}

/// A question as the script reads it: words in a fixed order, nothing that it has to parse unless
/// it is about rules, shapes or a want that says something.
struct Words(Vec<String>);

impl Words {
    fn add(&mut self, word: impl Display) -> &mut Self {
        self.0.push(word.to_string());
        self
    }

    /// Ids and tickets have a fixed length: the script puts them in order as texts.
    fn id(&mut self, number: u64) -> &mut Self {
        self.add(format_args!("{number:014}"))
    }

    fn flag(&mut self, flag: bool) -> &mut Self {
        self.add(u8::from(flag))
    }

    /// Nothing is an empty word.
    fn maybe(&mut self, word: Option<impl Display>) -> &mut Self {
        match word {
            Some(word) => self.add(word),
            None => self.add(""),
        }
    }

    fn link(&mut self, gateway: GatewayId, link: u64) -> &mut Self {
        self.id(gateway).add(link)
    }

    /// Adds the question's words, and says its name.
    fn question(&mut self, ask: &Ask) -> serde_json::Result<&'static str> {
        Ok(match ask {
            Ask::Configure { kind, rules } => {
                self.add(kind).add(serde_json::to_string(rules)?);
                "configure"
            }
            Ask::Join { gateway, link, node, ttl_ms, carried, waiting } => {
                self.link(*gateway, *link).add(ttl_ms).add(node).add(waiting.len());
                for &ticket in waiting {
                    self.id(ticket);
                }
                for one in carried {
                    self.id(one.ticket).add(&one.key).add(&one.worker).add(&one.start);
                }
                "join"
            }
            Ask::Beat { gateway, link } => {
                self.link(*gateway, *link);
                "beat"
            }
            Ask::Leave { gateway, link } => {
                self.link(*gateway, *link);
                "leave"
            }
            Ask::Checkout(checkout) => {
                self.checkout(checkout)?;
                "checkout"
            }
            Ask::Close { gateway, link, ticket, how } => {
                self.link(*gateway, *link).id(*ticket).add(match how {
                    Close::Ended => "ended",
                    Close::Unused => "unused",
                    Close::Failed => "failed",
                });
                "close"
            }
            Ask::Probed { worker, incarnation, good } => {
                self.add(worker).add(incarnation).flag(*good);
                "probed"
            }
            Ask::Register(register) => {
                self.register(register)?;
                "register"
            }
            Ask::Heartbeat(heartbeat) => {
                self.heartbeat(heartbeat);
                "heartbeat"
            }
            Ask::Remove { name, by_worker } => {
                self.add(name).flag(*by_worker);
                "remove"
            }
            Ask::Drain { name, drained } => {
                self.add(name).flag(*drained);
                "drain"
            }
            Ask::End { gateway, ticket } => {
                self.session(*gateway, *ticket);
                "end"
            }
            Ask::Kinds => "kinds",
            Ask::Workers { from, limit } => {
                self.add(from).add(limit);
                "workers"
            }
            Ask::Worker { name } => {
                self.add(name);
                "worker"
            }
            Ask::Sessions { after, limit } => {
                match after {
                    Some((gateway, ticket)) => self.session(*gateway, *ticket),
                    None => self.add(""),
                };
                self.add(limit);
                "sessions"
            }
        })
    }

    fn session(&mut self, gateway: GatewayId, ticket: Ticket) -> &mut Self {
        self.add(format_args!("{gateway:014}{ticket:014}"))
    }

    fn checkout(&mut self, ask: &Checkout) -> serde_json::Result<()> {
        self.link(ask.gateway, ask.link).id(ask.ticket).add(&ask.kind);
        let says_nothing = ask.want.labels.is_empty() && ask.want.version.is_none();
        self.add(if says_nothing { String::new() } else { serde_json::to_string(&ask.want)? });
        self.add(&ask.key).add(ask.key_max).maybe(ask.avoid).flag(ask.wait);
        Ok(())
    }

    fn register(&mut self, ask: &Register) -> serde_json::Result<()> {
        self.add(&ask.name).add(&ask.kind).add(&ask.url).maybe(ask.slots);
        self.add(serde_json::to_string(&ask.shape)?).add(&ask.start).add(ask.lifetime);
        self.flag(ask.recycled).flag(ask.successor);
        Ok(())
    }

    fn heartbeat(&mut self, ask: &Heartbeat) {
        let phase = match ask.phase {
            Phase::Serving => "serving",
            Phase::Restarting => "restarting",
            Phase::Down => "down",
        };
        let due = ask.due.map(|due| match due {
            DueBy::Memory => "memory",
            DueBy::Age => "age",
        });
        self.add(&ask.name).add(ask.incarnation).add(phase).maybe(due);
        self.add(ask.lifetime).flag(ask.old_gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::sessions::{
        CLOSINGS_PER_STEP, FORGET_MS, PAGE_ROWS, PROBE_FIRST_MS, PROBE_MAX_MS, SETTLE_MS, Standing,
        TIMERS_PER_BEAT,
    };

    #[test]
    fn the_script_has_the_numbers_of_the_policy() {
        for number in [
            format!("SETTLE_MS = {SETTLE_MS},"),
            format!("FORGET_MS = {FORGET_MS},"),
            format!("PROBE_FIRST_MS = {PROBE_FIRST_MS},"),
            format!("PROBE_MAX_MS = {PROBE_MAX_MS},"),
            format!("TIMERS_PER_BEAT = {TIMERS_PER_BEAT},"),
            format!("CLOSINGS_PER_STEP = {CLOSINGS_PER_STEP},"),
            format!("PAGE_ROWS = {PAGE_ROWS},"),
        ] {
            assert!(SCRIPT.contains(&number), "{number}");
        }
        for (position, standing) in Standing::ALL.into_iter().enumerate() {
            let said = format!("{} {}", position + 1, standing.name());
            assert!(SCRIPT.contains(&said), "{said}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        assert!(read("{\"answer\":\"done\"}", "g7 w1").is_ok());
        for (answer, hints) in
            [("", ""), ("{}", ""), ("{\"answer\":\"what\"}", ""), ("{\"answer\":\"done\"}", "7")]
        {
            assert!(read(answer, hints).is_err(), "{answer} {hints}");
        }
    }
}
