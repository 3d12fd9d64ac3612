//! Reading what clients of queues send: once, payloads as the bytes they are.
//!
//! Clients differ in what they leave out, send as null or send on top, so nothing here fails for
//! the shape of a value: it says what came, and who asked decides. Only text that is no JSON fails.

use crate::http::problem::{self, Problem};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use skep_policy::Time;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The longest name of a queue, partition, group, namespace or task, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The longest transaction or trace id, in bytes.
pub const ID_BYTES_MAX: usize = 1_024;

/// A value that should be a text, a number or so.
#[derive(Debug, Default)]
pub enum Given<'body> {
    /// Nothing came, or null.
    #[default]
    Nothing,
    /// A text.
    Text(Cow<'body, str>),
    /// True or false.
    Truth(bool),
    /// A whole number that is not negative.
    Number(u64),
    /// Something else.
    Other,
}

/// A value that should be a list.
#[derive(Debug, Default)]
pub enum Listed<T> {
    /// It was one.
    Items(Vec<T>),
    /// Nothing came, or it was none.
    #[default]
    Other,
}

/// A value that should be an object, as a list of what is in it; see [`object`].
pub trait Object<'body>: Default {
    /// Reads the value of one key, or passes it.
    fn field<A: MapAccess<'body>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Declares what is read of an object. What is no object has nothing of it; of a key that comes
/// twice the last value counts.
macro_rules! object {
    (
        $(#[$about:meta])*
        $name:ident<$life:lifetime> { $($field:ident $key:literal: $type:ty,)+ }
    ) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub struct $name<$life> {
            $(pub $field: $type,)+
        }

        impl<$life> $crate::http::routes::queues::read::Object<$life> for $name<$life> {
            fn field<A: serde::de::MapAccess<$life>>(
                &mut self,
                key: &str,
                map: &mut A,
            ) -> Result<(), A::Error> {
                match key {
                    $($key => self.$field = map.next_value()?,)+
                    _ => {
                        map.next_value::<serde::de::IgnoredAny>()?;
                    }
                }
                Ok(())
            }
        }

        impl<$life> serde::Deserialize<$life> for $name<$life> {
            fn deserialize<D: serde::Deserializer<$life>>(reader: D) -> Result<Self, D::Error> {
                $crate::http::routes::queues::read::read_object(reader)
            }
        }
    };
}

pub(super) use object;

/// Reads an object, or passes what is none.
pub fn read_object<'body, D: Deserializer<'body>, T: Object<'body>>(
    reader: D,
) -> Result<T, D::Error> {
    reader.deserialize_any(Shape::<T>(PhantomData))
}

struct Shape<T>(PhantomData<T>);

/// The visits of values that are not of the shape that is asked for.
macro_rules! other_shapes {
    ($value:expr; $($visit:ident $type:ty),+) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any value")
        }

        $(fn $visit<E>(self, _: $type) -> Result<Self::Value, E> {
            Ok($value)
        })+

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Default::default())
        }
    };
}

