//! What must hold, seen from outside: true time, every node, and the sink.

use super::agenda::Process;
use super::plan::{ENDPOINTS, Plan};
use skep_policy::Time;
use skep_policy::ownership::{Guard, Guards, Token};
use std::time::Duration;

/// A poll that has been sent and may not be over.
#[derive(Clone, Copy, Debug)]
struct Poll {
    process: Process,
    token: Token,
    begun: u64,
    end: u64,
}

/// One endpoint, with what the sink keeps about it.
#[derive(Clone, Debug, Default)]
struct Endpoint {
    /// Polls that are not over.
    now: Vec<Poll>,
    /// Nodes that had a permit when they were last looked at, a bit each.
    permits: u64,
    /// What the sink goes by: the newest token, and the last slot it has a result of.
    newest: Token,
    last_slot: Option<i64>,
    /// What it is judged by: the newest token ever announced or accepted, and whose it was.
    highest: Token,
    holder: Option<Process>,
    /// The newest token with which a poll was begun.
    begun: Token,
    /// The last poll: by whom and for which slot, and which slots had results when its owner came.
    polled: Option<(Process, i64)>,
    /// When the last result was accepted.
    accepted_at: u64,
    /// What the last owner that stopped gave along; zero once somebody has polled since.
    stopped_due: i64,
}

/// The sink and the judge.
pub(crate) struct Checks {
    endpoints: Vec<Endpoint>,
    guards: Guards,
    may_overlap: bool,
    /// The store's clock is never set, so slots come in order.
    ordered: bool,
    /// How early a poll may seem because clocks are estimates, in milliseconds.
    tolerance: i64,
    watch: u64,
    /// The first thing that did not hold.
    pub broken: Option<String>,
}

/// Half of the time that an answer may take, twice, because a better estimate is kept until a worse
/// one contradicts it, and what a clock errs until the next answer.
fn tolerance(plan: &Plan) -> i64 {
    let (answer, wait) = match plan.class.is_smooth() {
        true => (Duration::from_millis(42), plan.timing.tick),
        false => (plan.timing.call_limit(), plan.timing.ttl),
    };
    (answer + wait.mul_f64(1.5 * plan.timing.drift)).as_millis() as i64
}

impl Checks {
    pub fn new(plan: &Plan, guards: Guards) -> Self {
        Checks {
            endpoints: vec![Endpoint::default(); ENDPOINTS],
            guards,
            may_overlap: plan.class.may_overlap(),
            ordered: !plan.means.jump && !plan.class.may_overlap(),
            tolerance: tolerance(plan),
            watch: plan.watch,
            broken: None,
        }
    }

    pub fn say(&mut self, now: u64, what: String) {
        if self.broken.is_none() {
            self.broken = Some(format!("at {}: {what}", Time::from_nanos(now)));
        }
    }

    /// Which nodes may have a permit beside this one.
    pub fn others_with_permit(&self, endpoint: usize, node: usize) -> u64 {
        self.endpoints[endpoint].permits & !(1 << node)
    }

    pub fn note_permit(&mut self, endpoint: usize, node: usize, has: bool) {
        let permits = &mut self.endpoints[endpoint].permits;
        *permits = *permits & !(1 << node) | u64::from(has) << node;
    }

    pub fn two_permits(&mut self, now: u64, endpoint: usize, nodes: (usize, usize)) {
        if !self.may_overlap {
            let (one, other) = nodes;
            self.say(now, format!("n{one} and n{other} both have leave to poll {endpoint}"));
        }
    }

