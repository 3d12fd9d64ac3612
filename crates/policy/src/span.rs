//! Spans of time, written as `500ms`, `10s` or `14d`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The longest span that can be written; keeps every sum of spans and times far from overflow.
const MILLIS_MAX: u64 = 36_500 * 86_400_000;

/// Reads a span such as `500ms`, `1.5s`, `24h` or `1h30m`. Finer than a millisecond is an error,
/// so that what is read is what is written back.
pub fn parse_span(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut millis: u64 = 0;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit)?;
        millis = millis.checked_add(scaled(number, *unit)?)?;
        if after.is_empty() {
            return (millis <= MILLIS_MAX).then(|| Duration::from_millis(millis));
        }
        rest = after;
    }
}

/// A decimal number of a unit, in whole milliseconds or not at all.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let fine = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !fine(whole) || !fine(part) || part.len() > 9 {
        return None;
    }
    let tenths = 10_u64.pow(part.len() as u32);
    let part = part.parse::<u64>().ok()?.checked_mul(unit)?;
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    part.is_multiple_of(tenths).then(|| whole.checked_add(part / tenths))?
}

/// Writes a span in the largest unit that leaves no remainder.
pub fn write_span(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let fits = |(_, unit): &&(&str, u64)| millis.is_multiple_of(*unit);
    match UNITS.iter().find(fits) {
        Some((name, unit)) if millis > 0 => format!("{}{name}", millis / unit),
        _ => "0s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spans_have_a_number_and_a_unit() {
        let millis = |text| parse_span(text).map(|span| span.as_millis());
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis("1.5s"), Some(1_500));
        assert_eq!(millis("5m"), Some(300_000));
        assert_eq!(millis("1h30m"), Some(5_400_000));
        assert_eq!(millis("14d"), Some(1_209_600_000));
        assert_eq!(millis("0s"), Some(0));
        let wrong =
            ["", "10", "s", "-1s", "1 s", "1.s", ".5s", "1..5s", "0.5ms", "1y", "1S", "1.5.5s"];
        for text in wrong {
            assert_eq!(millis(text), None, "{text}");
        }
        assert_eq!(millis("99999999999999999999d"), None);
        assert_eq!(millis("40000d"), None);
    }

    #[test]
    fn a_span_is_written_in_its_largest_whole_unit() {
        let write = |millis| write_span(Duration::from_millis(millis));
        assert_eq!(write(0), "0s");
        assert_eq!(write(500), "500ms");
        assert_eq!(write(90_000), "90s");
        assert_eq!(write(86_400_000), "1d");
    }

    proptest! {
        #[test]
        fn a_written_span_reads_back(millis in 0_u64..MILLIS_MAX) {
            let span = Duration::from_millis(millis);
            prop_assert_eq!(parse_span(&write_span(span)), Some(span));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "[0-9.a-z]{0,30}") {
            let _ = parse_span(&text);
        }
    }
}
