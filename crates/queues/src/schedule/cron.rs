//! Cron expressions: which readings of a clock fit.

use jiff::civil::Date;
use jiff::{Timestamp, tz::Offset};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

const DAY: i64 = 86_400;
/// Years in which every date comes at least once, and a few days.
const EVERY_DATE: i64 = 3_000 * DAY;
/// Bytes of an expression; a list of every minute is shorter.
const TEXT_MAX: usize = 1_024;

/// A cron expression: minute, hour, day of the month, month, day of the week; with a sixth field
/// in front, that is the second. A field is a list of `*`, numbers, names (`jan`, `mon`) and
/// ranges, each with a `/step` if wanted. Sunday is 0 or 7. If both days are limited, either fits,
/// as everywhere; one that begins with `*` limits nothing by itself. `@hourly`, `@daily`,
/// `@weekly`, `@monthly`, `@yearly` stand for what they say.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CronExpression {
    text: Arc<str>,
    /// A bit for each number.
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether a day fits if one of the two fields of days does.
    either_day: bool,
}

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cron: {field} is {value:?}; {wanted}")]
pub struct CronError {
    /// Where.
    pub field: &'static str,
    /// What stands there.
    pub value: String,
    /// What would be right.
    pub wanted: String,
}

/// What may stand in a field.
struct Field {
    name: &'static str,
    least: u8,
    greatest: u8,
    /// The first stands for `least`.
    names: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", least: 0, greatest: 59, names: &[] };
const MINUTE: Field = Field { name: "minute", least: 0, greatest: 59, names: &[] };
const HOUR: Field = Field { name: "hour", least: 0, greatest: 23, names: &[] };
const DAY_OF_MONTH: Field = Field { name: "day of month", least: 1, greatest: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    least: 1,
    greatest: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const DAY_OF_WEEK: Field = Field {
    name: "day of week",
    least: 0,
    greatest: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

impl FromStr for CronExpression {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        let wrong = |field, wanted: &str| {
            let value = text.chars().take(100).collect();
            Err(CronError { field, value, wanted: wanted.to_owned() })
        };
        let trimmed = text.trim();
        if trimmed.len() > TEXT_MAX {
            return wrong("expression", &format!("use at most {TEXT_MAX} bytes"));
        }
        let lower = trimmed.to_ascii_lowercase();
        let fields = match lower.as_str() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            name if name.starts_with('@') => {
                let wanted = "use @hourly, @daily, @weekly, @monthly or @yearly";
                return wrong("expression", wanted);
            }
            fields => fields,
        };
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let (second, rest) = match fields.as_slice() {
            [second, rest @ ..] if rest.len() == 5 => (*second, rest),
            rest => ("0", rest),
        };
        let [minute, hour, day, month, weekday] = rest else {
            let wanted = "use five fields: minute, hour, day of month, month, day of week; \
                          or six, with the second first";
            return wrong("expression", wanted);
        };
        let mut weekdays = DAY_OF_WEEK.read(weekday)?;
        if weekdays & 1 << 7 != 0 {
            weekdays = weekdays & !(1 << 7) | 1;
        }
        let cron = CronExpression {
            text: trimmed.into(),
            seconds: SECOND.read(second)?,
            minutes: MINUTE.read(minute)?,
            hours: HOUR.read(hour)?,
            days: DAY_OF_MONTH.read(day)?,
            months: MONTH.read(month)?,
            weekdays,
            either_day: !unlimited(day) && !unlimited(weekday),
        };
        if cron.next_local(0, EVERY_DATE).is_none() {
            let value = format!("{day} {month}");
            let wanted = "there is no such day; use one that the month has".to_owned();
            return Err(CronError { field: "day of month and month", value, wanted });
        }
        Ok(cron)
    }
}

fn unlimited(field: &str) -> bool {
    field.starts_with(['*', '?'])
}

impl Field {
    /// The numbers of a field, a bit for each.
    fn read(&self, text: &str) -> Result<u64, CronError> {
        text.split(',').try_fold(0, |bits, item| Ok(bits | self.item(item)?))
    }

