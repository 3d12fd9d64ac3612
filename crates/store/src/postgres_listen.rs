//! A connection to PostgreSQL that listens.

use crate::hints::{ASK_EVERY, Hints, Inbox};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::AsyncMessage;
use tokio_postgres_rustls::MakeRustlsConnect;

/// How to reach the server outside the pool.
pub(crate) struct Dial {
    pub(crate) config: tokio_postgres::Config,
    pub(crate) tls: MakeRustlsConnect,
    /// How long connecting may take, and an answer.
    pub(crate) limit: Duration,
}

pub(crate) fn listen(dial: Arc<Dial>, channels: &[&str]) -> Hints {
    let quoted = |name: &&str| format!("LISTEN \"{}\";", name.replace('"', "\"\""));
    let listen: Arc<str> = channels.iter().map(quoted).collect::<String>().into();
    Hints::start(move |inbox| {
        let (dial, listen) = (dial.clone(), listen.clone());
        async move { attend(&dial, &listen, &inbox).await.unwrap_or(()) }
    })
}

/// One connection, to its end; nobody asks why it ended.
async fn attend(dial: &Dial, listen: &str, inbox: &Inbox) -> Option<()> {
    let connecting = dial.config.connect(dial.tls.clone());
    // The driver's own limit leaves out TLS and the login.
    let (client, mut connection) = timeout(2 * dial.limit, connecting).await.ok()?.ok()?;
    let ask = async {
        timeout(dial.limit, client.batch_execute(listen)).await.ok()?.ok()?;
        inbox.connected();
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            timeout(dial.limit, client.batch_execute("")).await.ok()?.ok()?;
        }
    };
    let hear = async {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notice) = message {
                inbox.notice(notice.channel(), notice.payload().to_owned());
            }
        }
    };
    tokio::select! {
        ended = ask => ended,
        () = hear => None,
    }
}
