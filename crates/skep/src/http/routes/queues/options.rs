//! The options of a queue, as they are sent and echoed.

use serde_json::{Map, Value, json};
use skep_queues::QueueOptions;

/// Echoed for a queue whose messages have no end: clients compare it with what they know as the
/// default, and there it never had an effect.
const TTL_SHOWN: u32 = 3_600;

/// A day, in seconds.
const DAY: u64 = 86_400;
/// A month, in seconds.
const MONTH: u64 = 2_592_000;
const ANY: u64 = u32::MAX as u64;
/// The longest text that separates a key from the rest of a partition's name, in bytes.
const SEPARATOR_BYTES_MAX: usize = 16;

/// Sets one option.
pub type Setter = Box<dyn Fn(&mut QueueOptions) + Send + Sync>;

/// What is to become of the options of a queue.
#[derive(Default)]
pub struct Wish {
    setters: Vec<Setter>,
    /// Names that are not known here.
    pub ignored: Vec<String>,
    /// Whether payloads are to be encrypted from now on.
    pub encrypts: bool,
}

/// An option that cannot be as it is asked for: its name, and what is wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct BadOption(pub String, pub String);

impl Wish {
    /// Reads the options that were sent. Null is the default.
    pub fn read(sent: &Map<String, Value>) -> Result<Self, BadOption> {
        let mut wish = Wish::default();
        for (name, value) in sent {
            match setter(name, value).map_err(|words| BadOption(name.clone(), words))? {
                Some(setter) => wish.setters.push(setter),
                None => wish.ignored.push(name.clone()),
            }
        }
        wish.encrypts = wish.apply(&QueueOptions::default()).encryption_enabled;
        Ok(wish)
    }

    /// The options as they are to be, where they were `before`.
    pub fn apply(&self, before: &QueueOptions) -> QueueOptions {
        let mut options = before.clone();
        self.setters.iter().for_each(|set| set(&mut options));
        options
    }
}

/// What sets an option to a value; nothing if there is no such option.
fn setter(name: &str, value: &Value) -> Result<Option<Setter>, String> {
    /// Sets a field to what `read` finds in the value, or to its default.
    macro_rules! set {
        ($field:ident, $read:expr) => {{
            let value = match value {
                Value::Null => QueueOptions::default().$field,
                value => $read(value)?,
            };
            Box::new(move |options: &mut QueueOptions| options.$field = value.clone()) as Setter
        }};
    }
    Ok(Some(match name {
        "priority" => set!(priority, priority),
        "leaseTime" => set!(lease_time, |value| seconds(value, 1, MONTH)),
        "retryLimit" => set!(retry_limit, |value| whole(value, 0, 1_000_000)),
        "retryDelay" => set!(retry_delay, |value| whole(value, 0, ANY)),
        "retryDelayMax" => set!(retry_delay_max, |value| whole(value, 0, ANY)),
        "ttl" => set!(ttl, |value| seconds(value, 0, ANY).map(|ttl| (ttl > 0).then_some(ttl))),
        "deadLetterQueue" => set!(dead_letter_queue, truth),
        "dlqAfterMaxRetries" => set!(dlq_after_max_retries, truth),
        "delayedProcessing" => set!(delayed_processing, |value| seconds(value, 0, ANY)),
        "windowBuffer" => set!(window_buffer, |value| seconds(value, 0, ANY)),
        "retentionSeconds" => set!(retention_seconds, |value| seconds(value, 0, ANY)),
        "completedRetentionSeconds" => {
            set!(completed_retention_seconds, |value| seconds(value, 0, ANY))
        }
        "retentionEnabled" => set!(retention_enabled, truth),
        "encryptionEnabled" => set!(encryption_enabled, truth),
        "maxWaitTimeSeconds" => set!(max_wait_time_seconds, |value| seconds(value, 0, ANY)),
        "maxSize" => set!(max_size, |value| number(value, 0, 1 << 53, "messages")),
        "dedupWindowSeconds" => set!(dedup_window_seconds, |value| seconds(value, 0, MONTH)),
        "maxInFlight" => set!(max_in_flight, messages),
        "rateLimit" => set!(rate_limit, messages),
        "ratePeriodSeconds" => set!(rate_period_seconds, |value| seconds(value, 1, DAY)),
        "keyMaxInFlight" => set!(key_max_in_flight, messages),
        "keyRateLimit" => set!(key_rate_limit, messages),
        "keyRatePeriodSeconds" => set!(key_rate_period_seconds, |value| seconds(value, 1, DAY)),
        "limitKeySeparator" => set!(limit_key_separator, separator),
        _ => return Ok(None),
    }))
}

