//! The key with which an agent shows who it is.

use hyper::header::HeaderValue;
use std::path::PathBuf;

/// Where the key comes from. Not for debug output.
#[derive(Clone)]
pub enum Key {
    /// There is none: a node without keys takes anybody on its own machine.
    None,
    Given(String),
    /// A file, read for every request, so that a new key is used as soon as it is there.
    File(PathBuf),
}

impl Key {
    /// The header that shows the key.
    ///
    /// # Errors
    /// If the file cannot be read, or what it holds is no key.
    pub fn header(&self) -> Result<Option<HeaderValue>, String> {
        let key = match self {
            Key::None => return Ok(None),
            Key::Given(key) => key.clone(),
            Key::File(path) => std::fs::read_to_string(path)
                .map_err(|error| format!("--key-file {}: {error}", path.display()))?,
        };
        let wrong = match self {
            Key::File(path) => format!("--key-file {} holds no key", path.display()),
            _ => "--key holds characters that no key has".to_owned(),
        };
        let key = key.trim();
        if key.is_empty() {
            return Err(wrong);
        }
        let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| wrong)?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_file_may_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let key = Key::File(path.clone());
        let said = key.header().expect_err("there is none");
        assert!(said.starts_with(&format!("--key-file {}: ", path.display())), "{said}");
        for secret in ["skep_a", "skep_b"] {
            std::fs::write(&path, format!("{secret}\n")).expect("writes");
            let value = key.header().expect("a key").expect("a key");
            assert_eq!(value, format!("Bearer {secret}"));
            assert!(value.is_sensitive());
        }
        std::fs::write(&path, "\n").expect("writes");
        assert!(key.header().expect_err("empty").ends_with("holds no key"));
    }

    #[test]
    fn what_is_no_key_is_not_sent() {
        assert_eq!(Key::None.header(), Ok(None));
        assert!(Key::Given("a\u{7}b".to_owned()).header().is_err());
    }
}
