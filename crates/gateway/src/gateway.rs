//! The gateway as a whole: its threads, and their end.

use crate::desk::Desk;
use crate::limits::connections_by_file_limit;
use crate::listen::listeners;
use crate::metrics::GatewayMetrics;
use crate::options::GatewayOptions;
use crate::places::Places;
use crate::serve::{HandedOver, Server};
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
pub struct Gateway<D: Desk> {
    shared: Arc<Shared<D>>,
    listeners: Vec<TcpListener>,
    address: SocketAddr,
}

/// What all threads share.
pub(crate) struct Shared<D: Desk> {
    pub desk: D,
    pub options: Arc<GatewayOptions>,
    pub metrics: GatewayMetrics,
    pub places: Arc<Places>,
    pub sessions: TaskTracker,
    /// Cancelled when nothing new may begin.
    pub stop: CancellationToken,
}

impl<D: Desk> Gateway<D> {
    /// Listens; clients that connect wait until it runs.
    pub fn bind(
        options: GatewayOptions,
        desk: D,
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
        let error = |error| GatewayError::Listen { address: options.listen, error };
        let listeners = listeners(options.listen, threads, unread_limit).map_err(error)?;
        let address = listeners[0].local_addr().map_err(error)?;
        let shared = Shared {
            desk,
            places: Places::new(connections_max, threads, metrics.connections.clone()),
            metrics,
            sessions: TaskTracker::new(),
            stop: CancellationToken::new(),
            options: Arc::new(options),
        };
        Ok(Gateway { shared: Arc::new(shared), listeners, address })
    }

    /// Where it listens, with the port that the system chose if none was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on threads of its own until `stop`. Then nothing new begins, sessions may go on for
    /// as long as the options allow, and it returns when all have ended.
    pub async fn run(self, stop: CancellationToken) -> Result<(), GatewayError> {
        let Gateway { shared, listeners, .. } = self;
        let cut = CancellationToken::new();
        // Whatever makes this future end, dropping it included, ends the threads.
        let _stop_all = (shared.stop.clone().drop_guard(), cut.clone().drop_guard());
        let (senders, receivers): (Vec<_>, Vec<_>) =
            listeners.iter().map(|_| channel(HANDED_OVER_MAX)).unzip();
        let mut threads = Vec::new();
        for (number, (listener, receiver)) in listeners.into_iter().zip(receivers).enumerate() {
            let (shared, cut) = (shared.clone(), cut.child_token());
            let server = Server { shared, thread: number, threads: senders.clone(), cut };
            threads.push(start(server, listener, receiver).map_err(GatewayError::Thread)?);
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
            tracing::warn!(count, "sessions went on after the time for draining, and are cut");
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
fn start<D: Desk>(
    server: Server<D>,
    listener: TcpListener,
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
            let listener = tokio::net::TcpListener::from_std(listener)?;
            server.run(listener, handed_over).await;
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
