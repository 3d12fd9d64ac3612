//! Whether a payload has something at a place in it.
//!
//! A payload is read as far as the place and not kept: what stands beside it is passed over, so
//! that an odd number or a very long text elsewhere changes nothing.

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 1_024;
/// The deepest path.
const PATH_STEPS_MAX: usize = 64;

/// A place in JSON: names with dots between them, elements of lists by their numbers, as in
/// `a.b[0].c` or `a.b.0.c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    steps: Vec<Step>,
}

/// One step down.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// To a field; if its name is a number and there is a list, to that element.
    Name(Box<str>),
    /// To an element of a list.
    Element(usize),
}

/// A path that is none, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// There is nothing, or nothing between two dots.
    #[error("it has an empty name")]
    Empty,
    /// Something else than a whole number in brackets.
    #[error("brackets are for whole numbers, as in items[0]")]
    Brackets,
    /// Too long, or too deep.
    #[error("it is longer than {PATH_BYTES_MAX} bytes or deeper than {PATH_STEPS_MAX} steps")]
    Long,
}

impl FieldPath {
    /// Reads a path.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        if text.len() > PATH_BYTES_MAX {
            return Err(BadPath::Long);
        }
        let mut steps = Vec::new();
        for part in text.split('.') {
            let (name, mut rest) = match part.find('[') {
                Some(at) => part.split_at(at),
                None => (part, ""),
            };
            match (name.is_empty(), rest.is_empty()) {
                (true, true) => return Err(BadPath::Empty),
                // A payload may be a list itself.
                (true, false) if !steps.is_empty() => return Err(BadPath::Empty),
                (true, false) => {}
                (false, _) => steps.push(Step::Name(name.into())),
            }
            while !rest.is_empty() {
                let inner = rest.strip_prefix('[').and_then(|inner| inner.split_once(']'));
                let (number, after) = inner.ok_or(BadPath::Brackets)?;
                steps.push(Step::Element(element(number).ok_or(BadPath::Brackets)?));
                rest = after;
            }
        }
        if steps.len() > PATH_STEPS_MAX {
            return Err(BadPath::Long);
        }
        Ok(FieldPath { steps })
    }

    /// What stands there. Of a field that is there twice the last counts; of what is no JSON there
    /// is nothing.
    pub fn find<'json>(&self, json: &'json [u8]) -> Option<&'json RawValue> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        Walk(&self.steps).deserialize(&mut reader).ok()?
    }
}

fn element(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// The rest of a way down.
struct Walk<'path>(&'path [Step]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        match self.0.is_empty() {
            true => <&RawValue>::deserialize(reader).map(Some),
            false => reader.deserialize_any(self),
        }
    }
}

/// The visits of values that have nothing in them.
macro_rules! nothing_inside {
    ($($visit:ident $type:ty),+) => {
        $(fn $visit<E>(self, _: $type) -> Result<Self::Value, E> {
            Ok(None)
        })+
    };
}

impl<'de> serde::de::Visitor<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    nothing_inside!(visit_bool bool, visit_i64 i64, visit_u64 u64, visit_f64 f64, visit_str &str);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let (step, rest) =
            self.0.split_first().map_or((None, self.0), |(one, all)| (Some(one), all));
        while let Some(Key(key)) = map.next_key()? {
            match step {
                Some(Step::Name(name)) if **name == *key => {
                    found = map.next_value_seed(Walk(rest))?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let wanted = match self.0.first() {
            Some(Step::Name(name)) => element(name),
            Some(Step::Element(number)) => Some(*number),
            None => None,
        };
        for number in 0.. {
            let more = match wanted == Some(number) {
                true => {
                    let inner = list.next_element_seed(Walk(&self.0[1..]))?;
                    let more = inner.is_some();
                    found = inner.flatten();
                    more
                }
                false => list.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                break;
            }
        }
        Ok(found)
    }
}

/// A field's name, wherever it is kept.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> serde::de::Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }

        reader.deserialize_str(Text)
    }
}

/// What is looked for in payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// Where.
    pub field: FieldPath,
    /// What.
    pub test: Test,
}

/// What has to stand at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// This text, number, `true`, `false` or `null`, as whatever it stands there.
    Equals(Box<str>),
    /// A text with this text in it.
    Contains(Box<str>),
}

impl Search {
    /// Whether a payload has it.
    pub fn fits(&self, payload: &[u8]) -> bool {
        self.field.find(payload).is_some_and(|there| self.test.fits(there.get()))
    }
}

impl Test {
    fn fits(&self, json: &str) -> bool {
        let text = || serde_json::from_str::<Cow<'_, str>>(json).ok();
        match (self, json.as_bytes().first()) {
            (Test::Equals(wanted), Some(b'"')) => text().is_some_and(|text| *text == **wanted),
            (Test::Equals(wanted), Some(b'-' | b'0'..=b'9')) => same_number(json, wanted),
            // Lists and objects are equal to nothing that fits into a parameter.
            (Test::Equals(_), Some(b'[' | b'{')) => false,
            (Test::Equals(wanted), _) => *json == **wanted,
            (Test::Contains(wanted), Some(b'"')) => {
                text().is_some_and(|text| text.contains(&**wanted))
            }
            (Test::Contains(_), _) => false,
        }
    }
}

