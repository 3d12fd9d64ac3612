//! Reading JSON of any size in one pass, and noting what is wrong instead of stopping.
//!
//! A value of the wrong type ends what serde derives; here every value is taken as it comes and
//! judged by whoever asked for it, so that all flaws of a document are found at once.

use super::flaw::{FLAWS_MAX, Flaw, no_such, quoted};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Where in the document; only written out when something is wrong there.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Top,
    Field(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    pub fn field<'b>(&'b self, name: &'b str) -> Place<'b> {
        Place::Field(self, name)
    }

    pub fn item(&self, index: usize) -> Place<'_> {
        Place::Item(self, index)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Top => f.write_str("the snapshot"),
            Place::Field(Place::Top, name) => f.write_str(name),
            Place::Field(inside, name) => write!(f, "{inside}.{name}"),
            Place::Item(inside, index) => write!(f, "{inside}[{index}]"),
        }
    }
}

/// What is known while a document is read.
#[derive(Default)]
pub(super) struct Reader {
    pub flaws: Vec<Flaw>,
    /// How many more there are than are told.
    pub more: usize,
    /// Every text that names somebody, once.
    pub texts: HashSet<Arc<str>>,
}

impl Reader {
    /// Notes a flaw.
    pub fn flaw(&mut self, place: Place<'_>, value: impl ToString, right: impl Into<String>) {
        self.note(|| Flaw::new(place, value, right));
    }

    /// Notes that something is not there.
    pub fn missing(&mut self, place: Place<'_>, right: &str) {
        self.note(|| Flaw::missing(place, right));
    }

    fn note(&mut self, flaw: impl FnOnce() -> Flaw) {
        if self.flaws.len() < FLAWS_MAX {
            self.flaws.push(flaw());
        } else {
            self.more += 1;
        }
    }

    /// Notes flaws that were found elsewhere.
    pub fn extend(&mut self, flaws: Vec<Flaw>) {
        for flaw in flaws {
            self.note(|| flaw);
        }
    }

    pub fn is_fine(&self) -> bool {
        self.flaws.is_empty()
    }

    fn noted(&self) -> usize {
        self.flaws.len() + self.more
    }
}

/// A value; what is inside of a list or an object is skipped.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar<'de> {
    Null,
    Bool(bool),
    Whole(u64),
    Below(i64),
    Fraction(f64),
    Text(Cow<'de, str>),
    List,
    Object,
}

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Null => f.write_str("null"),
            Scalar::Bool(truth) => write!(f, "{truth}"),
            Scalar::Whole(number) => write!(f, "{number}"),
            Scalar::Below(number) => write!(f, "{number}"),
            Scalar::Fraction(number) => write!(f, "{number}"),
            Scalar::Text(text) => f.write_str(&quoted(text)),
            Scalar::List => f.write_str("a list"),
            Scalar::Object => f.write_str("an object"),
        }
    }
}

/// Takes a value, whatever it is.
pub(super) trait Take<'de>: Sized {
    type Taken;

    fn scalar(self, scalar: Scalar<'de>) -> Self::Taken;

    fn list<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Taken, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.scalar(Scalar::List))
    }

    fn object<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Taken, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.scalar(Scalar::Object))
    }
}

/// A [`Take`] as serde knows it.
pub(super) struct Any<T>(pub T);

