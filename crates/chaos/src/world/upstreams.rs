//! Small web servers for routes to lead to, which end, return, and are slow when they are told to.

use crate::polls::target::{read_head, write_all};
use skep_testkit::{free_port, pause};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Routes that there are, by their names.
pub const ROUTES: [&str; 2] = ["world-a", "world-b"];
/// Servers for each of them; not all are in use at any time.
pub const OF_EACH: usize = 4;
/// All servers.
pub const COUNT: usize = ROUTES.len() * OF_EACH;

/// What is asked of them to see how they are.
pub const HEALTH: &str = "/health";

/// How long one may take to listen again.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks.
const REST: Duration = Duration::from_millis(10);

/// How a server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Well,
    /// Answers take so long; how it is doing is answered at once.
    Slow(Duration),
    /// It takes requests and does not answer until it is well again.
    Silent,
    /// It does not run: its port is closed, and its connections are cut.
    Gone,
}

/// All of them; none before [`Upstreams::start`].
#[derive(Default)]
pub struct Upstreams {
    all: OnceLock<Vec<Upstream>>,
}

struct Upstream {
    port: u16,
    listens: Arc<AtomicBool>,
    manner: watch::Sender<Manner>,
}

/// The route of a server.
pub fn route_of(number: usize) -> usize {
    number / OF_EACH
}

/// The servers of a route.
pub fn of_route(route: usize) -> std::ops::Range<usize> {
    route * OF_EACH..(route + 1) * OF_EACH
}

/// What people call a server.
pub fn name(number: usize) -> String {
    let letter = ROUTES.get(route_of(number)).and_then(|route| route.chars().next_back());
    format!("{}-{}", letter.unwrap_or('?'), number % OF_EACH + 1)
}

impl Upstreams {
    /// Starts them, in the runtime that this is called in, and waits until all listen. They end
    /// with it.
    ///
    /// # Errors
    /// If one does not.
    pub async fn start(&self) -> Result<(), String> {
        let all = self.all.get_or_init(|| (0..COUNT).map(Upstream::start).collect());
        let listening = async {
            while !all.iter().all(|one| one.listens.load(Ordering::SeqCst)) {
                tokio::time::sleep(REST).await;
            }
        };
        let listening = tokio::time::timeout(LISTENS_WITHIN, listening).await;
        listening.map_err(|_| format!("upstreams do not listen within {LISTENS_WITHIN:?}"))
    }

    /// Where a server listens, as a route says it.
    pub fn address(&self, number: usize) -> String {
        let port = self.get(number).map_or(0, |upstream| upstream.port);
        format!("127.0.0.1:{port}")
    }

    /// Which server listens there.
    pub fn at(&self, address: &str) -> Option<usize> {
        (0..COUNT).find(|number| self.address(*number) == address)
    }

    /// Tells a server how to behave. It listens, or does not, when this returns.
    ///
    /// # Errors
    /// If it does not come back.
    pub fn set(&self, numbers: impl Iterator<Item = usize>, manner: Manner) -> Result<(), String> {
        let numbers: Vec<usize> = numbers.collect();
        let of = |number: &usize| self.get(*number);
        for upstream in numbers.iter().filter_map(of) {
            upstream.manner.send_replace(manner);
        }
        let deadline = Instant::now() + LISTENS_WITHIN;
        let listens = manner != Manner::Gone;
        let obeys = |one: &Upstream| one.listens.load(Ordering::SeqCst) == listens;
        while !numbers.iter().filter_map(of).all(obeys) {
            if Instant::now() >= deadline {
                return Err(format!("an upstream was not {manner:?} within {LISTENS_WITHIN:?}"));
            }
            pause(REST);
        }
        Ok(())
    }

    fn get(&self, number: usize) -> Option<&Upstream> {
        self.all.get().and_then(|all| all.get(number))
    }
}

impl Upstream {
    fn start(number: usize) -> Self {
        let (manner, heard) = watch::channel(Manner::Well);
        let (port, listens) = (free_port(), Arc::new(AtomicBool::new(false)));
        tokio::spawn(live(number, port, heard, listens.clone()));
        Upstream { port, listens, manner }
    }
}

/// Listens for as long as it should, again and again.
async fn live(
    number: usize,
    port: u16,
    mut manner: watch::Receiver<Manner>,
    listens: Arc<AtomicBool>,
) {
    while manner.wait_for(|manner| *manner != Manner::Gone).await.is_ok() {
        let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await else {
            // Somebody has it for a moment.
            tokio::time::sleep(REST).await;
            continue;
        };
        listens.store(true, Ordering::SeqCst);
        let end = CancellationToken::new();
        let accepting = accept(number, &listener, &manner, &end);
        let mut gone = manner.clone();
        tokio::select! {
            () = accepting => {}
            _ = gone.wait_for(|manner| *manner == Manner::Gone) => {}
        }
        end.cancel();
        drop(listener);
        listens.store(false, Ordering::SeqCst);
    }
}

async fn accept(
    number: usize,
    listener: &TcpListener,
    manner: &watch::Receiver<Manner>,
    end: &CancellationToken,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Without open files; some will be closed.
            tokio::time::sleep(REST).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (manner, end) = (manner.clone(), end.clone());
        tokio::spawn(async move { end.run_until_cancelled(serve(number, stream, manner)).await });
    }
}

async fn serve(number: usize, stream: TcpStream, mut manner: watch::Receiver<Manner>) {
    let mut kept = Vec::new();
    while let Some(head) = read_head(&stream, &mut kept).await {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let now = *manner.borrow_and_update();
        match now {
            Manner::Slow(span) if path != HEALTH => tokio::time::sleep(span).await,
            Manner::Silent | Manner::Gone => {
                if manner.wait_for(|manner| *manner != Manner::Silent).await.is_err() {
                    return;
                }
            }
            Manner::Slow(_) | Manner::Well => {}
        }
        let body = serde_json::json!({ "upstream": number, "path": path }).to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if write_all(&stream, answer.as_bytes()).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_testkit::http;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_says_who_it_is_and_is_gone_when_it_should_be() {
        let upstreams = Upstreams::default();
        upstreams.start().await.expect("they listen");
        let url = |number| format!("http://{}/world-a/7", upstreams.address(number));
        let answer = http::get(&url(5)).expect("answers").json();
        assert_eq!((&answer["upstream"], &answer["path"]), (&5.into(), &"/world-a/7".into()));
        assert_eq!(upstreams.at(&upstreams.address(5)), Some(5));
        assert_eq!((route_of(5), name(5)), (1, "b-2".to_owned()));
        upstreams.set(of_route(1), Manner::Gone).expect("they end");
        assert!(http::get(&url(5)).is_err() && http::get(&url(3)).is_ok());
        upstreams.set(of_route(1), Manner::Well).expect("they return");
        assert!(http::get(&url(5)).is_ok());
    }
}
