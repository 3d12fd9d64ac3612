//! What people write on a command line: times, durations, rates, payloads.

use super::{CliError, Exit};
use crate::settings::Value as Setting;
use jiff::Timestamp;
use serde_json::value::RawValue;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// The largest payload that is read from a file.
const PAYLOAD_BYTES_MAX: u64 = 64 << 20;

/// Reads a flag as a setting of the same kind is read.
pub fn read<T: Setting>(text: &str) -> Result<T, String> {
    T::parse(text).map_err(|why| match why.as_str() {
        "" => format!("give {}", T::expected()),
        why => format!("{why}; give {}", T::expected()),
    })
}

/// A time, or how long ago it was.
pub fn past(text: &str) -> Result<Timestamp, String> {
    let ago = <Duration as Setting>::parse(text).ok();
    let ago = ago.and_then(|ago| Timestamp::now().checked_sub(ago).ok());
    let spoken = "it must be a time such as 2026-07-01T00:00:00Z, or how long ago, such as 10m";
    ago.map_or_else(|| text.parse().map_err(|error| format!("{spoken}: {error}")), Ok)
}

/// A time that may be ahead.
pub fn moment(text: &str) -> Result<Timestamp, String> {
    let spoken = "it must be a time such as 2026-07-01T00:00:00Z or 2026-07-01T02:00:00+02:00";
    text.parse().map_err(|error| format!("{spoken}: {error}"))
}

/// Whole seconds, up to a year as the API has them.
pub fn delay(text: &str) -> Result<u64, String> {
    let delay: Duration = read(text)?;
    match (delay.as_secs(), delay.subsec_nanos()) {
        (seconds @ 0..=31_622_400, 0) => Ok(seconds),
        (0..=31_622_400, _) => Err("it must be whole seconds, such as 10m or 90s".to_owned()),
        _ => Err("it must be at most 366 days, which is 8784h".to_owned()),
    }
}

/// Milliseconds before something comes again, a day at most.
pub fn pause(text: &str) -> Result<u64, String> {
    let pause: Duration = read(text)?;
    let millis = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    if millis > 86_400_000 {
        return Err("it must be at most 24h".to_owned());
    }
    Ok(millis)
}

/// So many a second, as in 50/s.
pub fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let rate = number.parse().ok().filter(|rate| *rate > 0);
    rate.ok_or_else(|| "it must be how many a second, such as 50/s".to_owned())
}

/// A field of a payload and what to look for in it.
pub fn field(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((field, value)) if !field.is_empty() => Ok((field.to_owned(), value.to_owned())),
        _ => Err("it must be a field and a value, such as customer.id=17".to_owned()),
    }
}

/// A payload: JSON, or the file after an @ that holds it, or - for standard input.
pub fn payload(flag: &str, text: &str) -> Result<Box<RawValue>, CliError> {
    let wrong = |why: String| CliError::new(Exit::Usage, format!("{flag} {why}"));
    let from = |input: Box<dyn Read>, place: &str| {
        let mut json = String::new();
        let reading = input.take(PAYLOAD_BYTES_MAX + 1).read_to_string(&mut json);
        reading.map_err(|error| wrong(format!("{place} cannot be read: {error}")))?;
        if json.len() as u64 > PAYLOAD_BYTES_MAX {
            return Err(wrong(format!("{place} is larger than {} MiB", PAYLOAD_BYTES_MAX >> 20)));
        }
        Ok(json)
    };
    let json = match text.strip_prefix('@') {
        Some(file) => {
            let open = std::fs::File::open(Path::new(file));
            let open = open.map_err(|error| wrong(format!("@{file} cannot be read: {error}")))?;
            from(Box::new(open), text)?
        }
        None if text == "-" => from(Box::new(std::io::stdin()), "standard input")?,
        None => text.to_owned(),
    };
    RawValue::from_string(json.trim().to_owned()).map_err(|error| {
        let shown: String = json.trim().chars().take(60).collect();
        wrong(format!(
            "is no JSON: {shown:?}: {error}; give JSON such as '{{\"id\": 17}}', @FILE, or - for \
             standard input"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_or_how_long_ago_they_were() {
        let told = past("2026-07-01T02:00:00+02:00").expect("a time");
        assert_eq!(told.to_string(), "2026-07-01T00:00:00Z");
        let ago = Timestamp::now().duration_since(past("10m").expect("ten minutes ago"));
        assert!((599..660).contains(&ago.as_secs()), "{ago}");
        for wrong in ["yesterday", "10", ""] {
            let error = past(wrong).expect_err("no time");
            assert!(error.contains("2026-07-01T00:00:00Z") && error.contains("10m"), "{error}");
        }
        assert!(moment("10m").expect_err("no time").contains("2026-07-01T02:00:00+02:00"));
    }

    #[test]
    fn delays_are_whole_seconds_of_a_year_at_most() {
        assert_eq!(delay("10m"), Ok(600));
        assert_eq!(delay("8784h"), Ok(31_622_400));
        assert!(delay("8785h").expect_err("too far").contains("366 days"));
        assert!(delay("1500ms").expect_err("no seconds").contains("whole seconds"));
        assert!(delay("600").expect_err("no unit").contains("30s"));
        assert_eq!(pause("1500ms"), Ok(1_500));
        assert!(pause("25h").expect_err("too long").contains("24h"));
    }

    #[test]
    fn rates_and_fields_say_what_would_be_right() {
        assert_eq!((rate("50/s"), rate("7")), (Ok(50), Ok(7)));
        for wrong in ["0/s", "50/m", "fast"] {
            assert!(rate(wrong).expect_err("no rate").contains("50/s"));
        }
        assert_eq!(field("a.b[0]=x=y"), Ok(("a.b[0]".to_owned(), "x=y".to_owned())));
        assert!(field("a").is_err() && field("=a").is_err());
    }

    #[test]
    fn a_payload_is_json_or_in_a_file() {
        let json = payload("--payload", r#"{"a": 1.0}"#).expect("JSON");
        assert_eq!(json.get(), r#"{"a": 1.0}"#);
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("payload.json");
        std::fs::write(&file, "[1]\n").expect("writes");
        let given = format!("@{}", file.display());
        assert_eq!(payload("--payload", &given).expect("reads").get(), "[1]");
        let error = payload("--payload", "@/nowhere").expect_err("no file").message;
        assert!(error.starts_with("--payload @/nowhere cannot be read"), "{error}");
        let error = payload("--payload", "call back").expect_err("no JSON").message;
        assert!(error.contains("\"call back\"") && error.contains("@FILE"), "{error}");
    }
}
