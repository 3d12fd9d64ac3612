//! Requests that are built once; what changes from one to the next is written over.

use crate::Outcome;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a message.
pub const PAYLOAD: usize = 256;

/// Digits of a partition's name after its first letter.
const PARTITION_DIGITS: usize = 7;
/// Digits of the number in a message.
const NUMBER_DIGITS: usize = 10;
const NUMBER_MARK: &str = "{\"number\":\"";
/// The length of an id as text.
const ID: usize = 36;

/// A message with this number in it: a JSON object of exactly [`PAYLOAD`] bytes.
pub fn payload(number: u64) -> String {
    let start = format!("{NUMBER_MARK}{number:0width$}\",\"text\":\"", width = NUMBER_DIGITS);
    let rest = PAYLOAD - start.len() - 2;
    format!("{start}{}\"}}", "queue ".repeat(rest / 6 + 1).split_at(rest).0)
}

/// Makes transaction ids as clients do: UUIDs of version 7.
pub struct Ids(u64);

impl Ids {
    /// Ids that no other has.
    pub fn new(connection: usize) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ids(now.as_nanos() as u64 ^ (connection as u64) << 48)
    }

    /// The generator SplitMix64.
    fn random(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn write(&mut self, millis: u64, into: &mut [u8]) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let (one, two) = (self.random(), self.random());
        let high = millis << 16 | 0x7000 | one & 0xfff;
        let low = two >> 2 | 1 << 63;
        let places = into.iter_mut().filter(|place| **place != b'-');
        for (nibble, place) in places.enumerate() {
            let word = if nibble < 16 { high } else { low };
            *place = HEX[(word >> (60 - nibble % 16 * 4)) as usize & 15];
        }
    }
}

/// A push of some messages.
pub struct Push {
    bytes: Vec<u8>,
    items: Vec<Item>,
}

/// Where in the request an item's changing parts are.
struct Item {
    partition: usize,
    number: usize,
    id: usize,
}

impl Push {
    /// So many messages for a queue.
    pub fn new(queue: &str, count: usize) -> Self {
        let mut body = b"{\"items\":[".to_vec();
        let mut items = Vec::with_capacity(count);
        for item in 0..count {
            let comma = if item == 0 { "" } else { "," };
            body.extend(format!("{comma}{{\"queue\":\"{queue}\",\"partition\":\"p").bytes());
            let partition = body.len();
            body.extend([b'0'; PARTITION_DIGITS]);
            body.extend(b"\",\"payload\":");
            let number = body.len() + NUMBER_MARK.len();
            body.extend(payload(0).bytes());
            body.extend(b",\"transactionId\":\"");
            items.push(Item { partition, number, id: body.len() });
            body.extend(b"00000000-0000-0000-0000-000000000000\"}");
        }
        body.extend(b"]}");
        let mut bytes = post("/api/v1/push", body.len()).into_bytes();
        for item in &mut items {
            item.partition += bytes.len();
            item.number += bytes.len();
            item.id += bytes.len();
        }
        bytes.append(&mut body);
        Push { bytes, items }
    }

    /// The request with fresh ids, and the partition of each item.
    pub fn fresh(&mut self, ids: &mut Ids, partition: impl Fn(usize) -> u64) -> &[u8] {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for (number, item) in self.items.iter().enumerate() {
            let place = &mut self.bytes[item.partition..item.partition + PARTITION_DIGITS];
            write_digits(partition(number), place);
            ids.write(now.as_millis() as u64, &mut self.bytes[item.id..item.id + ID]);
        }
        &self.bytes
    }

    /// Numbers the first message.
    pub fn number(&mut self, number: u64) {
        let at = self.items[0].number;
        write_digits(number, &mut self.bytes[at..at + NUMBER_DIGITS]);
    }
}

fn write_digits(mut number: u64, place: &mut [u8]) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// A POST of a body.
pub fn request(path: &str, body: &str) -> String {
    post(path, body.len()) + body
}

/// The head of a POST.
fn post(path: &str, length: usize) -> String {
    // The length has a fixed width, so that it can be written over.
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length:>8}\r\n\r\n"
    )
}

/// A pop from a queue for a group, with more of the query.
pub fn pop(queue: &str, group: &str, more: &str) -> Vec<u8> {
    format!(
        "GET /api/v1/pop/queue/{queue}?consumerGroup={group}&{more} HTTP/1.1\r\n\
         host: localhost\r\n\r\n"
    )
    .into_bytes()
}

/// An acknowledgement of everything that a pop answered.
pub struct Ack {
    group: String,
    bytes: Vec<u8>,
    checked: bool,
}

impl Ack {
    /// For messages of this group.
    pub fn new(group: &str) -> Self {
        Ack { group: group.to_owned(), bytes: Vec::new(), checked: false }
    }

    /// The request, and for how many messages it is.
    pub fn of(&mut self, popped: &str) -> Outcome<(&[u8], u64)> {
        if !self.checked {
            same_as_parsed(popped)?;
            self.checked = true;
        }
        self.bytes.clear();
        let head = post("/api/v1/ack/batch", 0);
        self.bytes.extend(head.bytes());
        self.bytes.extend(b"{\"acknowledgments\":[");
        let mut count = 0;
        for message in Messages::of(popped) {
            let (transaction, partition, lease) = message?;
            let comma: &[u8] = if count == 0 { b"" } else { b"," };
            for piece in [
                comma,
                b"{\"transactionId\":\"",
                transaction.as_bytes(),
                b"\",\"partitionId\":\"",
                partition.as_bytes(),
                b"\",\"leaseId\":\"",
                lease.as_bytes(),
                b"\",\"status\":\"completed\"}",
            ] {
                self.bytes.extend_from_slice(piece);
            }
            count += 1;
        }
        self.bytes.extend(b"],\"consumerGroup\":\"");
        self.bytes.extend(self.group.bytes());
        self.bytes.extend(b"\"}");
        let length = self.bytes.len() - head.len();
        let at = head.len() - 4 - 8;
        self.bytes[at..at + 8].copy_from_slice(format!("{length:>8}").as_bytes());
        Ok((&self.bytes, count))
    }

