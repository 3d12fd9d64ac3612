//! Whom steps concern, from whatever store says so.

use skep_policy::sessions::Hint;
use tokio::sync::broadcast;

/// Hints that wait for a slow listener at most; one that is further behind looks at everything.
pub(super) const HINTS_MAX: usize = 4_096;

/// What a listener hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// This concerns somebody.
    Hint(Hint),
    /// Something may have been missed: look at everything.
    Missed,
}

/// Says whom steps concern.
pub struct Hints {
    source: Source,
}

enum Source {
    Memory(broadcast::Receiver<Hint>),
    /// A server's notices, each with the hints of a whole step, the last of them first.
    Server {
        heard: skep_store::Hints,
        waiting: Vec<Hint>,
    },
}

impl Hints {
    pub(super) fn from_memory(source: broadcast::Receiver<Hint>) -> Self {
        Hints { source: Source::Memory(source) }
    }

    pub(super) fn from_server(heard: skep_store::Hints) -> Self {
        Hints { source: Source::Server { heard, waiting: Vec::new() } }
    }

    /// Waits for the next. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Heard {
        match &mut self.source {
            Source::Memory(source) => match source.recv().await {
                Ok(hint) => Heard::Hint(hint),
                Err(broadcast::error::RecvError::Lagged(_)) => Heard::Missed,
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            },
            Source::Server { heard, waiting } => loop {
                if let Some(hint) = waiting.pop() {
                    return Heard::Hint(hint);
                }
                match heard.next().await {
                    skep_store::Heard::Notice { payload, .. } => match read(&payload) {
                        Some(hints) => waiting.extend(hints.into_iter().rev()),
                        None => return Heard::Missed,
                    },
                    skep_store::Heard::Lost | skep_store::Heard::Reconnected => {
                        return Heard::Missed;
                    }
                }
            },
        }
    }
}

/// Reads the hints of a step as stores write them: `g7 g12 w3`. Anything else is no notice of ours.
pub(super) fn read(text: &str) -> Option<Vec<Hint>> {
    let one = |word: &str| {
        let number = |digits: &str| digits.parse().ok();
        match word.split_at_checked(1)? {
            ("g", digits) => number(digits).map(Hint::Gateway),
            ("w", digits) => number(digits).map(Hint::Worker),
            _ => None,
        }
    };
    text.split_whitespace().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hints_of_a_step_are_words() {
        assert_eq!(read(""), Some(Vec::new()));
        assert_eq!(read("g7 w12"), Some(vec![Hint::Gateway(7), Hint::Worker(12)]));
        for wrong in ["7", "x7", "g", "g-1", "g7,w1", "ü7"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
