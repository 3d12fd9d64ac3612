//! Reading JSON field by field, with everything that is wrong at once.

use super::Problem;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;

const ID_CHARS_MAX: usize = 64;
const LABELS_MAX: usize = 32;
const LABEL_KEY_CHARS_MAX: usize = 63;
const LABEL_VALUE_CHARS_MAX: usize = 255;

const ID: &str =
    "give 1 to 64 letters, digits and any of . _ : - that begin with a letter or digit";

/// Whether this can name an account, a monitor or a server.
pub fn is_id(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    (1..=ID_CHARS_MAX).contains(&text.len())
        && text.bytes().all(inside)
        && text.as_bytes()[0].is_ascii_alphanumeric()
}

/// An object that is being read, and what was found wrong with it.
pub(super) struct Reader<'a> {
    object: &'a Map<String, Value>,
    /// Where the object is, such as `probe.`.
    place: &'static str,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(object: &'a Map<String, Value>, place: &'static str) -> Self {
        Reader { object, place, problems: Vec::new() }
    }

    /// A reader of a body that must be an object; `what` is named if it is not.
    pub(super) fn of(value: &'a Value, what: &str) -> Result<Self, Vec<Problem>> {
        match value {
            Value::Object(object) => Ok(Reader::new(object, "")),
            _ => Err(vec![Problem::with(what, value, "give a JSON object")]),
        }
    }

    /// What was read, unless something is wrong.
    pub(super) fn end<T>(self, read: Option<T>) -> Result<T, Vec<Problem>> {
        match read {
            Some(read) if self.problems.is_empty() => Ok(read),
            _ => Err(self.problems),
        }
    }

    pub(super) fn take_problems(&mut self, inner: Reader<'_>) {
        self.problems.extend(inner.problems);
    }

    /// A field that is there; `null` is the same as nothing.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn refuse(&mut self, field: &str, value: &Value, right: impl Into<String>) {
        self.problems.push(Problem::with(&format!("{}{field}", self.place), value, right));
    }

    pub(super) fn missing(&mut self, field: &str, right: impl Into<String>) {
        let field = format!("{}{field}", self.place);
        self.problems.push(Problem::at(&field, "is missing", right));
    }

    /// Refuses fields that nobody knows.
    pub(super) fn known(&mut self, known: &[&str]) {
        for field in self.object.keys().filter(|field| !known.contains(&field.as_str())) {
            let likeness = |name: &&str| {
                let typed = field.to_ascii_lowercase().replace('-', "_");
                strsim::normalized_damerau_levenshtein(&typed, name)
            };
            let near = known
                .iter()
                .map(|name| (likeness(name), name))
                .filter(|(likeness, _)| *likeness >= 0.6)
                .max_by(|one, other| one.0.total_cmp(&other.0));
            let right = match near {
                Some((_, name)) => format!("did you mean {}{name}?", self.place),
                None => format!("the fields are {}", known.join(", ")),
            };
            let field = format!("{}{field}", self.place);
            self.problems.push(Problem::at(&field, "is not a known field", right));
        }
    }

    /// A name; a number counts as its digits.
    fn name(&mut self, field: &str) -> Option<String> {
        let value = self.get(field)?;
        let name = match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => number.as_u64().map(|number| number.to_string()),
            _ => None,
        };
        let name = name.filter(|name| is_id(name));
        if name.is_none() {
            self.refuse(field, value, ID);
        }
        name
    }

    /// A name that must be there.
    pub(super) fn id(&mut self, field: &str) -> Option<String> {
        if self.get(field).is_none() {
            self.missing(field, ID);
        }
        self.name(field)
    }

    pub(super) fn account(&mut self) -> Option<String> {
        self.name("account")
    }

    pub(super) fn ip(&mut self) -> Option<IpAddr> {
        let right = "give an IP address, such as 192.0.2.7 or 2001:db8::7";
        let Some(value) = self.get("ip") else {
            self.missing("ip", right);
            return None;
        };
        let ip = value.as_str().and_then(|text| text.parse::<IpAddr>().ok());
        if ip.is_none() {
            self.refuse("ip", value, right);
        }
        // An IPv4 address in the clothes of IPv6 is one of IPv4.
        ip.map(|ip| ip.to_canonical())
    }

    pub(super) fn flag(&mut self, field: &str) -> Option<bool> {
        let value = self.get(field)?;
        let flag = value.as_bool();
        if flag.is_none() {
            self.refuse(field, value, "give true or false");
        }
        flag
    }

    /// A whole number that is not below 0.
    pub(super) fn count(&mut self, field: &str, most: u32) -> Option<u32> {
        let value = self.get(field)?;
        let count = value.as_u64().filter(|count| *count <= u64::from(most));
        if count.is_none() {
            self.refuse(field, value, format!("give a whole number from 0 to {most}"));
        }
        count.map(|count| count as u32)
    }

    /// A text of some characters, none of them a control character.
    pub(super) fn text(&mut self, field: &str, chars_max: usize) -> Option<String> {
        let value = self.get(field)?;
        let fits = |text: &&str| {
            (1..=chars_max).contains(&text.chars().count()) && !text.chars().any(char::is_control)
        };
        let text = value.as_str().filter(fits);
        if text.is_none() {
            self.refuse(field, value, format!("give a text of 1 to {chars_max} characters"));
        }
        text.map(str::to_owned)
    }

    /// A point in time.
    pub(super) fn time(&mut self, field: &str) -> Option<i64> {
        let value = self.get(field)?;
        let time = value.as_i64().filter(|time| (0..=i64::from(u32::MAX) * 1_000).contains(time));
        if time.is_none() {
            self.refuse(field, value, "give milliseconds since 1970");
        }
        time
    }

    pub(super) fn labels(&mut self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        let Some(value) = self.get("labels") else { return labels };
        let Some(object) = value.as_object() else {
            let right = "give an object of texts, such as {\"country\": \"de\"}";
            self.refuse("labels", value, right);
            return labels;
        };
        if object.len() > LABELS_MAX {
            let wrong = format!("has {} entries", object.len());
            self.problems.push(Problem::at("labels", &wrong, format!("give at most {LABELS_MAX}")));
            return labels;
        }
        for (key, value) in object {
            let fits = |text: &str, low: usize, high: usize| {
                (low..=high).contains(&text.chars().count()) && !text.chars().any(char::is_control)
            };
            let place = format!("labels.{key}");
            if !fits(key, 1, LABEL_KEY_CHARS_MAX) {
                let right = format!("give a name of 1 to {LABEL_KEY_CHARS_MAX} characters");
                self.problems.push(Problem::at(&place, "has a name that is not allowed", right));
            }
            match value.as_str().filter(|text| fits(text, 0, LABEL_VALUE_CHARS_MAX)) {
                Some(text) => {
                    labels.insert(key.clone(), text.to_owned());
                }
                None => {
                    let right =
                        format!("give a text of at most {LABEL_VALUE_CHARS_MAX} characters");
                    self.refuse(&place, value, right);
                }
            }
        }
        labels
    }
}