fn pass_list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<(), A::Error> {
    while list.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

impl<'de, T: Object<'de>> Visitor<'de> for Shape<T> {
    type Value = T;

    other_shapes!(
        T::default();
        visit_bool bool, visit_i64 i64, visit_u64 u64, visit_f64 f64, visit_str &str
    );

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        pass_list(list).map(|()| T::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut found = T::default();
        while let Some(Given::Text(key)) = map.next_key()? {
            found.field(&key, &mut map)?;
        }
        Ok(found)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Listed<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct List<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = Listed<T>;

            other_shapes!(
                Listed::Other;
                visit_bool bool, visit_i64 i64, visit_u64 u64, visit_f64 f64, visit_str &str
            );

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Listed<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Listed::Items(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Listed<T>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Listed::Other)
            }
        }

        reader.deserialize_any(List(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Given<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct One;

        impl<'de> Visitor<'de> for One {
            type Value = Given<'de>;

            other_shapes!(Given::Other; visit_i64 i64, visit_f64 f64);

            fn visit_bool<E>(self, truth: bool) -> Result<Given<'de>, E> {
                Ok(Given::Truth(truth))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Given<'de>, E> {
                Ok(Given::Number(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Given<'de>, E> {
                Ok(Given::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Given<'de>, E> {
                Ok(Given::Text(Cow::Borrowed(text)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Given<'de>, A::Error> {
                pass_list(list).map(|()| Given::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Given<'de>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Given::Other)
            }
        }

        reader.deserialize_any(One)
    }
}

/// Reads a body.
pub fn json<'body, T: Deserialize<'body>>(body: &'body [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        Problem::new(&problem::E_BODY_INVALID, format!("Invalid JSON: {error}")).plain()
    })
}

/// Reads a body that may be left out.
pub fn json_or_nothing<'body, T>(body: &'body [u8]) -> Result<T, Problem>
where
    T: Deserialize<'body> + Default,
{
    if body.is_empty() { Ok(T::default()) } else { json(body) }
}

/// A field cannot have its value; `words` are the whole of `error`.
pub fn wrong(field: &str, words: impl Into<String>) -> Problem {
    Problem::field(field, words).plain()
}

/// What is wrong with a name, if anything.
pub fn name_flaw(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("must not be empty");
    }
    if name.len() > NAME_BYTES_MAX {
        return Some("must not be longer than 255 bytes");
    }
    name.chars().any(char::is_control).then_some("must not have control characters")
}

/// A name from a path or a parameter.
pub fn name(field: &str, name: &str) -> Result<Arc<str>, Problem> {
    match name_flaw(name) {
        Some(flaw) => Err(wrong(field, format!("{field} {flaw}"))),
        None => Ok(Arc::from(name)),
    }
}

/// A name that may be left out, as null or as nothing.
pub fn optional_name(field: &str, given: Option<&str>) -> Result<Option<Arc<str>>, Problem> {
    given.filter(|text| !text.is_empty()).map(|text| name(field, text)).transpose()
}

/// A name of a body that may be left out.
pub fn given_name(field: &str, given: &Given<'_>) -> Result<Option<Arc<str>>, Problem> {
    match given {
        Given::Nothing => Ok(None),
        Given::Text(text) => optional_name(field, Some(text)),
        _ => Err(wrong(field, format!("{field} must be a string"))),
    }
}

/// A text wherever it is one, else whatever it is as JSON; for what people wrote about an error.
pub fn any_text(raw: Option<&RawValue>, bytes_max: usize) -> Option<Arc<str>> {
    let raw = raw?.get();
    let text = serde_json::from_str::<Cow<'_, str>>(raw).unwrap_or(Cow::Borrowed(raw));
    let end = text.floor_char_boundary(bytes_max);
    (end > 0).then(|| Arc::from(&text[..end]))
}

/// A time as people and programs write it; without an offset it is in UTC.
pub fn time(field: &str, text: &str) -> Result<Time, Problem> {
    let spoken = || {
        let shown: String = text.chars().take(60).collect();
        let right = "a time such as 2026-01-31T12:00:00Z, from 1970 to 2553";
        wrong(field, format!("{field} cannot be {shown:?}, it must be {right}"))
    };
    let civil = || {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        civil.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    };
    let at = text.parse::<jiff::Timestamp>().ok().or_else(civil).ok_or_else(spoken)?;
    let nanos = u64::try_from(at.as_nanosecond()).map_err(|_| spoken())?;
    Ok(Time::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    object! {
        /// For the tests.
        Sample<'a> {
            word "word": Given<'a>,
            raw "raw": Option<&'a RawValue>,
            list "list": Listed<Given<'a>>,
        }
    }

    fn read(text: &str) -> Sample<'_> {
        json(text.as_bytes()).expect("is JSON")
    }

    #[test]
    fn what_came_is_told_whatever_its_shape() {
        let sample =
            read(r#"{"x":{"word":1},"word":"w\n","raw":{"a": [1,  2]},"list":["a",null,{}]}"#);
        assert!(matches!(&sample.word, Given::Text(text) if text == "w\n"));
        assert_eq!(sample.raw.map(RawValue::get), Some(r#"{"a": [1,  2]}"#));
        let Listed::Items(items) = sample.list else { panic!("is a list") };
        assert!(matches!(&items[..], [Given::Text(_), Given::Nothing, Given::Other]));
        for odd in ["3", "-3.5", "null", "true", "\"x\"", "[1,{}]", "{}", r#"{"word":{"a":[]}}"#] {
            let sample = read(odd);
            assert!(matches!(sample.word, Given::Nothing | Given::Other), "{odd}");
            assert!(matches!(sample.list, Listed::Other), "{odd}");
        }
        assert!(json::<Sample<'_>>(b"{\"word\":").is_err());
        assert!(json::<Sample<'_>>(b"{\"word\":1} x").is_err());
        assert!(json::<Sample<'_>>(b"{\"word\":\"\xff\"}").is_err());
    }

    #[test]
    fn times_are_read_with_and_without_an_offset() {
        let nanos = |text| time("from", text).expect("is a time").as_nanos();
        assert_eq!(nanos("1970-01-01T00:00:01Z"), 1_000_000_000);
        assert_eq!(nanos("1970-01-01T02:00:01+02:00"), 1_000_000_000);
        assert_eq!(nanos("1970-01-01T00:00:01"), 1_000_000_000);
        assert_eq!(nanos("1970-01-01T00:00:01.000250+00:00"), 1_000_250_000);
        for odd in ["", "soon", "1969-12-31T23:59:59Z", "2026-13-01T00:00:00Z"] {
            assert!(time("from", odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn errors_of_consumers_are_kept_short_and_whole_letters() {
        let text = |raw: &str| {
            let raw = RawValue::from_string(raw.to_owned()).expect("is JSON");
            any_text(Some(&raw), 5)
        };
        assert_eq!(text("\"a\\nb\"").as_deref(), Some("a\nb"));
        assert_eq!(text("\"aaaaää\"").as_deref(), Some("aaaa"));
        assert_eq!(text("{\"a\":1}").as_deref(), Some("{\"a\":"));
        assert_eq!(text("\"\""), None);
    }
}
