//! What becomes of unusual answers. Every row is a row of `docs/http.md`.

use crate::kit::{Answer, Bench, Talk, Upstream};
use serde_json::{Value, json};
use std::io;

/// One upstream that does not behave.
pub struct Case {
    /// What it does.
    pub comes: &'static str,
    /// What the client sees, in words.
    pub happens: &'static str,
    /// What it does after it has read the head of the request; whether it behaves from then on.
    script: fn(&mut Talk) -> io::Result<bool>,
    ends: Ends,
}

enum Ends {
    /// With this status of the proxy's own, and this code.
    Refused(u16, &'static str),
    /// With an answer, as it should look.
    Passed(fn(&Answer)),
    /// The client has the beginning of an answer, and sees that it is not whole.
    Cut,
}

use Ends::{Cut, Passed, Refused};

const ANSWER: &str = "E_UPSTREAM_ANSWER";
const BROKE: &str = "E_UPSTREAM_BROKE";
const OK: &str = "HTTP/1.1 200 OK\r\n";

fn case(
    comes: &'static str,
    happens: &'static str,
    script: fn(&mut Talk) -> io::Result<bool>,
    ends: Ends,
) -> Case {
    Case { comes, happens, script, ends }
}

fn says(talk: &mut Talk, bytes: &str) -> io::Result<bool> {
    talk.say(bytes)?;
    Ok(true)
}

fn hello(answer: &Answer) {
    assert_eq!((answer.status, answer.text()), (200, "hello"), "{answer:?}");
}

/// Connections that end or break.
pub fn endings() -> Vec<Case> {
    vec![
        case(
            "it breaks the connection",
            "502",
            |talk| talk.reset().map(|()| false),
            Refused(502, BROKE),
        ),
        case("it ends the connection", "502", |_| Ok(false), Refused(502, BROKE)),
        case(
            "it ends the connection within the head",
            "502",
            |talk| talk.say("HTTP/1.1 200 OK\r\nX: ").map(|()| false),
            Refused(502, BROKE),
        ),
        case(
            "fewer bytes than `Content-Length` says",
            "the client's connection is cut",
            |talk| talk.say(format!("{OK}Content-Length: 9\r\n\r\nhello")).map(|()| false),
            Cut,
        ),
        case(
            "it breaks the connection within the body",
            "the client's connection is cut",
            |talk| {
                talk.say(format!("{OK}Content-Length: 9\r\n\r\nhello"))?;
                talk.reset().map(|()| false)
            },
            Cut,
        ),
        case(
            "chunks without the last one",
            "the client's connection is cut",
            |talk| {
                talk.say(format!("{OK}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))?;
                Ok(false)
            },
            Cut,
        ),
        case(
            "chunks that make no sense",
            "the client's connection is cut",
            |talk| {
                says(talk, &format!("{OK}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"))
            },
            Cut,
        ),
        case(
            "more bytes than `Content-Length` says",
            "the client gets so many; the rest is dropped, with the upstream's connection",
            |talk| {
                says(talk, &format!("{OK}Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n"))
            },
            Passed(hello),
        ),
        case(
            "bytes after the last chunk",
            "the same",
            |talk| {
                let body = "5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
                says(talk, &format!("{OK}Transfer-Encoding: chunked\r\n\r\n{body}"))
            },
            Passed(hello),
        ),
        case(
            "204 with a body",
            "passed on without; the upstream's connection is closed",
            |talk| {
                let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
                says(talk, &format!("HTTP/1.1 204 No Content\r\nContent-Length: 47\r\n\r\n{evil}"))
            },
            Passed(|answer| {
                assert_eq!(answer.status, 204);
                assert!(answer.values("content-length").is_empty(), "{answer:?}");
            }),
        ),
        case(
            "304 with a body",
            "the same; its `Content-Length` is kept",
            |talk| {
                let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
                says(
                    talk,
                    &format!("HTTP/1.1 304 Not Modified\r\nContent-Length: 47\r\n\r\n{evil}"),
                )
            },
            Passed(|answer| {
                assert_eq!((answer.status, answer.values("content-length")), (304, vec!["47"]));
            }),
        ),
        case(
            "a body that ends with the connection",
            "passed on in chunks",
            |talk| talk.say(format!("{OK}\r\nhello")).map(|()| false),
            Passed(|answer| {
                hello(answer);
                assert_eq!(answer.values("transfer-encoding"), ["chunked"]);
            }),
        ),
        case(
            "a body that ends with a broken connection",
            "the client's connection is cut",
            |talk| {
                talk.say(format!("{OK}\r\nhello"))?;
                // Whatever the client does next must find the connection broken.
                talk.reset().map(|()| false)
            },
            Cut,
        ),
        case(
            "HTTP/1.0",
            "passed on as HTTP/1.1",
            |talk| talk.say("HTTP/1.0 200 OK\r\n\r\nhello").map(|()| false),
            Passed(hello),
        ),
    ]
}

/// Heads.
pub fn heads() -> Vec<Case> {
    vec![
        case(
            "`Content-Length` and `Transfer-Encoding`",
            "502",
            |talk| {
                let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
                says(talk, &format!("{OK}{both}\r\n5\r\nhello\r\n0\r\n\r\n"))
            },
            Refused(502, ANSWER),
        ),
        case(
            "`Content-Length` twice",
            "502",
            |talk| says(talk, &format!("{OK}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello")),
            Refused(502, ANSWER),
        ),
        case(
            "another `Transfer-Encoding` than `chunked`",
            "502",
            |talk| says(talk, &format!("{OK}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")),
            Refused(502, ANSWER),
        ),
        case(
            "`Transfer-Encoding` in HTTP/1.0",
            "502",
            |talk| says(talk, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            Refused(502, ANSWER),
        ),
        case(
            "LF alone after a line",
            "502",
            |talk| says(talk, "HTTP/1.1 200 OK\nContent-Length: 0\n\n"),
            Refused(502, ANSWER),
        ),
        case(
            "a folded field",
            "502",
            |talk| says(talk, &format!("{OK}Content-Length: 0\r\nX: a\r\n b\r\n\r\n")),
            Refused(502, ANSWER),
        ),
        case(
            "more than 100 fields",
            "502",
            |talk| says(talk, &format!("{OK}{}\r\n", "a: b\r\n".repeat(101))),
            Refused(502, ANSWER),
        ),
        case(
            "a head that does not end",
            "502 after 64 KiB",
            |talk| {
                talk.say(format!("{OK}X: "))?;
                while talk.say([b'x'; 4_096]).is_ok() {}
                Ok(false)
            },
            Refused(502, ANSWER),
        ),
        case(
            "something that is not HTTP/1",
            "502",
            |talk| says(talk, "SSH-2.0-OpenSSH_9.6\r\n"),
            Refused(502, ANSWER),
        ),
        case(
            "a status beyond 599",
            "502",
            |talk| says(talk, "HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n"),
            Refused(502, ANSWER),
        ),
        case(
            "101 that nobody asked for",
            "502",
            |talk| {
                says(talk, "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n")
            },
            Refused(502, ANSWER),
        ),
        case(
            "interim answers such as 103",
            "passed on, up to 31; not to HTTP/1.0",
            |talk| {
                let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(31);
                says(talk, &format!("{early}{OK}Content-Length: 5\r\n\r\nhello"))
            },
            Passed(|answer| {
                hello(answer);
                assert_eq!(answer.interim.len(), 31);
                assert!(answer.interim[0].contains("Link: </a>"), "{:?}", answer.interim);
            }),
        ),
        case(
            "interim answers without end",
            "502 after 32",
            |talk| {
                while talk.say("HTTP/1.1 102 Processing\r\n\r\n").is_ok() {}
                Ok(false)
            },
            Refused(502, ANSWER),
        ),
        case(
            "fields for its neighbour only, `Upgrade` with another status than 101",
            "dropped",
            |talk| {
                let fields = "Connection: x-mine\r\nX-Mine: 1\r\nKeep-Alive: 9\r\nUpgrade: h2\r\n";
                says(talk, &format!("{OK}{fields}Content-Length: 5\r\n\r\nhello"))
            },
            Passed(|answer| {
                hello(answer);
                for name in ["x-mine", "keep-alive", "upgrade", "connection"] {
                    assert!(answer.values(name).is_empty(), "{name}: {answer:?}");
                }
            }),
        ),
        case(
            "`Connection` that names `Content-Length`",
            "the length is passed on all the same",
            |talk| {
                let fields = "Connection: content-length\r\nContent-Length: 5\r\n";
                says(talk, &format!("{OK}{fields}\r\nhello"))
            },
            Passed(hello),
        ),
        case(
            "trailers",
            "passed on, but for those that change how a message is read",
            |talk| {
                let body = "5;x\r\nhello\r\n0\r\nX-Sum: 1\r\nContent-Length: 4\r\n\r\n";
                says(talk, &format!("{OK}Transfer-Encoding: chunked\r\n\r\n{body}"))
            },
            Passed(|answer| {
                hello(answer);
                assert_eq!(answer.trailers, "X-Sum: 1\n");
            }),
        ),
    ]
}

/// Waiting.
pub fn waits() -> Vec<Case> {
    vec![
        case(
            "it takes the request and says nothing",
            "504 after `timeouts.head`",
            |talk| {
                talk.wait_for_end();
                Ok(false)
            },
            Refused(504, "E_UPSTREAM_SLOW"),
        ),
        case(
            "it does not get to the end of the head",
            "504 after `timeouts.head`",
            |talk| {
                talk.say(OK)?;
                talk.wait_for_end();
                Ok(false)
            },
            Refused(504, "E_UPSTREAM_SLOW"),
        ),
        case(
            "it stops within the body",
            "the client's connection is cut after `timeouts.idle`",
            |talk| {
                talk.say(format!("{OK}Content-Length: 9\r\n\r\nhello"))?;
                talk.wait_for_end();
                Ok(false)
            },
            Cut,
        ),
    ]
}

/// All of them, by what they are about.
pub fn tables() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("How an answer ends", endings()),
        ("The head of an answer", heads()),
        ("Upstreams that do not go on", waits()),
    ]
}

fn check(cases: Vec<Case>, timeouts: Value) {
    for Case { comes, script, ends, .. } in cases {
        let upstream = Upstream::new(move |talk| {
            while let Some(heard) = talk.hear()? {
                if heard.target() == "/case" {
                    if !script(talk)? {
                        return Ok(());
                    }
                } else {
                    talk.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nafter")?;
                }
            }
            Ok(())
        });
        let more = json!({ "retry": { "tries": 0 }, "timeouts": timeouts });
        let bench = Bench::new(&[&upstream], more);
        let mut client = bench.client();
        client.send("GET /case HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = client.try_answer(false);
        let expected = match (&ends, &answer) {
            (Refused(status, code), Ok(answer)) => {
                assert_eq!((answer.status, answer.code().as_str()), (*status, *code), "{comes}");
                *status
            }
            (Passed(check), Ok(answer)) => {
                check(answer);
                answer.status
            }
            (Cut, Err(_)) => {
                let (rest, _) = client.rest();
                assert!(!rest.windows(5).any(|five| five == b"HTTP/"), "{comes}: no other answer");
                200
            }
            (_, answer) => panic!("{comes}: {answer:?}; {}", bench.told()),
        };
        // Nothing of it may be seen by whoever comes next.
        for next in [&mut bench.client(), &mut bench.client()] {
            next.send("GET /after HTTP/1.1\r\nHost: a\r\n\r\n");
            let after = next.answer();
            assert_eq!((after.status, after.text()), (200, "after"), "{comes}: {after:?}");
        }
        drop(client);
        let statuses: Vec<_> = bench.recorded(3).iter().map(|one| one.status).collect();
        assert_eq!(statuses, [expected, 200, 200], "{comes}");
        let cases = upstream.heard().iter().filter(|one| one.target() == "/case").count();
        assert_eq!(cases, 1, "{comes}: it is asked once");
    }
}

#[test]
fn an_answer_that_ends_too_early_or_too_late_harms_nobody_else() {
    check(endings(), json!({}));
}

#[test]
fn a_head_that_can_be_read_in_two_ways_is_not_passed_on() {
    check(heads(), json!({}));
}

#[test]
fn whoever_does_not_go_on_is_not_waited_for() {
    check(waits(), json!({ "head": "100ms", "idle": "100ms" }));
}