/// Whether two numbers are the same, however they are written.
fn same_number(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    match (one.parse::<i128>(), other.parse::<i128>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => match (one.parse::<f64>(), other.parse::<f64>()) {
            (Ok(one), Ok(other)) => one.is_finite() && one == other,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn path(text: &str) -> FieldPath {
        FieldPath::parse(text).expect(text)
    }

    fn found(text: &str, json: &str) -> Option<Value> {
        let found = path(text).find(json.as_bytes())?;
        Some(serde_json::from_str(found.get()).expect("is JSON"))
    }

    #[test]
    fn fields_and_elements_are_found_in_both_spellings() {
        let json = r#"{"a":{"b":[{"c":1},{"c":"x"}],"0":"zero"},"e":[],"n":null,"":3}"#;
        for (text, value) in [
            ("a.b[0].c", Some(json!(1))),
            ("a.b.0.c", Some(json!(1))),
            ("a.b[1].c", Some(json!("x"))),
            ("a.b.1", Some(json!({ "c": "x" }))),
            ("a.0", Some(json!("zero"))),
            ("a[0]", None),
            ("n", Some(Value::Null)),
            ("n.a", None),
            ("a.b[2].c", None),
            ("a.b.c", None),
            ("e[0]", None),
            ("A", None),
            ("a.b[99999999999999999]", None),
        ] {
            assert_eq!(found(text, json), value, "{text}");
        }
        assert_eq!(found("[1][0].x", r#"[1,[{"x":7}]]"#), Some(json!(7)));
        assert_eq!(found("1.0.x", r#"[1,[{"x":7}]]"#), Some(json!(7)));
    }

    #[test]
    fn what_stands_beside_the_place_does_no_harm() {
        assert_eq!(found("b", r#"{"a":1e400,"b":2,"c":123456789012345678901}"#), Some(json!(2)));
        assert_eq!(found("b", r#"{"b":1,"a":0,"b":2}"#), Some(json!(2)), "the last counts");
        assert_eq!(found("é\n", r#"{"\u00e9\n":2}"#), Some(json!(2)));
        for odd in ["", "{", "1e400", "{\"b\":", "[1,", "\"b\""] {
            assert!(path("b").find(odd.as_bytes()).is_none(), "{odd}");
        }
        assert!(path("b").find(b"{\"b\":\"\xff\"}").is_none());
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for (text, flaw) in [
            ("", BadPath::Empty),
            (".", BadPath::Empty),
            ("a..b", BadPath::Empty),
            ("a.", BadPath::Empty),
            ("a.[0]", BadPath::Empty),
            ("a[]", BadPath::Brackets),
            ("a[x]", BadPath::Brackets),
            ("a[-1]", BadPath::Brackets),
            ("a[+1]", BadPath::Brackets),
            ("a[0", BadPath::Brackets),
            ("a[0]b", BadPath::Brackets),
            ("a[99999999999999999999999]", BadPath::Brackets),
        ] {
            assert_eq!(FieldPath::parse(text), Err(flaw), "{text}");
        }
        assert_eq!(FieldPath::parse(&"a".repeat(1_025)), Err(BadPath::Long));
        assert_eq!(FieldPath::parse(&["a"; 65].join(".")), Err(BadPath::Long));
        assert!(FieldPath::parse(&["a"; 64].join(".")).is_ok());
    }

    #[test]
    fn values_are_compared_as_what_they_are() {
        let equals = |json: &str, text: &str| Test::Equals(text.into()).fits(json);
        for (json, text) in [
            ("\"x\"", "x"),
            ("\"\\u00e9\"", "é"),
            ("\"5\"", "5"),
            ("5", "5"),
            ("5", "5.0"),
            ("5e0", "5"),
            ("-0.5", "-5e-1"),
            ("12345678901234567890", "12345678901234567890"),
            ("1e400", "1e400"),
            ("true", "true"),
            ("null", "null"),
            ("\"null\"", "null"),
            ("\"\"", ""),
        ] {
            assert!(equals(json, text), "{json} {text}");
        }
        for (json, text) in [
            ("\"x\"", "X"),
            ("\"x\"", "\"x\""),
            ("5", "6"),
            ("5", "five"),
            ("12345678901234567890", "12345678901234567891"),
            ("1e400", "inf"),
            ("true", "1"),
            ("null", ""),
            ("[1]", "[1]"),
            ("{}", "{}"),
        ] {
            assert!(!equals(json, text), "{json} {text}");
        }
        let contains = |json: &str, text: &str| Test::Contains(text.into()).fits(json);
        assert!(contains("\"a\\nb\"", "\nb") && contains("\"abc\"", "b") && contains("\"\"", ""));
        assert!(!contains("\"abc\"", "B") && !contains("123", "2") && !contains("[\"b\"]", "b"));
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,5}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z0-9 é\"]{1,3}", inner, 0..4)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    /// Every place in a value that has a path.
    fn places(value: &Value, at: &str, all: &mut Vec<(String, Value)>) {
        let dot = if at.is_empty() { "" } else { "." };
        match value {
            Value::Array(list) => list.iter().enumerate().for_each(|(number, inner)| {
                all.push((format!("{at}[{number}]"), inner.clone()));
                places(inner, &format!("{at}{dot}{number}"), all);
            }),
            Value::Object(fields) => fields.iter().for_each(|(name, inner)| {
                all.push((format!("{at}{dot}{name}"), inner.clone()));
                places(inner, &format!("{at}{dot}{name}"), all);
            }),
            _ => {}
        }
    }

    proptest! {
        #[test]
        fn every_place_is_found(value in tree()) {
            let mut all = Vec::new();
            places(&value, "", &mut all);
            let text = value.to_string();
            for (place, inner) in all {
                prop_assert_eq!(found(&place, &text), Some(inner), "{} in {}", place, text);
            }
        }

        #[test]
        fn any_text_is_a_path_or_refused_and_any_bytes_are_searched_or_passed(
            text in "\\PC{0,30}", json in prop::collection::vec(any::<u8>(), 0..60)
        ) {
            if let Ok(path) = FieldPath::parse(&text) {
                let _ = path.find(&json);
            }
        }
    }
}
