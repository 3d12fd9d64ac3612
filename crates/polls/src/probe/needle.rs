//! Finding a text in a body that arrives in pieces, without keeping the pieces.

/// A text to look for, prepared once.
#[derive(Clone, Debug)]
pub(super) struct Needle {
    text: Box<[u8]>,
    /// For each length matched so far, the length that still matches after a wrong byte (Knuth,
    /// Morris, Pratt). Keeps the time linear whatever a server sends.
    fall: Box<[u32]>,
}

impl Needle {
    pub fn new(text: &str) -> Self {
        let text: Box<[u8]> = text.as_bytes().into();
        let mut fall = vec![0_u32; text.len() + 1];
        let mut matched = 0;
        for at in 1..text.len() {
            while matched > 0 && text[at] != text[matched] {
                matched = fall[matched] as usize;
            }
            matched += usize::from(text[at] == text[matched]);
            fall[at + 1] = matched as u32;
        }
        Needle { text, fall: fall.into() }
    }

    /// Takes the next piece. `matched` starts at 0 and is kept from piece to piece; `true` when the
    /// text has been found.
    pub fn find(&self, piece: &[u8], matched: &mut usize) -> bool {
        for byte in piece {
            if *matched == self.text.len() {
                break;
            }
            while *matched > 0 && *byte != self.text[*matched] {
                *matched = self.fall[*matched] as usize;
            }
            *matched += usize::from(*byte == self.text[*matched]);
        }
        *matched == self.text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_finds_what_a_plain_search_finds(
            text in "[ab]{1,6}", body in "[ab]{0,60}", size in 1_usize..10,
        ) {
            let needle = Needle::new(&text);
            let mut matched = 0;
            let mut found = false;
            for piece in body.as_bytes().chunks(size) {
                found = needle.find(piece, &mut matched);
            }
            prop_assert_eq!(found, body.contains(&text));
        }
    }
}
