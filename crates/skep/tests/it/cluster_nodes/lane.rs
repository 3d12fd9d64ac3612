//! Connections on which pops for another node come between everything else.

use super::kit::Trio;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;

/// A connection that stays open.
struct Client {
    stream: TcpStream,
    read: Vec<u8>,
    host: String,
}

#[derive(Debug)]
struct Said {
    head: String,
    body: String,
}

impl Said {
    fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut fields = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        fields.next().map(|(_, value)| value)
    }

    /// Its status, the node that made it, and the one that had it made.
    fn origin(&self) -> (&str, &str, Option<&str>) {
        let by = self.header("x-served-by").expect("a node made it");
        (&self.head[9..12], by, self.header("x-forwarded-by"))
    }
}

impl Client {
    fn of(trio: &Trio, place: usize) -> Self {
        let host = trio.address(place);
        let stream = TcpStream::connect(&host).expect("connects");
        stream.set_read_timeout(Some(skep_testkit::PATIENCE)).expect("a timeout can be set");
        stream.set_nodelay(true).expect("can be set");
        Client { stream, read: Vec::new(), host }
    }

    fn get(&self, path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nhost: {}\r\nx-request-id: mine\r\n\r\n", self.host)
    }

    fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("is taken");
    }

    /// The next answer.
    fn answer(&mut self) -> Said {
        loop {
            let text = String::from_utf8_lossy(&self.read).into_owned();
            if let Some((head, rest)) = text.split_once("\r\n\r\n") {
                let said = Said { head: head.to_owned(), body: String::new() };
                let length =
                    said.header("content-length").map_or(0, |n| n.parse().expect("is one"));
                if rest.len() >= length {
                    self.read.drain(..head.len() + 4 + length);
                    return Said { body: rest[..length].to_owned(), ..said };
                }
            }
            let mut more = [0; 4_096];
            let bytes = self.stream.read(&mut more).expect("is answered in time");
            assert!(bytes > 0, "the node closed the connection: {text}");
            self.read.extend_from_slice(&more[..bytes]);
        }
    }

    fn ask(&mut self, text: &str) -> Said {
        self.write(text);
        self.answer()
    }
}

#[test]
fn pops_for_another_node_come_and_go_between_everything_else_on_a_connection() {
    let trio = Trio::start(&[]);
    let (far, near) = (trio.queue_of(1, "g"), trio.queue_of(0, "g"));
    let mut client = Client::of(&trio, 0);
    let pop = |queue: &str| {
        let path = format!("/api/v1/pop/queue/{queue}?consumerGroup=g&subscriptionMode=all");
        client.get(&path)
    };
    let (there, here, health) = (pop(&far), pop(&near), client.get("/health"));
    let elsewhere = ("204", "b", Some("a"));
    for _ in 0..2 {
        let said = client.ask(&there);
        assert_eq!(said.origin(), elsewhere, "{said:?}");
        assert_eq!(said.header("x-request-id"), Some("mine"));
        assert_eq!(said.header("x-content-type-options"), Some("nosniff"));
        assert!(said.header("date").is_some() && said.header("content-length").is_none());
        assert_eq!(client.ask(&here).origin(), ("204", "a", None));
        assert_eq!(client.ask(&health).origin(), ("200", "a", None));
    }
    // A body that comes after its head, and then what it was about.
    let body = json!({ "items": [{ "queue": far, "payload": "honey" }] }).to_string();
    let (host, length) = (&client.host, body.len());
    let head = format!(
        "POST /api/v1/push HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    client.write(&head);
    assert_eq!(client.ask(&body).origin(), ("201", "a", None));
    let said = client.ask(&there);
    assert_eq!(said.origin(), ("200", "b", Some("a")));
    assert!(said.body.contains("\"honey\""), "{}", said.body);
    let counted = "skep_http_requests_total{method=\"GET\",route=\"/api/v1/pop/queue/{queue}\"";
    assert_eq!(trio.metric(0, counted), 5, "each is counted where it came to, once");

    // Several at once, and one in two pieces, get the same answers in their order.
    client.write(&format!("{there}{health}{there}"));
    assert_eq!(client.answer().origin(), elsewhere);
    assert_eq!(client.answer().origin(), ("200", "a", None));
    assert_eq!(client.answer().origin(), elsewhere);
    let (start, end) = there.split_at(30);
    client.write(start);
    assert_eq!(Client::of(&trio, 0).ask(&health).origin(), ("200", "a", None));
    assert_eq!(client.ask(end).origin(), elsewhere);

    // What looks like a request within another one is none: its host is a second one.
    let mut sly = Client::of(&trio, 0);
    sly.write(&format!("GET /health HTTP/1.1\r\nhost: {}\r\nx-long: ", sly.host));
    assert_eq!(Client::of(&trio, 0).ask(&health).origin(), ("200", "a", None));
    assert_eq!(sly.ask(&there).origin(), ("400", "a", None));
    assert_eq!(sly.ask(&health).origin(), ("200", "a", None), "there was one answer");

    // Whoever may not ask hears it from the node that was asked.
    let made = trio.post(0, "/api/v1/keys", &json!({ "name": "ops", "scopes": ["admin"] }));
    assert_eq!(made.status, 201, "{}", made.body);
    let said = Client::of(&trio, 0).ask(&there);
    assert_eq!(said.origin(), ("401", "a", None));
    assert!(said.body.contains("E_KEY_MISSING"), "{}", said.body);
}
