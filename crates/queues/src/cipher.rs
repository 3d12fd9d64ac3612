//! Payloads that only who has the key can read: AES-256-GCM, for queues that ask for it.
//!
//! ```text
//!   sealed:  version, 1 byte │ nonce, 12 │ ciphertext │ tag, 16
//! ```
//!
//! Each message has a key of its own, made from the node's key and the message's id. A payload that
//! is put into another message is therefore noticed, and chance may pick the nonces: one key for
//! all messages would be used up after some four thousand million of them, which a busy queue
//! reaches within a day.

use crate::record::{Record, Records};
use crate::store::NewMessage;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use uuid::Uuid;

/// Bytes of a key.
pub const KEY_LENGTH: usize = 32;

const VERSION: u8 = 1;
const HEADER_LENGTH: usize = 1 + NONCE_LEN;
/// What the keys of messages are made for; another purpose would have another word.
const PURPOSE: &[u8] = b"skep message 1";

/// Text that is no key. What it was is not told: it may be most of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an encryption key is 32 bytes, written as 64 hexadecimal digits or in base64 (44 characters); \
     this has {characters} characters and is neither; `openssl rand -hex 32` makes one"
)]
pub struct BadKey {
    /// How long the text is, without spaces around it.
    pub characters: usize,
}

/// A payload that was not sealed with this key for this message, or was changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the payload cannot be decrypted: it was encrypted with another key or is damaged; give this \
     node the key that it was pushed with"
)]
pub struct NotOurs;

/// The system gave no random bytes. Nothing was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payload cannot be encrypted: the system gave no random bytes")]
pub struct NoChance;

/// Why a message cannot be given the form its queue wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecodeError {
    /// It cannot be opened.
    #[error(transparent)]
    NotOurs(#[from] NotOurs),
    /// It cannot be sealed.
    #[error(transparent)]
    NoChance(#[from] NoChance),
    /// It cannot be read.
    #[error(transparent)]
    Damaged(#[from] crate::record::Damaged),
}

/// Reads a key from a setting.
pub fn parse_key(text: &str) -> Result<[u8; KEY_LENGTH], BadKey> {
    let text = text.trim();
    from_hex(text).or_else(|| from_base64(text)).ok_or(BadKey { characters: text.chars().count() })
}

fn from_hex(text: &str) -> Option<[u8; KEY_LENGTH]> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 2 * KEY_LENGTH)?;
    let bytes: Option<Vec<u8>> =
        digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok()).collect();
    bytes?.try_into().ok()
}

fn from_base64(text: &str) -> Option<[u8; KEY_LENGTH]> {
    let letters = text.strip_suffix('=').unwrap_or(text);
    STANDARD_NO_PAD.decode(letters).ok()?.try_into().ok()
}

/// Seals payloads and opens them again.
pub struct Cipher {
    key: hmac::Key,
    random: SystemRandom,
}

impl fmt::Debug for Cipher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Cipher(AES-256-GCM)")
    }
}

impl Cipher {
    /// With a key that [`parse_key`] read.
    pub fn new(key: &[u8; KEY_LENGTH]) -> Self {
        Cipher { key: hmac::Key::new(hmac::HMAC_SHA256, key), random: SystemRandom::new() }
    }

    /// The payload of the message `id`, unreadable without the key.
    pub fn seal(&self, id: Uuid, payload: &[u8]) -> Result<Vec<u8>, NoChance> {
        self.try_seal(id, payload).map_err(|_| NoChance)
    }

    /// The payload of the message `id`, as it was before [`Cipher::seal`].
    pub fn open(&self, id: Uuid, sealed: &[u8]) -> Result<Vec<u8>, NotOurs> {
        self.try_open(id, sealed).ok_or(NotOurs)
    }

    /// The same message with its payload sealed, or not, as its queue wants it now.
    pub fn recode(&self, message: &NewMessage, encrypted: bool) -> Result<NewMessage, RecodeError> {
        let record = Records::of(&message.record).next().ok_or(crate::record::Damaged)??;
        let payload = match (record.encrypted, encrypted) {
            (false, true) => self.seal(record.id, record.payload)?,
            (true, false) => self.open(record.id, record.payload)?,
            _ => return Ok(message.clone()),
        };
        let record = Record { encrypted, payload: &payload, ..record }.encode();
        Ok(NewMessage { record, encrypted, ..message.clone() })
    }

    fn try_seal(&self, id: Uuid, payload: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce)?;
        let length = HEADER_LENGTH + payload.len() + AES_256_GCM.tag_len();
        let mut sealed = Vec::with_capacity(length);
        sealed.push(VERSION);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(payload);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let text = &mut sealed[HEADER_LENGTH..];
        let tag = self.key_of(id)?.seal_in_place_separate_tag(nonce, bound_to(id), text)?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    fn try_open(&self, id: Uuid, sealed: &[u8]) -> Option<Vec<u8>> {
        let (header, text) = sealed.split_at_checked(HEADER_LENGTH)?;
        let nonce = header.strip_prefix(&[VERSION])?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut payload = text.to_vec();
        let key = self.key_of(id).ok()?;
        let length = key.open_in_place(nonce, bound_to(id), &mut payload).ok()?.len();
        payload.truncate(length);
        Some(payload)
    }

