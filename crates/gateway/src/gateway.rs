//! The gateway as a whole: its threads, and their end.

use crate::desk::Desk;
use crate::front::Front;
use crate::limits::connections_by_file_limit;
use crate::listen::listeners;
use crate::metrics::GatewayMetrics;
use crate::options::GatewayOptions;
use crate::places::Places;
use crate::serve::{HandedOver, Listeners, Server};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections that may wait for a thread that another one has accepted them for.
const HANDED_OVER_MAX: usize = 1_024;
/// Threads that look up the names of workers, for each thread of the gateway.
const LOOKUPS_MAX: usize = 4;
/// For requests whose answers nobody reads, where sessions may stall for ever.
const UNREAD_LIMIT: Duration = Duration::from_secs(120);

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address is taken, or not of this machine.
    #[error("the gateway cannot listen on {address}: {error}")]
    Listen {
        /// The address it was told.
        address: SocketAddr,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The system gives no more threads.
    #[error("the gateway's thread cannot be started: {0}")]
    Thread(#[source] io::Error),
    /// A bug.
    #[error("a thread of the gateway ended by itself")]
    ThreadEnded,
}

/// A gateway that listens; [`Gateway::run`] makes it serve.
pub struct Gateway<D: Desk, F: Front = ()> {
    shared: Arc<Shared<D, F>>,
    listeners: Vec<Sockets>,
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
}

/// What one thread listens on: for plain connections, and for encrypted ones.
type Sockets = (TcpListener, Option<TcpListener>);

/// What all threads share.
pub(crate) struct Shared<D: Desk, F: Front> {
    pub desk: D,
    pub front: F,
    pub options: Arc<GatewayOptions>,
    pub metrics: GatewayMetrics,
    pub places: Arc<Places>,
    /// Sessions, and connections that the front serves: what is waited for at the end.
    pub sessions: TaskTracker,
    /// Cancelled when nothing new may begin.
    pub stop: CancellationToken,
}

impl<D: Desk, F: Front> Gateway<D, F> {
    /// Listens; clients that connect wait until it runs.
    pub fn bind(
        options: GatewayOptions,
        desk: D,
        front: F,
        metrics: GatewayMetrics,
    ) -> Result<Self, GatewayError> {
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            some => some,
        };
        let connections_max = match options.connections_max {
            0 => connections_by_file_limit(),
            some => some,
        };
        let unread_limit = match 2 * options.stall_max {
            Duration::ZERO => UNREAD_LIMIT,
            some => some,
        };
        let listen = |address| {
            let error = |error| GatewayError::Listen { address, error };
            let listeners = listeners(address, threads, unread_limit).map_err(error)?;
            let address = listeners[0].local_addr().map_err(error)?;
            Ok((listeners, address))
        };
        let (plain, address) = listen(options.listen)?;
        let (encrypted, tls_address) = match options.tls_listen.map(listen).transpose()? {
            Some((listeners, address)) => {
                (listeners.into_iter().map(Some).collect(), Some(address))
            }
            None => (plain.iter().map(|_| None).collect::<Vec<_>>(), None),
        };
        let listeners = plain.into_iter().zip(encrypted).collect();
        let shared = Shared {
            desk,
            front,
            places: Places::new(connections_max, threads, metrics.connections.clone()),
            metrics,
            sessions: TaskTracker::new(),
            stop: CancellationToken::new(),
            options: Arc::new(options),
        };
        Ok(Gateway { shared: Arc::new(shared), listeners, address, tls_address })
    }

    /// Where it listens, with the port that the system chose if none was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same for TLS.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// Serves on threads of its own until `stop`. Then nothing new begins, sessions and requests
    /// of the front may go on for as long as the options allow, and it returns when all have ended.
    pub async fn run(self, stop: CancellationToken) -> Result<(), GatewayError> {
        let Gateway { shared, listeners, .. } = self;
        let cut = CancellationToken::new();
        // Whatever makes this future end, dropping it included, ends the threads.
        let _stop_all = (shared.stop.clone().drop_guard(), cut.clone().drop_guard());
        let (senders, receivers): (Vec<_>, Vec<_>) =
            listeners.iter().map(|_| channel(HANDED_OVER_MAX)).unzip();
        let mut threads = Vec::new();
        for (number, (sockets, receiver)) in listeners.into_iter().zip(receivers).enumerate() {
            let (stop, cut) = (shared.stop.child_token(), cut.child_token());
            let (shared, senders) = (shared.clone(), senders.clone());
            let server = Server { shared, thread: number, threads: senders, stop, cut };
            threads.push(start(server, sockets, receiver).map_err(GatewayError::Thread)?);
        }
        drop(senders);
        let mut threads = tokio::task::JoinSet::from_iter(threads);
        tokio::select! {
            () = stop.cancelled() => {}
            _ = threads.join_next() => return Err(GatewayError::ThreadEnded),
        }
        shared.stop.cancel();
        shared.sessions.close();
        if timeout(shared.options.drain_limit, shared.sessions.wait()).await.is_err() {
            let count = shared.sessions.len();
            tracing::warn!(count, "what went on after the time for draining is cut");
        }
        cut.cancel();
        while let Some(ended) = threads.join_next().await {
            if !matches!(ended, Ok(Ok(()))) {
                return Err(GatewayError::ThreadEnded);
            }
        }
        Ok(())
    }
}

/// Starts a thread; the channel says that it has come to its end.
fn start<D: Desk, F: Front>(
    server: Server<D, F>,
    (plain, encrypted): Sockets,
    handed_over: Receiver<HandedOver>,
) -> io::Result<oneshot::Receiver<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(LOOKUPS_MAX)
        .thread_name("gateway-names")
        .build()?;
    let (ended, has_ended) = oneshot::channel();
    let serve = move || {
        let served = runtime.block_on(async {
            let plain = tokio::net::TcpListener::from_std(plain)?;
            let encrypted = encrypted.map(tokio::net::TcpListener::from_std).transpose()?;
            server.run(Listeners { plain, encrypted }, handed_over).await;
            io::Result::Ok(())
        });
        match served {
            // Nobody may wait for it any longer.
            Ok(()) => drop(ended.send(())),
            Err(error) => tracing::error!(%error, "a thread of the gateway cannot serve"),
        }
    };
    std::thread::Builder::new().name("gateway".to_owned()).spawn(serve)?;
    Ok(has_ended)
}
