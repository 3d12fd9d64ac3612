//! What becomes of unusual requests. Every row is a row of `docs/http.md`.

use crate::kit::{Bench, Heard, Upstream};
use serde_json::json;
use skep_routes::ProxyOptions;

/// One unusual request.
pub struct Case {
    /// What comes.
    pub comes: &'static str,
    /// What becomes of it, in words.
    pub happens: &'static str,
    sends: Vec<u8>,
    ends: Ends,
}

enum Ends {
    /// With this status, before an upstream has heard anything. The connection ends.
    Refused(u16),
    /// With this status, when an upstream has heard the head, and never the end of the body.
    Stopped(u16),
    /// An upstream gets it, as it should look; the connection goes on.
    Passed(fn(&Heard)),
    /// It is for somebody behind the proxy who is not an upstream.
    Unclaimed,
}

use Ends::{Passed, Refused, Stopped, Unclaimed};

fn case(comes: &'static str, happens: &'static str, sends: impl Into<Vec<u8>>, ends: Ends) -> Case {
    Case { comes, happens, sends: sends.into(), ends }
}

fn get(fields: &str) -> String {
    format!("GET /case HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n")
}

fn post(fields: &str, body: &str) -> String {
    format!("POST /case HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n{body}")
}

fn chunks(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

fn target(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n")
}

fn only(heard: &Heard, name: &str, value: &str) {
    assert_eq!(heard.values(name), [value], "{name} in {}", heard.head);
}

fn none(heard: &Heard, name: &str) {
    assert!(heard.values(name).is_empty(), "{name} in {}", heard.head);
}

/// Where a body ends.
pub fn lengths() -> Vec<Case> {
    let length = "Content-Length: 5\r\n";
    let twice = "Content-Length: 5\r\nContent-Length: 5\r\n";
    let differ = "Content-Length: 5\r\nContent-Length: 50\r\n";
    let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
    let both_other = "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n";
    let huge = "Content-Length: 18446744073709551616\r\n";
    let old = "POST /case HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let encoding = |value: &str| post(&format!("Transfer-Encoding:{value}\r\n"), "0\r\n\r\n");
    vec![
        case("`Content-Length` twice, the same", "400", post(twice, "hello"), Refused(400)),
        case("`Content-Length` twice, different", "400", post(differ, "hello"), Refused(400)),
        case(
            "`Content-Length: 5, 5`",
            "400",
            post("Content-Length: 5, 5\r\n", "hello"),
            Refused(400),
        ),
        case(
            "`Content-Length` with a sign, in hexadecimal, empty, or not a number",
            "400",
            post("Content-Length: +5\r\n", "hello"),
            Refused(400),
        ),
        case("`Content-Length` beyond 64 bits", "400", post(huge, "hello"), Refused(400)),
        case(
            "`Content-Length` beyond `body_max`",
            "413",
            post("Content-Length: 1048577\r\n", "hello"),
            Refused(413),
        ),
        case(
            "`Content-Length` before `Transfer-Encoding`",
            "400",
            post(both, "0\r\n\r\n"),
            Refused(400),
        ),
        case(
            "`Transfer-Encoding` before `Content-Length`",
            "400",
            post(both_other, "0\r\n\r\n"),
            Refused(400),
        ),
        case("`Transfer-Encoding: xchunked`", "501", encoding(" xchunked"), Refused(501)),
        case("`Transfer-Encoding: identity`", "501", encoding(" identity"), Refused(501)),
        case("`Transfer-Encoding: gzip, chunked`", "501", encoding(" gzip, chunked"), Refused(501)),
        case(
            "`Transfer-Encoding: chunked, chunked`",
            "501",
            encoding(" chunked, chunked"),
            Refused(501),
        ),
        case(
            "`Transfer-Encoding` twice",
            "400",
            encoding(" chunked\r\nTransfer-Encoding: chunked"),
            Refused(400),
        ),
        case(
            "`Transfer-Encoding: chunked` with a tab or a form feed before it",
            "a tab is a space; a form feed is refused with 400",
            encoding("\x0cchunked"),
            Refused(400),
        ),
        case(
            "`Transfer-Encoding: CHUNKED`, with spaces around",
            "passed on as `chunked`",
            encoding(" \t CHUNKED  "),
            Passed(|heard| only(heard, "transfer-encoding", "chunked")),
        ),
        case("`Transfer-Encoding` in HTTP/1.0", "400", old, Refused(400)),
        case(
            "a body that looks like a request",
            "passed on as a body",
            post("Content-Length: 37\r\n", "GET /smuggled HTTP/1.1\r\nHost: a.t\r\n\r\n"),
            Passed(|heard| assert_eq!(heard.body.len(), 37)),
        ),
        case(
            "`Connection: content-length`",
            "the length is passed on all the same",
            post(&format!("{length}Connection: content-length\r\n"), "hello"),
            Passed(|heard| assert_eq!(heard.body, b"hello")),
        ),
        case(
            "`Content-Length: 0` with GET",
            "passed on without it",
            get("Content-Length: 0\r\n"),
            Passed(|heard| none(heard, "content-length")),
        ),
        case(
            "POST without a length",
            "passed on with `Content-Length: 0`",
            post("", ""),
            Passed(|heard| only(heard, "content-length", "0")),
        ),
    ]
}

/// Chunked bodies.
pub fn chunked() -> Vec<Case> {
    let line = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(5_000));
    let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(4_000));
    let forbidden = "5\r\nhello\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\nHost: evil\r\n\
                     X-Forwarded-For: 6.6.6.6\r\nTransfer-Encoding: chunked\r\n\r\n";
    vec![
        case(
            "chunk extensions",
            "dropped; the body is framed anew",
            chunks("5;a=\"b c\"\r\nhello\r\n0;z\r\n\r\n"),
            Passed(|heard| assert_eq!(heard.body, b"hello")),
        ),
        case("a size line longer than 4 KiB", "400", chunks(&line), Stopped(400)),
        case(
            "a size with sign, `0x`, or spaces around",
            "400",
            chunks("+5\r\nhello\r\n0\r\n\r\n"),
            Stopped(400),
        ),
        case("a space after the size", "400", chunks("5 \r\nhello\r\n0\r\n\r\n"), Stopped(400)),
        case("no size at all", "400", chunks("\r\nhello\r\n0\r\n\r\n"), Stopped(400)),
        case(
            "a size beyond 64 bits",
            "400",
            chunks("10000000000000005\r\nhello\r\n0\r\n\r\n"),
            Stopped(400),
        ),
        case(
            "a body beyond `body_max`",
            "413",
            chunks(&format!("200000\r\n{}", "x".repeat(0x20_0000))),
            Stopped(413),
        ),
        case("LF alone after the size", "400", chunks("5\nhello\r\n0\r\n\r\n"), Stopped(400)),
        case("LF alone in an extension", "400", chunks("5;\nhello\r\n0\r\n\r\n"), Stopped(400)),
        case("CR alone after the size", "400", chunks("5\rhello\r\n0\r\n\r\n"), Stopped(400)),
        case("no CR LF after the data", "400", chunks("5\r\nhello0\r\n\r\n"), Stopped(400)),
        case(
            "a chunk longer than it said",
            "400",
            chunks("5\r\nhello!\r\n0\r\n\r\n"),
            Stopped(400),
        ),
        case("LF alone after a trailer", "400", chunks("0\r\na: b\n\r\n"), Stopped(400)),
        case("trailers beyond 16 KiB", "400", chunks(&trailers), Stopped(400)),
        case("a folded trailer", "400", chunks("0\r\na: b\r\n c\r\n\r\n"), Stopped(400)),
        case("a trailer without a colon", "400", chunks("0\r\nabc\r\n\r\n"), Stopped(400)),
        case(
            "trailers",
            "passed on, but for those that change how a message is read or where it comes from",
            chunks(forbidden),
            Passed(|heard| assert_eq!(heard.trailers, "X-Sum: 1\n")),
        ),
    ]
}

