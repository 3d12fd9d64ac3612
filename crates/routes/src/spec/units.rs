//! Spans of time and sizes, as people write them.

use serde::Serializer;
use std::time::Duration;

/// Longer texts are no spans and no sizes.
const CHARS_MAX: usize = 64;

/// The sizes that are read; those in front are written.
const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Reads a span such as `250ms`, `30s` or `1h30m`.
pub fn parse_span(text: &str) -> Option<Duration> {
    if text.len() > CHARS_MAX {
        return None;
    }
    let span: jiff::SignedDuration = text.parse().ok()?;
    span.try_into().ok()
}

/// Writes a span as it can be read.
pub fn write_span(span: Duration) -> String {
    match jiff::SignedDuration::try_from(span) {
        Ok(span) => format!("{span:#}").replace(' ', ""),
        Err(_) => format!("{}s", span.as_secs()),
    }
}

/// Reads a size such as `64MiB`.
pub fn parse_size(text: &str) -> Option<u64> {
    if text.len() > CHARS_MAX {
        return None;
    }
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    number.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// Writes a size in the largest unit that leaves no remainder.
pub fn write_size(bytes: u64) -> String {
    let fits = |(_, unit): &&(&str, u64)| bytes >= *unit && bytes.is_multiple_of(*unit);
    match UNITS.iter().find(fits) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

pub(super) fn span<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&write_span(*span))
}

pub(super) fn size<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&write_size(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spans_have_numbers_and_units() {
        let millis = |text| parse_span(text).map(|span| span.as_millis());
        assert_eq!(millis("250ms"), Some(250));
        assert_eq!(millis("1.5s"), Some(1_500));
        assert_eq!(millis("1h30m"), Some(5_400_000));
        assert_eq!(millis("0s"), Some(0));
        for text in ["", "10", "s", "-1s", "1y", "soon", "1s ago", &"9".repeat(99)] {
            assert_eq!(millis(text), None, "{text}");
        }
        assert_eq!(write_span(Duration::from_secs(5_400)), "1h30m");
        assert_eq!(write_span(Duration::ZERO), "0s");
    }

    #[test]
    fn sizes_have_a_whole_number_and_a_unit() {
        assert_eq!(parse_size("64MiB"), Some(64 << 20));
        assert_eq!(parse_size("10 kib"), Some(10 << 10));
        assert_eq!(parse_size("7B"), Some(7));
        for text in ["", "64", "MiB", "-1B", "1.5MiB", "1MB", "99999999999999TiB"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
        assert_eq!(write_size(100 << 20), "100MiB");
        assert_eq!(write_size(1_025), "1025B");
        assert_eq!(write_size(0), "0B");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(nanos in 0_u64.., bytes: u64) {
            let span = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_span(&write_span(span)), Some(span));
            prop_assert_eq!(parse_size(&write_size(bytes)), Some(bytes));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,80}") {
            let _ = (parse_span(&text), parse_size(&text));
        }
    }
}
