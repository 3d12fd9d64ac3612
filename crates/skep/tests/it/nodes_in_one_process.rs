//! A node is an object: several in one process over one shared embedded store.

use skep::node::Node;
use skep::settings::{Layers, Settings, resolve};
use skep_policy::Time;
use skep_store::{BootClock, Database, StoreError, Stores};
use skep_testkit::{FakeClock, Folder, http};
use std::sync::Arc;
use std::time::Duration;

fn settings(folder: &Folder) -> Settings {
    let mut layers = Layers::default();
    layers.add_flag("--data", "data", &folder.path().display().to_string());
    layers.add_flag("--listen", "api.listen", "127.0.0.1:0");
    resolve(layers).expect("is valid").settings
}

fn get(node: &Node, path: &str) -> http::Answer {
    let url = format!("http://{}{path}", node.shared().address);
    http::get(&url).expect("answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_the_store_and_nothing_else() {
    let folder = Folder::new("nodes");
    let settings = settings(&folder);
    let stores = Stores::open(&settings.store_options()).expect("opens");
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let clock = Arc::new(BootClock);
        let node = Node::start(settings.clone(), stores.clone(), clock).await.expect("starts");
        assert!(node.ready().await);
        nodes.push(node);
    }
    let about: Vec<_> = nodes.iter().map(|node| get(node, "/api/v1/node").json()).collect();
    assert!(about.iter().all(|one| one["installation"] == about[0]["installation"]));
    let names: std::collections::BTreeSet<&str> =
        about.iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names.len(), 3, "each has its own name, by its port: {names:?}");

    // One stops; the others and the store go on.
    let mut first = nodes.remove(0);
    first.stop();
    first.ended().await.expect("ends well");
    assert!(http::get(&format!("http://{}/health", first.shared().address)).is_err());
    assert!(nodes.iter().all(|node| get(node, "/health").status == 200));
    for node in &mut nodes {
        node.stop();
        node.ended().await.expect("ends well");
    }
    let Database::Sqlite(sqlite) = stores.database() else { unreachable!("it is embedded") };
    sqlite.read(|_| Ok::<_, StoreError>(())).await.expect("the store outlives its nodes");
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_ready_serves_the_routes_of_the_database() {
    let folder = Folder::new("nodes");
    let settings = settings(&folder);
    let stores = Stores::open(&settings.store_options()).expect("opens");
    for is_there in [false, true, true] {
        let clock = Arc::new(BootClock);
        let node = Node::start(settings.clone(), stores.clone(), clock).await;
        let mut node = node.expect("starts");
        assert!(node.ready().await);
        // At once: whoever is told that it is ready sends it requests.
        assert_eq!(node.shared().routes.known().get("shop").is_some(), is_there);
        if !is_there {
            let body = r#"{"name": "shop", "upstreams": ["127.0.0.1:9"]}"#;
            let url = format!("http://{}/api/v1/routes", node.shared().address);
            let made = http::send("POST", &url, &[], Some(body)).expect("answers");
            assert_eq!(made.status, 201, "{}", made.body);
        }
        node.stop();
        node.ended().await.expect("ends well");
    }
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_opening_of_the_folder_in_the_same_process_is_refused() {
    let folder = Folder::new("nodes");
    let options = settings(&folder).store_options();
    let stores = Stores::open(&options).expect("opens");
    let error = Stores::open(&options).map(|_| ()).expect_err("it is open");
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_store_dies_under_it_ends_and_says_why() {
    let folder = Folder::new("nodes");
    let settings = settings(&folder);
    let stores = Stores::open(&settings.store_options()).expect("opens");
    let mut node =
        Node::start(settings, stores.clone(), Arc::new(BootClock)).await.expect("starts");
    assert!(node.ready().await);
    stores.close().await;
    let failure = node.ended().await.expect_err("half a node is worse than none");
    assert_eq!(failure.service, "stores");
    assert!(failure.to_string().contains("writer ended"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_in_a_node_is_the_clock_it_was_given() {
    let folder = Folder::new("nodes");
    let settings = settings(&folder);
    let stores = Stores::open(&settings.store_options()).expect("opens");
    let clock = Arc::new(FakeClock::at(Time::from_millis(1_000)));
    let node = Node::start(settings, stores.clone(), clock.clone()).await.expect("starts");
    assert!(node.ready().await);
    assert_eq!(get(&node, "/health").json()["uptime_seconds"], 0.0);
    clock.advance(Duration::from_secs(90));
    assert_eq!(get(&node, "/health").json()["uptime_seconds"], 90.0);
    assert!(get(&node, "/metrics").body.contains("skep_uptime_seconds 90.0\n"));
}
