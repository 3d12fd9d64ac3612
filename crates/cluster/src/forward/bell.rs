//! Wakes a request's task, but not from within itself.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// Nobody looks: whoever rings wakes the task.
const OUT: u8 = 0;
/// The task is looking, or nobody cares.
const IN: u8 = 1;
/// Somebody rang meanwhile.
const RUNG: u8 = 2;

/// What a connection wakes. The two ends of an answer's body wake each other, although both are
/// looked at by the same task in the same moment; and a task that is woken while it runs costs the
/// runtime another thread. So a ring from within is only noted, and looked after at once.
pub(super) struct Bell {
    inside: Arc<Inside>,
    waker: Waker,
}

struct Inside {
    state: AtomicU8,
    task: Mutex<Waker>,
}

impl Wake for Inside {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let note = |state| (state != OUT).then_some(RUNG);
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, note).is_err() {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
            task.wake();
        }
    }
}

impl Default for Bell {
    fn default() -> Self {
        let task = Mutex::new(Waker::noop().clone());
        let inside = Arc::new(Inside { state: AtomicU8::new(IN), task });
        Bell { waker: Waker::from(inside.clone()), inside }
    }
}

impl Bell {
    /// What to give to whoever should ring it.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The task begins to look, or nobody cares any more: rings are only noted.
    pub fn enter(&self) {
        self.inside.state.store(IN, Ordering::Release);
    }

    /// The task has seen nothing and will wait. Whether it must look again, because somebody rang
    /// while it looked; from then on a ring wakes it.
    pub fn leave(&self, cx: &Context<'_>) -> bool {
        {
            let mut task = self.inside.task.lock().unwrap_or_else(PoisonError::into_inner);
            task.clone_from(cx.waker());
        }
        self.inside.state.swap(OUT, Ordering::AcqRel) == RUNG
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_ring_from_within_is_noted_and_one_from_outside_wakes() {
        let woken = Arc::new(Count::default());
        let waker = Waker::from(woken.clone());
        let cx = Context::from_waker(&waker);
        let bell = Bell::default();
        let rings = bell.waker();
        rings.wake_by_ref();
        bell.enter();
        assert!(!bell.leave(&cx), "what was before does not count");
        rings.wake_by_ref();
        rings.wake_by_ref();
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        bell.enter();
        rings.wake_by_ref();
        rings.wake_by_ref();
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        assert!(bell.leave(&cx), "it must look again");
        assert!(!bell.leave(&cx), "once");
    }
}
