//! Spans of time, as people write them.

use std::time::Duration;

/// Longer texts are no spans.
const CHARS_MAX: usize = 64;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_span_reads_back_and_other_texts_are_no_spans() {
        for millis in [100, 5_000, 30_000, 90_500] {
            let span = Duration::from_millis(millis);
            assert_eq!(parse_span(&write_span(span)), Some(span));
        }
        for text in ["", "5", "soon", "-5s", &"1".repeat(100)] {
            assert_eq!(parse_span(text), None, "{text}");
        }
    }
}
