//! Sockets: the listeners, one a thread, and what is set on connections.

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

/// Connections that may wait to be accepted; the system may allow fewer.
const BACKLOG: i32 = 4_096;
/// A peer that is silent for `KEEPALIVE` is asked whether it is there, and is gone if it has not
/// answered a few times.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMES: u32 = 3;

/// A listener for each thread, all at one address.
pub(crate) fn listeners(
    address: SocketAddr,
    threads: usize,
    unread_limit: Duration,
) -> io::Result<Vec<TcpListener>> {
    // Sockets that share a port would share it with another gateway too, and nobody would notice.
    // So the port must be free for somebody who does not share.
    let mut address = address;
    let alone = TcpListener::bind(address)?;
    address.set_port(alone.local_addr()?.port());
    drop(alone);
    (0..threads).map(|_| listener(address, unread_limit)).collect()
}

fn listener(address: SocketAddr, unread_limit: Duration) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    // Connections inherit what is set here, which saves calls for each of them. Whoever writes has
    // decided what belongs together, so that waiting for more would only delay it.
    sockopt::set_tcp_nodelay(&socket, true)?;
    keep_alive(&socket)?;
    // For a client that does not read the answer to a request; sessions have a limit of their own.
    let unread_limit = u32::try_from(unread_limit.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(&socket, unread_limit)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Has the system ask whether the other side is still there.
pub(crate) fn keep_alive(socket: impl AsFd) -> Result<(), Errno> {
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_TIMES)
}
