//! A benchmark of several parts, each of which can be run alone, with figures that have goals.

use crate::{Outcome, finish};
use skep::report::Report;
use std::process::ExitCode;

/// The name of a figure, and the least and the most that it may be.
pub type Goal = (&'static str, f64, f64);

/// Runs the parts that the command line names, or all, and prints what came of them: the report
/// with `--json`, else what `table` makes of it.
pub fn run(
    name: &str,
    parts: &[&str],
    part: impl AsyncFn(&str, &mut Report) -> Outcome<()>,
    goals: &[Goal],
    table: impl FnOnce(&Report) -> String,
) -> Outcome<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    if let Some(unknown) = wanted.iter().find(|word| !parts.contains(word)) {
        return Err(format!("no part {unknown:?}, there are: {}", parts.join(", ")).into());
    }
    let mut report = Report::new(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let chosen = |name: &&str| wanted.is_empty() || wanted.contains(name);
    for name in parts.iter().copied().filter(chosen) {
        tokio::task::LocalSet::new().block_on(&runtime, part(name, &mut report))?;
    }
    judge(&mut report, goals);
    if words.iter().any(|word| word == "--json") {
        return Ok(finish(&report));
    }
    println!("{}", table(&report));
    for failure in &report.failures {
        println!("failed: {failure}");
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Notes every goal that was missed.
pub fn judge(report: &mut Report, goals: &[Goal]) {
    for (name, least, most) in goals {
        let Some(value) = report.figures.get(*name).copied() else { continue };
        if !(*least..=*most).contains(&value) {
            let goal = shown(*least, *most);
            report.fail(format!("{name} is {value:.2}, the goal is {goal}"));
        }
    }
}

/// A goal, for people; nothing if there is none.
pub fn shown(least: f64, most: f64) -> String {
    match (least.is_finite(), most.is_finite()) {
        (_, true) => format!("<= {most}"),
        (true, false) => format!(">= {least}"),
        (false, false) => String::new(),
    }
}

/// A figure, with as many digits as people read.
pub fn readable(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_goal_fails_and_what_was_not_measured_does_not() {
        const GOALS: &[Goal] = &[
            ("fast", 3.0, f64::INFINITY),
            ("small", f64::NEG_INFINITY, 10.0),
            ("other", 0.0, 1.0),
            ("told", f64::NEG_INFINITY, f64::INFINITY),
        ];
        let mut report = Report::new("bench");
        for (name, value) in [("fast", 2.5), ("small", 9.0), ("told", 5.0)] {
            report.figure(name, value);
        }
        judge(&mut report, GOALS);
        assert_eq!(report.failures, ["fast is 2.50, the goal is >= 3"]);
    }

    #[test]
    fn figures_have_as_many_digits_as_people_read() {
        let shown = [150_000.4, 149.04, -12.34, 2.5, 0.0].map(readable);
        assert_eq!(shown, ["150000", "149.0", "-12.3", "2.50", "0.00"]);
    }
}
