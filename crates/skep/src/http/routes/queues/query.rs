//! Reading the parameters behind the `?`. They are all text, so that every value gets its own
//! error; one that is there and empty is the same as none.

use super::read::{ID_BYTES_MAX, name_flaw, time, wrong};
use crate::http::problem::Problem;
use skep_policy::Time;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Whatever is there.
pub fn given(given: &Option<String>) -> Option<&str> {
    given.as_deref().filter(|text| !text.is_empty())
}

/// True or false; false if left out.
pub fn truth(field: &str, given: &Option<String>) -> Result<bool, Problem> {
    truth_or(field, given, false)
}

/// True or false, or what it is if left out.
pub fn truth_or(field: &str, text: &Option<String>, left_out: bool) -> Result<bool, Problem> {
    match given(text) {
        None => Ok(left_out),
        Some("false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(other) => Err(not(field, other, "true or false")),
    }
}

/// A whole number.
pub fn number<T: FromStr + PartialOrd + Display>(
    field: &str,
    text: &Option<String>,
    range: &RangeInclusive<T>,
) -> Result<Option<T>, Problem> {
    let Some(text) = given(text) else { return Ok(None) };
    match text.parse::<T>() {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => {
            let (low, high) = (range.start(), range.end());
            Err(not(field, text, &format!("a whole number from {low} to {high}")))
        }
    }
}

/// A time.
pub fn moment(field: &str, text: &Option<String>) -> Result<Option<Time>, Problem> {
    given(text).map(|text| time(field, text)).transpose()
}

/// A transaction id, in a path or as a parameter.
pub fn transaction<'text>(field: &str, text: &'text str) -> Result<&'text str, Problem> {
    match text.len() > ID_BYTES_MAX {
        true => Err(wrong(field, format!("{field} must not be longer than {ID_BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

/// How names begin. That is a name too, as far as it goes.
pub fn prefix<'text>(
    field: &str,
    text: &'text Option<String>,
) -> Result<Option<&'text str>, Problem> {
    let Some(text) = given(text) else { return Ok(None) };
    match name_flaw(text) {
        Some(flaw) => Err(wrong(field, format!("{field} {flaw}"))),
        None => Ok(Some(text)),
    }
}

/// A value that cannot be, and what would be right.
pub fn not(field: &str, text: &str, right: &str) -> Problem {
    let shown: String = text.chars().take(60).collect();
    wrong(field, format!("{field} cannot be {shown:?}, it must be {right}"))
}
