//! Dead letters as tables.

use crate::cli::cells::{group_named, in_a_line, second, short};
use crate::cli::output;
use crate::cli::push::visible;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A page of them.
#[derive(Deserialize)]
pub struct Page {
    messages: Vec<Letter>,
    #[serde(default)]
    total: u64,
}

/// A dead letter, as far as it is shown. The payload's bytes are the producer's own.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Letter {
    /// A number or a text.
    id: Value,
    transaction_id: String,
    #[serde(default)]
    partition_id: String,
    queue: String,
    partition: String,
    consumer_group: String,
    error_message: Option<String>,
    #[serde(default)]
    retry_count: u32,
    data: Option<Box<RawValue>>,
    payload: Option<Box<RawValue>>,
    created_at: String,
    failed_at: String,
}

impl Letter {
    fn id(&self) -> String {
        self.id.as_str().map_or_else(|| self.id.to_string(), visible)
    }

    fn payload(&self) -> &str {
        self.data.as_ref().or(self.payload.as_ref()).map_or("null", |payload| payload.get())
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.id(),
            second(&self.failed_at),
            visible(&self.queue),
            visible(&self.partition),
            group_named(&self.consumer_group),
            self.retry_count.to_string(),
            visible(self.error_message.as_deref().unwrap_or_default()),
            short(self.payload()),
        ]
    }
}

pub fn letters(page: &Page, limit: usize) {
    if page.messages.is_empty() {
        return output::line("no dead letter");
    }
    output::table(
        &["ID", "SET ASIDE", "QUEUE", "PARTITION", "GROUP", "RETRIES", "ERROR", "PAYLOAD"],
        page.messages.iter().map(Letter::row),
    );
    if let Some(last) = page.messages.last().filter(|_| page.messages.len() >= limit) {
        let total = page.total;
        output::note(&format!("of {total} in all; older ones with --before={}", last.id()));
    }
}

pub fn letter(letter: &Letter) {
    let pair = |what: &str, value: String| vec![what.to_owned(), value];
    let error = letter.error_message.as_deref().unwrap_or("(its consumer said nothing)");
    output::table(
        &["", ""],
        [
            pair("id", letter.id()),
            pair("transaction", visible(&letter.transaction_id)),
            pair("queue", visible(&letter.queue)),
            pair("partition", visible(&letter.partition)),
            pair("partition id", visible(&letter.partition_id)),
            pair("group", group_named(&letter.consumer_group)),
            pair("pushed", second(&letter.created_at)),
            pair("set aside", second(&letter.failed_at)),
            pair("retries", letter.retry_count.to_string()),
            pair("error", visible(error)),
            pair("payload", in_a_line(letter.payload())),
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_told_with_its_error_and_payload() {
        let text = r#"{"messages":[{"id":17,"transactionId":"t","traceId":null,"partitionId":"p-1",
            "queue":"q","partition":"p","consumerGroup":"__QUEUE_MODE__",
            "errorMessage":"no\u001broom","retryCount":3,"data":{"n": 1.0},"producerSub":null,
            "createdAt":"2026-07-01T00:00:00.000001Z","failedAt":"2026-07-01T00:01:00.000001Z"}],
            "total":9,"pagination":{"limit":1,"offset":0}}"#;
        let page: Page = serde_json::from_str(text).expect("reads");
        assert_eq!(
            page.messages[0].row(),
            [
                "17",
                "2026-07-01T00:01:00Z",
                "q",
                "p",
                "(those who name none)",
                "3",
                "no\\u{1b}room",
                r#"{"n": 1.0}"#
            ]
        );
        assert_eq!(page.total, 9);
    }
}
