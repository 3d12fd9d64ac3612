//! What the store promises about samples, scores and tidying, on each database.

use super::store_kit::*;
use skep_monitors::SampleRow;
use skep_monitors::store::*;
use skep_policy::Time;
use skep_policy::monitors::{Status, Summary, next_score};

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

#[tokio::test]
async fn a_report_is_kept_once_however_often_it_comes() {
    on_each_database(async |db| {
        let m = add_monitor(&db, "m", "192.0.2.1").await;
        let s = add_server(&db, "s", "198.51.100.1").await;
        let samples = vec![sample(&s, 100, 1.0), sample(&s, 200, -5.0), sample(&s, 100, 0.5)];
        let first = record(&db, report(&m, samples.clone(), 300)).await.expect("records");
        assert_eq!(first, [Recorded::Accepted, Recorded::Accepted, Recorded::Known]);
        let once = assignment(&db, s.number, m.number).await.expect("reads").expect("a pair");
        assert!(close(once.score, next_score(next_score(0.0, 1.0), -5.0)), "{}", once.score);
        assert_eq!(once.last_sample_ms, Some(200));
        let again = record(&db, report(&m, samples, 400)).await.expect("records");
        assert_eq!(again, [Recorded::Known; 3]);
        let twice = assignment(&db, s.number, m.number).await.expect("reads").expect("a pair");
        assert_eq!(twice, once, "nothing moved");
        let kept = skep_monitors::store::samples(&db, s.number, None, i64::MAX, 10).await;
        let expected = [
            SampleRow { monitor: m.number, ..sample(&s, 200, -5.0) },
            SampleRow { monitor: m.number, ..sample(&s, 100, 1.0) },
        ];
        assert_eq!(kept.expect("reads"), expected, "newest first");
        let seen = see_monitor(&db, "m").await;
        assert_eq!((seen.seen_at_ms, seen.agent.as_deref()), (Some(400), Some("skep test")));
        assert_eq!(seen.index, see_monitor(&db, "m").await.index, "no news for its agent");
    })
    .await;
}

#[tokio::test]
async fn scores_follow_time_and_not_the_order_of_a_report() {
    on_each_database(async |db| {
        let m = add_monitor(&db, "m", "192.0.2.1").await;
        let s = add_server(&db, "s", "198.51.100.1").await;
        let score = async || {
            assignment(&db, s.number, m.number).await.expect("reads").expect("a pair").score
        };
        let late_first =
            vec![sample(&s, 300, -5.0), sample(&s, 100, 1.0), sample(&s, 200, 0.123_456)];
        record(&db, report(&m, late_first, 400)).await.expect("records");
        let expected = [1.0, 0.123_456, -5.0].into_iter().fold(0.0, next_score);
        assert!(close(score().await, expected), "{} is {expected}", score().await);
        let old = record(&db, report(&m, vec![sample(&s, 150, -5.0)], 500)).await.expect("records");
        assert_eq!(old, [Recorded::Accepted], "it is kept");
        assert!(close(score().await, expected), "and the score stays");
        let found = summaries(&db, s.number, 0).await.expect("reads");
        assert_eq!(found.len(), 1);
        let Summary { count, steps, rtts, rtt_ms, latest } = found[0].1;
        assert_eq!((found[0].0, count, rtts), (m.number, 4, 2));
        assert!(close(steps, 1.0 + 0.123_456 - 5.0 - 5.0) && close(rtt_ms, 40.0));
        assert_eq!(latest, Some(Time::from_millis(300)));
        let since = summaries(&db, s.number, 200).await.expect("reads");
        assert_eq!(since[0].1.count, 2, "the first that counts is at its beginning");
        assert!(summaries(&db, s.number, 301).await.expect("reads").is_empty());
    })
    .await;
}

#[tokio::test]
async fn samples_of_other_times_and_of_no_pair_are_told_apart() {
    on_each_database(async |db| {
        let m = add_monitor(&db, "m", "192.0.2.1").await;
        let s = add_server(&db, "s", "198.51.100.1").await;
        let six = add_server(&db, "six", "2001:db8::1").await;
        let samples = vec![
            sample(&s, 99, 1.0),
            sample(&s, 100, 1.0),
            sample(&s, 901, 1.0),
            sample(&six, 500, 1.0),
            sample(&s, 900, 1.0),
        ];
        let within = Report { oldest_ms: 100, newest_ms: 900, ..report(&m, samples, 850) };
        let answers = record(&db, within).await.expect("records");
        let expected = [
            Recorded::TooOld,
            Recorded::Accepted,
            Recorded::Future,
            Recorded::NotAssigned,
            Recorded::Accepted,
        ];
        assert_eq!(answers, expected);
        delete_server(&db, "s").await.expect("is deleted");
        let gone = record(&db, report(&m, vec![sample(&s, 950, 1.0)], 950)).await;
        assert_eq!(gone.expect("records"), [Recorded::NotAssigned]);
        let nobody = Report { monitor: 999, ..report(&m, vec![sample(&six, 1, 1.0)], 1) };
        assert_eq!(record(&db, nobody).await.expect("records"), [Recorded::NotAssigned]);
        assert!(record(&db, report(&m, vec![], 2_000)).await.expect("records").is_empty());
        assert_eq!(
            see_monitor(&db, "m").await.seen_at_ms,
            Some(2_000),
            "it was heard all the same"
        );
        record(&db, report(&m, vec![], 1_000)).await.expect("records");
        assert_eq!(see_monitor(&db, "m").await.seen_at_ms, Some(2_000), "time does not go back");
    })
    .await;
}

