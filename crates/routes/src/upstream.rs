//! One upstream as all threads see it: its address, its load and its standing.

use crate::moment::Moment;
use skep_dial::Dialler;
use skep_policy::routes::choose::Candidate;
use skep_policy::routes::guard::{Guard, Options, Standing};
use skep_policy::{Decision, Time};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};

/// How long the addresses behind a name are believed.
const NAMES_KEPT: Duration = Duration::from_secs(10);
/// Addresses behind one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Answers that went well are told to the guard with the next one that did not, so many at most.
const GOOD_TOLD_MAX: u64 = 1_000;

/// Numbers for pools; never used twice in a process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// An upstream of a route.
pub(crate) struct Upstream {
    pub id: u64,
    pub address: Arc<str>,
    pub weight: u32,
    fixed: Option<SocketAddr>,
    names: Mutex<Option<(Time, Vec<SocketAddr>)>>,
    active: AtomicU32,
    /// Those of them that have not been answered at all yet.
    waiting: AtomicU32,
    /// The guard's standing, to be read without waiting.
    standing: AtomicU64,
    guard: Mutex<Guard>,
    /// Answers that went well and the guard has not heard of.
    good: AtomicU64,
    pub answered: AtomicU64,
    pub failed: AtomicU64,
    /// What the last check found, if it found something.
    unwell: Mutex<Option<String>>,
    is_checked: AtomicBool,
}

/// A check that is on its way until it is dropped.
pub(crate) struct Checking(Arc<Upstream>);

impl Drop for Checking {
    fn drop(&mut self) {
        self.0.is_checked.store(false, Ordering::Release);
    }
}

/// A request on its way; counts as active until it is dropped.
pub(crate) struct Busy {
    upstream: Arc<Upstream>,
    waits: bool,
}

impl Busy {
    /// The upstream has begun to answer.
    pub fn answered(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.upstream.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.answered();
        self.upstream.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Upstream {
    pub fn new(address: &str, weight: u32, options: Options) -> Self {
        Upstream {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            address: Arc::from(address),
            weight,
            fixed: address.parse().ok(),
            names: Mutex::new(None),
            active: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            standing: AtomicU64::new(pack(Standing::Ready)),
            guard: Mutex::new(Guard::new(options)),
            good: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            unwell: Mutex::new(None),
            is_checked: AtomicBool::new(false),
        }
    }

    /// Counts one more request.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Busy { upstream: self.clone(), waits: true }
    }

    /// Requests that it is busy with.
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    pub fn standing(&self) -> Standing {
        unpack(self.standing.load(Ordering::Relaxed))
    }

    /// As the choice sees it.
    pub fn candidate(&self, tried: bool) -> Candidate {
        let waiting = self.waiting.load(Ordering::Relaxed);
        let (weight, active, standing) = (self.weight, self.active(), self.standing());
        Candidate { weight, active, waiting, standing, tried }
    }

    /// Rules that a reload has brought.
    pub fn has_rules(&self, options: &Options) -> bool {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).options() == options
    }

    /// Whether an answer that went well must be told at once.
    pub fn note_good(&self) -> bool {
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.good.fetch_add(1, Ordering::Relaxed);
        !matches!(self.standing(), Standing::Ready | Standing::Warming { .. })
    }

    /// Counts an answer that did not go well; it must be told at once.
    pub fn note_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the guard of an answer to a request that began at `began`.
    pub fn tell_answer(&self, now: Time, began: Time, ok: bool) -> Option<Decision<Standing>> {
        let good = self.good.swap(0, Ordering::Relaxed).min(GOOD_TOLD_MAX);
        // The one that is told is among those that were counted.
        let before = if ok { good.saturating_sub(1) } else { good };
        self.change(|guard| {
            let mut changed = None;
            for _ in 0..before {
                changed = guard.answered(now, began, true).or(changed);
            }
            guard.answered(now, began, ok).or(changed)
        })
    }

    /// A check, unless there is one already.
    pub fn begin_check(self: &Arc<Self>) -> Option<Checking> {
        let other = self.is_checked.swap(true, Ordering::AcqRel);
        (!other).then(|| Checking(self.clone()))
    }

