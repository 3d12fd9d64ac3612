//! The gateway between real sockets.

mod carrying;
mod desk;
mod dialling;
mod draining;
mod front;
mod hostile;
mod kit;
mod metrics;
mod refusing;
mod tls;
