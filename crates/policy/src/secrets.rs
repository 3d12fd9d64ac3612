//! What is hidden from those who may look at a thing and not change it.

/// What stands for a secret where it is shown.
pub const HIDDEN: &str = "***";

/// Parts of names that say what stands beside them.
const PARTS: [&str; 9] =
    ["auth", "cookie", "credential", "key", "passphrase", "passw", "secret", "signature", "token"];
/// Names that say it as a whole, and are part of too many others.
const WHOLE: [&str; 4] = ["pass", "pwd", "session", "sig"];

/// Whether a header or a parameter of this name holds a secret. Rather one too many: what is
/// hidden for nothing can be looked up by whoever wrote it.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let bare = name.strip_prefix("x-").unwrap_or(&name);
    PARTS.iter().any(|part| name.contains(part)) || WHOLE.contains(&bare)
}

/// An address with [`HIDDEN`] for the values in its query that are secret by their names, and for
/// those whose names are written in a way that would have to be decoded.
pub fn hide_in_query(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) || name.contains('%') => format!("{name}={HIDDEN}"),
        _ => pair.to_owned(),
    });
    format!("{path}?{}", shown.collect::<Vec<_>>().join("&"))
}

/// Whether an address was read where its secrets were hidden, so that it lacks them.
pub fn lacks_secrets(url: &str) -> bool {
    url.split_once('?').is_some_and(|(_, query)| {
        query.split('&').any(|pair| {
            pair.split_once('=').is_some_and(|(name, value)| {
                value == HIDDEN && (is_secret(name) || name.contains('%'))
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_people_give_to_secrets_are_known() {
        for name in [
            "Authorization",
            "Proxy-Authorization",
            "X-Auth",
            "Cookie",
            "X-Api-Key",
            "apikey",
            "access_token",
            "client_secret",
            "Password",
            "passwd",
            "X-Amz-Signature",
            "sig",
            "PWD",
            "X-Session",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["Accept", "Content-Type", "User-Agent", "page", "design", "bypass", "q"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn only_secret_values_of_a_query_are_hidden() {
        let url = "https://h/p?page=2&api_key=s3cret&%74oken=s3cret&wsdl&sig=a=b";
        let shown = hide_in_query(url);
        assert_eq!(shown, "https://h/p?page=2&api_key=***&%74oken=***&wsdl&sig=***");
        assert!(lacks_secrets(&shown) && !lacks_secrets(url));
        assert_eq!(hide_in_query("https://h/p"), "https://h/p");
        assert!(!lacks_secrets("https://h/p?page=***"), "nothing of it was hidden");
    }
}
