//! Text in columns of a terminal: how wide it is, cut to what there is room for, and never an order
//! to the terminal.

use unicode_width::UnicodeWidthStr;

/// Signs that turn the direction of what stands behind them.
fn turns(one: char) -> bool {
    matches!(one, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text of others for a terminal, in one line: what would steer it becomes a question mark.
pub fn harmless(text: &str) -> String {
    text.chars().map(|one| if one.is_control() || turns(one) { '?' } else { one }).collect()
}

/// How many columns it takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// As much of it as there are columns for; what is left out is told with three dots in one.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(1) else { return String::new() };
    // The whole is measured, because signs that stand together may be one.
    let ends = text.char_indices().map(|(end, _)| end).take(columns.saturating_mul(4) + 1);
    let end = ends.filter(|end| width(&text[..*end]) <= room).last().unwrap_or(0);
    let mut kept = text[..end].to_owned();
    kept.push('…');
    kept
}

/// Cut or filled up to exactly so many columns.
pub fn fill(text: &str, columns: usize, at_right: bool) -> String {
    let kept = cut(text, columns);
    let blank = " ".repeat(columns.saturating_sub(width(&kept)));
    if at_right { format!("{blank}{kept}") } else { format!("{kept}{blank}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wide_characters_are_never_cut_in_half() {
        assert_eq!(cut("蜂の巣", 6), "蜂の巣");
        assert_eq!(cut("蜂の巣", 5), "蜂の…");
        assert_eq!(cut("蜂の巣", 4), "蜂…");
        assert_eq!([cut("abc", 0), cut("abc", 1), cut("", 0)], ["", "…", ""]);
        assert_eq!(fill("蜂の巣", 4, false), "蜂… ");
        assert_eq!(fill("7", 3, true), "  7");
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        assert_eq!(harmless("a\u{1b}[2Jb\r\n\u{9b}c\u{202e}d"), "a?[2Jb???c?d");
        assert_eq!(harmless("héllo 蜂"), "héllo 蜂");
    }

    proptest! {
        #[test]
        fn what_is_filled_has_exactly_its_columns(text in "\\PC{0,40}", columns in 0_usize..60) {
            let filled = fill(&harmless(&text), columns, false);
            prop_assert_eq!(width(&filled), columns);
        }
    }
}