impl<'de, T: Take<'de>> DeserializeSeed<'de> for Any<T> {
    type Value = T::Taken;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T::Taken, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Take<'de>> Visitor<'de> for Any<T> {
    type Value = T::Taken;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<T::Taken, E> {
        Ok(self.0.scalar(Scalar::Null))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<T::Taken, E> {
        Ok(self.0.scalar(Scalar::Bool(truth)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T::Taken, E> {
        Ok(self.0.scalar(Scalar::Whole(number)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T::Taken, E> {
        let scalar = u64::try_from(number).map_or(Scalar::Below(number), Scalar::Whole);
        Ok(self.0.scalar(scalar))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T::Taken, E> {
        Ok(self.0.scalar(Scalar::Fraction(number)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T::Taken, E> {
        Ok(self.0.scalar(Scalar::Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<T::Taken, E> {
        Ok(self.0.scalar(Scalar::Text(Cow::Borrowed(text))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T::Taken, A::Error> {
        self.0.list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<T::Taken, A::Error> {
        self.0.object(object)
    }
}

/// Takes the value as it is.
struct AsItIs;

impl<'de> Take<'de> for AsItIs {
    type Taken = Scalar<'de>;

    fn scalar(self, scalar: Scalar<'de>) -> Scalar<'de> {
        scalar
    }
}

/// The value of a field.
pub(super) fn scalar<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Scalar<'de>, A::Error> {
    map.next_value_seed(Any(AsItIs))
}

/// Something that is written as an object.
pub(super) trait Fields<'de> {
    /// The names of its fields, at most 31.
    const NAMES: &'static [&'static str];

    /// Reads the value of the field with this number; one that is no list and no object, if this is
    /// left as it is.
    fn field<A: MapAccess<'de>>(
        &mut self,
        number: usize,
        place: Place<'_>,
        map: &mut A,
        reader: &mut Reader,
    ) -> Result<(), A::Error> {
        let value = scalar(map)?;
        self.plain(number, place, value, reader);
        Ok(())
    }

    /// Takes in such a value.
    fn plain(&mut self, _: usize, _: Place<'_>, _: Scalar<'de>, _: &mut Reader) {}
}

/// The bit of an object in which something is wrong: what is missing may follow from that.
pub(super) const FLAWED: u32 = 1 << 31;

/// Reads an object. What comes of it is a bit for each field that was there, and [`FLAWED`];
/// nothing if it was no object, which is noted.
pub(super) struct Object<'a, F> {
    pub place: Place<'a>,
    pub reader: &'a mut Reader,
    pub into: &'a mut F,
}

impl<'de, F: Fields<'de>> Take<'de> for Object<'_, F> {
    type Taken = Option<u32>;

    fn scalar(self, scalar: Scalar<'de>) -> Option<u32> {
        let right = format!("it must be an object with {}", F::NAMES.join(", "));
        self.reader.flaw(self.place, scalar, right);
        None
    }

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<u32>, A::Error> {
        let Object { place, reader, into } = self;
        let (mut seen, mut guess) = (0_u32, 0);
        let before = reader.noted();
        while let Some(name) = map.next_key_seed(Name { names: F::NAMES, guess })? {
            match name {
                Ok(number) => {
                    guess = number + 1;
                    let place = place.field(F::NAMES[number]);
                    if seen & (1 << number) != 0 {
                        reader.flaw(place, "given twice", "give it once");
                    }
                    seen |= 1 << number;
                    into.field(number, place, &mut map, reader)?;
                }
                Err(name) => {
                    let value = scalar(&mut map)?;
                    let right = no_such("field", &name, F::NAMES.iter().copied());
                    reader.flaw(place.field(&name), value, right);
                }
            }
        }
        let flawed = if reader.noted() > before { FLAWED } else { 0 };
        Ok(Some(seen | flawed))
    }
}

/// The number of a field, or its name if it has none. Fields mostly come in the same order.
struct Name {
    names: &'static [&'static str],
    guess: usize,
}

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Result<usize, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Result<usize, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        if self.names.get(self.guess) == Some(&name) {
            return Ok(Ok(self.guess));
        }
        let found = self.names.iter().position(|known| *known == name);
        Ok(found.ok_or_else(|| name.to_owned()))
    }
}

/// Something that is written as a list of objects.
pub(super) trait Items<'de> {
    /// What one is, as in `a list of monitors`.
    const WHAT: &'static str;

    type Item: Fields<'de> + Default;

    /// One was read; the bits are those of [`Object`].
    fn item(&mut self, place: Place<'_>, item: Self::Item, seen: u32, reader: &mut Reader);
}

/// Reads a list.
pub(super) struct List<'a, I> {
    pub place: Place<'a>,
    pub reader: &'a mut Reader,
    pub into: &'a mut I,
}

impl<'de, I: Items<'de>> Take<'de> for List<'_, I> {
    type Taken = ();

    fn scalar(self, scalar: Scalar<'de>) {
        self.reader.flaw(self.place, scalar, format!("it must be {}", I::WHAT));
    }

    fn list<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let List { place, reader, into } = self;
        for index in 0.. {
            let place = place.item(index);
            let mut item = I::Item::default();
            let seed = Any(Object { place, reader, into: &mut item });
            match list.next_element_seed(seed)? {
                None => break,
                Some(None) => {}
                Some(Some(seen)) => into.item(place, item, seen, reader),
            }
        }
        Ok(())
    }
}
