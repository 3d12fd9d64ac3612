//! Routes of a file and of the API, through a real node to real upstreams.

pub mod kit;

use crate::common::{command, run, until};
use kit::{Client, Place, Upstream, ask, hang_up, send};
use serde_json::{Value, json};
use skep_testkit::certificates::Authority;
use skep_testkit::{EchoWorker, Node, Postgres, Proxy, WebSocket, eventually};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const ROUTES: &str = "/api/v1/routes";

fn shop(upstreams: &[&Upstream]) -> String {
    let addresses: Vec<_> = upstreams.iter().map(|one| format!("{:?}", one.address())).collect();
    format!(
        "[[routes]]\nname = \"shop\"\nhost = \"shop.example\"\nupstreams = [{}]\n",
        addresses.join(", ")
    )
}

fn names(node: &Node) -> Vec<String> {
    let list = node.get(ROUTES).json();
    let all = list["routes"].as_array().cloned().unwrap_or_default();
    all.iter().filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
}

fn events(node: &Node, query: &str) -> Vec<Value> {
    let answer = node.get(&format!("{ROUTES}/events?{query}")).json();
    answer["events"].as_array().cloned().unwrap_or_default()
}

#[test]
fn routes_of_the_file_share_their_work_beside_sessions_on_the_same_port() {
    let (one, two) = (Upstream::start("one"), Upstream::start("two"));
    let place = Place::new(&shop(&[&one, &two]));
    let node = place.start(&[]);
    let mut client = Client::connect(node.gateway());
    for number in 0..10 {
        let answer = client.ask("shop.example", &format!("/{number}?q=1")).expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.ends_with(&format!(" /{number}?q=1")), "{answer:?}");
        assert!(!answer.header("x-request-id").is_empty(), "{answer:?}");
    }
    assert_eq!((one.served(), two.served()), (5, 5), "equals take turns");

    let echo = EchoWorker::start();
    let worker = json!({ "name": "w", "kind": "chromium", "url": echo.url(), "start": "1" });
    assert_eq!(send(&node, "POST", "/api/v1/sessions/workers", &worker).0, 200);
    let mut session = WebSocket::connect(node.gateway(), "/", &[]);
    assert_eq!(session.status(), 101, "{}", session.head());
    assert!(session.echoes("hello"));
    drop(session);
    assert_eq!(ask(&node, "other.example", "/").status, 426, "what is no route's is a session's");

    let list = node.get(ROUTES).json();
    let shop = &list["routes"][0];
    let line = shop["source"]["place"].as_str().unwrap_or_default();
    assert!(line.ends_with("skep.toml:1"), "{shop}");
    assert_eq!(shop["now"]["upstreams"][0]["answered"], 5, "{shop}");
    assert_eq!(node.stop().code, 0, "{}", node.process().log());
}

