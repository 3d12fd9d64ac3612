//! The file: what it took is there, in order, after a restart too.

use super::*;
use crate::record::{Record, Wishes};
use std::borrow::Cow;
use std::os::unix::fs::PermissionsExt;
use uuid::Uuid;

const ALL: (u64, u64) = (u64::MAX, u64::MAX);

/// A message with a transaction id that tells which.
pub fn message(queue: &str, partition: &str, transaction: &str) -> NewMessage {
    let id = Uuid::now_v7();
    let record = Record {
        id,
        transaction: Cow::Borrowed(transaction),
        trace: None,
        producer: None,
        wishes: Wishes::default(),
        encrypted: false,
        payload: b"{\"n\":1}",
    };
    NewMessage::of(Arc::from(queue), Arc::from(partition), &record, record.encode())
}

async fn open(folder: &Path) -> Buffer {
    Buffer::open(folder, 1 << 20).await.expect("opens")
}

async fn oldest(buffer: &Buffer, limits: (u64, u64)) -> Vec<Entry> {
    buffer.oldest(0, limits, |_| true).await.expect("reads").entries
}

fn same(kept: &[NewMessage], pushed: &[NewMessage]) {
    let parts = |message: &NewMessage| {
        let (queue, partition) = (message.queue.clone(), message.partition.clone());
        (queue, partition, message.id, message.print, message.record.clone(), message.encrypted)
    };
    let [kept, pushed] = [kept, pushed].map(|all| all.iter().map(parts).collect::<Vec<_>>());
    assert_eq!(kept, pushed);
}

#[tokio::test]
async fn a_push_comes_back_as_it_was_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("buffer");
    let first = [message("q", "a", "1"), message("q", "a", "2"), message("q", "ö", "3")];
    let second = [message("q", "a", "4")];
    let buffer = open(&path).await;
    buffer.keep(&first).await.expect("keeps");
    buffer.keep(&second).await.expect("keeps");
    let (messages, bytes) = (buffer.messages(), buffer.bytes());
    buffer.close().await;

    let buffer = open(&path).await;
    assert_eq!((buffer.messages(), buffer.bytes()), (messages, bytes));
    assert_eq!(messages, 4);
    let entries = oldest(&buffer, ALL).await;
    assert_eq!(entries.len(), 2);
    same(entries[0].messages.as_ref().expect("is whole"), &first);
    same(entries[1].messages.as_ref().expect("is whole"), &second);
    buffer.done(&entries[..1]).await.expect("removes");
    assert!(buffer.holds("q") && !buffer.is_empty());
    buffer.done(&entries[1..]).await.expect("removes");
    assert!(!buffer.holds("q") && buffer.is_empty() && buffer.bytes() == 0);
    assert!(oldest(&buffer, ALL).await.is_empty());
}

#[tokio::test]
async fn a_push_to_several_queues_is_one_entry_each_and_all_or_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let buffer = open(folder.path()).await;
    let push = [message("q", "a", "1"), message("r", "a", "2"), message("q", "a", "3")];
    buffer.keep(&push).await.expect("keeps");
    let entries = oldest(&buffer, ALL).await;
    let queues: Vec<&str> = entries.iter().map(|entry| &*entry.queue).collect();
    assert_eq!(queues, ["q", "r"]);
    same(entries[0].messages.as_ref().expect("is whole"), &[push[0].clone(), push[2].clone()]);
    let other = buffer.oldest(0, ALL, |queue| queue != "q").await.expect("reads").entries;
    assert_eq!(other.len(), 1);
    assert_eq!(&*other[0].queue, "r");
}

#[tokio::test]
async fn no_more_is_read_than_was_asked_for_but_at_least_one_entry() {
    let folder = tempfile::tempdir().expect("a folder");
    let buffer = open(folder.path()).await;
    for number in 0..5 {
        let of = |part| message("q", "a", &format!("{number}-{part}"));
        buffer.keep(&[of(1), of(2), of(3)]).await.expect("keeps");
    }
    assert_eq!(oldest(&buffer, (7, u64::MAX)).await.len(), 2);
    assert_eq!(oldest(&buffer, (1, u64::MAX)).await.len(), 1);
    assert_eq!(oldest(&buffer, (u64::MAX, 1)).await.len(), 1);
    assert_eq!(oldest(&buffer, (u64::MAX, buffer.bytes() - 1)).await.len(), 4);
    let more = async |limits| buffer.oldest(0, limits, |_| true).await.expect("reads").more;
    assert!(more((7, u64::MAX)).await && more((u64::MAX, buffer.bytes() - 1)).await);
    assert!(!more(ALL).await);
}

#[tokio::test]
async fn beyond_its_limit_it_takes_nothing_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let buffer = Buffer::open(folder.path(), 300).await.expect("opens");
    buffer.keep(&[message("q", "a", "1")]).await.expect("keeps");
    let more = [message("r", "a", "2"), message("q", "a", "3")];
    let error = buffer.keep(&more).await.expect_err("is too much");
    assert!(matches!(error, BufferError::Full { limit: 300, .. }), "{error}");
    assert!(error.to_string().contains("of at most 300 bytes"), "{error}");
    assert_eq!((buffer.messages(), buffer.holds("r")), (1, false));
    buffer.done(&oldest(&buffer, ALL).await).await.expect("removes");
    buffer.keep(&[message("q", "a", "4")]).await.expect("there is room again");
}

#[tokio::test]
async fn nobody_else_can_look_into_it_or_use_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("buffer");
    let buffer = open(&path).await;
    let mode = std::fs::metadata(&path).expect("is there").permissions().mode();
    assert_eq!(mode & 0o077, 0);
    let error = Buffer::open(&path, 1).await.err().expect("is in use");
    assert!(error.to_string().contains("in use"), "{error}");
    buffer.close().await;
    let error = buffer.keep(&[message("q", "a", "1")]).await.expect_err("is closed");
    assert!(matches!(error, BufferError::Store(StoreError::Closed { .. })), "{error}");
    assert!(buffer.is_empty());
}

#[tokio::test]
async fn a_damaged_entry_is_told_from_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let buffer = open(folder.path()).await;
    buffer.keep(&[message("q", "a", "1")]).await.expect("keeps");
    buffer.keep(&[message("r", "a", "2")]).await.expect("keeps");
    damage(&buffer, "q").await;
    let entries = oldest(&buffer, ALL).await;
    assert!(entries[0].messages.is_err());
    assert!(entries[1].messages.is_ok());
}

/// Cuts what is kept for a queue short.
pub async fn damage(buffer: &Buffer, queue: &'static str) {
    let cut = move |db: &Connection| {
        let sql = "UPDATE entries SET body = substr(body, 1, length(body) - 3) WHERE queue = ?1";
        Ok::<_, StoreError>(db.execute(sql, [queue])?)
    };
    assert!(buffer.sqlite.write(cut).await.expect("writes") > 0);
}
