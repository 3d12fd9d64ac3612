//! "Did you mean …?"

/// The known name that is most like `typed`, if one is like it at all.
pub fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    known
        .map(|name| (likeness(&typed, name), name))
        .filter(|(likeness, _)| *likeness > 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// How alike two dotted names are, from 0 to 1. A right last part in the wrong section counts too:
/// people remember `readers` and forget where it belongs.
fn likeness(typed: &str, name: &str) -> f64 {
    let last = |text: &str| text.rsplit('.').next().unwrap_or_default().to_owned();
    let whole = strsim::normalized_damerau_levenshtein(typed, name);
    let part = strsim::normalized_damerau_levenshtein(&last(typed), &last(name));
    whole.max(part * 0.9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 3] = ["api.listen", "store.sqlite.readers", "log.level"];

    fn suggest(typed: &str) -> Option<&'static str> {
        nearest(typed, KNOWN.into_iter())
    }

    #[test]
    fn a_slip_finds_its_setting() {
        assert_eq!(suggest("api.lisen"), Some("api.listen"));
        assert_eq!(suggest("readers"), Some("store.sqlite.readers"));
        assert_eq!(suggest("sqlite.reader"), Some("store.sqlite.readers"));
        assert_eq!(suggest("LOG.LEVLE"), Some("log.level"));
    }

    #[test]
    fn nonsense_finds_nothing() {
        assert_eq!(suggest("potatoes"), None);
    }
}
