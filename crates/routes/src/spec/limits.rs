//! How much of everything a route may have.

use super::units::{write_size, write_span};
use std::time::Duration;

/// Routes of an installation, those of its files and those made by its API together.
pub const ROUTES_MAX: usize = 1_000;
/// Upstreams of a route.
pub const UPSTREAMS_MAX: usize = 256;
/// Rules about headers of requests, and as many about those of answers.
pub const HEADER_RULES_MAX: usize = 64;
/// A route as a whole, as JSON.
pub const SPEC_BYTES_MAX: usize = 128 << 10;

pub(super) const NAME_CHARS_MAX: usize = 64;
pub(super) const HOST_CHARS_MAX: usize = 253;
pub(super) const PATH_BYTES_MAX: usize = 1_024;
pub(super) const FILE_BYTES_MAX: usize = 4_096;
pub(super) const PAGE_BYTES_MAX: usize = 64 << 10;
pub(super) const HEADER_NAME_BYTES_MAX: usize = 128;
pub(super) const HEADER_VALUE_BYTES_MAX: usize = 4 << 10;
pub(super) const STATUSES_MAX: usize = 100;

pub(super) const WEIGHT: Whole = Whole(1, 1_000);
pub(super) const TRIES: Whole = Whole(0, 10);
pub(super) const RETRY_STATUS: Whole = Whole(500, 599);
pub(super) const MAINTENANCE_STATUS: Whole = Whole(400, 599);
pub(super) const RISE_AND_FALL: Whole = Whole(1, 100);
pub(super) const FAILURES: Whole = Whole(1, 1_000);
pub(super) const PROBES: Whole = Whole(1, 100);
pub(super) const RATE: Whole = Whole(1, 1_000_000);

pub(super) const SHARE: Decimal = Decimal(0.0, 1.0);
/// A breaker with a share of zero would open without a failure.
pub(super) const FAILED_SHARE: Decimal = Decimal(0.01, 1.0);

pub(super) const BODY: Size = Size(1, 1 << 40);

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

pub(super) const TIMEOUT: Span = Span { low: MILLISECOND, high: DAY, or_none: false };
pub(super) const TIMEOUT_OR_NONE: Span = Span { or_none: true, ..TIMEOUT };
pub(super) const RETRY_AFTER: Span = Span { low: Duration::from_secs(1), high: DAY, or_none: true };
pub(super) const CHECK_EVERY: Span =
    Span { low: Duration::from_millis(100), high: HOUR, or_none: false };
pub(super) const CHECK_TIMEOUT: Span =
    Span { low: MILLISECOND, high: Duration::from_secs(300), or_none: false };
pub(super) const BREAKER_WINDOW: Span =
    Span { low: Duration::from_secs(1), high: HOUR, or_none: false };
pub(super) const BREAKER_OPEN: Span =
    Span { low: Duration::from_millis(100), high: HOUR, or_none: false };
pub(super) const SLOW_START: Span = Span { low: MILLISECOND, high: HOUR, or_none: true };
pub(super) const RATE_PER: Span =
    Span { low: Duration::from_millis(100), high: DAY, or_none: false };

/// Whole numbers from one to another.
pub(super) struct Whole(pub(super) u64, pub(super) u64);

impl Whole {
    pub(super) fn fits(&self, value: u64) -> bool {
        (self.0..=self.1).contains(&value)
    }

    pub(super) fn right(&self) -> String {
        format!("give {} to {}", self.0, self.1)
    }
}

/// Numbers from one to another.
pub(super) struct Decimal(f64, f64);

impl Decimal {
    pub(super) fn fits(&self, value: f64) -> bool {
        (self.0..=self.1).contains(&value)
    }

    pub(super) fn right(&self) -> String {
        format!("give {} to {}", self.0, self.1)
    }
}

/// Sizes from one to another.
pub(super) struct Size(u64, u64);

impl Size {
    pub(super) fn fits(&self, bytes: u64) -> bool {
        (self.0..=self.1).contains(&bytes)
    }

    pub(super) fn right(&self) -> String {
        format!("give \"{}\" to \"{}\", such as \"64MiB\"", write_size(self.0), write_size(self.1))
    }
}

/// Spans from one to another.
#[derive(Clone, Copy)]
pub(super) struct Span {
    low: Duration,
    high: Duration,
    /// Whether zero is allowed too, and means that there is none.
    or_none: bool,
}

impl Span {
    pub(super) fn fits(&self, span: Duration) -> bool {
        (self.low..=self.high).contains(&span) || (self.or_none && span.is_zero())
    }

    pub(super) fn right(&self) -> String {
        let none = if self.or_none { ", or \"0s\" for none" } else { "" };
        format!("give \"{}\" to \"{}\"{none}", write_span(self.low), write_span(self.high))
    }
}