    /// A poll is sent. `slot` comes with how late that is by the store's clock in milliseconds;
    /// `came` is what an owner that polls for the first time was told to be due.
    pub fn begin(
        &mut self,
        endpoint: usize,
        process: Process,
        token: Token,
        (begun, end): (u64, u64),
        (slot, late_ms): (i64, i64),
        came: Option<i64>,
    ) {
        let one = &mut self.endpoints[endpoint];
        one.now.retain(|poll| poll.end > begun);
        let beside = one.now.first().copied();
        one.now.push(Poll { process, token, begun, end });
        one.begun = one.begun.max(token);
        let before = one.polled.replace((process, slot));
        let (accepted, stopped_due) = (one.last_slot, std::mem::take(&mut one.stopped_due));
        if let Some(other) = beside
            && !self.may_overlap
        {
            let (since, until) = (Time::from_nanos(other.begun), Time::from_nanos(other.end));
            let (other, theirs) = (other.process, other.token);
            return self.say(
                begun,
                format!(
                    "n{}.{} polls {endpoint} with {token} while n{}.{} does with {theirs} \
                     ({since} to {until})",
                    process.node, process.life, other.node, other.life
                ),
            );
        }
        if !self.ordered {
            return;
        }
        if late_ms < -self.tolerance {
            self.say(begun, format!("the poll of {endpoint} is {} ms early", -late_ms));
        }
        let Some((other, last)) = before else { return };
        // Who goes on knows what it did itself, and what the owner before it said when it stopped.
        let known = match came {
            None => other == process,
            Some(due) => due != 0 && due == stopped_due,
        };
        if known && slot <= last {
            let text = format!("{endpoint} was polled for {last} by n{}, now {slot}", other.node);
            self.say(begun, text);
        }
        if came.is_some() && accepted.is_some_and(|accepted| slot <= accepted) {
            self.say(begun, format!("{endpoint} has a result for {slot} and is polled again"));
        }
    }

    pub fn stopped(&mut self, endpoint: usize, due: i64) {
        self.endpoints[endpoint].stopped_due = due;
    }

    /// A poll was ended before its time.
    pub fn abort(&mut self, now: u64, endpoint: usize, process: Process) {
        for poll in &mut self.endpoints[endpoint].now {
            if poll.process == process {
                poll.end = poll.end.min(now);
            }
        }
    }

    /// An owner announces its token. Whether the sink takes it, and the last slot it knows.
    pub fn announce(
        &mut self,
        now: u64,
        endpoint: usize,
        process: Process,
        token: Token,
    ) -> (bool, Option<i64>) {
        let checks = self.guards.stands(Guard::TokenCheck);
        let one = &mut self.endpoints[endpoint];
        if checks && token < one.newest {
            return (false, one.last_slot);
        }
        one.newest = token;
        let last_slot = one.last_slot;
        let (highest, holder) = (one.highest, one.holder);
        if token >= highest {
            (one.highest, one.holder) = (token, Some(process));
        }
        if token < highest {
            self.say(now, format!("the sink takes {token} for {endpoint} after {highest}"));
        } else if let Some(other) = holder
            && token == highest
            && other != process
        {
            self.say(now, format!("{token} for {endpoint} was n{}'s already", other.node));
        }
        (true, last_slot)
    }

    /// A result reaches the sink. Whether it is accepted.
    pub fn result(
        &mut self,
        plan: &Plan,
        now: u64,
        endpoint: usize,
        token: Token,
        slot: i64,
    ) -> bool {
        let checks = self.guards.stands(Guard::TokenCheck);
        let one = &mut self.endpoints[endpoint];
        if checks && token < one.newest {
            return false;
        }
        one.newest = token;
        one.last_slot = Some(one.last_slot.map_or(slot, |last| last.max(slot)));
        let (highest, begun) = (one.highest, one.begun);
        one.highest = highest.max(token);
        if token < highest {
            self.say(now, format!("the sink accepts {token} for {endpoint} after {highest}"));
        } else if token < begun {
            self.say(
                now,
                format!("the sink accepts {token} for {endpoint} though {begun} is at work"),
            );
        }
        self.check_gap(plan, now, endpoint);
        self.endpoints[endpoint].accepted_at = now;
        true
    }

    /// No endpoint waits for longer than it may.
    pub fn check_gap(&mut self, plan: &Plan, now: u64, endpoint: usize) {
        let since = self.endpoints[endpoint].accepted_at.max(self.watch);
        let gap = now.saturating_sub(since);
        if gap > plan.gap_max(endpoint) {
            let (gap, most) = (Time::from_nanos(gap), Time::from_nanos(plan.gap_max(endpoint)));
            self.say(now, format!("{endpoint} had no result for {gap}, {most} is the most"));
        }
    }

    /// The newest token the sink knows.
    pub fn newest(&self, endpoint: usize) -> Token {
        self.endpoints[endpoint].newest
    }

    pub fn uneven(&mut self, now: u64, node: usize, load: usize, bounds: (u64, u64)) {
        let (floor, cap) = bounds;
        self.say(now, format!("n{node} has {load} endpoints at the end, not {floor} to {cap}"));
    }
}
