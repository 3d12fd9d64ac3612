//! What a producer wants for one message, and when a consumer wants it again.

use super::read::{Given, time};
use skep_policy::Time;
use skep_queues::record::{PRIORITY_MAX, Wishes};
use std::time::Duration;

/// A message waits for its time at most so long: a year with its odd day.
pub const DELAY_SECONDS_MAX: u64 = 366 * 86_400;
/// No wait after a failure that a message or a consumer asks for is longer, in milliseconds.
pub const RETRY_WAIT_MS_MAX: u64 = 86_400_000;
/// A message may come back at most so often.
const RETRY_LIMIT_MAX: u64 = 1_000;

/// What came of the fields that are wishes.
#[derive(Debug, Default)]
pub struct Asked<'given, 'body> {
    /// `delayUntil`.
    pub until: Option<&'given Given<'body>>,
    /// `delay`.
    pub delay: Option<&'given Given<'body>>,
    /// `priority`.
    pub priority: Option<&'given Given<'body>>,
    /// `retryLimit`.
    pub retry_limit: Option<&'given Given<'body>>,
    /// `retryDelay`.
    pub retry_delay: Option<&'given Given<'body>>,
}

/// A wish that cannot be: its field, and what would be right.
#[derive(Debug, PartialEq, Eq)]
pub struct BadWish(pub &'static str, pub String);

impl Asked<'_, '_> {
    /// The wishes, where it is `now`.
    pub fn read(&self, now: Time) -> Result<Wishes, BadWish> {
        let until = due_at(self.until, now)?;
        let delay = whole("delay", self.delay, DELAY_SECONDS_MAX, "seconds")?;
        if until.is_some() && delay.is_some() {
            let words = "delay and delayUntil cannot both be given; give one of them";
            return Err(BadWish("delay", words.to_owned()));
        }
        let due = until.or(delay.map(|seconds| now + Duration::from_secs(seconds)));
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let priority = whole("priority", self.priority, u64::from(PRIORITY_MAX), "")?;
        let limit = whole("retryLimit", self.retry_limit, RETRY_LIMIT_MAX, "")?;
        let wait = whole("retryDelay", self.retry_delay, RETRY_WAIT_MS_MAX, "milliseconds")?;
        Ok(Wishes {
            priority: priority.map_or(0, |number| u8::try_from(number).unwrap_or(PRIORITY_MAX)),
            due: due.map(|due| Time::from_nanos(due.as_nanos() / 1_000 * 1_000)),
            retry_limit: limit.map(small),
            retry_delay: wait.map(small),
        })
    }
}

/// When a consumer wants a message again.
pub fn retry_after(given: &Given<'_>) -> Result<Option<Duration>, BadWish> {
    let millis = whole("retryAfter", Some(given), RETRY_WAIT_MS_MAX, "milliseconds")?;
    Ok(millis.map(Duration::from_millis))
}

fn due_at(given: Option<&Given<'_>>, now: Time) -> Result<Option<Time>, BadWish> {
    let field = "delayUntil";
    let due = match given {
        None | Some(Given::Nothing) => return Ok(None),
        Some(Given::Text(text)) => time(field, text).ok(),
        // No clock shows more, and more would not fit.
        Some(Given::Number(millis)) if *millis < 1 << 43 => Some(Time::from_millis(*millis)),
        Some(_) => None,
    };
    let Some(due) = due else {
        let right = "a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970";
        return Err(BadWish(field, format!("{field} must be {right}")));
    };
    if due > now + Duration::from_secs(DELAY_SECONDS_MAX) {
        let words = format!("{field} must not be more than 366 days from now");
        return Err(BadWish(field, words));
    }
    Ok(Some(due))
}

fn whole(
    field: &'static str,
    given: Option<&Given<'_>>,
    most: u64,
    unit: &str,
) -> Result<Option<u64>, BadWish> {
    match given {
        None | Some(Given::Nothing) => Ok(None),
        Some(Given::Number(number)) if *number <= most => Ok(Some(*number)),
        Some(_) => {
            let of = if unit.is_empty() { String::new() } else { format!(" of {unit}") };
            Err(BadWish(field, format!("{field} must be a whole number{of} from 0 to {most}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    const NOW: Time = Time::from_millis(1_000_000_000_000);

    fn text(text: &str) -> Given<'_> {
        Given::Text(Cow::Borrowed(text))
    }

    #[test]
    fn wishes_are_read_in_every_form_they_may_have() {
        let number = Given::Number;
        let (day, nine, three, ten) = (number(86_400), number(9), number(3), number(10));
        let asked = Asked {
            delay: Some(&day),
            priority: Some(&nine),
            retry_limit: Some(&three),
            retry_delay: Some(&ten),
            until: None,
        };
        let wishes = asked.read(NOW).expect("is right");
        let due = NOW + Duration::from_secs(86_400);
        let expected =
            Wishes { priority: 9, due: Some(due), retry_limit: Some(3), retry_delay: Some(10) };
        assert_eq!(wishes, expected);
        for (given, due) in [
            (text("2001-09-09T01:46:41Z"), NOW + Duration::from_secs(1)),
            (text("2001-09-09T01:46:41.0000015"), NOW + Duration::from_micros(1_000_001)),
            (number(5), Time::from_millis(5)),
        ] {
            let asked = Asked { until: Some(&given), ..Asked::default() };
            assert_eq!(asked.read(NOW).expect("is right").due, Some(due), "{given:?}");
        }
        assert_eq!(Asked::default().read(NOW), Ok(Wishes::default()));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let bad = |asked: &Asked<'_, '_>| asked.read(NOW).expect_err("is wrong");
        let (year, ten, far) = (Given::Number(31_622_401), Given::Number(10), text("2003-01-01Z"));
        let far_off = text("2002-09-11T01:46:41Z");
        let delay = bad(&Asked { delay: Some(&year), ..Asked::default() });
        let right = "delay must be a whole number of seconds from 0 to 31622400";
        assert_eq!(delay, BadWish("delay", right.to_owned()));
        let priority = bad(&Asked { priority: Some(&ten), ..Asked::default() });
        let right = "priority must be a whole number from 0 to 9";
        assert_eq!(priority, BadWish("priority", right.to_owned()));
        for given in [far, far_off, text("soon"), Given::Truth(true), Given::Number(u64::MAX)] {
            let asked = Asked { until: Some(&given), ..Asked::default() };
            assert_eq!(bad(&asked).0, "delayUntil", "{given:?}");
        }
        let both = Asked { delay: Some(&ten), until: Some(&ten), ..Asked::default() };
        assert_eq!(bad(&both).0, "delay");
        assert_eq!(retry_after(&Given::Number(86_400_001)).expect_err("too long").0, "retryAfter");
    }
}