    /// Whether all of it was accepted.
    pub fn accepted(answer: &str) -> Outcome<()> {
        if answer.contains("\"success\":false") || !answer.contains("\"success\":true") {
            let start: String = answer.chars().take(500).collect();
            return Err(format!("an acknowledgement was refused: {start}").into());
        }
        Ok(())
    }
}

/// Transaction, partition and lease of each message of an answer, found without parsing it all.
struct Messages<'answer> {
    rest: &'answer str,
}

impl<'answer> Messages<'answer> {
    fn of(popped: &'answer str) -> Self {
        let start = popped.find("\"messages\":[").unwrap_or(popped.len());
        Messages { rest: &popped[start..] }
    }

    /// The text after a key; what is before it is done with.
    fn value(&mut self, key: &str) -> Option<&'answer str> {
        let start = self.rest.find(key)? + key.len();
        let length = self.rest[start..].find('"')?;
        let value = &self.rest[start..start + length];
        self.rest = &self.rest[start + length..];
        Some(value)
    }
}

impl<'answer> Iterator for Messages<'answer> {
    type Item = Outcome<(&'answer str, &'answer str, &'answer str)>;

    fn next(&mut self) -> Option<Self::Item> {
        let transaction = self.value("\"transactionId\":\"")?;
        let rest = (self.value("\"partitionId\":\""), self.value("\"leaseId\":\""));
        Some(match rest {
            (Some(partition), Some(lease)) => Ok((transaction, partition, lease)),
            _ => Err(format!("message {transaction} has no partition or lease").into()),
        })
    }
}

/// The quick search depends on the order of a message's fields.
fn same_as_parsed(popped: &str) -> Outcome<()> {
    let parsed: Value = serde_json::from_str(popped)?;
    let messages = parsed["messages"].as_array().ok_or("no messages")?;
    let found: Vec<_> = Messages::of(popped).collect::<Outcome<_>>()?;
    let same = |(message, found): (&Value, &(&str, &str, &str))| {
        message["transactionId"] == found.0
            && message["partitionId"] == found.1
            && message["leaseId"] == found.2
    };
    if found.len() != messages.len() || !messages.iter().zip(&found).all(same) {
        return Err(format!("the fields are not in the order expected: {popped:.500}").into());
    }
    Ok(())
}

/// The numbers of the messages in an answer; see [`Push::number`].
pub fn numbers(popped: &str) -> impl Iterator<Item = usize> {
    popped.match_indices(NUMBER_MARK).filter_map(|(at, mark)| {
        popped.get(at + mark.len()..at + mark.len() + NUMBER_DIGITS)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(request: &[u8]) -> Value {
        let text = std::str::from_utf8(request).expect("is text");
        let (head, body) = text.split_once("\r\n\r\n").expect("has a head");
        let length = head.rsplit(':').next().expect("is last").trim();
        assert_eq!(length, body.len().to_string());
        serde_json::from_str(body).expect("is JSON")
    }

    #[test]
    fn every_push_has_ids_of_its_own_and_messages_of_the_same_size() {
        let (mut push, mut ids) = (Push::new("q", 3), Ids::new(1));
        push.number(77);
        let first = body(push.fresh(&mut ids, |item| 10 + item as u64));
        let second = body(push.fresh(&mut ids, |_| 5));
        assert_eq!(first["items"][2]["partition"], "p0000012");
        assert_eq!(second["items"][2]["partition"], "p0000005");
        assert_eq!(first["items"][0]["payload"]["number"], "0000000077");
        assert_eq!(first["items"][0]["payload"].to_string().len(), PAYLOAD);
        let id =
            |push: &Value| push["items"][0]["transactionId"].as_str().expect("text").to_owned();
        assert_ne!(id(&first), id(&second));
        assert_eq!(&id(&first)[14..15], "7");
        assert!("89ab".contains(&id(&first)[19..20]), "{}", id(&first));
    }

    #[test]
    fn an_ack_names_what_was_popped_and_a_strange_order_is_noticed() {
        let message = |id: &str| {
            format!(
                r#"{{"id":"m","transactionId":"{id}","traceId":null,"data":{},"partition":"p",
                    "partitionId":"part","leaseId":"lease","consumerGroup":"g"}}"#,
                payload(7)
            )
        };
        let popped = format!(
            r#"{{"success":true,"partitionId":"top","leaseId":"lease","messages":[{},{}]}}"#,
            message("one"),
            message("two")
        );
        let mut ack = Ack::new("g");
        let (request, count) = ack.of(&popped).expect("finds them");
        let request = body(request);
        assert_eq!((count, &request["consumerGroup"]), (2, &Value::from("g")));
        assert_eq!(request["acknowledgments"][1]["transactionId"], "two");
        assert_eq!(request["acknowledgments"][1]["partitionId"], "part");
        assert_eq!(numbers(&popped).collect::<Vec<_>>(), [7, 7]);
        let strange = r#"{"messages":[
            {"partitionId":"a","transactionId":"one","leaseId":"l"},
            {"partitionId":"b","transactionId":"two","leaseId":"l"}]}"#;
        assert!(Ack::new("g").of(strange).is_err());
        assert!(Ack::accepted(r#"[{"success":true},{"success":false}]"#).is_err());
    }
}
