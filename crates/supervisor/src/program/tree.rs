//! A program and everything it started, as /proc shows it.
//!
//! A process belongs to the program if it is in its process group, has a parent or a session that
//! does, carries its mark in the environment, or did so when last seen. Group and parents alone
//! would not do: what a program detaches leaves its group, and loses its parent when that ends.

use crate::machine::Load;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, waitpid,
};
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// The processes of one start of a program.
pub(super) struct Tree {
    root: i32,
    mark: Vec<u8>,
    own_session: i32,
    /// Those that were alive when last seen.
    members: HashMap<i32, Process>,
    /// Those that have been looked at and do not carry the mark, with when they were started.
    strangers: HashMap<i32, u64>,
    measured: Option<Instant>,
}

/// A process of /proc, as it was when last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    id: i32,
    parent: i32,
    group: i32,
    session: i32,
    zombie: bool,
    /// In ticks since the machine started; tells apart two with the same number.
    started: u64,
    ticks: u64,
    pages: u64,
}

impl Tree {
    pub(super) fn new(root: Pid, mark: String) -> Self {
        Tree {
            root: root.as_raw_nonzero().get(),
            mark: mark.into_bytes(),
            // Not by getsid(2): in a container whose first process did not start a session of its
            // own the number is 0, which a `Pid` cannot hold.
            own_session: read_process(getpid().as_raw_nonzero().get()).map_or(0, |own| own.session),
            members: HashMap::new(),
            strangers: HashMap::new(),
            measured: None,
        }
    }

    /// Everything of the program that is alive now.
    pub(super) fn living(&mut self) -> Vec<Process> {
        self.look();
        self.members.values().copied().collect()
    }

    /// What it uses; the processor since the last call.
    pub(super) fn load(&mut self) -> Load {
        let before: HashMap<i32, u64> =
            self.members.values().map(|one| (one.id, one.ticks)).collect();
        self.look();
        let now = Instant::now();
        let used = |one: &Process| {
            one.ticks.saturating_sub(before.get(&one.id).copied().unwrap_or_default())
        };
        let pages: u64 = self.members.values().map(|one| one.pages).sum();
        let ticks: u64 = self.members.values().map(used).sum();
        let seconds = self.measured.replace(now).map(|last| (now - last).as_secs_f64());
        let per_second = clock_ticks_per_second().max(1) as f64;
        let cpu_percent = match seconds {
            Some(seconds) if seconds > 0.0 => ticks as f64 / per_second / seconds * 100.0,
            _ => 0.0,
        };
        Load { rss_bytes: pages.saturating_mul(page_size() as u64), cpu_percent }
    }

    fn look(&mut self) {
        let all = all_processes();
        let mut sessions: HashSet<i32> =
            self.members.values().map(|member| member.session).collect();
        let mut found: HashMap<i32, Process> = HashMap::new();
        let mut strangers = HashMap::new();
        let mut undecided = Vec::new();
        for process in all {
            if self.is_one_by_itself(&process) {
                found.insert(process.id, process);
            } else if self.strangers.get(&process.id) == Some(&process.started)
                || !self.carries_the_mark(process.id)
            {
                strangers.insert(process.id, process.started);
                undecided.push(process);
            } else {
                found.insert(process.id, process);
            }
        }
        // Until nobody is added: a child may be listed before its parent.
        loop {
            sessions.extend(found.values().map(|member| member.session));
            sessions.remove(&self.own_session);
            sessions.remove(&0);
            let (joining, rest): (Vec<Process>, Vec<Process>) =
                undecided.into_iter().partition(|process| {
                    found.contains_key(&process.parent) || sessions.contains(&process.session)
                });
            undecided = rest;
            if joining.is_empty() {
                break;
            }
            found.extend(joining.into_iter().map(|process| (process.id, process)));
        }
        found.values().filter(|process| process.zombie).for_each(|process| self.bury(process));
        found.retain(|_, process| !process.zombie);
        self.members = found;
        self.strangers = strangers;
    }

    fn is_one_by_itself(&self, process: &Process) -> bool {
        let known = self.members.get(&process.id);
        process.id == self.root
            || process.group == self.root
            || known.is_some_and(|known| known.started == process.started)
    }

    fn carries_the_mark(&self, id: i32) -> bool {
        let Ok(environment) = std::fs::read(format!("/proc/{id}/environ")) else { return false };
        environment.split(|byte| *byte == 0).any(|entry| entry == self.mark)
    }

    /// A supervisor that is the first process of a container inherits the orphans. The program
    /// itself is waited for elsewhere.
    fn bury(&self, zombie: &Process) {
        let ours = i32::try_from(std::process::id()).is_ok_and(|own| own == zombie.parent);
        if ours && zombie.id != self.root {
            // It may have been waited for meanwhile.
            let _ = waitpid(Pid::from_raw(zombie.id), WaitOptions::NOHANG);
        }
    }
}

impl Process {
    /// Tells it apart from every other.
    pub(super) fn identity(&self) -> (i32, u64) {
        (self.id, self.started)
    }

    pub(super) fn is_in_group(&self, group: Pid) -> bool {
        self.group == group.as_raw_nonzero().get()
    }

    /// Sends a signal to this very process, and never to another that has got its number meanwhile.
    pub(super) fn signal(&self, signal: Signal) {
        let Some(id) = Pid::from_raw(self.id) else { return };
        let Ok(handle) = pidfd_open(id, PidfdFlags::empty()) else { return };
        if read_process(self.id).is_some_and(|now| now.started == self.started) {
            // It may have ended meanwhile.
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

fn all_processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(read_process).collect()
}

fn read_process(id: i32) -> Option<Process> {
    parse(id, &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Reads a line of `/proc/<id>/stat`. The second field is the program's name in parentheses and may
/// hold anything, parentheses and blanks included.
fn parse(id: i32, line: &str) -> Option<Process> {
    let fields: Vec<&str> = line.get(line.rfind(')')? + 1..)?.split_whitespace().collect();
    // Counted from the third field of proc(5).
    let number = |position: usize| -> Option<i64> { fields.get(position - 3)?.parse().ok() };
    let count = |position: usize| number(position).and_then(|number| u64::try_from(number).ok());
    let small = |position: usize| number(position).and_then(|number| i32::try_from(number).ok());
    Some(Process {
        id,
        parent: small(4)?,
        group: small(5)?,
        session: small(6)?,
        zombie: matches!(*fields.first()?, "Z" | "X"),
        started: count(22)?,
        ticks: count(14)?.saturating_add(count(15)?),
        pages: count(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_move_the_fields() {
        let line = "42 (a b) c) S 7 8 9 0 -1 4194560 1 2 3 4 50 6 0 0 20 0 1 0 777 1000 33 18446";
        let expected = Process {
            id: 42,
            parent: 7,
            group: 8,
            session: 9,
            zombie: false,
            started: 777,
            ticks: 56,
            pages: 33,
        };
        assert_eq!(parse(42, line), Some(expected));
        assert_eq!(parse(42, "42 (cut"), None);
    }

    #[test]
    fn this_very_process_can_be_read() {
        let own = i32::try_from(std::process::id()).expect("fits");
        let process = read_process(own).expect("is there");
        assert!(process.pages > 0 && !process.zombie);
    }
}