/// Lines and fields.
pub fn lines() -> Vec<Case> {
    let many = "a: b\r\n".repeat(100);
    let most = "a: b\r\n".repeat(99);
    let large = format!("X: {}\r\n", "x".repeat(70_000));
    let near = format!("X: {}\r\n", "x".repeat(60_000));
    let named: String = (0..17).map(|number| format!("x{number},")).collect();
    vec![
        case("a folded field", "400", get("X: a\r\n b\r\n"), Refused(400)),
        case("a folded first field", "400", "GET /case HTTP/1.1\r\n Host: a\r\n\r\n", Refused(400)),
        case("LF alone after a line", "400", get("X: a\nY: b\r\n"), Refused(400)),
        case("LF alone after all lines", "400", "GET /case HTTP/1.1\nHost: a\n\n", Refused(400)),
        case("CR alone in a field", "400", get("X: a\rY: b\r\n"), Refused(400)),
        case("a NUL in a field", "400", get("X: a\0b\r\n"), Refused(400)),
        case("a space before the colon", "400", get("X : a\r\n"), Refused(400)),
        case(
            "a space before the colon of `Content-Length`",
            "400",
            post("Content-Length : 5\r\n", "hello"),
            Refused(400),
        ),
        case("a field without a colon", "400", get("nothing\r\n"), Refused(400)),
        case("a field without a name", "400", get(": a\r\n"), Refused(400)),
        case("more than 100 fields", "431", get(&many), Refused(431)),
        case("100 fields", "passed on", get(&most), Passed(|_| {})),
        case("a head of more than 64 KiB", "431", get(&large), Refused(431)),
        case("a head of nearly 64 KiB", "passed on", get(&near), Passed(|_| {})),
        case(
            "empty lines before the request",
            "passed over",
            format!("\r\n\r\n{}", get("")),
            Passed(|_| {}),
        ),
        case(
            "`Connection` with more than 16 names",
            "400",
            get(&format!("Connection: {named}\r\n")),
            Refused(400),
        ),
    ]
}

