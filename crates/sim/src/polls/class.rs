//! What goes wrong, by class.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// A class of faults; each schedule of it is another case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Nothing goes wrong.
    None,
    /// Processes are killed and start again under the same name.
    Crash,
    /// Nodes leave as they should and come back.
    Graceful,
    /// Processes are held while their clocks run on.
    Pause,
    /// Nodes cannot reach the store, or hear it, or both.
    Partition,
    /// Messages take seconds, overtake each other and come twice.
    Slow,
    /// The store answers nobody for a while.
    StorePause,
    /// The store starts again and knows nothing.
    StoreEmpty,
    /// The store starts again from an old copy.
    StoreSnapshot,
    /// Everything in the store is deleted while it runs.
    Flush,
    /// The store's wall clock is set.
    ClockJump,
    /// Clocks run as wrong as they may.
    Drift,
    /// One node comes and goes.
    Flapping,
    /// All nodes restart, one after the other.
    Rolling,
    /// All of these.
    Mixed,
    /// A process is held for longer than the margin between its permit and its poll: polls may
    /// overlap, results may not.
    LatePoll,
    /// A machine is held and its clock with it: the same.
    Freeze,
}

/// What may be done to a schedule of a class, by its plan or by an adversary.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Means {
    pub crash: bool,
    pub leave: bool,
    pub pause: bool,
    pub cut: bool,
    pub slow: bool,
    pub store_pause: bool,
    pub empty: bool,
    pub snapshot: bool,
    pub flush: bool,
    pub jump: bool,
    pub freeze: bool,
    pub late: bool,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 17] = [
        Class::None,
        Class::Crash,
        Class::Graceful,
        Class::Pause,
        Class::Partition,
        Class::Slow,
        Class::StorePause,
        Class::StoreEmpty,
        Class::StoreSnapshot,
        Class::Flush,
        Class::ClockJump,
        Class::Drift,
        Class::Flapping,
        Class::Rolling,
        Class::Mixed,
        Class::LatePoll,
        Class::Freeze,
    ];

    /// The class's name.
    pub const fn name(self) -> &'static str {
        match self {
            Class::None => "none",
            Class::Crash => "crash",
            Class::Graceful => "graceful",
            Class::Pause => "pause",
            Class::Partition => "partition",
            Class::Slow => "slow",
            Class::StorePause => "store-pause",
            Class::StoreEmpty => "store-empty",
            Class::StoreSnapshot => "store-snapshot",
            Class::Flush => "flush",
            Class::ClockJump => "clock-jump",
            Class::Drift => "drift",
            Class::Flapping => "flapping",
            Class::Rolling => "rolling",
            Class::Mixed => "mixed",
            Class::LatePoll => "late-poll",
            Class::Freeze => "freeze",
        }
    }

    /// Whether polls may overlap because no lease can keep them apart. Results may not, even here.
    pub const fn may_overlap(self) -> bool {
        matches!(self, Class::LatePoll | Class::Freeze)
    }

    /// Whether no slot may be missed.
    pub const fn is_smooth(self) -> bool {
        matches!(self, Class::None | Class::Graceful | Class::Rolling)
    }

    pub(crate) fn means(self) -> Means {
        let none = Means::default();
        match self {
            Class::None => none,
            Class::Crash => Means { crash: true, ..none },
            Class::Graceful | Class::Rolling => Means { leave: true, ..none },
            Class::Pause => Means { pause: true, ..none },
            Class::Partition | Class::Drift => Means { cut: true, ..none },
            Class::Slow => Means { slow: true, cut: true, crash: true, leave: true, ..none },
            Class::StorePause => Means { store_pause: true, ..none },
            Class::StoreEmpty => Means { empty: true, cut: true, leave: true, ..none },
            Class::StoreSnapshot => Means { snapshot: true, cut: true, crash: true, ..none },
            Class::Flush => Means { flush: true, cut: true, crash: true, ..none },
            Class::ClockJump => Means { jump: true, crash: true, ..none },
            Class::Flapping => Means { crash: true, leave: true, ..none },
            Class::Mixed => Means {
                crash: true,
                leave: true,
                pause: true,
                cut: true,
                slow: true,
                store_pause: true,
                empty: true,
                snapshot: true,
                flush: true,
                jump: true,
                ..none
            },
            Class::LatePoll => Means { late: true, crash: true, ..none },
            Class::Freeze => Means { freeze: true, crash: true, ..none },
        }
    }
}

impl Means {
    /// Whether the store can lose something.
    pub fn loses(&self) -> bool {
        self.empty || self.snapshot || self.flush
    }
}

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, UnknownClass> {
        Class::ALL.into_iter().find(|one| one.name() == text).ok_or(UnknownClass)
    }
}

/// There is no class of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownClass;

impl fmt::Display for UnknownClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Class::ALL.map(Class::name);
        write!(f, "the classes are {}", names.join(", "))
    }
}

impl std::error::Error for UnknownClass {}
