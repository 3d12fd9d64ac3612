//! The values of a snapshot: what they must be, and what they mean.

use super::json::{Place, Reader, Scalar};
use skep_policy::Time;
use skep_policy::monitors::{Flaw as Wrong, Id};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Longer names help nobody, and each is kept.
const ID_CHARS_MAX: usize = 200;
const RIGHT_ID: &str = "it must be a whole number from 0, or a text of 1 to 200 characters";
const RIGHT_IP: &str = "it must be an IPv4 or IPv6 address, such as 192.0.2.7 or 2001:db8::7";
/// More than a century ago is as good as never.
const HOURS_MAX: f64 = 1_000_000.0;

impl Reader {
    /// Who somebody is.
    pub fn id(&mut self, place: Place<'_>, scalar: Scalar<'_>) -> Option<Id> {
        match scalar {
            Scalar::Whole(number) => Some(Id::Number(number)),
            Scalar::Text(text) if fits(&text) => Some(Id::Text(self.kept(&text))),
            other => {
                self.flaw(place, other, RIGHT_ID);
                None
            }
        }
    }

    /// The same text is kept once, however often it comes.
    fn kept(&mut self, text: &str) -> Arc<str> {
        if let Some(kept) = self.texts.get(text) {
            return Arc::clone(kept);
        }
        let kept: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&kept));
        kept
    }

    /// Who somebody is, or nobody.
    pub fn id_or_none(&mut self, place: Place<'_>, scalar: Scalar<'_>) -> Option<Id> {
        if scalar == Scalar::Null { None } else { self.id(place, scalar) }
    }

    /// An address, or none.
    pub fn ip(&mut self, place: Place<'_>, scalar: Scalar<'_>) -> Option<IpAddr> {
        let found = match &scalar {
            Scalar::Null => return None,
            Scalar::Text(text) => text.parse().ok(),
            _ => None,
        };
        if found.is_none() {
            self.flaw(place, scalar, RIGHT_IP);
        }
        found
    }

    /// One of the words of a type of the policy, which knows what would be right.
    pub fn word<T: FromStr<Err = Wrong>>(
        &mut self,
        place: Place<'_>,
        scalar: Scalar<'_>,
    ) -> Option<T> {
        let text = if let Scalar::Text(text) = &scalar { text.as_ref() } else { "" };
        match text.parse() {
            Ok(found) => Some(found),
            Err(Wrong { right, .. }) => {
                self.flaw(place, scalar, right);
                None
            }
        }
    }

    /// Yes or no; `null` is neither.
    pub fn truth(&mut self, place: Place<'_>, scalar: Scalar<'_>) -> Option<bool> {
        match scalar {
            Scalar::Null => None,
            Scalar::Bool(truth) => Some(truth),
            other => {
                self.flaw(place, other, "it must be true or false");
                None
            }
        }
    }

    /// A number of things; `null` is none.
    pub fn count(&mut self, place: Place<'_>, scalar: Scalar<'_>) -> Option<u32> {
        let found = match scalar {
            Scalar::Null => return None,
            Scalar::Whole(number) => u32::try_from(number).ok(),
            _ => None,
        };
        if found.is_none() {
            self.flaw(place, scalar, "it must be a whole number from 0 to 4294967295");
        }
        found
    }

    /// A whole number of either sign; `null` is none.
    pub fn whole(&mut self, place: Place<'_>, scalar: Scalar<'_>) -> Option<i64> {
        let found = match scalar {
            Scalar::Null => return None,
            Scalar::Whole(number) => i64::try_from(number).ok(),
            Scalar::Below(number) => Some(number),
            Scalar::Fraction(number) if number.fract() == 0.0 => Some(number as i64),
            _ => None,
        };
        if found.is_none() {
            self.flaw(place, scalar, "it must be a whole number");
        }
        found
    }

    /// A number; `null` is none.
    pub fn number(&mut self, place: Place<'_>, scalar: Scalar<'_>) -> Option<f64> {
        let found = match scalar {
            Scalar::Null => return None,
            Scalar::Whole(number) => Some(number as f64),
            Scalar::Below(number) => Some(number as f64),
            Scalar::Fraction(number) => Some(number),
            _ => None,
        };
        if found.is_none() {
            self.flaw(place, scalar, "it must be a number");
        }
        found
    }

    /// So many hours ago; `null` is none.
    pub fn hours(&mut self, place: Place<'_>, scalar: Scalar<'_>) -> Option<Duration> {
        let found = match scalar {
            Scalar::Null => return None,
            Scalar::Whole(hours) => Some(hours as f64),
            Scalar::Fraction(hours) => Some(hours),
            _ => None,
        };
        let found = found.filter(|hours| (0.0..=HOURS_MAX).contains(hours));
        if found.is_none() {
            self.flaw(place, scalar, "it must be a number of hours from 0 to 1000000");
        }
        found.map(|hours| Duration::from_secs_f64(hours * 3_600.0))
    }

    /// A point in time; `null` is none.
    pub fn time(&mut self, place: Place<'_>, scalar: Scalar<'_>) -> Option<Time> {
        match scalar {
            Scalar::Null => None,
            Scalar::Whole(millis) => Some(Time::from_millis(millis)),
            other => {
                let right = "it must be a time in milliseconds since 1970, such as 1790000000000";
                self.flaw(place, other, right);
                None
            }
        }
    }
}

