//! A node that polls, in this process: what is published, what is refused, what is given back.

use crate::store::sqlite as embedded;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use skep_nodes::{MemoryTable, Nodes, NodesMetrics, TableStore, options_for};
use skep_polls::{
    ChangeError, Hub, Polls, PollsMetrics, PollsOptions, Prober, Publish, store as polls_store,
};
use skep_store::{BootClock, Database};
use skep_testkit::{Folder, PATIENCE, Receiver, eventually};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Takes results of every queue but `full`, each only at the second attempt. There is no `nowhere`.
#[derive(Default)]
struct Queues {
    tried: Mutex<HashMap<String, u32>>,
    taken: watch::Sender<Vec<(String, String, serde_json::Value)>>,
}

impl Publish for Queues {
    fn check(&self, queue: &str) -> Result<(), String> {
        if queue == "nowhere" { Err("give the name of a queue".to_owned()) } else { Ok(()) }
    }

    fn publish<'a>(
        &'a self,
        queue: &'a str,
        id: &'a str,
        body: serde_json::Value,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>> {
        Box::pin(async move {
            let mut tried = self.tried.lock().expect("not poisoned");
            let count = tried.entry(id.to_owned()).or_default();
            *count += 1;
            if *count == 1 || queue == "full" {
                return Err("try again".to_owned());
            }
            let entry = (queue.to_owned(), id.to_owned(), body);
            self.taken.send_modify(|taken| taken.push(entry));
            Ok(())
        })
    }
}

impl Queues {
    /// Waits for so many results in a queue.
    async fn has_taken(&self, queue: &str, count: usize) {
        let mut taken = self.taken.subscribe();
        let there = taken
            .wait_for(|taken| taken.iter().filter(|(name, ..)| name == queue).count() >= count);
        let there = tokio::time::timeout(PATIENCE, there).await.expect("they come");
        there.expect("the queues are there");
    }
}

