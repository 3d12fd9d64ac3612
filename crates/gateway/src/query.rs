//! The part of a client's query that is for the gateway: which worker, and the key.

use crate::desk::{Refusal, Wanted};
use crate::refusals::{E_QUERY_INVALID, shown};

/// Labels a client may ask for.
const LABELS_MAX: usize = 16;
/// Letters of a kind or a label.
const NAME_MAX: usize = 64;
/// Bytes of a key.
pub(crate) const KEY_MAX: usize = 512;

/// A query, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub wanted: Wanted,
    pub token: Option<String>,
    /// What is for the worker, as it was written.
    pub rest: String,
}

/// Takes the gateway's parameters out of a query.
pub(crate) fn read(query: &str) -> Result<Asked, Refusal> {
    let mut asked = Asked::default();
    for piece in query.split('&').filter(|piece| !piece.is_empty()) {
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        // Decoded before it is compared: a key must not slip through to the worker as `%74oken`.
        match decode(name).as_deref() {
            Some("token") => {
                let token = decode(value).filter(|token| (1..=KEY_MAX).contains(&token.len()));
                let right = || wrong("token is not one; give a key of 1 to 512 bytes");
                once("token", &mut asked.token, token.ok_or_else(right)?)?;
            }
            Some(field @ ("browser" | "kind")) => {
                let kind = name_of(field, value)?;
                let before = asked.wanted.kind.replace(kind.clone());
                if let Some(before) = before.filter(|before| *before != kind) {
                    return Err(wrong(format!(
                        "{field}: {kind:?} contradicts {before:?}; give browser or kind, and once"
                    )));
                }
            }
            Some("label") => {
                for label in value.split(',') {
                    asked.wanted.labels.push(name_of("label", label)?);
                }
                if asked.wanted.labels.len() > LABELS_MAX {
                    return Err(wrong(format!("label: more than {LABELS_MAX}; give fewer")));
                }
            }
            Some("version") => {
                let text = decode(value).unwrap_or_else(|| value.to_owned());
                let version = version_of(&text).ok_or_else(|| {
                    wrong(format!("version: {} is none; give one like 1.62", shown(&text)))
                })?;
                once("version", &mut asked.wanted.version, version)?;
            }
            _ => {
                let mark = if asked.rest.is_empty() { "" } else { "&" };
                asked.rest.push_str(mark);
                asked.rest.push_str(piece);
            }
        }
    }
    asked.wanted.labels.sort();
    asked.wanted.labels.dedup();
    Ok(asked)
}

/// Major and minor of `1.62`, `1.62.1` or `1.63-next`.
pub(crate) fn version_of(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once('.')?;
    let minor = rest.split(['.', '-']).next()?;
    let number = |part: &str| {
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| digits)
    };
    Some((number(major)?, number(minor)?))
}

/// The version of a Playwright client, which must be that of its worker.
pub(crate) fn version_of_agent(agent: &str) -> Option<(u32, u32)> {
    let word = agent.split_ascii_whitespace().find_map(|word| word.strip_prefix("Playwright/"));
    word.and_then(version_of)
}

fn once<T>(field: &str, place: &mut Option<T>, value: T) -> Result<(), Refusal> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(wrong(format!("{field} is there twice; give it once"))),
    }
}

fn name_of(field: &str, value: &str) -> Result<String, Refusal> {
    let good = |name: &String| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._=-".contains(&byte);
        (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(letter)
    };
    decode(value).filter(good).ok_or_else(|| {
        wrong(format!(
            "{field}: {} is not allowed; give 1 to {NAME_MAX} of A-Z a-z 0-9 . _ = -",
            shown(value)
        ))
    })
}

fn wrong(message: impl Into<String>) -> Refusal {
    E_QUERY_INVALID.because(message)
}

/// A part of a query without its percent signs; `None` if they make no sense.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wanted(query: &str) -> Wanted {
        read(query).unwrap_or_else(|refusal| panic!("{query}: {refusal}")).wanted
    }

    fn refused(query: &str) -> String {
        let refusal = read(query).expect_err(query);
        assert_eq!((refusal.status, refusal.code), (400, "E_QUERY_INVALID"));
        refusal.message
    }

    #[test]
    fn a_client_says_what_it_wants() {
        let all = wanted("browser=firefox&label=eu&label=big,gpu%2D1&version=1.62");
        assert_eq!(all.kind.as_deref(), Some("firefox"));
        assert_eq!(all.labels, ["big", "eu", "gpu-1"]);
        assert_eq!(all.version, Some((1, 62)));
        assert_eq!(wanted(""), Wanted::default());
        assert_eq!(wanted("kind=webkit&browser=webkit").kind.as_deref(), Some("webkit"));
        assert_eq!(wanted("label=tier=gold").labels, ["tier=gold"]);
    }

    #[test]
    fn what_is_not_the_gateways_stays_as_it_was_written() {
        let asked = read("a=%20x&token=s3cret&b&kind=x&c=d+e").expect("is good");
        assert_eq!(asked.rest, "a=%20x&b&c=d+e");
        assert_eq!(asked.token.as_deref(), Some("s3cret"));
        assert_eq!(read("%74oken=s3cret&x=1").expect("is good").rest, "x=1");
    }

    #[test]
    fn a_bad_parameter_is_named_with_its_value_and_what_would_be_right() {
        assert_eq!(
            refused("kind=a%20b"),
            "kind: \"a%20b\" is not allowed; give 1 to 64 of A-Z a-z 0-9 . _ = -"
        );
        assert!(refused("kind=").starts_with("kind: \"\" is not allowed"));
        assert!(refused(&format!("label={}", "x".repeat(65))).contains("…"));
        assert!(refused("kind=%zz").contains("%zz"));
        assert!(refused("label=a,,b").starts_with("label: \"\""));
        assert_eq!(
            refused("browser=firefox&kind=webkit"),
            "kind: \"webkit\" contradicts \"firefox\"; give browser or kind, and once"
        );
        assert_eq!(refused("version=new"), "version: \"new\" is none; give one like 1.62");
        assert_eq!(refused("version=1.62&version=1.63"), "version is there twice; give it once");
        assert!(refused(&format!("token={}", "x".repeat(513))).starts_with("token is not one"));
        let many: Vec<String> = (0..17).map(|n| format!("label=l{n}")).collect();
        assert_eq!(refused(&many.join("&")), "label: more than 16; give fewer");
    }

    #[test]
    fn versions_are_read_to_their_minor() {
        assert_eq!(version_of("1.62"), Some((1, 62)));
        assert_eq!(version_of("1.62.1"), Some((1, 62)));
        assert_eq!(version_of("1.63.0-alpha-2026"), Some((1, 63)));
        assert_eq!(version_of("1.63-next"), Some((1, 63)));
        for none in ["", "1", "1.", ".1", "x.1", "1.x", "+1.2", "1.2x", "99999999999.1"] {
            assert_eq!(version_of(none), None, "{none}");
        }
        let agent = "Playwright/1.62.1 (x64; debian 12) node/20.1";
        assert_eq!(version_of_agent(agent), Some((1, 62)));
        assert_eq!(version_of_agent("curl/8"), None);
    }

    proptest! {
        #[test]
        fn a_token_never_reaches_the_worker(
            before in "[a-z=&%0-9]{0,12}", secret in "S[a-z]{6}", after in "[a-z=&]{0,12}",
        ) {
            let query = format!("{before}&token={secret}&{after}");
            if let Ok(asked) = read(&query) {
                prop_assert!(!asked.rest.contains(&secret));
                prop_assert_eq!(asked.token, Some(secret));
            }
        }
    }
}