#[test]
fn a_wrong_file_is_told_line_by_line_by_the_check_and_at_the_start() {
    let text = "[[routes]]\nname = \"shop\"\nupstreams = [\n  \"10.0.0.1:8080\",\n  \
                { address = \"https://x\", weight = 0 },\n]\n\n[[routes]]\nname = \"shop\"\n\
                hosst = \"a\"\nupstreams = [\"a:1\"]\n";
    let place = Place::new(text);
    let (ended, said) = run(place.folder.path(), &["config", "check", "skep.toml"]);
    assert_eq!(ended.code, 64, "{said}");
    for wanted in [
        "skep.toml:5: routes[0].upstreams[1].address",
        "skep.toml:5: routes[0].upstreams[1].weight",
        "skep.toml:10: routes[1].hosst is not a known field; did you mean host?",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let (ended, said) = run(place.folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, 64, "{said}");
    assert!(said.contains("skep.toml:5: routes[0]"), "{said}");

    let twice = "[[routes]]\nname = \"a\"\nupstreams = [\"a:1\"]\n[[routes]]\nname = \"b\"\n\
                 upstreams = [\"a:1\"]\n[[route]]\nname = \"c\"\n";
    place.write(twice);
    let (_, said) = run(place.folder.path(), &["config", "check", "skep.toml"]);
    assert!(said.contains("skep.toml:4: routes[1].path"), "both are for everything: {said}");
    assert!(said.contains("unknown setting `route`; did you mean `routes`?"), "{said}");

    place.write("[[routes]]\nname = \"a\"\nworkers = \"gpu\"\npolicy = \"lifetime-first\"\n");
    let (_, said) = run(place.folder.path(), &["config", "check", "skep.toml"]);
    assert!(said.contains("give \"budgeted\", which the kind \"gpu\" has"), "{said}");

    place.write("[[routes]]\nname = \"a\"\nupstreams = [\"a:1\"]\n");
    let (ended, said) = run(place.folder.path(), &["config", "print"]);
    assert_eq!(ended.code, 0, "{said}");
    assert!(said.contains("a: */ to a:1") && said.contains("skep.toml:1"), "{said}");
}

#[test]
fn the_file_is_read_again_whole_or_not_at_all() {
    let (one, two) = (Upstream::start("one"), Upstream::start("two"));
    let place = Place::new(&shop(&[&one]));
    let node = place.start(&[]);
    assert_eq!(ask(&node, "shop.example", "/").body, "one /");

    place.write(&format!("{}\n[[routes]]\nname = 3\n", shop(&[&two])));
    let (status, refused) = send(&node, "POST", &format!("{ROUTES}/reload"), &Value::Null);
    assert_eq!((status, &refused["code"]), (400, &json!("E_ROUTE_INVALID")), "{refused}");
    let flaws = refused["flaws"].as_array().cloned().unwrap_or_default();
    assert!(flaws.len() >= 2, "name and upstreams: {refused}");
    let first = flaws[0]["detail"].as_str().unwrap_or_default();
    assert!(first.contains("skep.toml:7: routes[1].name"), "{refused}");
    assert_eq!(ask(&node, "shop.example", "/").body, "one /", "nothing has changed");
    hang_up(&node, "the routes stay as they were");
    assert_eq!(ask(&node, "shop.example", "/").body, "one /");

    place.write(&shop(&[&two]));
    hang_up(&node, "the routes were read again");
    assert_eq!(ask(&node, "shop.example", "/").body, "two /");
    place.write("");
    let (code, said) = place.skep(&node, &["routes", "reload"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("removed: shop"), "{said}");
    assert_eq!(ask(&node, "shop.example", "/").status, 426);
    std::fs::remove_file(place.file()).expect("removes");
    let (code, said) = place.skep(&node, &["routes", "reload"]);
    assert!(code == 1 && said.contains("cannot be read"), "{said}");
    assert_eq!(node.stop().code, 0);
}

#[test]
fn twenty_reloads_under_load_cost_no_request_and_no_connection() {
    let (one, two) = (Upstream::start("one"), Upstream::start("two"));
    let place = Place::new(&shop(&[&one, &two]));
    let node = place.start(&[]);
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let steady = |number: usize| {
        let mut client = Client::connect(node.gateway());
        let mut asked = 0;
        while !over.load(Ordering::SeqCst) {
            let path = format!("/{number}/{asked}");
            let answer = client.ask("shop.example", &path).expect("the connection stays");
            assert!(answer.status == 200 && answer.body.ends_with(&path), "{answer:?}");
            asked += 1;
            answered.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let steady = &steady;
        let clients: Vec<_> = (0..4).map(|number| scope.spawn(move || steady(number))).collect();
        for round in 0..20 {
            let seen = answered.load(Ordering::SeqCst);
            let upstreams: &[&Upstream] = match round % 3 {
                0 => &[&one],
                1 => &[&two],
                _ => &[&one, &two],
            };
            place.write(&format!("{}strip_prefix = {}\n", shop(upstreams), round % 2 == 0));
            let (status, done) = send(&node, "POST", &format!("{ROUTES}/reload"), &Value::Null);
            assert_eq!((status, &done["changed"]), (200, &json!(["shop"])), "{done}");
            let dead = || clients.iter().any(|client| client.is_finished());
            until("requests go on", || dead() || answered.load(Ordering::SeqCst) > seen + 20);
        }
        over.store(true, Ordering::SeqCst);
    });
    assert!(one.served() > 0 && two.served() > 0);
    assert_eq!(node.stop().code, 0);
}

#[test]
fn routes_of_the_api_have_versions_and_the_file_wins_over_them() {
    let (one, two) = (Upstream::start("one"), Upstream::start("two"));
    let place = Place::new(&shop(&[&one]));
    let node = place.start(&[]);
    let blog = json!({ "name": "blog", "host": "blog.example", "upstreams": [two.address()] });
    let (status, made) = send(&node, "POST", ROUTES, &blog);
    assert_eq!((status, &made["source"]["from"]), (201, &json!("api")), "{made}");
    assert_eq!(ask(&node, "blog.example", "/x").body, "two /x");
    assert_eq!(send(&node, "POST", ROUTES, &blog).0, 200, "asked again, it is there");
    let version = made["version"].as_i64().expect("a version");
    let path = format!("{ROUTES}/blog");
    let shown = node.get(&path);
    assert_eq!(shown.header("etag"), format!("\"{version}\""));
    assert_eq!(shown.json()["spec"]["timeouts"]["connect"], "4s", "defaults are written out");

    let mut other = blog.clone();
    other["upstreams"] = json!([one.address()]);
    let refused = |(status, body): (u16, Value)| (status, body["code"].clone());
    let code = |code: &str| json!(code);
    let stale = format!("{path}?version={}", version - 1);
    assert_eq!(refused(send(&node, "PUT", &stale, &other)), (409, code("E_ROUTE_CHANGED")));
    assert_eq!(refused(send(&node, "POST", ROUTES, &other)), (409, code("E_ROUTE_EXISTS")));
    let fresh = format!("{path}?version={version}");
    assert_eq!(send(&node, "PUT", &fresh, &other).0, 200);
    assert_eq!(ask(&node, "blog.example", "/x").body, "one /x");
    let rival = json!({ "name": "rival", "host": "blog.example", "upstreams": ["a:1"] });
    assert_eq!(refused(send(&node, "POST", ROUTES, &rival)), (409, code("E_ROUTE_EXISTS")));

    let ours = json!({ "name": "shop", "upstreams": ["a:1"] });
    let (status, body) = send(&node, "PUT", &format!("{ROUTES}/shop"), &ours);
    assert_eq!((status, &body["code"]), (409, &json!("E_ROUTE_OF_FILE")), "{body}");
    let detail = body["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("skep.toml:1"), "it names the file: {detail}");
    let of_file = refused(send(&node, "DELETE", &format!("{ROUTES}/shop"), &Value::Null));
    assert_eq!(of_file, (409, code("E_ROUTE_OF_FILE")));
    let closing = json!({ "enabled": true });
    let of_file = refused(send(&node, "POST", &format!("{ROUTES}/shop/maintenance"), &closing));
    assert_eq!(of_file, (409, code("E_ROUTE_OF_FILE")));
    let wrong = json!({ "name": "x y", "upstreams": ["a"], "retry": { "tires": 1 } });
    let (status, body) = send(&node, "POST", ROUTES, &wrong);
    assert_eq!((status, body["flaws"].as_array().map(Vec::len)), (400, Some(3)), "{body}");
    let taken = json!({ "name": "stats", "upstreams": ["a:1"] });
    assert_eq!(refused(send(&node, "POST", ROUTES, &taken)), (400, code("E_ROUTE_INVALID")));

    // A file that takes the place later wins, and says so.
    place.write(&format!("{}\n{}", shop(&[&one]), shop(&[&two]).replace("shop", "blog")));
    let (_, done) = send(&node, "POST", &format!("{ROUTES}/reload"), &Value::Null);
    let warning = done["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.contains("\"blog\" of the API is not used"), "{done}");
    assert_eq!(ask(&node, "blog.example", "/x").body, "two /x");
    assert_eq!(send(&node, "DELETE", &path, &Value::Null).0, 204, "the hidden one can go");
    assert_eq!(names(&node), ["shop", "blog"]);
    assert_eq!(node.get(&format!("{ROUTES}/none")).status, 404);
    let audit = node.get("/api/v1/audit").body;
    for action in ["routes.create", "routes.replace", "routes.delete", "routes.reload"] {
        assert!(audit.contains(action), "{action}: {audit}");
    }
    assert_eq!(node.stop().code, 0);
}

#[test]
fn a_change_on_one_node_is_served_by_the_other_within_a_second() {
    let server = Postgres::shared().database();
    let (one, two) = (Upstream::start("one"), Upstream::start("two"));
    let place = Place::new("");
    let database = server.url();
    let start = |name: &str| {
        let set_name = format!("node.name={name}");
        let more = ["--database", &database, "--set", &set_name];
        place.start_as(name, &more, Node::start)
    };
    let (a, b) = (start("a"), start("b"));
    let body = |node: &Node| ask(node, "blog.example", "/").body;
    let mut spans = Vec::new();
    let mut timed = |what: &str, check: &dyn Fn() -> bool| {
        let began = Instant::now();
        until(what, check);
        spans.push(began.elapsed());
    };
    // Whoever listens has to be connected first.
    let first = json!({ "name": "first", "host": "first.example", "upstreams": [one.address()] });
    assert_eq!(send(&a, "POST", ROUTES, &first).0, 201);
    until("b follows", || ask(&b, "first.example", "/").status == 200);
    let mut blog = json!({ "name": "blog", "host": "blog.example", "upstreams": [one.address()] });
    assert_eq!(send(&a, "POST", ROUTES, &blog).0, 201);
    timed("b serves it", &|| body(&b) == "one /");
    blog["upstreams"] = json!([two.address()]);
    assert_eq!(send(&b, "PUT", &format!("{ROUTES}/blog"), &blog).0, 200);
    timed("a serves the new one", &|| body(&a) == "two /");
    assert_eq!(send(&a, "DELETE", &format!("{ROUTES}/blog"), &Value::Null).0, 204);
    timed("b serves it no more", &|| ask(&b, "blog.example", "/").status == 426);
    assert!(spans.iter().all(|span| *span < Duration::from_secs(1)), "{spans:?}");
    assert_eq!((a.stop().code, b.stop().code), (0, 0));
}

#[test]
fn routes_of_the_file_work_without_the_database() {
    let one = Upstream::start("one");
    let place = Place::new(&shop(&[&one]));
    let database = "postgres://skep@127.0.0.1:1/none";
    let more = ["--database", database, "--set", "shutdown.drain_timeout=500ms"];
    let node = place.start_as("data", &more, Node::start_unready);
    assert_eq!(ask(&node, "shop.example", "/").body, "one /");
    place.write(&shop(&[&one]).replace("shop.", "cart."));
    hang_up(&node, "the routes were read again");
    assert_eq!(ask(&node, "cart.example", "/").body, "one /");
    let (status, body) = send(&node, "POST", ROUTES, &json!({ "name": "x", "upstreams": ["a:1"] }));
    assert_eq!(status, 503, "{body}");
    assert_eq!(node.stop().code, 0, "{}", node.process().log());
}

#[test]
fn while_the_database_hangs_routes_serve_on_and_the_node_can_stop() {
    let server = Postgres::shared().database();
    let proxy = Proxy::start(Postgres::shared().address());
    let one = Upstream::start("one");
    let place = Place::new("");
    let database = server.url_through(proxy.port());
    let drain = "shutdown.drain_timeout=500ms";
    let node = place.start(&["--database", &database, "--set", drain]);
    let route = json!({ "name": "blog", "host": "blog.example", "upstreams": [one.address()] });
    assert_eq!(send(&node, "POST", ROUTES, &route).0, 201);
    proxy.freeze();
    for _ in 0..3 {
        assert_eq!(ask(&node, "blog.example", "/fail").status, 500, "with an event to be written");
    }
    let began = Instant::now();
    let ended = node.stop();
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    assert!(!node.process().log().contains("routes had not stopped"), "{}", node.process().log());
    assert!(ended.code >= 0, "it ended by itself");
}

#[test]
fn a_route_is_added_explained_closed_and_removed_with_verbs() {
    let one = Upstream::start("one");
    let place = Place::new("");
    let node = place.start(&[]);
    let skep = |arguments: &[&str]| place.skep(&node, arguments);
    let (code, said) = skep(&["routes", "ls"]);
    assert!(code == 0 && said.contains("no route"), "{said}");
    let to = format!("{}=2", one.address());
    let add = ["routes", "add", "shop", "--host", "shop.example", "--path", "/api", "--to", &to];
    let (code, said) = skep(&add);
    assert!(code == 0 && said.contains("shop serves shop.example/api"), "{said}");
    assert_eq!(ask(&node, "shop.example", "/api/x").body, "one /api/x");
    let (code, said) = skep(&["routes", "add", "shop", "--to", "a:1=much"]);
    assert!(code == 64 && said.contains("the weight is no number"), "{said}");
    let (code, said) = skep(&["routes", "add", "bad", "--host", "-", "--to", "https://a"]);
    assert!(code == 1 && said.contains("upstreams[0].address") && said.contains("host"), "{said}");
    let (_, said) = skep(&["routes", "ls"]);
    assert!(said.contains("1 of 1 upstreams") && said.contains("API, version"), "{said}");
    let (_, said) = skep(&["routes", "show", "shop"]);
    assert!(said.contains("\"weight\": 2") && said.contains("ready"), "{said}");

    let (code, said) = skep(&["routes", "test", "http://shop.example/api/x"]);
    assert_eq!(code, 0, "{said}");
    for wanted in ["route     shop", "path      /api/x", "retried   yes"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(said.contains(&format!("upstream  {}", one.address())), "{said}");
    let (code, said) = skep(&["routes", "test", "http://shop.example/apis"]);
    assert!(code == 1 && said.contains("belongs to no route"), "{said}");
    let (code, said) = skep(&["routes", "test", "shop"]);
    assert!(code == 1 && said.contains("give one such as http://host/path"), "{said}");

    let (code, said) = skep(&["routes", "maintenance", "on", "shop"]);
    assert!(code == 0 && said.contains("closed for maintenance"), "{said}");
    let closed = ask(&node, "shop.example", "/api");
    assert_eq!((closed.status, closed.header("retry-after")), (503, "60"), "{closed:?}");
    assert!(closed.body.contains("Down for maintenance"), "{closed:?}");
    let (_, said) = skep(&["routes", "test", "http://shop.example/api"]);
    assert!(said.contains("answered  here: maintenance"), "{said}");
    assert_eq!(skep(&["routes", "maintenance", "off", "shop"]).0, 0);
    assert_eq!(ask(&node, "shop.example", "/api").status, 200);
    let (code, said) = skep(&["routes", "rm", "shop", "none"]);
    assert!(code == 1 && said.contains("shop deleted") && said.contains("none"), "{said}");
    assert_eq!(node.stop().code, 0);
}

#[test]
fn what_went_over_a_route_is_counted_logged_and_measured() {
    let one = Upstream::start("one");
    let place = Place::new(&shop(&[&one]));
    let node = place.start(&["--set", "node.name=a"]);
    let mut client = Client::connect(node.gateway());
    for path in ["/a", "/b", "/fail"] {
        client.ask("shop.example", path).expect("an answer");
    }
    let stats = eventually("the minute is written", || {
        let stats = node.get(&format!("{ROUTES}/shop/stats?minutes=5")).json();
        (stats["total"]["requests"] == 3).then_some(stats)
    });
    let total = &stats["total"];
    assert_eq!((&total["answers"]["2xx"], &total["answers"]["5xx"]), (&json!(2), &json!(1)));
    assert!(total["p99_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{stats}");
    let bytes = ["one /a", "one /b", "one /fail"].map(str::len).iter().sum::<usize>();
    assert_eq!(total["bytes_out"], bytes, "{stats}");
    let (code, said) = place.skep(&node, &["routes", "stats"]);
    assert!(code == 0 && said.contains("shop"), "{said}");
    assert_eq!(node.get(&format!("{ROUTES}/none/stats")).status, 404);
    let month = node.get(&format!("{ROUTES}/shop/stats?minutes=43200")).json();
    assert_eq!((&month["step"], &month["total"]["requests"]), (&json!(30), &json!(3)));
    let at = month["points"][0]["at_ms"].as_i64().expect("a point");
    assert_eq!(at % (30 * 60_000), 0, "{month}");
    for (query, wanted) in [
        ("minutes=0", "`minutes` cannot be 0, it must be from 1 to 43200"),
        ("minutes=43201", "`minutes` cannot be 43201"),
        ("minutes=43200&step=1", "`step` cannot be 1, it must be from 30 to 43200"),
    ] {
        let answer = node.get(&format!("{ROUTES}/shop/stats?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.body.contains(wanted), "{}", answer.body);
    }

    let failed = eventually("the failure is an event", || {
        events(&node, "route=shop&kind=error").into_iter().next()
    });
    assert_eq!((&failed["status"], &failed["node"]), (&json!(500), &json!("a")), "{failed}");
    let (_, said) = place.skep(&node, &["routes", "events", "--kind", "error"]);
    assert!(said.contains("shop") && said.contains("500"), "{said}");
    assert_eq!(node.get(&format!("{ROUTES}/events?kind=odd")).status, 400);

    let logged = eventually("the requests are in the access log", || {
        let (_, said) = place.skep(&node, &["access", "--route", "shop", "--json"]);
        (said.lines().count() == 3).then_some(said)
    });
    let line: Value = serde_json::from_str(logged.lines().next().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {logged}"));
    assert_eq!((&line["host"], &line["protocol"]), (&json!("shop.example"), &json!("1.1")));
    assert_eq!((&line["upstream"], &line["tries"]), (&json!(one.address()), &json!(1)), "{line}");

    let metrics = node.get("/metrics").body;
    for wanted in [
        "skep_route_requests_total{route=\"shop\",class=\"2xx\"} 2",
        "skep_route_requests_total{route=\"shop\",class=\"5xx\"} 1",
        "skep_route_request_seconds_count{route=\"shop\"} 3",
        "skep_route_upstreams{route=\"shop\",standing=\"ready\"} 1",
        "skep_route_events_total{kind=\"error\",status=\"500\"} 1",
        "skep_route_events_dropped_total 0",
    ] {
        assert!(metrics.contains(wanted), "{wanted}: {metrics}");
    }
    assert_eq!(node.stop().code, 0);
}

#[test]
fn who_asks_too_often_is_told_when_to_come_again_and_a_flood_is_few_events() {
    let one = Upstream::start("one");
    let rate = "limits = { rate = { requests = 2, per = \"1h\" } }\n";
    let place = Place::new(&format!("{}{rate}", shop(&[&one])));
    let node = place.start(&[]);
    let mut client = Client::connect(node.gateway());
    let began = Instant::now();
    let answers: Vec<_> =
        (0..200).map(|_| client.ask("shop.example", "/").expect("an answer")).collect();
    let flood = began.elapsed();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses[..3], [200, 200, 429]);
    assert!(statuses[2..].iter().all(|status| *status == 429), "{statuses:?}");
    assert_eq!(one.served(), 2);
    let wait: u64 = answers[2].header("retry-after").parse().expect("a number of seconds");
    assert!((1..=1_800).contains(&wait), "{wait}");
    assert!(answers[2].body.contains("E_RATE_LIMITED"), "{:?}", answers[2]);
    until("all are told", || {
        let metrics = node.get("/metrics").body;
        let counted = "skep_route_events_total{kind=\"rate-limited\",status=\"429\"} 198";
        let told = events(&node, "kind=rate-limited");
        metrics.contains(counted) && told.len() >= 2
    });
    let told = events(&node, "kind=rate-limited");
    let most = 2 + usize::try_from(flood.as_secs()).expect("short");
    assert!(told.len() <= most, "{} events in {flood:?}", told.len());
    assert!(told[0]["detail"].as_str().is_some_and(|text| text.contains("times within a second")));
    assert_eq!(node.stop().code, 0);
}

#[test]
fn each_request_of_a_route_to_workers_is_a_session_of_its_kind() {
    let (one, two) = (Upstream::start("one"), Upstream::start("two"));
    let text = "[[routes]]\nname = \"pages\"\nhost = \"pages.example\"\nworkers = \"renderers\"\n";
    let place = Place::new(text);
    let node = place.start(&["--set", "sessions.wait_max=300ms"]);
    let none = ask(&node, "pages.example", "/");
    assert_eq!(none.status, 503, "{none:?}");
    assert!(none.body.contains("E_WORKERS_AWAY"), "{none:?}");
    let workers = "/api/v1/sessions/workers";
    for (name, upstream) in [("w1", &one), ("w2", &two)] {
        let url = format!("http://{}/base", upstream.address());
        let body = json!({ "name": name, "kind": "renderers", "url": url, "start": "1" });
        assert_eq!(send(&node, "POST", workers, &body).0, 200);
    }
    let mut client = Client::connect(node.gateway());
    for number in 0..6 {
        let answer = client.ask("pages.example", &format!("/{number}")).expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.ends_with(&format!(" /base/{number}")), "{answer:?}");
    }
    let count = |field: &str| -> u64 {
        let of = |name| node.get(&format!("{workers}/{name}")).json()[field].as_u64().unwrap_or(99);
        of("w1") + of("w2")
    };
    until("each was a session, and all are over", || {
        (count("lifetime"), count("active")) == (6, 0)
    });
    let (_, said) = place.skep(&node, &["routes", "test", "http://pages.example/"]);
    assert!(said.contains("one of kind renderers"), "{said}");
    assert_eq!(node.stop().code, 0);
}

#[test]
fn a_host_with_a_certificate_is_served_over_tls_and_a_new_one_is_taken_up() {
    let authority = Authority::new();
    let place = Place::new("");
    let install = |days: i64| {
        let made = authority.sign("localhost", days);
        for (name, text) in [("key.pem", &made.key), ("cert.pem", &made.certificate)] {
            std::fs::write(place.folder.join(name), text).expect("writes");
        }
    };
    install(90);
    std::fs::write(place.folder.join("trusted.pem"), authority.pem()).expect("writes");
    let path = |name: &str| place.folder.join(name).display().to_string();
    let listen = format!("127.0.0.1:{}", skep_testkit::free_port());
    let file = |certificate: &str| {
        format!(
            "[gateway]\nlisten = \"127.0.0.1:0\"\ntls_listen = \"127.0.0.1:0\"\n\
             [api]\nlisten = \"{listen}\"\n\
             [[routes]]\nname = \"self\"\nhost = \"localhost\"\nupstreams = [\"{listen}\"]\n\
             tls = {{ certificate = \"{certificate}\", key = \"{}\", redirect = true }}\n",
            path("key.pem")
        )
    };
    place.write(&file(&path("cert.pem")));
    let node = place.start(&["--listen", &listen, "--set", "gateway.threads=1"]);
    let line = node.process().wait_for_line("gateway, TLS");
    let port = line.trim_end_matches('/').rsplit(':').next().unwrap_or_default().to_owned();
    let url = format!("https://localhost:{port}");
    // A key is asked for: what was passed on is not taken for a request of this machine.
    let is_reached = || {
        let mut asking = command(place.folder.path(), &["status", "--json", "--url", &url]);
        asking.env("SSL_CERT_FILE", path("trusted.pem")).env_remove("SSL_CERT_DIR");
        let output = asking.output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.contains("answered 401: A key is needed").then_some(()).ok_or(said)
    };
    assert_eq!(is_reached(), Ok(()), "the node through its own route");
    let plain = ask(&node, "localhost", "/x?y=1");
    assert_eq!((plain.status, plain.header("location")), (308, "https://localhost/x?y=1"));

    let left = || {
        let metrics = node.get("/metrics").body;
        let name = "skep_route_certificate_left_seconds{host=\"localhost\"} ";
        let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.parse::<i64>().ok());
        found.unwrap_or(0) / 86_400
    };
    assert!((88..=90).contains(&left()), "{}", left());
    install(60);
    until("the new one is taken up", || (58..=60).contains(&left()));
    assert_eq!(is_reached(), Ok(()));
    place.write(&file("/nowhere.pem"));
    let (code, said) = place.skep(&node, &["routes", "reload"]);
    assert!(code == 1 && said.contains("routes[0].tls.certificate"), "{said}");
    assert_eq!(is_reached(), Ok(()), "the one before stays");
    assert_eq!(node.stop().code, 0);
}

#[test]
fn live_streams_tell_of_routes_and_what_happens_to_them() {
    let one = Upstream::start("one");
    let place = Place::new(&shop(&[&one]));
    let node = place.start(&[]);
    let mut stream = std::net::TcpStream::connect(node.address()).expect("connects");
    stream.set_read_timeout(Some(skep_testkit::PATIENCE)).expect("sets");
    std::io::Write::write_all(&mut stream, b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("writes");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stream));
    let mut next = || {
        let mut found = false;
        loop {
            let line = lines.next().expect("the stream goes on").expect("is read");
            match line.strip_prefix("data: ") {
                Some(data) if found => {
                    return serde_json::from_str::<Value>(data).expect("is JSON");
                }
                _ => found = line == "event: routes",
            }
        }
    };
    let first = next();
    assert_eq!(first["routes"][0]["name"], "shop", "{first}");
    assert_eq!(ask(&node, "shop.example", "/fail").status, 500);
    let told = eventually("the event comes", || {
        let told = next();
        told["events"].as_array().is_some_and(|events| !events.is_empty()).then_some(told)
    });
    assert_eq!(told["events"][0]["kind"], "error", "{told}");
    assert_eq!(told["events"][0]["status"], 500, "{told}");
    assert_eq!(node.stop().code, 0);
}
