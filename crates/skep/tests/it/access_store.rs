//! Keys, audit log and secrets, the same in either database.

use crate::common::on_each_database;
use skep::access::{Access, Caller, NewKey, Who, list_keys};
use skep_store::BootClock;
use std::sync::Arc;
use tokio::task::JoinSet;

fn new_key(name: &str) -> NewKey {
    let scopes = "push,read".parse().expect("scopes");
    NewKey { name: name.to_owned(), scopes, lasts: None }
}

fn somebody() -> Caller {
    Caller::trusted(Who::Local)
}

#[tokio::test]
async fn a_key_is_kept_used_noted_and_revoked_once() {
    on_each_database(async |database| {
        let access = Access::new(Arc::new(BootClock));
        access.renew(&database).await.expect("renews");
        assert!(access.ring().is_some_and(|ring| ring.is_empty()));
        let made = access.create(&database, new_key("ops"), &somebody(), "here").await;
        let (info, secret) = made.expect("makes");
        let ring = access.ring().expect("a copy");
        let caller = ring.admit_key(&secret.reveal(), 5_000).expect("is good");
        assert_eq!(caller.scopes.to_string(), "read,push");
        access.note_uses(&database).await.expect("notes");
        let kept = list_keys(&database).await.expect("lists");
        assert_eq!(kept.len(), 1);
        assert_eq!((kept[0].last_used_at_ms, kept[0].revoked_at_ms), (Some(5_000), None));
        assert!(!format!("{kept:?}").contains(&secret.reveal()));

        for _ in 0..2 {
            let revoked = access.revoke(&database, &info.id, &somebody(), "here").await;
            let revoked = revoked.expect("revokes").expect("there is one");
            assert!(revoked.revoked_at.is_some());
        }
        let unknown = access.revoke(&database, "k0", &somebody(), "here").await.expect("looks");
        assert!(unknown.is_none());
        let audit = access.audit_page(&database, None, 10).await.expect("reads");
        let actions: Vec<&str> = audit.iter().map(|entry| entry.action.as_str()).collect();
        assert_eq!(actions, ["key.revoke", "key.create"], "the second revoking did nothing");
    })
    .await;
}

#[tokio::test]
async fn the_audit_log_is_read_page_by_page() {
    on_each_database(async |database| {
        let access = Access::new(Arc::new(BootClock));
        for number in 0..25 {
            let what = ("target", &*format!("entry {number}"));
            let who = (&somebody(), "here");
            access.record(&database, who, "test", what).await.expect("records");
        }
        let (mut before, mut seen) = (None, Vec::new());
        loop {
            let page = access.audit_page(&database, before, 10).await.expect("reads");
            let Some(last) = page.last() else { break };
            before = Some(last.id);
            seen.extend(page.iter().map(|entry| entry.detail.clone()));
        }
        let expected: Vec<String> = (0..25).rev().map(|number| format!("entry {number}")).collect();
        assert_eq!(seen, expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_agree_on_the_secret_that_signs_logins() {
    on_each_database(async |database| {
        let mut nodes = JoinSet::new();
        for _ in 0..8 {
            let database = database.clone();
            nodes.spawn(async move {
                let access = Access::new(Arc::new(BootClock));
                access.renew(&database).await.expect("renews");
                access.ring().expect("a copy").login_secret().to_owned()
            });
        }
        let secrets = nodes.join_all().await;
        assert!(secrets.iter().all(|secret| secret == &secrets[0] && secret.len() == 64));
    })
    .await;
}