/// First lines and hosts.
pub fn targets() -> Vec<Case> {
    let absolute = "GET http://b.test:81/case?x HTTP/1.1\r\nHost: a.test\r\n\r\n";
    vec![
        case(
            "a whole address as target",
            "its host counts, `Host` does not",
            absolute,
            Passed(|heard| {
                assert_eq!(heard.target(), "/case?x");
                only(heard, "host", "b.test:81");
                only(heard, "x-forwarded-host", "b.test:81");
            }),
        ),
        case("an address with a user", "400", target("http://me@a.test/"), Refused(400)),
        case("another scheme", "400", target("ftp://a.test/"), Refused(400)),
        case("`OPTIONS *`", "400", "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
        case("CONNECT", "501", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(501)),
        case("a segment `.` or `..`", "400", target("/a/../b"), Refused(400)),
        case("the same with `%2e`", "400", target("/a/%2E%2e/b"), Refused(400)),
        case("the same beside `%2f` or `%5c`", "400", target("/a/..%2fb"), Refused(400)),
        case("`#` or a backslash in the target", "400", target("/a\\b"), Refused(400)),
        case("bytes beyond ASCII in the target", "400", target("/\u{e4}"), Refused(400)),
        case("two spaces in the first line", "400", target(" /case"), Refused(400)),
        case("a space in the path", "505", target("/case x"), Refused(505)),
        case("HTTP/0.9", "400", "GET /case\r\n\r\n", Refused(400)),
        case("HTTP/1.2", "505", "GET /case HTTP/1.2\r\nHost: a.test\r\n\r\n", Refused(505)),
        case("HTTP/3.0", "505", "GET /case HTTP/3.0\r\nHost: a.test\r\n\r\n", Refused(505)),
        case("something that is not HTTP", "400", "\x16\x03\x01\x02\n\n", Refused(400)),
        case("no `Host`", "400", "GET /case HTTP/1.1\r\n\r\n", Refused(400)),
        case("`Host` twice", "400", get("Host: b.test\r\n"), Refused(400)),
        case(
            "`Host` with anything else than a name and a port",
            "400",
            "GET /case HTTP/1.1\r\nHost: a.test/b\r\n\r\n",
            Refused(400),
        ),
        case(
            "a host without a route",
            "for the sessions' gateway, as if there were no routes",
            "GET /case HTTP/1.1\r\nHost: other\r\n\r\n",
            Unclaimed,
        ),
    ]
}

/// Fields that a client could use to be somebody else.
pub fn fields() -> Vec<Case> {
    let chain = "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 7.7.7.7\r\nForwarded: for=6.6.6.6\r\n\
                 X-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\n";
    let named = "Connection: x-forwarded-for, host, x-request-id, x-mine\r\nX-Mine: 1\r\n";
    let hop = "Keep-Alive: 9\r\nTE: trailers\r\nTrailer: a\r\nProxy-Authorization: b\r\n\
               Proxy-Connection: c\r\n";
    let bad_id = "X-Request-Id: a b\r\n";
    let h2c = "Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    let body = "Connection: upgrade\r\nUpgrade: a\r\nContent-Length: 5\r\n";
    vec![
        case(
            "`X-Forwarded-*` and `Forwarded` from somebody who is not trusted",
            "replaced",
            get(chain),
            Passed(|heard| {
                only(heard, "x-forwarded-for", "127.0.0.1");
                only(heard, "forwarded", "for=127.0.0.1;host=\"a.test\";proto=http");
                only(heard, "x-forwarded-host", "a.test");
                only(heard, "x-forwarded-proto", "http");
            }),
        ),
        case(
            "`Connection` that names `X-Forwarded-For`, `Host` or `X-Request-Id`",
            "these are passed on; other fields that it names are not",
            get(named),
            Passed(|heard| {
                only(heard, "host", "a.test");
                none(heard, "x-mine");
                none(heard, "connection");
            }),
        ),
        case(
            "fields for the next neighbour only, such as `Keep-Alive` or `TE`",
            "dropped",
            get(hop),
            Passed(|heard| {
                for name in ["keep-alive", "te", "trailer", "proxy-authorization"] {
                    none(heard, name);
                }
            }),
        ),
        case(
            "`X-Request-Id` with letters, digits and `-_.:+/=`",
            "kept",
            get("X-Request-Id: a-1\r\n"),
            Passed(|heard| only(heard, "x-request-id", "a-1")),
        ),
        case(
            "`X-Request-Id` with something else, or longer than 128",
            "replaced",
            get(bad_id),
            Passed(|heard| assert_eq!(heard.values("x-request-id")[0].len(), 16)),
        ),
        case(
            "`Expect` with something else than `100-continue`",
            "417",
            get("Expect: x\r\n"),
            Refused(417),
        ),
        case("`Upgrade` with a body", "400", post(body, "hello"), Refused(400)),
        case(
            "`Upgrade` that `Connection` does not name",
            "dropped",
            get("Upgrade: websocket\r\n"),
            Passed(|heard| none(heard, "upgrade")),
        ),
        case(
            "`Upgrade: h2c`",
            "dropped: nothing could be told of the requests behind it",
            get(h2c),
            Passed(|heard| {
                none(heard, "upgrade");
                none(heard, "http2-settings");
            }),
        ),
    ]
}

/// All of them, by what they are about.
pub fn tables() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("Where a request's body ends", lengths()),
        ("Chunked bodies", chunked()),
        ("Lines and fields", lines()),
        ("First lines and hosts", targets()),
        ("Fields with a meaning", fields()),
    ]
}

