//! A node that polls, in this process: what is published, what is refused, what is given back.

use crate::store::sqlite as embedded;
use serde_json::json;
use skep_nodes::{MemoryTable, Nodes, NodesMetrics, TableStore, options_for};
use skep_polls::{
    ChangeError, Hub, Polls, PollsMetrics, PollsOptions, Prober, Publish, store as polls_store,
};
use skep_store::{BootClock, Database};
use skep_testkit::{Folder, PATIENCE, Receiver};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Takes results of every queue but `full`, each only at the second attempt.
#[derive(Default)]
struct Queues {
    tried: Mutex<HashMap<String, u32>>,
    taken: Mutex<Vec<(String, String, serde_json::Value)>>,
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
            if *count == 1 {
                return Err("try again".to_owned());
            }
            let entry = (queue.to_owned(), id.to_owned(), body);
            self.taken.lock().expect("not poisoned").push(entry);
            Ok(())
        })
    }
}

/// A node over an embedded database.
struct Rig {
    polls: Polls,
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
        let polls = Polls::new(
            db.clone(),
            nodes.clone(),
            hub.clone(),
            Prober::new().expect("can poll"),
            publish,
            PollsOptions::default(),
            PollsMetrics::default(),
            clock,
        );
        let (stop_nodes, stop_polls) = (CancellationToken::new(), CancellationToken::new());
        let (token, of_nodes) = (stop_nodes.clone(), nodes.clone());
        let running = async move { skep_nodes::run(of_nodes, token).await.expect("runs") };
        let (token, of_polls) = (stop_polls.clone(), polls.clone());
        let tasks = vec![tokio::spawn(running), tokio::spawn(skep_polls::run(of_polls, token))];
        Rig { polls, nodes, stop_nodes, stop_polls, tasks }
    }

    async fn stop(self) {
        let mut tasks = self.tasks.into_iter();
        self.stop_nodes.cancel();
        tasks.next().expect("nodes").await.expect("ends well");
        self.stop_polls.cancel();
        tasks.next().expect("polls").await.expect("ends well");
    }
}

async fn until(what: &str, check: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !check().await {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
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
    until("two results are published", async || {
        queues.taken.lock().expect("not poisoned").len() >= 2
    })
    .await;
    rig.stop().await;
    let kept = polls_store::results(&db, "shop", 100).await.expect("reads");
    let mut taken = queues.taken.lock().expect("not poisoned").clone();
    taken.reverse();
    let ids: Vec<String> = kept
        .iter()
        .map(|row| format!("{}/{}.{}/{}", row.id, row.epoch, row.counter, row.slot))
        .collect();
    assert_eq!(taken.iter().map(|(_, id, _)| id.clone()).collect::<Vec<_>>(), ids);
    assert!(taken.iter().all(|(queue, _, body)| queue == "results" && body["ok"] == true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_a_node_makes_no_calls_and_shares_when_another_comes() {
    let folder = Folder::new("polling");
    let db = embedded(&folder).await;
    let (table, hub) = (MemoryTable::embedded(1), Arc::new(Hub::default()));
    let first = Rig::start(&db, &table, &hub, "a");
    for number in 0..6 {
        let endpoint = json!({ "id": format!("ep-{number}"), "url": "http://127.0.0.1:1/",
                               "interval": "24h" });
        first.polls.create(&endpoint).await.expect("is created");
    }
    until("all are owned", async || first.polls.now().owned == 6).await;
    // What the last change led to comes to an end, and then ten ticks pass without a call.
    let quiet = async || {
        let calls = table.calls();
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        table.calls() == calls
    };
    until("there are no calls while nobody else is there", quiet).await;

    let second = Rig::start(&db, &table, &hub, "b");
    until("they share", async || (first.polls.now().owned, second.polls.now().owned) == (3, 3))
        .await;
    assert_eq!(second.nodes.overview().nodes.len(), 2);
    second.stop().await;
    until("the first has all again", async || first.polls.now().owned == 6).await;
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_is_deleted_and_made_again_has_no_results_of_the_old_one() {
    let folder = Folder::new("polling");
    let db = embedded(&folder).await;
    let (table, hub) = (MemoryTable::embedded(1), Arc::new(Hub::default()));
    let rig = Rig::start(&db, &table, &hub, "a");
    let slow = Receiver::start(0, &[200]);
    let endpoint = json!({ "id": "shop", "url": slow.url(), "interval": "1s" });
    let old = rig.polls.create(&endpoint).await.expect("is created");
    until("it has results", async || {
        !rig.polls.results("shop", 1).await.expect("reads").is_empty()
    })
    .await;
    rig.polls.delete("shop").await.expect("is deleted");
    let new = rig.polls.create(&endpoint).await.expect("is created again");
    assert!(new.born > old.born);
    until("it has results again", async || {
        rig.polls.results("shop", 10).await.expect("reads").len() >= 2
    })
    .await;
    let results = rig.polls.results("shop", 10).await.expect("reads");
    assert!(results.iter().all(|row| row.born == new.born), "{results:?}");
    rig.stop().await;
}
