//! HTTP/1 on the wire: heads, bodies, and what becomes of both on their way through.

pub mod body;
pub mod buffer;
pub mod chunked;
pub mod fields;
pub mod pump;
pub mod request;
pub mod response;

/// Fields that one head may have.
pub(crate) const FIELDS_MAX: usize = 100;
