//! What the worker pools reach on this machine, against what people use instead.
//!
//! Whatever is compared takes turns in one run, so that the noise of the machine meets both; the
//! medians of the ratios count.

mod access;
mod idle;
mod isolation;
mod limits;
mod throughput;

pub use throughput::{Counters, DONE, TASKS_QUICK, TASKS_WHOLE, produce, with_pools};

use super::median;
use crate::report::Report;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A few seconds instead of minutes.
    pub quick: bool,
}

impl Options {
    fn rounds(self) -> usize {
        if self.quick { 3 } else { 7 }
    }
}

/// Runs all parts, telling `on_part` before each.
pub fn run(
    folder: &Path,
    options: Options,
    mut on_part: impl FnMut(&str),
) -> anyhow::Result<Report> {
    let mut report = Report::new("bench pools");
    on_part("throughput");
    throughput::run(options, &mut report)?;
    on_part("isolation");
    isolation::run(options, &mut report)?;
    on_part("panics");
    limits::panics(options, &mut report)?;
    on_part("hung workers");
    limits::hung(options, &mut report)?;
    on_part("overload");
    limits::overload(options, &mut report)?;
    on_part("looking at the pools");
    limits::scrapes(options, &mut report)?;
    on_part("idle");
    idle::run(options, &mut report)?;
    on_part("access log");
    access::run(folder, options, &mut report)?;
    Ok(report)
}

/// The value that `part` of 1000 sorted values do not pass.
fn quantile(values: &mut [f64], per_mille: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (values.len() * per_mille).div_ceil(1_000).max(1) - 1;
    values.get(place).copied().unwrap_or(f64::NAN)
}

/// Holds whoever comes until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    bell: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_open {
            is_open = self.bell.wait(is_open).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_all();
    }
}
