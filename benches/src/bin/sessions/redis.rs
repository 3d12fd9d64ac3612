//! What a session costs Redis, against a script that looks at every worker.

use crate::Outcome;
use skep::report::Report;
use skep_policy::sessions::{Answer, Ask, Checkout, Close, Register, Rules, Shape, Want};
use skep_sessions::{RedisTable, TableStore};
use skep_store::{Lua, Redis, RedisOptions};
use std::time::Duration;

const GATEWAY: u64 = 7;
const KIND: &str = "chromium";
/// Sessions of one round; all are open at once in its middle.
const SESSIONS: u64 = 40;
const ROUNDS: u64 = 15;
/// The other script is slow.
const NAIVE_CALLS: u64 = 20;

/// The usual way: a hash of counters, a hash for each worker, and everybody is looked at.
const NAIVE: &str = r"
local counters, best, best_active, best_lifetime = redis.call('HGETALL', KEYS[1]), nil, nil, nil
for place = 1, #counters, 2 do
    local name, active = counters[place], tonumber(counters[place + 1])
    local worker = redis.call('HMGET', KEYS[2] .. name, 'kind', 'state', 'slots', 'lifetime', 'url')
    local lifetime = tonumber(worker[4])
    if worker[1] == ARGV[1] and worker[2] == 'ready' and active < tonumber(worker[3])
        and (not best or active < best_active
            or (active == best_active and lifetime > best_lifetime)) then
        best, best_active, best_lifetime = name, active, lifetime
    end
end
if not best then
    return ''
end
redis.call('HINCRBY', KEYS[1], best, 1)
redis.call('HINCRBY', KEYS[2] .. best, 'lifetime', 1)
redis.call('HSET', KEYS[2] .. 'sessions', ARGV[2], best)
return best
";
const ADD_NAIVE: &str = r"
redis.call('HSET', KEYS[1], ARGV[1], 0)
return redis.call('HSET', KEYS[2] .. ARGV[1], 'kind', ARGV[2], 'state', 'ready', 'slots', 1000000,
    'lifetime', 0, 'url', 'ws://10.0.0.1:3000/')
";
const STATS: &str = "return redis.call('INFO', 'commandstats')";

/// Fills in the figures: microseconds of the server for a question, by the number of workers.
pub fn run(report: &mut Report) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(report))
}

async fn measure(report: &mut Report) -> Outcome<()> {
    let server = skep_testkit::Redis::start();
    let options = RedisOptions {
        connect_timeout: Duration::from_secs(5),
        call_timeout: Duration::from_secs(20),
    };
    let redis = Redis::new(&server.url().parse()?, &options)?;
    for count in [10_u64, 1_000, 10_000] {
        let bench = Bench::new(&redis, count).await?;
        let (mut checkouts, mut closes, mut naive) = (Vec::new(), Vec::new(), Vec::new());
        // Side by side, so that both see the same machine.
        for round in 0..ROUNDS {
            let (checkout, close) = bench.round(round).await?;
            checkouts.push(checkout);
            closes.push(close);
            naive.push(bench.naive_round().await?);
        }
        let (checkout, naive) = (middle(checkouts), middle(naive));
        report.figure(&format!("redis_checkout_us_{count}"), checkout);
        report.figure(&format!("redis_close_us_{count}"), middle(closes));
        report.figure(&format!("redis_scan_us_{count}"), naive);
        report.figure(&format!("redis_scan_to_checkout_{count}"), naive / checkout);
    }
    Ok(())
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A table with workers, and the same workers as the other script keeps them.
struct Bench {
    redis: Redis,
    table: TableStore,
    naive: Lua,
    stats: Lua,
    /// Where the other script keeps its counters, and how its other keys begin.
    keys: [String; 2],
}

impl Bench {
    async fn new(redis: &Redis, count: u64) -> Outcome<Self> {
        let table = TableStore::Redis(RedisTable::new(redis, &format!("with-{count}")));
        let bench = Bench {
            redis: redis.clone(),
            table,
            naive: Lua::new(NAIVE),
            stats: Lua::new(STATS),
            keys: [format!("naive:{count}:active"), format!("naive:{count}:worker:")],
        };
        // Nobody wears out, and nobody is heard of again: only choosing is measured.
        let rules = Rules { lifetime_max: 0, heartbeat_ms: 3_600_000, ..Rules::default() };
        bench.table.ask(&Ask::Configure { kind: KIND.to_owned(), rules }).await?;
        let (carried, waiting) = (Vec::new(), Vec::new());
        let (node, ttl_ms) = ("node".to_owned(), 3_600_000);
        let join = Ask::Join { gateway: GATEWAY, link: 1, node, ttl_ms, carried, waiting };
        bench.table.ask(&join).await?;
        let add = Lua::new(ADD_NAIVE);
        for number in 0..count {
            let name = format!("worker-{number}");
            bench.table.ask(&Ask::Register(register(&name))).await?;
            let added = redis.script::<u64>(&add, |call| {
                call.key(&bench.keys[0]).key(&bench.keys[1]).arg(&name).arg(KIND);
            });
            added.await?;
        }
        Ok(bench)
    }

    /// Begins some sessions and ends them: microseconds of a checkout and of a close.
    async fn round(&self, round: u64) -> Outcome<(f64, f64)> {
        let tickets = round * SESSIONS..(round + 1) * SESSIONS;
        let before = self.spent().await?;
        for ticket in tickets.clone() {
            let answer = self.table.ask(&Ask::Checkout(checkout(ticket))).await?;
            if !matches!(answer, Answer::Seated(_)) {
                return Err(format!("ticket {ticket}: {answer:?}").into());
            }
        }
        let between = self.spent().await?;
        for ticket in tickets {
            let how = Close::Ended;
            self.table.ask(&Ask::Close { gateway: GATEWAY, link: 1, ticket, how }).await?;
        }
        let after = self.spent().await?;
        Ok(((between - before) / SESSIONS as f64, (after - between) / SESSIONS as f64))
    }

    async fn naive_round(&self) -> Outcome<f64> {
        let before = self.spent().await?;
        for ticket in 0..NAIVE_CALLS {
            let chosen = self.redis.script::<String>(&self.naive, |call| {
                call.key(&self.keys[0]).key(&self.keys[1]).arg(KIND).arg(ticket);
            });
            chosen.await?;
        }
        Ok((self.spent().await? - before) / NAIVE_CALLS as f64)
    }

    /// Microseconds that scripts have taken so far.
    async fn spent(&self) -> Outcome<f64> {
        let info: String = self.redis.script(&self.stats, |_| {}).await?;
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
        let spent = line.and_then(|line| line.split_once("usec=")?.1.split(',').next());
        Ok(spent.ok_or("no statistics of scripts")?.parse()?)
    }
}

fn register(name: &str) -> Register {
    Register {
        name: name.into(),
        kind: KIND.to_owned(),
        url: "ws://10.0.0.1:3000/".into(),
        slots: None,
        shape: Shape::default(),
        start: format!("{name}-1").into(),
        lifetime: 0,
        recycled: true,
        successor: false,
    }
}

fn checkout(ticket: u64) -> Checkout {
    Checkout {
        gateway: GATEWAY,
        link: 1,
        ticket,
        kind: KIND.to_owned(),
        want: Want::default(),
        key: "key".into(),
        key_max: 0,
        avoid: None,
        wait: false,
    }
}
