//! Writes: to a node with consumers of their queues, or to the one whose lease they settle.

use super::{Kind, send};
use crate::http::problem::{self, Problem};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use skep_cluster::forward::Sending;
use skep_cluster::forward::plan::Work;
use skep_cluster::{Cluster, Going};
use std::borrow::Cow;
use std::collections::BTreeMap;
use uuid::Uuid;

/// What tells where a write goes. Whatever else is there, and whatever is wrong, is for the route.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Named<'body> {
    #[serde(borrow)]
    items: Vec<Item<'body>>,
    #[serde(borrow)]
    operations: Vec<Operation<'body>>,
    #[serde(borrow)]
    acknowledgments: Vec<Settled<'body>>,
    #[serde(borrow)]
    lease_id: Option<Cow<'body, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item<'body> {
    #[serde(borrow)]
    queue: Cow<'body, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Operation<'body> {
    #[serde(borrow)]
    items: Vec<Item<'body>>,
    #[serde(borrow)]
    lease_id: Option<Cow<'body, str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Settled<'body> {
    #[serde(borrow)]
    lease_id: Option<Cow<'body, str>>,
}

impl Named<'_> {
    fn queues(&self) -> Vec<&str> {
        let pushed = self.operations.iter().flat_map(|operation| &operation.items);
        let mut queues: Vec<&str> =
            self.items.iter().chain(pushed).map(|item| &*item.queue).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    /// The lease that all of it is about, if it is one.
    fn lease(&self) -> Option<Uuid> {
        let single = self.lease_id.iter();
        let batch = self.acknowledgments.iter().filter_map(|one| one.lease_id.as_ref());
        let steps = self.operations.iter().filter_map(|one| one.lease_id.as_ref());
        let mut leases = single.chain(batch).chain(steps);
        let first = leases.next()?;
        leases.all(|lease| lease == first).then(|| first.parse().ok()).flatten()
    }

    /// Where it goes. One that names several queues is never split.
    fn place(&self, cluster: &Cluster) -> Option<Going> {
        let queues = self.queues();
        match queues.is_empty() {
            true => cluster.place_lease(skep_queues::lease_tag(self.lease()?)),
            false => cluster.place_write(&queues),
        }
    }
}

/// A write of a client.
pub(super) async fn relay(cluster: &Cluster, kind: Kind, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let most = usize::try_from(cluster.body_max()).unwrap_or(usize::MAX);
    let body = match to_bytes(body, most).await {
        Ok(body) => body,
        Err(_) => {
            let detail = "it is larger than is allowed here, or ended too early";
            return Problem::new(&problem::E_BODY_TOO_LARGE, detail).into_response();
        }
    };
    let going = serde_json::from_slice::<Named<'_>>(&body).ok();
    let going = going.and_then(|named| named.place(cluster));
    let path = parts.uri.path_and_query().cloned();
    let (Some(going), Some(path)) = (going, path) else {
        return next.run(Request::from_parts(parts, Body::from(body))).await;
    };
    let work = if kind == Kind::Push { Work::Push } else { Work::Settle };
    // The same ids wherever it is tried: the second time it is recognised.
    let body = stamped(&body).unwrap_or(body);
    parts.headers.remove(header::CONTENT_LENGTH);
    let serve = async |parts: Parts, body: Sending| {
        next.run(Request::from_parts(parts, Body::new(body))).await
    };
    send(cluster, (&going, work, None), (parts, path, Sending::whole(body)), serve).await
}

type Object<'body> = BTreeMap<Cow<'body, str>, &'body RawValue>;

/// The body with a transaction id for every message that has none; nothing if all have one or it
/// is not what it should be.
fn stamped(body: &[u8]) -> Option<Bytes> {
    let whole: Object<'_> = serde_json::from_slice(body).ok()?;
    let mut stamps = 0;
    let items = whole.get("items").and_then(|items| stamp_items(items, &mut stamps));
    let operations = whole.get("operations").and_then(|operations| {
        let operations: Vec<Object<'_>> = serde_json::from_str(operations.get()).ok()?;
        let operations: Vec<BTreeMap<Cow<'_, str>, Box<RawValue>>> = operations
            .into_iter()
            .map(|operation| {
                let items =
                    operation.get("items").and_then(|items| stamp_items(items, &mut stamps));
                replaced(operation, "items", items)
            })
            .collect();
        raw(&operations)
    });
    if stamps == 0 {
        return None;
    }
    let whole = match (items, operations) {
        (Some(items), _) => replaced(whole, "items", Some(items)),
        (None, operations) => replaced(whole, "operations", operations),
    };
    serde_json::to_vec(&whole).ok().map(Bytes::from)
}

fn stamp_items(items: &RawValue, stamps: &mut usize) -> Option<Box<RawValue>> {
    let items: Vec<Object<'_>> = serde_json::from_str(items.get()).ok()?;
    let stamped: Vec<BTreeMap<Cow<'_, str>, Box<RawValue>>> = items
        .into_iter()
        .map(|item| {
            let has = item.get("transactionId").is_some_and(|given| given.get() != "null");
            let id = (!has).then(|| raw(&Uuid::now_v7().to_string())).flatten();
            *stamps += usize::from(id.is_some());
            replaced(item, "transactionId", id)
        })
        .collect();
    raw(&stamped)
}

fn replaced<'body>(
    object: Object<'body>,
    name: &'static str,
    value: Option<Box<RawValue>>,
) -> BTreeMap<Cow<'body, str>, Box<RawValue>> {
    let mut owned: BTreeMap<Cow<'body, str>, Box<RawValue>> =
        object.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    if let Some(value) = value {
        owned.insert(Cow::Borrowed(name), value);
    }
    owned
}