    fn key_of(&self, id: Uuid) -> Result<LessSafeKey, Unspecified> {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(PURPOSE);
        context.update(id.as_bytes());
        UnboundKey::new(&AES_256_GCM, context.sign().as_ref()).map(LessSafeKey::new)
    }
}

/// Not only the key but also what is authenticated names the message and the form.
fn bound_to(id: Uuid) -> Aad<[u8; 17]> {
    let mut bound = [VERSION; 17];
    bound[1..].copy_from_slice(id.as_bytes());
    Aad::from(bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Wishes;
    use proptest::prelude::*;
    use std::borrow::Cow;
    use std::sync::Arc;

    const ID: Uuid = Uuid::from_u128(7);

    fn cipher(byte: u8) -> Cipher {
        Cipher::new(&[byte; KEY_LENGTH])
    }

    fn message(payload: &[u8]) -> NewMessage {
        let record = Record {
            id: ID,
            transaction: Cow::Borrowed("t-1"),
            trace: Some(Cow::Borrowed("journey")),
            producer: None,
            wishes: Wishes::default(),
            encrypted: false,
            payload,
        };
        NewMessage::of(Arc::from("q"), Arc::from("p"), &record, record.encode())
    }

    proptest! {
        #[test]
        fn what_was_sealed_opens_again_and_only_for_its_message(
            payload in prop::collection::vec(any::<u8>(), 0..500), bits: u128, other: u128,
        ) {
            let (id, other) = (Uuid::from_u128(bits), Uuid::from_u128(other));
            let sealed = cipher(1).seal(id, &payload).unwrap();
            prop_assert_eq!(sealed.len(), payload.len() + 29);
            prop_assert_eq!(cipher(1).open(id, &sealed), Ok(payload));
            prop_assert_eq!(cipher(2).open(id, &sealed), Err(NotOurs));
            prop_assume!(id != other);
            prop_assert_eq!(cipher(1).open(other, &sealed), Err(NotOurs));
        }

        #[test]
        fn other_bytes_do_not_open(sealed in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(cipher(1).open(ID, &sealed), Err(NotOurs));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_missing_byte_is_noticed() {
        let sealed = cipher(1).seal(ID, b"{\"amount\":5}").unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(cipher(1).open(ID, &changed), Err(NotOurs), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert_eq!(cipher(1).open(ID, &sealed[..length]), Err(NotOurs), "{length} bytes");
        }
    }

    #[test]
    fn the_same_payload_never_looks_the_same() {
        let first = cipher(1).seal(ID, b"null").unwrap();
        assert_ne!(first, cipher(1).seal(ID, b"null").unwrap());
        assert!(!first.windows(4).any(|window| window == b"null"));
    }

    #[test]
    fn a_key_is_read_from_hex_and_from_base64() {
        let key: [u8; KEY_LENGTH] = std::array::from_fn(|place| place as u8 * 8 + 3);
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let base64 = STANDARD_NO_PAD.encode(key);
        let ways = [hex.clone(), hex.to_uppercase(), format!(" {hex}\n"), base64.clone()];
        for text in ways.into_iter().chain([format!("{base64}=")]) {
            assert_eq!(parse_key(&text), Ok(key), "{text}");
        }
    }

    #[test]
    fn a_bad_key_is_explained_and_never_shown() {
        let long = "ab".repeat(33);
        let letters = "hush".repeat(16);
        for text in ["", "secret-key", &long, &letters, &"é".repeat(32), &"A".repeat(42)] {
            let told = parse_key(text).expect_err("is no key").to_string();
            assert!(told.contains("64 hexadecimal digits"), "{told}");
            assert!(told.contains(&format!("{} characters", text.chars().count())), "{told}");
            assert!(text.is_empty() || !told.contains(text), "{told}");
        }
    }

    #[test]
    fn a_cipher_does_not_print_its_key() {
        let printed = format!("{:?}", Cipher::new(b"abcdefghijklmnopqrstuvwxyz012345"));
        assert_eq!(printed, "Cipher(AES-256-GCM)");
    }

    #[test]
    fn a_message_changes_form_with_its_queue_and_back() {
        let plain = message(b"{\"a\":1}");
        let sealed = cipher(1).recode(&plain, true).unwrap();
        assert!(sealed.encrypted);
        let record = Records::of(&sealed.record).next().unwrap().unwrap();
        assert!(record.encrypted && record.transaction == "t-1");
        assert_eq!(cipher(1).open(ID, record.payload).unwrap(), b"{\"a\":1}");
        let back = cipher(1).recode(&sealed, false).unwrap();
        assert_eq!(back.record, plain.record);
        assert_eq!(cipher(1).recode(&sealed, true).unwrap().record, sealed.record);
        let foreign = cipher(2).recode(&sealed, false);
        assert!(matches!(foreign, Err(RecodeError::NotOurs(NotOurs))), "{foreign:?}");
    }
}