/// A node over an embedded database.
struct Rig {
    polls: Polls,
    metrics: PollsMetrics,
    nodes: Nodes,
    stop_nodes: CancellationToken,
    stop_polls: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Rig {
    fn start(db: &Database, table: &MemoryTable, hub: &Arc<Hub>, name: &str) -> Self {
        Self::start_with(db, table, hub, name, None)
    }

    fn start_with(
        db: &Database,
        table: &MemoryTable,
        hub: &Arc<Hub>,
        name: &str,
        publish: Option<Arc<dyn Publish>>,
    ) -> Self {
        let clock = Arc::new(BootClock);
        let mut options = options_for(name);
        options.timing.tick = Duration::from_millis(100);
        options.timing.observe_ticks = 1;
        options.cooldown = Duration::ZERO;
        let store = TableStore::Memory(table.clone());
        let nodes = Nodes::new(options, store, NodesMetrics::default(), clock.clone());
        let metrics = PollsMetrics::default();
        let polls = Polls::new(
            db.clone(),
            nodes.clone(),
            hub.clone(),
            Prober::new().expect("can poll"),
            publish,
            PollsOptions::default(),
            metrics.clone(),
            clock,
        );
        let (stop_nodes, stop_polls) = (CancellationToken::new(), CancellationToken::new());
        let (token, of_nodes) = (stop_nodes.clone(), nodes.clone());
        let running = async move { skep_nodes::run(of_nodes, token).await.expect("runs") };
        let (token, of_polls) = (stop_polls.clone(), polls.clone());
        let tasks = vec![tokio::spawn(running), tokio::spawn(skep_polls::run(of_polls, token))];
        Rig { polls, metrics, nodes, stop_nodes, stop_polls, tasks }
    }

    async fn stop(self) {
        let mut tasks = self.tasks.into_iter();
        self.stop_nodes.cancel();
        tasks.next().expect("nodes").await.expect("ends well");
        self.stop_polls.cancel();
        tasks.next().expect("polls").await.expect("ends well");
    }
}

/// Waits for a node to own so many endpoints, of which there is no signal. The node works on the
/// runtime's threads, this waits on that of the test.
fn owns(rig: &Rig, count: usize) {
    let look = || (rig.polls.now().owned == count).then_some(());
    eventually(&format!("it owns {count}"), look);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_accepted_result_is_published_once_although_it_was_tried_twice() {
    let folder = Folder::new("polling");
    let db = embedded(&folder).await;
    let (table, hub) = (MemoryTable::embedded(1), Arc::new(Hub::default()));
    let queues = Arc::new(Queues::default());
    let rig = Rig::start_with(&db, &table, &hub, "a", Some(queues.clone()));
    let target = Receiver::start(0, &[200]);
    let endpoint = json!({ "id": "shop", "url": target.url(), "interval": "1s",
                           "publish_to": "results" });
    rig.polls.create(&endpoint).await.expect("is created");
    let nowhere = json!({ "id": "cart", "url": target.url(), "publish_to": "nowhere" });
    let refused = rig.polls.create(&nowhere).await.expect_err("there is no such queue");
    assert!(matches!(&refused, ChangeError::Bad(flaws) if flaws[0].field == "publish_to"));
    queues.has_taken("results", 2).await;
    rig.stop().await;
    let kept = polls_store::results(&db, "shop", 100).await.expect("reads");
    let mut taken = queues.taken.borrow().clone();
    taken.reverse();
    let ids: Vec<String> = kept
        .iter()
        .map(|row| format!("{}/{}.{}/{}", row.id, row.epoch, row.counter, row.slot))
        .collect();
    assert_eq!(taken.iter().map(|(_, id, _)| id.clone()).collect::<Vec<_>>(), ids);
    assert!(taken.iter().all(|(queue, _, body)| queue == "results" && body["ok"] == true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_its_queue_does_not_take_is_counted() {
    let folder = Folder::new("polling");
    let db = embedded(&folder).await;
    let (table, hub) = (MemoryTable::embedded(1), Arc::new(Hub::default()));
    let queues = Arc::new(Queues::default());
    let rig = Rig::start_with(&db, &table, &hub, "a", Some(queues.clone()));
    let target = Receiver::start(0, &[200]);
    let endpoint = json!({ "id": "shop", "url": target.url(), "interval": "1s",
                           "publish_to": "full" });
    rig.polls.create(&endpoint).await.expect("is created");
    let tried = || (!queues.tried.lock().expect("not poisoned").is_empty()).then_some(());
    eventually("a result is tried", tried);
    let (polls, metrics) = (rig.polls.clone(), rig.metrics.clone());
    rig.stop().await;
    let kept = polls_store::results(&db, "shop", 100).await.expect("reads").len();
    assert_eq!(polls.now().unpublished, kept as u64, "all of them, now that the node has stopped");
    let (mut registry, mut text) = (Registry::default(), String::new());
    metrics.register(&mut registry);
    encode(&mut text, &registry).expect("is text");
    assert!(text.contains(&format!("\nskep_poll_unpublished_total {kept}\n")), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_shares_when_another_comes_and_has_all_again_when_it_goes() {
    let folder = Folder::new("polling");
    let db = embedded(&folder).await;
    let (table, hub) = (MemoryTable::embedded(1), Arc::new(Hub::default()));
    let first = Rig::start(&db, &table, &hub, "a");
    for number in 0..6 {
        let endpoint = json!({ "id": format!("ep-{number}"), "url": "http://127.0.0.1:1/",
                               "interval": "24h" });
        first.polls.create(&endpoint).await.expect("is created");
    }
    owns(&first, 6);
    let second = Rig::start(&db, &table, &hub, "b");
    owns(&second, 3);
    owns(&first, 3);
    assert_eq!(second.nodes.overview().nodes.len(), 2);
    second.stop().await;
    owns(&first, 6);
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_is_deleted_and_made_again_has_no_results_of_the_old_one() {
    let folder = Folder::new("polling");
    let db = embedded(&folder).await;
    let (table, hub) = (MemoryTable::embedded(1), Arc::new(Hub::default()));
    let queues = Arc::new(Queues::default());
    let rig = Rig::start_with(&db, &table, &hub, "a", Some(queues.clone()));
    let target = Receiver::start(0, &[200]);
    let url = target.url();
    let endpoint =
        |queue: &str| json!({ "id": "shop", "url": url, "interval": "1s", "publish_to": queue });
    let old = rig.polls.create(&endpoint("old")).await.expect("is created");
    queues.has_taken("old", 1).await;
    rig.polls.delete("shop").await.expect("is deleted");
    let new = rig.polls.create(&endpoint("new")).await.expect("is created again");
    assert!(new.born > old.born);
    queues.has_taken("new", 2).await;
    let results = rig.polls.results("shop", 10).await.expect("reads");
    assert!(!results.is_empty());
    assert!(results.iter().all(|row| row.born == new.born), "{results:?}");
    rig.stop().await;
}

#[tokio::test]
async fn others_work_while_an_import_reads_many_lines() {
    let folder = Folder::new("polling");
    let db = embedded(&folder).await;
    let (table, hub) = (MemoryTable::embedded(1), Arc::new(Hub::default()));
    let rig = Rig::start(&db, &table, &hub, "a");
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = turns.clone();
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    // One thread does everything, and because all lines are wrong the database is not asked.
    let report = rig.polls.import(&b"{}\n".repeat(2_000), false).await.expect("is read");
    assert_eq!((report.wrong.len(), report.done), (2_000, None));
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns >= 5, "the other had {turns} turns");
    other.abort();
    rig.stop().await;
}