/// As the API shows them.
pub fn shown(options: &QueueOptions) -> Value {
    let mut shown = json!(options);
    shown["ttl"] = json!(options.ttl.unwrap_or(TTL_SHOWN));
    shown
}

fn number(value: &Value, low: u64, high: u64, unit: &str) -> Result<u64, String> {
    let whole = |number: f64| number.fract() == 0.0 && (0.0..=9e15).contains(&number);
    // Some languages write whole numbers with a point.
    let float = || value.as_f64().filter(|number| whole(*number)).map(|number| number as u64);
    match value.as_u64().or_else(float) {
        Some(number) if (low..=high).contains(&number) => Ok(number),
        _ => Err(format!("it must be a whole number of {unit} from {low} to {high}")),
    }
}

fn seconds(value: &Value, low: u64, high: u64) -> Result<u32, String> {
    number(value, low, high, "seconds").map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn whole(value: &Value, low: u64, high: u64) -> Result<u32, String> {
    let unit = if high == ANY { "milliseconds" } else { "times" };
    number(value, low, high, unit).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn messages(value: &Value) -> Result<u32, String> {
    number(value, 0, ANY, "messages").map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn separator(value: &Value) -> Result<String, String> {
    let text = value.as_str().filter(|text| text.len() <= SEPARATOR_BYTES_MAX);
    let right = || format!("it must be a text of at most {SEPARATOR_BYTES_MAX} bytes");
    text.map(str::to_owned).ok_or_else(right)
}

fn priority(value: &Value) -> Result<i32, String> {
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    number.ok_or_else(|| format!("it must be a whole number from {} to {}", i32::MIN, i32::MAX))
}

fn truth(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "it must be true or false".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(sent: &Value) -> Result<Wish, BadOption> {
        Wish::read(sent.as_object().expect("an object"))
    }

    #[test]
    fn every_option_is_set_by_the_name_it_is_shown_under() {
        let defaults = QueueOptions::default();
        let names = shown(&defaults);
        let names = names.as_object().expect("an object");
        assert_eq!(names.len(), 24);
        for (name, value) in names {
            let other = match value {
                Value::Bool(_) => json!(true),
                Value::String(_) => json!("/"),
                _ => json!(7),
            };
            let changed = wish(&json!({ name: other })).expect("is right").apply(&defaults);
            assert_eq!(shown(&changed)[name], other, "{name}");
            let back = wish(&json!({ name: null })).expect("is right").apply(&changed);
            assert_eq!(back, defaults, "{name}");
        }
    }

    #[test]
    fn wrong_options_are_named_and_unknown_ones_are_listed() {
        for (name, value) in [
            ("leaseTime", json!(0)),
            ("leaseTime", json!("300")),
            ("retryLimit", json!(-1)),
            ("retryLimit", json!(1.5)),
            ("ttl", json!([])),
            ("priority", json!(1_u64 << 40)),
            ("encryptionEnabled", json!(1)),
            ("maxSize", json!(-5)),
            ("rateLimit", json!("1/s")),
            ("ratePeriodSeconds", json!(0)),
            ("limitKeySeparator", json!(7)),
            ("limitKeySeparator", json!("more than sixteen")),
        ] {
            let bad = wish(&json!({ name: value })).err().expect("is wrong");
            assert_eq!(bad.0, name, "{value}");
            assert!(bad.1.contains("must be"), "{bad:?}");
        }
        let odd = wish(&json!({ "leaseTime": 10.0, "autopilot": 1 })).expect("is right");
        assert_eq!(odd.ignored, ["autopilot"]);
        assert_eq!(odd.apply(&QueueOptions::default()).lease_time, 10);
    }
}
