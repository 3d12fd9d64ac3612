//! The terminal: taken over while `skep top` runs, and given back as it was, whatever ends it.

use super::draw::Line;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Another screen, no cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The cursor and the screen that were there before, without colours.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";
/// What a terminal has that does not say.
const USUAL: (usize, usize) = (80, 24);

/// How the terminal was; taken by whoever gives it back first.
type Before = Arc<Mutex<Option<Termios>>>;

/// A terminal that is drawn on.
pub struct Screen {
    before: Before,
    colours: bool,
}

impl Screen {
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let before: Before = Arc::new(Mutex::new(Some(before)));
        // What is said about a panic must not be lost with the other screen.
        let (for_panic, usual) = (Arc::clone(&before), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            give_back(&for_panic);
            usual(panic);
        }));
        let choice = anstream::AutoStream::choice(&io::stdout());
        let screen = Screen { before, colours: choice != anstream::ColorChoice::Never };
        write(ENTER)?;
        Ok(screen)
    }

    /// Draws lines for the size that the terminal has now.
    pub fn show(&mut self, draw: impl FnOnce((usize, usize)) -> Vec<Line>) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout()).ok();
        let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let size = size.map_or(USUAL, |size| (size.ws_col.into(), size.ws_row.into()));
        let lines = draw(size);
        let shown = lines.iter().map(|line| match self.colours {
            true => line.styled(),
            false => line.plain(),
        });
        let text = shown.collect::<Vec<_>>().join("\x1b[K\r\n");
        // In one go, and without wiping first, so that nothing flickers.
        write(&format!("\x1b[H{text}\x1b[K\x1b[J"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(&self.before);
        // While something panics the hook cannot be taken; there is nothing left to give back.
        if !std::thread::panicking() {
            drop(std::panic::take_hook());
        }
    }
}

fn give_back(before: &Before) {
    let before = before.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
