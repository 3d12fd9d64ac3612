//! How a section of settings is declared: once, with its documentation.

use super::layers::{Layers, Origin, Problem};
use super::routes::{FileRoute, ROUTES, summary};
use super::value::Value;
use serde::Serialize;
use std::ops::RangeInclusive;

/// A setting and its effective value, for people and programs to read.
#[derive(Clone, Debug, Serialize)]
pub struct Effective {
    /// The setting's name in `skep.toml`.
    pub key: &'static str,
    /// Its value now, without secrets.
    pub value: String,
    /// Its value if nobody sets it.
    pub default: String,
    /// Whether somebody set it.
    pub is_set: bool,
    /// Where the value was set.
    pub origin: String,
    /// What it is for.
    pub help: String,
    /// What it may hold.
    pub expected: String,
}

/// Reads settings from the layers, collecting every problem instead of stopping at the first.
pub struct Reader {
    pub layers: Layers,
    pub effective: Vec<Effective>,
}

impl Reader {
    /// The value of one setting: the one that was set, or its default. What was set and cannot be
    /// used is a problem, and the default stands in so that the others can be checked too.
    pub fn take<T: Value + PartialOrd>(
        &mut self,
        key: &'static str,
        help: &str,
        default: T,
        range: Option<RangeInclusive<T>>,
    ) -> T {
        self.take_checked(key, help, default, expected_within(range.as_ref()), |value| match &range
        {
            Some(range) if !range.contains(value) => Err(String::new()),
            _ => Ok(()),
        })
    }

    /// Like [`Reader::take`], for values without an order.
    pub fn take_any<T: Value>(&mut self, key: &'static str, help: &str, default: T) -> T {
        self.take_checked(key, help, default, T::expected(), |_| Ok(()))
    }

    fn take_checked<T: Value>(
        &mut self,
        key: &'static str,
        help: &str,
        default: T,
        expected: String,
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> T {
        let shown_default = default.show();
        let typed = self.layers.values.get(key);
        let origin = typed.map_or(Origin::Default, |typed| typed.origin.clone());
        let value = match typed.map(|typed| {
            T::parse(&typed.text)
                .and_then(|value| check(&value).map(|()| value))
                .map_err(|cause| describe::<T>(key, &typed.text, &cause, &expected))
        }) {
            None => default,
            Some(Ok(value)) => value,
            Some(Err(message)) => {
                self.layers.problems.push(Problem { origin: origin.clone(), message });
                default
            }
        };
        self.effective.push(Effective {
            key,
            value: value.show(),
            default: shown_default,
            is_set: origin != Origin::Default,
            origin: origin.to_string(),
            help: help.trim().to_owned(),
            expected,
        });
        value
    }

    /// The routes of the file, each with where it stands.
    pub fn take_routes(&mut self) -> Vec<FileRoute> {
        let routes = std::mem::take(&mut self.layers.routes);
        self.effective.extend(routes.iter().map(|route| Effective {
            key: ROUTES,
            value: summary(&route.spec),
            default: String::new(),
            is_set: true,
            origin: route.origin.to_string(),
            help: "A route of the proxy.".to_owned(),
            expected: "a table; see docs/routes.md".to_owned(),
        }));
        routes
    }

    /// A setting that nobody set has another value than its default, for this reason.
    pub fn now_is(&mut self, key: &str, value: String, why: &str) {
        if let Some(one) = self.effective.iter_mut().find(|one| one.key == key)
            && !self.layers.values.contains_key(key)
        {
            one.value = value;
            one.origin = why.to_owned();
        }
    }

    /// Adds a problem of a value that is fine by itself and wrong beside another.
    pub fn conflict(&mut self, key: &str, message: String) {
        let typed = self.layers.values.get(key);
        let origin = typed.map_or(Origin::Default, |typed| typed.origin.clone());
        self.layers.problems.push(Problem { origin, message });
    }
}

fn expected_within<T: Value>(range: Option<&RangeInclusive<T>>) -> String {
    match range {
        Some(range) => {
            format!("{}, from {} to {}", T::expected(), range.start().show(), range.end().show())
        }
        None => T::expected(),
    }
}

fn describe<T: Value>(key: &str, text: &str, cause: &str, expected: &str) -> String {
    let shown = if T::SECRET { "the value given".to_owned() } else { format!("{text:?}") };
    let cause = if cause.is_empty() { String::new() } else { format!(" ({cause})") };
    format!("`{key}` cannot be {shown}{cause}, it must be {expected}")
}

/// Declares a section: a struct with a documented field for each setting.
///
/// ```text
/// section! {
///     /// Limits of the embedded store.
///     pub struct SqliteSettings in "store.sqlite" {
///         /// Threads that read beside the writer.
///         readers: usize = 2, in 1..=64;
///     }
/// }
/// ```
macro_rules! section {
    (
        $(#[$about:meta])*
        pub struct $name:ident in $section:tt {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty = $default:expr $(, in $range:expr)?;
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $($(#[doc = $help])+ pub $field: $type,)+
        }

        impl $name {
            pub(in $crate::settings) fn read(
                reader: &mut $crate::settings::section::Reader,
            ) -> Self {
                $name {
                    $($field: section!(
                        @take reader, $section, $field, concat!($($help),+), $default $(, $range)?
                    ),)+
                }
            }

            pub(in $crate::settings) const KEYS: &'static [&'static str] =
                &[$(section!(@key $section, $field)),+];
        }
    };
    (@take $reader:ident, $section:tt, $field:ident, $help:expr, $default:expr) => {
        $reader.take_any(section!(@key $section, $field), $help, $default)
    };
    (@take $reader:ident, $section:tt, $field:ident, $help:expr, $default:expr, $range:expr) => {
        $reader.take(section!(@key $section, $field), $help, $default, Some($range))
    };
    (@key "", $field:ident) => { stringify!($field) };
    (@key $section:tt, $field:ident) => { concat!($section, ".", stringify!($field)) };
}

pub(crate) use section;