#[tokio::test]
async fn an_error_is_cut_and_has_no_zero_in_it() {
    on_each_database(async |db| {
        let m = add_monitor(&db, "m", "192.0.2.1").await;
        let s = add_server(&db, "s", "198.51.100.1").await;
        let error = Some(format!("wrong:\0{}", "ä".repeat(500)));
        let sample = SampleRow { error, ..sample(&s, 1, -4.0) };
        record(&db, report(&m, vec![sample], 1)).await.expect("records");
        let kept = samples(&db, s.number, Some(m.number), 2, 1).await.expect("reads");
        let error = kept[0].error.as_deref().expect("an error");
        assert_eq!(error.chars().count(), 200);
        assert!(error.starts_with("wrong: ää"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn samples_come_newest_first_of_all_monitors_or_of_one() {
    on_each_database(async |db| {
        let (one, two) =
            (add_monitor(&db, "1", "192.0.2.1").await, add_monitor(&db, "2", "192.0.2.2").await);
        let s = add_server(&db, "s", "198.51.100.1").await;
        for at in 1..=5 {
            let monitor = if at % 2 == 0 { &two } else { &one };
            record(&db, report(monitor, vec![sample(&s, at, 1.0)], at)).await.expect("records");
        }
        let times = async |monitor: Option<i64>, before, limit| {
            let found = samples(&db, s.number, monitor, before, limit).await.expect("reads");
            found.iter().map(|one| one.at_ms).collect::<Vec<_>>()
        };
        assert_eq!(times(None, i64::MAX, 3).await, [5, 4, 3]);
        assert_eq!(times(None, 3, 3).await, [2, 1]);
        assert_eq!(times(Some(one.number), 5, 9).await, [3, 1]);
    })
    .await;
}

#[tokio::test]
async fn a_servers_score_is_the_median_of_those_who_are_active_there() {
    on_each_database(async |db| {
        let s = add_server(&db, "s", "198.51.100.1").await;
        let mut all = Vec::new();
        for number in 0..4 {
            all.push(add_monitor(&db, &format!("m{number}"), &format!("192.0.2.{number}")).await);
        }
        let score =
            async || scores(&db, vec![s.number]).await.expect("reads").get(&s.number).copied();
        for (monitor, step) in all.iter().zip([1.0, 0.5, -5.0]) {
            let one = report(monitor, vec![sample(&s, 1, step)], 1);
            record(&db, one).await.expect("records");
        }
        assert_eq!(score().await, None, "nobody works there");
        let to_testing = |monitor| (monitor, Status::Candidate, Status::Testing);
        shift(&db, "s", &[to_testing(&all[0]), to_testing(&all[1]), to_testing(&all[3])]).await;
        assert_eq!(score().await, Some(0.75), "those in testing; one has not measured yet");
        shift(&db, "s", &[to_testing(&all[2])]).await;
        shift(&db, "s", &[(&all[2], Status::Testing, Status::Active)]).await;
        assert_eq!(score().await, Some(-5.0), "the one that is active");
    })
    .await;
}

#[tokio::test]
async fn tidying_takes_bounded_rounds_and_only_what_is_old() {
    on_each_database(async |db| {
        let m = add_monitor(&db, "m", "192.0.2.1").await;
        let (a, b) = (
            add_server(&db, "a", "198.51.100.1").await,
            add_server(&db, "b", "198.51.100.2").await,
        );
        for server in [&a, &b] {
            let all = (0..20).map(|at| sample(server, at, 1.0)).collect();
            record(&db, report(&m, all, 20)).await.expect("records");
        }
        shift(&db, "a", &[(&m, Status::Candidate, Status::Testing)]).await;
        shift(&db, "b", &[(&m, Status::Candidate, Status::Testing)]).await;
        let left = async |server: &skep_monitors::Server| {
            samples(&db, server.number, None, i64::MAX, 100).await.expect("reads").len()
        };
        assert_eq!(tidy(&db, 10, 0, 7).await.expect("tidies"), 7);
        assert_eq!(left(&a).await + left(&b).await, 33);
        assert_eq!(tidy(&db, 10, 0, 100).await.expect("tidies"), 13);
        assert_eq!((left(&a).await, left(&b).await), (10, 10));
        assert_eq!(tidy(&db, 10, 0, 100).await.expect("tidies"), 0);
        delete_server(&db, "a").await.expect("is deleted");
        assert_eq!(tidy(&db, 0, 0, 4).await.expect("tidies"), 4, "those of the deleted server");
        assert_eq!(tidy(&db, 0, 0, 100).await.expect("tidies"), 6);
        assert_eq!(tidy(&db, 0, 0, 100).await.expect("tidies"), 0);
        assert_eq!((left(&a).await, left(&b).await), (0, 10));
        let changes = async || history(&db, HistoryOf::All, None, 10).await.expect("reads").len();
        assert_eq!((tidy(&db, 0, 100, 9).await.expect("tidies"), changes().await), (0, 2));
        assert_eq!((tidy(&db, 0, 101, 1).await.expect("tidies"), changes().await), (1, 1));
        assert_eq!((tidy(&db, 0, 101, 9).await.expect("tidies"), changes().await), (1, 0));
    })
    .await;
}