    fn item(&self, text: &str) -> Result<u64, CronError> {
        let (range, step) = match text.split_once('/') {
            None => (text, None),
            Some((range, step)) => (range, Some(step)),
        };
        let step_by = match step.map(number) {
            None => 1,
            Some(Some(step)) if step > 0 => step,
            Some(_) => return Err(self.wrong(text)),
        };
        let (first, last) = if range == "*" || (range == "?" && self.has_any()) {
            // The seventh day of the week is the first one again.
            (self.least, if self.greatest == 7 { 6 } else { self.greatest })
        } else if let Some((first, last)) = range.split_once('-') {
            let (first, last) = (self.number(first, text)?, self.number(last, text)?);
            (first, if self.greatest == 7 && last == 0 && first > 0 { 7 } else { last })
        } else {
            let first = self.number(range, text)?;
            let open = if self.greatest == 7 { 6.max(first) } else { self.greatest };
            (first, if step.is_some() { open } else { first })
        };
        if first > last {
            return Err(self.wrong(text));
        }
        Ok((first..=last).step_by(usize::from(step_by)).fold(0, |bits, one| bits | 1 << one))
    }

    /// Days may be `?`: the other one of the two is meant.
    fn has_any(&self) -> bool {
        self.greatest == 31 || self.greatest == 7
    }

    fn number(&self, text: &str, item: &str) -> Result<u8, CronError> {
        let named = self.names.iter().position(|name| *name == text);
        let named = named.and_then(|place| u8::try_from(place).ok());
        let number = named.map(|place| place + self.least).or_else(|| number(text));
        let fits = |number: &u8| (self.least..=self.greatest).contains(number);
        number.filter(fits).ok_or_else(|| self.wrong(item))
    }

    fn wrong(&self, value: &str) -> CronError {
        let Field { least, greatest, .. } = self;
        let mut wanted = format!("use *, numbers from {least} to {greatest}");
        if let (Some(first), Some(last)) = (self.names.first(), self.names.last()) {
            wanted.push_str(&format!(", names from {first} to {last}"));
        }
        wanted.push_str(", rising ranges like 1-5, steps like */2, or a list of them with commas");
        CronError { field: self.name, value: value.to_owned(), wanted }
    }
}

/// Only digits: `parse` would take a sign.
fn number(text: &str) -> Option<u8> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl CronExpression {
    /// Whether every hour of a day fits, so that it goes by the time that passes.
    pub(super) fn every_hour(&self) -> bool {
        self.hours.count_ones() == 24
    }

    /// The first reading of a clock that fits, from `from` until before `until`; both in seconds
    /// since 1970 on that clock.
    pub(super) fn next_local(&self, from: i64, until: i64) -> Option<i64> {
        let mut day = from.div_euclid(DAY);
        let mut second = u32::try_from(from.rem_euclid(DAY)).ok()?;
        let midnight = Timestamp::from_second(day * DAY).ok()?;
        let mut date = Offset::UTC.to_datetime(midnight).date();
        while day * DAY < until {
            let skip = if self.months >> date.month() & 1 == 0 {
                i64::from(date.days_in_month() - date.day()) + 1
            } else {
                if self.fits_day(date)
                    && let Some(found) = self.next_of_day(second)
                {
                    let local = day * DAY + i64::from(found);
                    return (local < until).then_some(local);
                }
                1
            };
            date = if skip == 1 { date } else { date.last_of_month() }.tomorrow().ok()?;
            day += skip;
            second = 0;
        }
        None
    }

    fn fits_day(&self, date: Date) -> bool {
        let day = self.days >> date.day() & 1 == 1;
        let weekday = self.weekdays >> date.weekday().to_sunday_zero_offset() & 1 == 1;
        if self.either_day { day || weekday } else { day && weekday }
    }

    /// The first second of a day that fits, from `from` on.
    fn next_of_day(&self, from: u32) -> Option<u32> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        if self.hours >> hour & 1 == 1 {
            let this_minute =
                (self.minutes >> minute & 1 == 1).then(|| at_least(self.seconds, second)).flatten();
            if let Some(second) = this_minute {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = at_least(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + at_least(self.seconds, 0)?);
            }
        }
        let hour = at_least(self.hours, hour + 1)?;
        Some(hour * 3_600 + at_least(self.minutes, 0)? * 60 + at_least(self.seconds, 0)?)
    }
}

/// The first number of a set from `least` on.
fn at_least(set: u64, least: u32) -> Option<u32> {
    let rest = set >> least;
    (rest != 0).then(|| least + rest.trailing_zeros())
}

impl TryFrom<String> for CronExpression {
    type Error = CronError;

    fn try_from(text: String) -> Result<Self, CronError> {
        text.parse()
    }
}

impl From<CronExpression> for String {
    fn from(cron: CronExpression) -> Self {
        cron.text.to_string()
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CronExpression({:?})", self.text)
    }
}