fn raw(value: &impl Serialize) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn messages_without_an_id_get_one_and_everything_else_stays_as_it_was() {
        let body = br#"{"items":[{"queue":"q","payload":{"big":123456789012345678901234567890}},
            {"queue":"q","transactionId":"mine","payload":1.10}]}"#;
        let stamped = stamped(body).expect("one had none");
        let text = std::str::from_utf8(&stamped).expect("is text");
        assert!(text.contains("123456789012345678901234567890") && text.contains("1.10"), "{text}");
        let read: Value = serde_json::from_slice(&stamped).expect("is JSON");
        let id = read["items"][0]["transactionId"].as_str().expect("has one");
        assert!(id.parse::<Uuid>().is_ok());
        assert_eq!(read["items"][1]["transactionId"], "mine");
    }

    #[test]
    fn what_needs_no_id_is_left_alone() {
        for body in [
            &br#"{"items":[{"queue":"q","transactionId":"t"}]}"#[..],
            br#"{"leaseId":"x"}"#,
            b"[1]",
            b"nonsense",
            br#"{"items":3}"#,
        ] {
            assert!(stamped(body).is_none(), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn pushes_of_transactions_get_ids_too() {
        let body = br#"{"operations":[{"type":"push","items":[{"queue":"q"}]},
            {"type":"ack","transactionId":"t","leaseId":"l"}],"requiredLeases":["l"]}"#;
        let read: Value = serde_json::from_slice(&stamped(body).expect("had none")).expect("JSON");
        assert!(read["operations"][0]["items"][0]["transactionId"].is_string());
        assert_eq!(read["operations"][1]["leaseId"], "l");
        assert_eq!(read["requiredLeases"][0], "l");
    }

    #[test]
    fn queues_and_the_one_lease_are_read() {
        let body = r#"{"items":[{"queue":"b"},{"queue":"a"},{"queue":"b"}]}"#;
        let named: Named<'_> = serde_json::from_str(body).expect("is JSON");
        assert_eq!(named.queues(), ["a", "b"]);
        let lease = Uuid::now_v7();
        let body = format!(r#"{{"acknowledgments":[{{"leaseId":"{lease}"}},{{}}]}}"#);
        let named: Named<'_> = serde_json::from_str(&body).expect("is JSON");
        assert_eq!(named.lease(), Some(lease));
        let body = format!(r#"{{"acknowledgments":[{{"leaseId":"{lease}"}},{{"leaseId":"x"}}]}}"#);
        let named: Named<'_> = serde_json::from_str(&body).expect("is JSON");
        assert_eq!(named.lease(), None, "two leases");
    }
}
