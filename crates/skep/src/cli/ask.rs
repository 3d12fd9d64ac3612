//! Questions: to a node, with what they look for, and to whoever runs the verb.

use super::client::encode;
use super::{CliError, Exit};
use std::fmt::Display;
use std::io::{BufRead, IsTerminal, Write};

/// A path of the API under construction, with its query.
pub struct Path {
    text: String,
    asks: bool,
}

impl Path {
    /// `/api/v1` and these segments, whatever they contain.
    pub fn of(segments: &[&str]) -> Self {
        let mut text = "/api/v1".to_owned();
        for segment in segments {
            text.push('/');
            text.push_str(&encode(segment));
        }
        Path { text, asks: false }
    }

    /// Adds a parameter.
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        let sign = if self.asks { '&' } else { '?' };
        self.text.push_str(&format!("{sign}{name}={}", encode(&value.to_string())));
        self.asks = true;
        self
    }

    /// Adds a parameter if it was given.
    pub fn and(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Goes on only if somebody says yes: with the flag, or on the terminal.
pub fn confirm(what: &str, yes: bool) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    let input = std::io::stdin();
    if !input.is_terminal() || !std::io::stderr().is_terminal() {
        let message = format!("{what} cannot be undone, and nobody can be asked here; add --yes");
        return Err(CliError::new(Exit::Usage, message));
    }
    let _ = write!(anstream::stderr(), "{what} cannot be undone. Go on? [y/N] ");
    let mut answer = String::new();
    let read = input.lock().read_line(&mut answer);
    match read {
        Ok(_) if ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()) => Ok(()),
        Ok(_) => Err(CliError::new(Exit::No, "nothing was done")),
        Err(error) => {
            Err(CliError::new(Exit::Usage, format!("the answer cannot be read: {error}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_into_a_path_encoded_and_what_was_not_given_stays_out() {
        let path = Path::of(&["queues", "a b/c", "tail"]).with("limit", 5);
        let path = path.and("partition", Some("50%")).and("group", None::<&str>);
        assert_eq!(path.as_str(), "/api/v1/queues/a%20b%2Fc/tail?limit=5&partition=50%25");
    }

    #[test]
    fn yes_is_never_asked_for() {
        assert!(confirm("deleting the queue", true).is_ok());
    }
}
