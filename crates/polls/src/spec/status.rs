//! Which statuses of an answer are good.

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// More ranges than anybody writes.
const RANGES_MAX: usize = 32;
const LOWEST: u16 = 100;
const HIGHEST: u16 = 599;

/// What would be right, for the message.
pub(super) const RIGHT: &str = "give a status such as 200, a range such as \"200-299\", \
     or a list of at most 32 of them, from 100 to 599";

/// Ranges of statuses, written as `200`, `"200-299"` or a list of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Vec<(u16, u16)>);

impl Default for Statuses {
    /// Whatever is neither a client's nor a server's error.
    fn default() -> Self {
        Statuses(vec![(200, 399)])
    }
}

impl Statuses {
    /// Whether this status is one of them.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&status))
    }

    /// Reads what was written.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let ranges = match value {
            Value::Array(items) if (1..=RANGES_MAX).contains(&items.len()) => {
                items.iter().map(range).collect::<Option<Vec<_>>>()?
            }
            one => vec![range(one)?],
        };
        Some(Statuses(ranges))
    }
}

fn range(value: &Value) -> Option<(u16, u16)> {
    let number = |text: &str| {
        let fine = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        if fine { text.parse::<u16>().ok() } else { None }
    };
    let (low, high) = match value {
        Value::Number(status) => {
            let status = u16::try_from(status.as_u64()?).ok()?;
            (status, status)
        }
        Value::String(text) => match text.split_once('-') {
            Some((low, high)) => (number(low.trim())?, number(high.trim())?),
            None => (number(text.trim())?, number(text.trim())?),
        },
        _ => return None,
    };
    (LOWEST <= low && low <= high && high <= HIGHEST).then_some((low, high))
}

impl std::fmt::Display for Statuses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (position, (low, high)) in self.0.iter().enumerate() {
            let comma = if position > 0 { ", " } else { "" };
            match low == high {
                true => write!(f, "{comma}{low}")?,
                false => write!(f, "{comma}{low}-{high}")?,
            }
        }
        Ok(())
    }
}

/// One range, as a number where it is one.
struct Range((u16, u16));

impl Serialize for Range {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Range((low, high)) = self;
        match low == high {
            true => serializer.serialize_u16(*low),
            false => serializer.collect_str(&format_args!("{low}-{high}")),
        }
    }
}

impl Serialize for Statuses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let [one] = self.0[..] {
            return Range(one).serialize(serializer);
        }
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for one in &self.0 {
            list.serialize_element(&Range(*one))?;
        }
        list.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn statuses_are_numbers_ranges_and_lists() {
        let good = |value: Value, status| Statuses::read(&value).unwrap().contains(status);
        assert!(good(json!(200), 200) && !good(json!(200), 201));
        assert!(good(json!("204"), 204));
        assert!(good(json!("200-299"), 299) && !good(json!("200-299"), 300));
        assert!(good(json!(["200-299", 304]), 304) && !good(json!(["200-299", 304]), 303));
    }

    #[test]
    fn what_is_no_status_is_refused() {
        let wrong = [
            json!(99),
            json!(600),
            json!(200.5),
            json!("2xx"),
            json!("299-200"),
            json!("200-"),
            json!("+200"),
            json!([]),
            json!([[200]]),
            json!(true),
            json!(vec![200; 33]),
        ];
        for value in wrong {
            assert_eq!(Statuses::read(&value), None, "{value}");
        }
    }

    #[test]
    fn they_are_written_as_they_can_be_read() {
        for value in [json!(200), json!("200-299"), json!(["200-299", 304])] {
            let statuses = Statuses::read(&value).unwrap();
            assert_eq!(serde_json::to_value(&statuses).unwrap(), value);
        }
        assert_eq!(Statuses::default().to_string(), "200-399");
    }
}