    /// Keeps what the last check found.
    pub fn note_check(&self, found: Option<String>) {
        *self.unwell.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// What the last check found, if it found something.
    pub fn unwell(&self) -> Option<String> {
        self.unwell.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells the guard of a check.
    pub fn tell_check(&self, now: Time, ok: bool) -> Option<Decision<Standing>> {
        self.change(|guard| guard.checked(now, ok))
    }

    /// When the guard wants to see the time.
    pub fn next_at(&self) -> Option<Time> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).next_at()
    }

    /// Lets the guard see the time.
    pub fn pass_time(&self, now: Time) -> Option<Decision<Standing>> {
        self.change(|guard| guard.pass_time(now))
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Guard) -> Option<Decision<Standing>>,
    ) -> Option<Decision<Standing>> {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut guard);
        self.standing.store(pack(guard.standing()), Ordering::Relaxed);
        changed
    }

    /// A new connection, to the first address that takes it.
    pub async fn connect(&self, moment: &Moment, dialler: &Dialler) -> io::Result<TcpStream> {
        let stream = match self.fixed {
            Some(address) => dialler.connect(address).await?,
            None => self.connect_by_name(moment, dialler).await?,
        };
        // Whoever writes has decided what belongs together.
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn connect_by_name(&self, moment: &Moment, dialler: &Dialler) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.addresses(moment.now()).await? {
            match dialler.connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        // Perhaps it has moved.
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Err(last)
    }

    async fn addresses(&self, now: Time) -> io::Result<Vec<SocketAddr>> {
        let kept = self.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, addresses)) = kept
            && now.since(at) < NAMES_KEPT
        {
            return Ok(addresses);
        }
        let found: Vec<_> = lookup_host(&*self.address).await?.take(ADDRESSES_MAX).collect();
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, found.clone()));
        Ok(found)
    }
}

/// Kind and time in one number.
fn pack(standing: Standing) -> u64 {
    let (kind, time) = match standing {
        Standing::Ready => (0, Time::ZERO),
        Standing::Warming { since } => (1, since),
        Standing::Trial => (2, Time::ZERO),
        Standing::Out { until } => (3, until),
        Standing::Down => (4, Time::ZERO),
    };
    // To eight nanoseconds, which nobody can tell.
    (time.as_nanos() & !7) | kind
}

fn unpack(packed: u64) -> Standing {
    let time = Time::from_nanos(packed & !7);
    match packed & 7 {
        0 => Standing::Ready,
        1 => Standing::Warming { since: time },
        2 => Standing::Trial,
        3 => Standing::Out { until: time },
        _ => Standing::Down,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_is_read_as_it_was_written() {
        let time = Time::from_millis(123_456);
        for standing in [
            Standing::Ready,
            Standing::Warming { since: time },
            Standing::Trial,
            Standing::Out { until: time },
            Standing::Down,
        ] {
            assert_eq!(unpack(pack(standing)), standing);
        }
    }

    #[test]
    fn failures_in_a_row_take_it_out_and_good_answers_between_do_not() {
        let upstream = Upstream::new("127.0.0.1:1", 1, Options::default());
        let time = |ms| Time::from_millis(ms);
        for ms in 0..20 {
            assert!(!upstream.note_good());
            upstream.note_failed();
            if ms % 4 == 0 {
                assert_eq!(upstream.tell_answer(time(ms), time(ms), false), None);
            }
        }
        for ms in 20..30 {
            upstream.tell_answer(time(ms), time(ms), false);
        }
        assert!(matches!(upstream.standing(), Standing::Out { .. }));
        assert!(upstream.note_good(), "what an upstream that is out does is told at once");
    }

    #[test]
    fn a_request_counts_until_it_is_dropped() {
        let upstream = Arc::new(Upstream::new("127.0.0.1:1", 1, Options::default()));
        let (mut one, two) = (upstream.begin(), upstream.begin());
        one.answered();
        let now = upstream.candidate(false);
        assert_eq!((now.active, now.waiting), (2, 1));
        drop((one, two));
        let now = upstream.candidate(false);
        assert_eq!((now.active, now.waiting), (0, 0));
    }
}