fn fits(text: &str) -> bool {
    let short = text.len() <= ID_CHARS_MAX || text.chars().count() <= ID_CHARS_MAX;
    !text.is_empty() && short
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::monitors::{GlobalStatus, Kind, Status};
    use std::borrow::Cow;

    fn text(text: &str) -> Scalar<'_> {
        Scalar::Text(Cow::Borrowed(text))
    }

    #[test]
    fn ids_are_numbers_or_texts_and_a_text_is_kept_once() {
        let mut reader = Reader::default();
        assert_eq!(reader.id(Place::Top, Scalar::Whole(7)), Some(Id::Number(7)));
        let [one, other] = [0, 1].map(|_| reader.id(Place::Top, text("fra1")).expect("an id"));
        let (Id::Text(one), Id::Text(other)) = (one, other) else { panic!("texts") };
        assert!(Arc::ptr_eq(&one, &other));
        assert!(reader.is_fine());
        for wrong in [Scalar::Below(-1), Scalar::Fraction(1.5), text(""), Scalar::Null] {
            assert_eq!(reader.id(Place::Top, wrong), None);
        }
        assert_eq!(reader.flaws.len(), 4);
        assert_eq!(reader.flaws[0].value, "-1");
    }

    #[test]
    fn words_are_those_of_the_policy_and_new_is_a_candidate() {
        let mut reader = Reader::default();
        assert_eq!(reader.word(Place::Top, text("new")), Some(Status::Candidate));
        assert_eq!(reader.word(Place::Top, text("deleted")), Some(GlobalStatus::Deleted));
        assert_eq!(reader.word::<Kind>(Place::Top, text("asn")), None);
        assert_eq!(reader.word::<Status>(Place::Top, Scalar::Whole(1)), None);
        let told: Vec<String> = reader.flaws.iter().map(ToString::to_string).collect();
        let right = "it must be network, account, limit or diversity";
        assert_eq!(told[0], format!("the snapshot is \"asn\"; {right}"));
        let right = "it must be candidate, testing, active or paused";
        assert_eq!(told[1], format!("the snapshot is 1; {right}"));
    }

    #[test]
    fn numbers_keep_to_their_bounds() {
        let mut reader = Reader::default();
        let fine = [
            reader.whole(Place::Top, Scalar::Below(-4)) == Some(-4),
            reader.whole(Place::Top, Scalar::Fraction(4.0)) == Some(4),
            reader.count(Place::Top, Scalar::Whole(9)) == Some(9),
            reader.number(Place::Top, Scalar::Whole(9)) == Some(9.0),
            reader.hours(Place::Top, Scalar::Fraction(0.5)) == Some(Duration::from_secs(1_800)),
            reader.time(Place::Top, Scalar::Whole(5)) == Some(Time::from_millis(5)),
        ];
        assert!(fine.iter().all(|one| *one) && reader.is_fine());
        assert_eq!(reader.count(Place::Top, Scalar::Below(-1)), None);
        assert_eq!(reader.hours(Place::Top, Scalar::Fraction(1e9)), None);
        assert_eq!(reader.hours(Place::Top, Scalar::Below(-1)), None);
        assert_eq!(reader.whole(Place::Top, Scalar::Fraction(0.5)), None);
        assert_eq!(reader.time(Place::Top, text("yesterday")), None);
        assert_eq!(reader.flaws.len(), 5);
    }
}
