//! Answers that are remembered.

use crate::forward_kit::{Reply, pieces, reply, within};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::header::HeaderValue;
use skep_cluster::forward::{Begun, Fingerprint, Outcomes, OutcomesOptions, RequestId, Slot};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn print() -> Fingerprint {
    Fingerprint::of(&Method::POST, "/api/v1/ack", b"Bearer key")
}

async fn first(outcomes: &Outcomes, id: RequestId) -> Slot {
    match outcomes.begin(id, print(), PATIENCE).await {
        Begun::First(slot) => slot,
        _ => panic!("it is the first"),
    }
}

async fn answered(outcomes: &Outcomes, id: RequestId, answer: Reply) {
    first(outcomes, id).await.keep(answer).await;
}

/// The body that is remembered, if there is one.
async fn known(outcomes: &Outcomes, id: RequestId) -> Option<Bytes> {
    match outcomes.begin(id, print(), PATIENCE).await {
        Begun::Known(outcome) => {
            let answer = outcome.answer()?;
            Some(answer.into_body().collect().await.expect("is in memory").to_bytes())
        }
        _ => None,
    }
}

#[tokio::test]
async fn the_second_gets_what_the_first_got() {
    let outcomes = Outcomes::new(OutcomesOptions::default());
    let id = RequestId::mint();
    let mut answer = reply(201, "made");
    for (name, value) in [
        ("content-type", "text/plain"),
        ("x-served-by", "b"),
        ("date", "some time"),
        ("connection", "close"),
        ("skep-took-us", "7"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let sent = first(&outcomes, id).await.keep(answer).await;
    assert_eq!(sent.headers().len(), 5, "what is sent is as it was");
    let body = sent.into_body().collect().await.expect("comes").to_bytes();
    assert_eq!(body, "made");
    let Begun::Known(outcome) = outcomes.begin(id, print(), PATIENCE).await else {
        panic!("it is known")
    };
    let again = outcome.answer().expect("is remembered");
    assert_eq!(again.status(), 201);
    assert_eq!(again.headers()["content-type"], "text/plain");
    assert_eq!(again.headers()["x-served-by"], "b");
    assert_eq!(again.headers().len(), 2, "not what is of the moment: {:?}", again.headers());
    assert_eq!(again.into_body().collect().await.expect("comes").to_bytes(), "made");
    let now = outcomes.now();
    assert_eq!((now.known, now.at_work, now.answered_again, now.crowded_out), (1, 0, 1, 0));
}

#[tokio::test]
async fn nobody_gets_anothers_answer_by_knowing_its_id() {
    let outcomes = Outcomes::new(OutcomesOptions::default());
    let id = RequestId::mint();
    let slot = first(&outcomes, id).await;
    let others = [
        Fingerprint::of(&Method::POST, "/api/v1/ack", b"Bearer another"),
        Fingerprint::of(&Method::POST, "/api/v1/ackB", b"earer key"),
        Fingerprint::of(&Method::GET, "/api/v1/ack", b"Bearer key"),
    ];
    for other in others {
        assert!(matches!(outcomes.begin(id, other, PATIENCE).await, Begun::Other));
    }
    slot.keep(reply(200, "")).await;
    for other in others {
        assert!(matches!(outcomes.begin(id, other, PATIENCE).await, Begun::Other));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_with_one_id_one_does_the_work_and_all_get_its_answer() {
    let outcomes = Outcomes::new(OutcomesOptions::default());
    let work = Arc::new(AtomicUsize::new(0));
    for _ in 0..50 {
        let id = RequestId::mint();
        let many: Vec<_> = (0..16)
            .map(|number| {
                let (outcomes, work) = (outcomes.clone(), work.clone());
                tokio::spawn(async move {
                    match outcomes.begin(id, print(), PATIENCE).await {
                        Begun::First(slot) => {
                            work.fetch_add(1, Ordering::SeqCst);
                            // Others get their turn while this one is at work.
                            tokio::task::yield_now().await;
                            let kept = slot.keep(reply(200, format!("by {number}"))).await;
                            kept.into_body().collect().await.expect("comes").to_bytes()
                        }
                        Begun::Known(outcome) => {
                            let answer = outcome.answer().expect("is remembered");
                            answer.into_body().collect().await.expect("comes").to_bytes()
                        }
                        _ => panic!("is either the first or another"),
                    }
                })
            })
            .collect();
        let mut answers = Vec::new();
        for one in many {
            answers.push(within(one).await.expect("does not panic"));
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{answers:?}");
    }
    assert_eq!(work.load(Ordering::SeqCst), 50);
}

#[tokio::test]
async fn when_the_first_is_cut_off_exactly_one_of_those_who_wait_takes_its_place() {
    let outcomes = Outcomes::new(OutcomesOptions::default());
    let id = RequestId::mint();
    let slot = first(&outcomes, id).await;
    let work = Arc::new(AtomicUsize::new(0));
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let (outcomes, work) = (outcomes.clone(), work.clone());
            tokio::spawn(async move {
                match outcomes.begin(id, print(), PATIENCE).await {
                    Begun::First(slot) => {
                        work.fetch_add(1, Ordering::SeqCst);
                        slot.keep(reply(200, "done")).await;
                    }
                    Begun::Known(_) => {}
                    _ => panic!("is either the first or another"),
                }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(work.load(Ordering::SeqCst), 0, "they wait");
    drop(slot);
    for one in waiting {
        within(one).await.expect("does not panic");
    }
    assert_eq!(work.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_first_does_not_wait_for_ever() {
    let outcomes = Outcomes::new(OutcomesOptions::default());
    let id = RequestId::mint();
    let _slot = first(&outcomes, id).await;
    let began = tokio::time::Instant::now();
    let patience = Duration::from_secs(5);
    assert!(matches!(outcomes.begin(id, print(), patience).await, Begun::AtWork));
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_known_for_ten_minutes() {
    let outcomes = Outcomes::new(OutcomesOptions::default());
    let id = RequestId::mint();
    answered(&outcomes, id, reply(200, "x")).await;
    tokio::time::advance(Duration::from_secs(599)).await;
    assert_eq!(known(&outcomes, id).await, Some(Bytes::from_static(b"x")));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(known(&outcomes, id).await, None);
    let now = outcomes.now();
    assert_eq!((now.known, now.at_work, now.bytes, now.crowded_out), (0, 0, 0, 0));
}

#[tokio::test]
async fn the_oldest_make_room_and_are_counted() {
    let options = OutcomesOptions { entries_max: 3, ..Default::default() };
    let outcomes = Outcomes::new(options);
    let ids: Vec<_> = (0..5).map(|_| RequestId::mint()).collect();
    for id in &ids {
        answered(&outcomes, *id, reply(200, "x")).await;
    }
    assert_eq!((outcomes.now().known, outcomes.now().crowded_out), (3, 2));
    assert!(known(&outcomes, ids[4]).await.is_some());
    assert!(known(&outcomes, ids[2]).await.is_some());
    assert!(known(&outcomes, ids[1]).await.is_none());

    let options = OutcomesOptions { bytes_max: 10_000, ..Default::default() };
    let outcomes = Outcomes::new(options);
    for id in &ids {
        answered(&outcomes, *id, reply(200, vec![7; 3_000])).await;
    }
    let now = outcomes.now();
    assert_eq!((now.known, now.crowded_out), (3, 2));
    assert!(now.bytes <= 10_000, "{now:?}");
    assert!(known(&outcomes, ids[4]).await.is_some());
}

#[tokio::test]
async fn those_at_work_are_never_crowded_out() {
    let outcomes = Outcomes::new(OutcomesOptions { entries_max: 2, ..Default::default() });
    let (one, two) = (RequestId::mint(), RequestId::mint());
    let slot = first(&outcomes, one).await;
    let other = first(&outcomes, two).await;
    let third = RequestId::mint();
    assert!(matches!(outcomes.begin(third, print(), PATIENCE).await, Begun::Full));
    other.keep(reply(200, "")).await;
    assert!(matches!(outcomes.begin(third, print(), PATIENCE).await, Begun::First(_)));
    slot.keep(reply(200, "mine")).await;
    assert_eq!(known(&outcomes, one).await, Some(Bytes::from_static(b"mine")));
}

#[tokio::test]
async fn of_an_answer_that_is_too_large_only_that_it_was_given_is_known() {
    let outcomes = Outcomes::new(OutcomesOptions { body_max: 10, ..Default::default() });
    let (fits, large) = (RequestId::mint(), RequestId::mint());
    answered(&outcomes, fits, reply(200, "ten bytes.")).await;
    assert_eq!(known(&outcomes, fits).await, Some(Bytes::from_static(b"ten bytes.")));
    let (sender, body) = pieces();
    tokio::spawn(async move {
        for _ in 0..100 {
            sender.send(Ok(Bytes::from_static(b"12345"))).await.expect("is read");
        }
    });
    let response = hyper::Response::new(body);
    let sent = first(&outcomes, large).await.keep(response).await;
    let whole = within(sent.into_body().collect()).await.expect("comes whole").to_bytes();
    assert_eq!(whole.len(), 500, "the first gets all of it");
    let Begun::Known(outcome) = outcomes.begin(large, print(), PATIENCE).await else {
        panic!("it is known that it was done")
    };
    assert!(outcome.answer().is_none());
    assert_eq!(outcome.status(), 200);
}

#[tokio::test]
async fn a_failure_of_the_node_may_be_tried_again() {
    let outcomes = Outcomes::new(OutcomesOptions::default());
    let id = RequestId::mint();
    let sent = first(&outcomes, id).await.keep(reply(503, "later")).await;
    assert_eq!(sent.into_body().collect().await.expect("comes").to_bytes(), "later");
    answered(&outcomes, id, reply(404, "none")).await;
    assert!(known(&outcomes, id).await.is_some(), "a client's mistake is an answer");
}

#[tokio::test]
async fn an_answer_that_broke_while_it_was_made_is_not_known() {
    let outcomes = Outcomes::new(OutcomesOptions::default());
    let id = RequestId::mint();
    let (sender, body) = pieces();
    let feeding = tokio::spawn(async move {
        sender.send(Ok(Bytes::from_static(b"half"))).await.expect("is read");
        sender.send(Err(std::io::Error::other("the disk is gone"))).await.expect("is read");
    });
    let sent = first(&outcomes, id).await.keep(hyper::Response::new(body)).await;
    feeding.await.expect("does not panic");
    let error = sent.into_body().collect().await.expect_err("breaks");
    assert_eq!(error.to_string(), "the disk is gone");
    first(&outcomes, id).await;
}