fn check(cases: Vec<Case>) {
    let upstream = Upstream::plain();
    let limits = json!({ "host": "*.test", "limits": { "body_max": "1MiB" } });
    let bench = Bench::with(ProxyOptions::default(), &[&upstream], limits);
    let mut records = 0;
    for Case { comes, sends, ends, .. } in cases {
        let before = upstream.heard().len();
        let mut client = bench.client();
        let mut packet = sends;
        packet
            .extend_from_slice(b"GET /after HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        // Whoever is refused need not take all of it.
        let _ = client.try_send(&packet);
        let answer = client.try_answer(false);
        let answer = answer.unwrap_or_else(|error| panic!("{comes}: no answer: {error}"));
        match ends {
            Refused(status) | Stopped(status) => {
                assert_eq!(answer.status, status, "{comes}: {answer:?}");
                assert!(answer.code().starts_with("E_"), "{comes}: a problem: {answer:?}");
                assert_eq!(answer.values("connection"), ["close"], "{comes}");
                client.ends();
                records += 1;
            }
            Passed(_) => {
                assert_eq!(answer.status, 200, "{comes}: {answer:?}");
                let after = client.answer();
                assert_eq!((after.status, after.text()), (200, "/after"), "{comes}");
                client.ends();
                records += 2;
            }
            Unclaimed => {
                assert_eq!(answer.values("x-unclaimed"), ["1"], "{comes}: {answer:?}");
                client.ends();
            }
        }
        drop(client);
        let statuses: Vec<_> = bench.recorded(records).iter().map(|one| one.status).collect();
        let expected = match ends {
            Refused(_) | Unclaimed => 0,
            Stopped(_) => 1,
            Passed(_) => 2,
        };
        let heard = upstream.heard_in_the_end(before, expected);
        match ends {
            Refused(status) => {
                assert_eq!(statuses.last(), Some(&status), "{comes}");
                assert!(heard.is_empty(), "{comes}: nothing gets through: {heard:?}");
            }
            Unclaimed => assert!(heard.is_empty(), "{comes}: nothing gets through: {heard:?}"),
            Stopped(status) => {
                assert_eq!(statuses.last(), Some(&status), "{comes}");
                assert_eq!(heard.len(), 1, "{comes}: nothing behind it gets through: {heard:?}");
                let whole = heard[0].whole;
                assert!(!whole, "{comes}: it is never whole: {heard:?}");
            }
            Passed(check) => {
                assert_eq!(heard.len(), 2, "{comes}: {heard:?}");
                check(&heard[0]);
            }
        }
    }
}

#[test]
fn a_body_has_one_end_or_the_request_is_refused() {
    check(lengths());
}

#[test]
fn chunks_are_read_strictly_and_framed_anew() {
    check(chunked());
}

#[test]
fn a_line_has_one_end_and_a_field_one_name() {
    check(lines());
}

#[test]
fn a_target_is_understood_as_everybody_would_or_refused() {
    check(targets());
}

#[test]
fn nobody_can_claim_to_be_somebody_else() {
    check(fields());
}

#[test]
fn every_way_to_write_a_length_wrongly_is_refused() {
    let wrong =
        ["-1", "0x5", "", "5 5", "5;", "5.0", "\"5\"", "\u{a0}5", "00000000000000000000005x"];
    let case = |value: &&str| {
        let sends = post(&format!("Content-Length: {value}\r\n"), "hello");
        case("a wrong length", "400", sends, Refused(400))
    };
    check(wrong.iter().map(case).collect());
}

#[test]
fn whoever_is_sent_to_tls_keeps_host_path_and_query() {
    let upstream = Upstream::plain();
    let files = json!({ "certificate": "/a.pem", "key": "/a.key", "redirect": true });
    let bench = Bench::new(&[&upstream], json!({ "host": "*", "tls": files }));
    for (host, expected) in [("a.test:80", "a.test"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]")] {
        let mut client = bench.client();
        client.send(format!("GET /a?b HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let answer = client.answer();
        let location = format!("https://{expected}/a?b");
        assert_eq!((answer.status, answer.values("location")), (308, vec![&location[..]]));
    }
    bench.recorded(3);
    assert!(upstream.heard().is_empty());
}
