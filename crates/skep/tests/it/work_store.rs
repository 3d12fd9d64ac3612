//! Dead letters, the same in either database.

use crate::common::on_each_database;
use skep::work::store::{claim, discard, find, letters_page, note, release};
use skep::work::{KeptLetter, LetterFilter, LetterNews, Place, show_id};
use skep_pools::Tier;
use tokio::task::JoinSet;

fn letter(number: u64) -> KeptLetter {
    KeptLetter {
        id: show_id(number),
        node: "hive-1".to_owned(),
        tier: if number.is_multiple_of(2) { Tier::High } else { Tier::Low },
        kind: "probe".to_owned(),
        cause: "failed".to_owned(),
        attempts: 4,
        errors: vec!["first \"quoted\"".to_owned(), "läst".to_owned()],
        submitted_at_ms: 1_000,
        died_at_ms: 2_000 + i64::try_from(number / 3).expect("small"),
        payload: number.is_multiple_of(2).then(|| vec![0, 255, 7]),
        retrying_until_ms: 0,
    }
}

fn died(number: u64) -> LetterNews {
    LetterNews::Died(Box::new(letter(number)))
}

#[tokio::test]
async fn a_letter_is_kept_found_and_forgotten() {
    on_each_database(async |db| {
        note(&db, vec![died(1), died(2)]).await.expect("notes");
        assert_eq!(find(&db, &show_id(2)).await.expect("reads"), Some(letter(2)));
        assert_eq!(find(&db, "nothing").await.expect("reads"), None);
        // The same news twice, as after a lost answer, changes nothing.
        note(&db, vec![died(2)]).await.expect("notes");
        assert_eq!(find(&db, &show_id(2)).await.expect("reads"), Some(letter(2)));
        note(&db, vec![LetterNews::Done(show_id(2))]).await.expect("notes");
        assert_eq!(find(&db, &show_id(2)).await.expect("reads"), None);
        assert!(discard(&db, &show_id(1)).await.expect("discards"));
        assert!(!discard(&db, &show_id(1)).await.expect("discards"), "it is gone");
    })
    .await;
}

#[tokio::test]
async fn letters_are_read_page_by_page_each_once_newest_first() {
    on_each_database(async |db| {
        note(&db, (0..25).map(died).collect()).await.expect("notes");
        let (mut place, mut seen) = (Place::start(), Vec::new());
        loop {
            let page = letters_page(&db, LetterFilter::default(), place, 7).await.expect("reads");
            let Some(last) = page.last() else { break };
            place = Place { died_at_ms: last.died_at_ms, id: last.id.clone() };
            seen.extend(page);
        }
        let mut expected: Vec<KeptLetter> = (0..25).map(letter).collect();
        expected.sort_by_key(|one| std::cmp::Reverse((one.died_at_ms, one.id.clone())));
        assert_eq!(seen, expected);
        let filter = LetterFilter { tier: Some(Tier::Low), kind: Some("probe".to_owned()) };
        let low = letters_page(&db, filter, Place::start(), 100).await.expect("reads");
        assert_eq!(low.len(), 12);
        let filter = LetterFilter { tier: None, kind: Some("other".to_owned()) };
        assert!(letters_page(&db, filter, Place::start(), 9).await.expect("reads").is_empty());
    })
    .await;
}

#[tokio::test]
async fn of_many_who_would_try_a_letter_again_one_may() {
    on_each_database(async |db| {
        note(&db, vec![died(5)]).await.expect("notes");
        let mut claims = JoinSet::new();
        for _ in 0..20 {
            let db = db.clone();
            claims.spawn(async move { claim(&db, &show_id(5), 1_000).await.expect("asks") });
        }
        let won = claims.join_all().await.into_iter().filter(|won| *won).count();
        assert_eq!(won, 1);
        // Whoever had the right and is gone loses it after some minutes.
        assert!(!claim(&db, &show_id(5), 2_000).await.expect("asks"));
        assert!(claim(&db, &show_id(5), 1_000 + 600_000).await.expect("asks"));
        release(&db, &show_id(5)).await.expect("releases");
        assert!(claim(&db, &show_id(5), 3_000).await.expect("asks"));
        // A task that fails again is a letter that anybody may take.
        note(&db, vec![died(5)]).await.expect("notes");
        assert!(claim(&db, &show_id(5), 3_001).await.expect("asks"));
        assert!(!claim(&db, "nothing", 1).await.expect("asks"));
    })
    .await;
}
