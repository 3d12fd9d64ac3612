//! Keys that are pressed, from the bytes that a terminal sends for them.

use std::collections::VecDeque;
use std::io::{self, Read};
use tokio::sync::mpsc;

/// Pieces of input that wait to be looked at.
const PIECES_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C or Ctrl-D.
    Interrupt,
}

/// What is pressed on the terminal of this process, which is in raw mode.
pub struct Keys {
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    waiting: VecDeque<Key>,
    /// Bytes of a key that has not come whole.
    begun: Vec<u8>,
}

impl Keys {
    /// Listens on a thread of its own, because a terminal can only be waited for. The thread ends
    /// with the process.
    pub fn new() -> io::Result<Self> {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || listen(&sender))?;
        Ok(Keys { pieces, waiting: VecDeque::new(), begun: Vec::new() })
    }

    /// The next one; nothing once the terminal is gone. May be dropped while it waits.
    pub async fn next(&mut self) -> io::Result<Option<Key>> {
        loop {
            if let Some(key) = self.waiting.pop_front() {
                return Ok(Some(key));
            }
            let Some(piece) = self.pieces.recv().await else { return Ok(None) };
            self.begun.extend(piece?);
            self.waiting.extend(read(&mut self.begun));
        }
    }
}

fn listen(sender: &mpsc::Sender<io::Result<Vec<u8>>>) {
    loop {
        let mut bytes = [0; 256];
        let piece = match io::stdin().lock().read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => Ok(bytes[..count].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let over = piece.is_err();
        if sender.blocking_send(piece).is_err() || over {
            return;
        }
    }
}

/// Takes the keys out of what has come; what is not whole stays.
fn read(begun: &mut Vec<u8>) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = begun.as_slice();
    while let Some((key, used)) = first(rest) {
        keys.extend(key);
        rest = &rest[used..];
    }
    *begun = rest.to_vec();
    keys
}

/// The first key and how many bytes it is; a key that means nothing here is none.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let simple = |key: Key| Some((Some(key), 1));
    match bytes {
        [] => None,
        [3 | 4, ..] => simple(Key::Interrupt),
        [b'\r' | b'\n', ..] => simple(Key::Enter),
        [b'\t', ..] => simple(Key::Tab),
        [8 | 127, ..] => simple(Key::Backspace),
        // Alone it is the key itself: terminals send the whole of a longer one at once.
        [27] => simple(Key::Escape),
        [27, b'[' | b'O', rest @ ..] => {
            let Some(last) = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
                // A sequence that never ends is none.
                return (rest.len() > 16).then_some((None, bytes.len()));
            };
            Some((sequence(&rest[..=last]), last + 3))
        }
        [27, ..] => simple(Key::Escape),
        [0..=31, ..] => Some((None, 1)),
        [begin, ..] => {
            let length = match begin {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                _ => 1,
            };
            if bytes.len() < length {
                return None;
            }
            let text = std::str::from_utf8(&bytes[..length]).ok();
            match text.and_then(|text| text.chars().next()) {
                Some(one) => Some((Some(Key::Char(one)), length)),
                None => Some((None, 1)),
            }
        }
    }
}

/// What follows `ESC [` or `ESC O`.
fn sequence(bytes: &[u8]) -> Option<Key> {
    match bytes {
        [.., b'A'] => Some(Key::Up),
        [.., b'B'] => Some(Key::Down),
        [.., b'C'] => Some(Key::Right),
        [.., b'D'] => Some(Key::Left),
        [.., b'H'] | b"1~" | b"7~" => Some(Key::Home),
        [.., b'F'] | b"4~" | b"8~" => Some(Key::End),
        [.., b'Z'] => Some(Key::BackTab),
        b"5~" => Some(Key::PageUp),
        b"6~" => Some(Key::PageDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        read(&mut bytes.to_vec())
    }

    #[test]
    fn keys_are_told_apart() {
        assert_eq!(keys(b"q\t?\x03"), [Key::Char('q'), Key::Tab, Key::Char('?'), Key::Interrupt]);
        assert_eq!(
            keys(b"\x1b[A\x1bOB\x1b[1;5C\x1b[Z"),
            [Key::Up, Key::Down, Key::Right, Key::BackTab]
        );
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(
            keys(b"\x1b[5~\x1b[6~\x7f\r"),
            [Key::PageUp, Key::PageDown, Key::Backspace, Key::Enter]
        );
        assert_eq!(keys("é蜂".as_bytes()), [Key::Char('é'), Key::Char('蜂')]);
    }

    #[test]
    fn a_key_that_comes_in_pieces_is_one() {
        let mut begun = vec![0xe8, 0x9c];
        assert_eq!(read(&mut begun), []);
        begun.push(0x82);
        assert_eq!(read(&mut begun), [Key::Char('蜂')]);
        let mut begun = b"\x1b[".to_vec();
        assert_eq!(read(&mut begun), []);
        begun.push(b'B');
        assert_eq!(read(&mut begun), [Key::Down]);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_and_little_is_kept(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut begun = bytes;
            read(&mut begun);
            prop_assert!(begun.len() <= 18, "{begun:?}");
        }
    }
}
