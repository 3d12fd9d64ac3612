//! Looking and taking out, as the database does it.

use super::plans::{filled, plan};
use super::*;
use crate::store::postgres::claim::Search;
use crate::store::postgres::take::Want;
use crate::store::postgres::{browse, groups, partitions, remove};

#[tokio::test]
async fn no_statement_that_looks_at_messages_reads_a_whole_table() {
    let rig = filled().await;
    let group = "bigint, bigint, bigint, bigint, bigint, bigint";
    let values = "0, 10, 5, 1001, 200, 5000";
    let of_group = |sql, kinds: &str, more: &str| {
        plan(&rig, sql, &format!("{group}{kinds}"), &format!("{values}{more}"))
    };
    let plans = [
        (
            "heads",
            plan(
                &rig,
                browse::HEADS,
                "bigint[], bigint, bigint, bigint, bigint, bigint",
                "'{1,2}', 0, 9, 9, 9, 10",
            ),
        ),
        ("down", plan(&rig, browse::DOWN, "bigint, bigint, bigint", "1, 9, 10")),
        (
            "pieces",
            plan(&rig, browse::PIECES, "bigint[], bigint[], bigint[]", "'{1}', '{1}', '{1}'"),
        ),
        ("names", plan(&rig, browse::NAMES, "bigint[]", "'{1,2}'")),
        ("groups of queues", plan(&rig, browse::GROUPS, "bigint[], bigint", "'{1,2}', 10")),
        ("lanes", plan(&rig, browse::LANES, "bigint[], bigint[]", "'{1,2}', '{1,2}'")),
        ("search", plan(&rig, browse::SEARCH, "bigint, bytea, bigint", "1, '\\x00', 100")),
        ("segment", plan(&rig, remove::SEGMENT, "bigint, bigint", "1, 2")),
        ("delete", plan(&rig, remove::DELETE, "bigint, bigint", "1, 2")),
        ("left", plan(&rig, remove::LEFT, "bigint, bigint[], bigint[]", "1, '{1}', '{2}'")),
        ("groups", of_group(groups::ALL, "", "")),
        ("named groups", of_group(groups::NAMED, ", text", ", 'g'")),
        ("a queue's groups", of_group(groups::OF_QUEUE, ", text, text", ", 'q1', ''")),
        ("one group", of_group(groups::ONE, ", text, text", ", 'q1', 'g'")),
        ("partitions", plan(&rig, partitions::BY_AGE, "bigint, bigint, bigint", "1, 0, 10")),
        (
            "partitions by name",
            plan(
                &rig,
                partitions::BY_NAME,
                "bigint, text, bigint, text, bigint",
                "1, 'p1', 0, 'p2', 10",
            ),
        ),
    ];
    for (name, plan) in plans {
        assert!(!plan.contains("Seq Scan"), "{name}:\n{plan}");
    }
}

#[tokio::test]
async fn two_nodes_that_cut_one_segment_leave_every_other_message() {
    let rig = rig().await;
    let other = rig.another();
    let names: Vec<String> = (0..24).map(|number| number.to_string()).collect();
    let pushed: Vec<&str> = names.iter().map(String::as_str).collect();
    let id = push(&rig.store, messages("q", "p", &pushed)).await[0].partition;
    let (here, there) = (QueueStore::Postgres(rig.store.clone()), QueueStore::Postgres(other));
    let gone: Vec<&str> = pushed.iter().copied().step_by(2).collect();
    let (first, second) = gone.split_at(gone.len() / 2);
    for (one, two) in first.iter().zip(second) {
        let (one, two) = tokio::join!(here.delete_message(id, one), there.delete_message(id, two));
        assert!(one.expect("deletes").is_some() && two.expect("deletes").is_some());
    }
    let got = claim(&rig.store, from_queue("q", "g", 100)).await;
    let left: Vec<&str> = pushed.iter().copied().skip(1).step_by(2).collect();
    assert_eq!(all_names(&got), left);
}

#[tokio::test]
async fn what_is_left_of_a_segment_that_was_just_claimed_is_handed_out() {
    let rig = rig().await;
    // The second node remembers nothing; the third cuts and remembers what it has cut.
    for (node, cutter) in [(rig.another(), rig.another()), (rig.store.clone(), rig.store.clone())] {
        let names =
            ["1", "2", "3", "4", "5", "6"].map(|name| format!("{}{name}", node_name(&node)));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let id = push(&rig.store, messages("q", "p", &names[..5])).await[0].partition;
        push(&rig.store, messages("q", "p", &names[5..])).await;
        let job = from_queue("q", "g", 100);
        let want = Want { job: &job, queue: "q".into(), partition: None };
        let mut outcomes = vec![None];
        let ended = node.shared.find(&[want], &mut outcomes, &mut Search::default()).await;
        let cutter = QueueStore::Postgres(cutter);
        for name in [names[0], names[2]] {
            cutter.delete_message(id, name).await.expect("deletes").expect("was there");
        }
        let answers = node.shared.hand_out(outcomes, ended).await;
        let claimed = answers.into_iter().next().expect("one").expect("claims");
        assert_eq!(all_names(&claimed), [names[1], names[3], names[4], names[5]]);
        let (answer, answered) = oneshot::channel();
        let item = |name: &&str| SettleItem {
            partition: Some(id),
            transaction: (*name).into(),
            verdict: Verdict::Completed,
            lease: Some(job.lease),
            error: None,
            after: None,
        };
        let items = [names[5]].iter().map(item).collect();
        node.run(vec![Job::Settle { group: "g".into(), items, answer }]).await;
        let settled = answered.await.expect("an answer").expect("settles");
        assert_eq!(settled[0].settled, Settled::Done { released: true });
    }
}

/// Something that differs between nodes.
fn node_name(node: &PostgresQueues) -> usize {
    Arc::as_ptr(&node.shared) as usize
}
