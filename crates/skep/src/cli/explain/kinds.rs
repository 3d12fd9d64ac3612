//! Ids of decisions, as people give them.

use crate::cli::{CliError, Exit};
use crate::settings::nearest;
pub use skep_policy::explain::{Described, KINDS, Kind};

/// What is asked about.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub kind: Kind,
    pub of: String,
}

/// Reads an id. Some say their kind by how they begin: error codes, sessions, requests.
pub fn parse(id: &str) -> Result<Asked, CliError> {
    let wrong = |message: String| CliError::new(Exit::Usage, message);
    let asked = |kind: Kind, of: &str| Ok(Asked { kind, of: of.to_owned() });
    let begins =
        |with: &str| id.get(..with.len()).is_some_and(|got| got.eq_ignore_ascii_case(with));
    for (begin, kind) in [("E_", Kind::Error), ("s-", Kind::Session), ("r-", Kind::Request)] {
        if begins(begin) {
            return asked(kind, id);
        }
    }
    let (word, of) = id.split_once(':').unwrap_or((id, ""));
    let Some(found) = KINDS.iter().find(|one| one.word.eq_ignore_ascii_case(word)) else {
        let hint = match nearest(word, KINDS.iter().map(|one| one.word)) {
            Some(near) => format!("did you mean {near}:{of}?"),
            None => "`skep explain` lists what can be explained".to_owned(),
        };
        return Err(wrong(match id.contains(':') {
            true => format!("{id:?}: there is no kind {word:?}; {hint}"),
            false => format!("{id:?} says no kind, as poll:shop does; {hint}"),
        }));
    };
    if of.is_empty() {
        let Described { word, form, .. } = found;
        return Err(wrong(format!("{id:?} does not say of which; give {word}:{form}")));
    }
    asked(found.kind, of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_kind_or_shows_it_by_how_it_begins() {
        let is = |id: &str, kind: Kind, of: &str| {
            assert_eq!(parse(id).expect(id), Asked { kind, of: of.to_owned() });
        };
        is("poll:tenant-1/sensor", Kind::Poll, "tenant-1/sensor");
        is("key:orders:mail", Kind::Key, "orders:mail");
        is("route:http://shop.example/a:b", Kind::Route, "http://shop.example/a:b");
        is("E_KEY_MISSING", Kind::Error, "E_KEY_MISSING");
        is("e_key_missing", Kind::Error, "e_key_missing");
        is("s-1f2e3d-42", Kind::Session, "s-1f2e3d-42");
        is("session:s-1f2e3d-42", Kind::Session, "s-1f2e3d-42");
        is("r-6cab547cd74f-18", Kind::Request, "r-6cab547cd74f-18");
    }

    #[test]
    fn every_kind_has_one_word_and_finds_itself() {
        for one in &KINDS {
            let id = one.kind.id("x");
            assert_eq!(parse(&id).expect(&id).kind, one.kind);
            assert_eq!(one.kind.described().word, one.word);
        }
    }

    #[test]
    fn a_slip_is_met_with_what_would_be_right() {
        for (wrong, hint) in [
            ("polll:shop", "did you mean poll:shop?"),
            ("shop", "says no kind"),
            ("xyzzy:1", "`skep explain` lists"),
            ("monitor:", "give monitor:SERVER/MONITOR"),
            ("poll", "give poll:ENDPOINT"),
        ] {
            let error = parse(wrong).expect_err(wrong);
            assert_eq!(error.exit, Exit::Usage);
            assert!(error.message.contains(hint), "{}", error.message);
        }
    }
}
