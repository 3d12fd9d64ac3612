//! What a node's answers mean.

use super::{Life, Machine, News, Outcome, Seat};
use crate::wire::{Failure, Order, Ordered, Register, Registered, Reply, Request};
use skep_policy::Time;
use std::time::Duration;

impl Machine {
    pub(super) fn answered(&mut self, request: Request, answer: Result<Reply, Failure>, now: Time) {
        match (request, answer) {
            (Request::Register(register), Ok(Reply::Registered(reply))) => {
                self.registered(&register, &reply);
            }
            (Request::Heartbeat(_), Ok(Reply::Ordered(reply))) => {
                if reply.order == Order::Succeed && !self.rules.successor {
                    let why = "a node ordered \"succeed\", but no successor was announced";
                    return self.failed(why.to_owned(), now);
                }
                self.ordered(&reply);
            }
            (Request::Drain, Ok(Reply::Done)) => {
                if let Life::Draining { agreed, .. } = &mut self.life {
                    *agreed = true;
                }
            }
            (Request::Delete, Ok(Reply::Done) | Err(Failure::Forgotten(_))) => self.deleted(),
            (Request::Heartbeat(_) | Request::Drain, Err(Failure::Forgotten(_))) => {
                self.forgotten();
            }
            (_, Err(Failure::Replaced(who))) => {
                // Whatever is known under the name now, it is not ours to delete.
                self.seat = None;
                self.known = false;
                match self.life {
                    Life::Ending { .. } => self.deleted(),
                    _ => self.end(Outcome::Replaced(who), false),
                }
            }
            (Request::Delete, Err(Failure::Denied(why))) => {
                // The node will find out by itself.
                self.tell(News::Denied(why));
                return self.deleted();
            }
            (Request::Drain, Err(Failure::Denied(why))) => {
                // Nobody will say when the last session has ended.
                self.tell(News::Denied(why));
                return self.end(Outcome::Stopped, self.known);
            }
            (Request::Register(_), Err(Failure::Refused(why))) => {
                return self.end(Outcome::Refused(why), self.known);
            }
            (_, Err(Failure::Denied(why))) => {
                if self.talk.denied(&why, now) {
                    self.tell(News::Denied(why));
                }
                return;
            }
            (_, Err(Failure::Failed(why) | Failure::Forgotten(why) | Failure::Refused(why))) => {
                return self.failed(why, now);
            }
            (request, Ok(reply)) => {
                let why = format!("{reply:?} is no answer to {request:?}");
                return self.failed(why, now);
            }
        }
        if self.talk.went_well() {
            self.tell(News::LinkBack);
        }
    }

    fn failed(&mut self, why: String, now: Time) {
        if self.talk.failed(&why, now, &mut self.chance) {
            self.tell(News::LinkLost(why));
        }
    }

    fn registered(&mut self, register: &Register, reply: &Registered) {
        let wished = Duration::from_millis(reply.heartbeat_ms);
        self.seat = Some(Seat {
            start: register.start.clone(),
            incarnation: reply.incarnation,
            interval: self.rules.heartbeat_interval.min(wished),
        });
        self.talk.registered(register.start.clone());
        self.lifetime = register.lifetime;
        // Orders are given to a start; the one before has had its own.
        self.order = Order::Serve;
        self.tell(News::Registered {
            worker: reply.worker.clone(),
            incarnation: reply.incarnation,
            lifetime_max: reply.lifetime_max,
            slots: reply.slots,
        });
    }

    fn ordered(&mut self, reply: &Ordered) {
        self.lifetime = reply.lifetime;
        if self.order != reply.order {
            self.order = reply.order;
            self.tell(News::Ordered(reply.order));
        }
        let without_sessions = reply.active == 0 && (self.old.is_none() || reply.leaving == 0);
        if matches!(self.life, Life::Draining { agreed: true, .. })
            && without_sessions
            && self.order != Order::Leave
        {
            self.end(Outcome::Stopped, self.known);
        }
    }

    fn forgotten(&mut self) {
        self.seat = None;
        self.tell(News::Forgotten);
        match &mut self.life {
            // Nobody knows of any sessions, and nothing is left to be deleted.
            Life::Draining { .. } => self.end(Outcome::Stopped, false),
            Life::Ending { delete, .. } => *delete = false,
            Life::Serving | Life::Ended => {}
        }
    }

    fn deleted(&mut self) {
        if let Life::Ending { delete, .. } = &mut self.life {
            *delete = false;
        }
    }
}
