//! Why the proxy itself answers a request.

use std::time::Duration;

/// A kind of refusal: its name, its status and its title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalCode {
    /// Stable; what help pages go by.
    pub name: &'static str,
    /// The status of the answer.
    pub status: u16,
    /// The code in words.
    pub title: &'static str,
}

/// A request that is answered by the proxy itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the answer.
    pub status: u16,
    /// The kind of refusal.
    pub code: &'static str,
    /// The kind in words.
    pub title: &'static str,
    /// What is wrong this time.
    pub message: String,
    /// When it is worth asking again.
    pub retry_after: Option<Duration>,
}

impl RefusalCode {
    /// A refusal of this kind, with what is wrong this time.
    pub fn because(&self, message: impl Into<String>) -> Refusal {
        Refusal {
            status: self.status,
            code: self.name,
            title: self.title,
            message: message.into(),
            retry_after: None,
        }
    }
}

impl Refusal {
    /// With when it is worth asking again.
    pub fn retry_after(self, span: Duration) -> Self {
        Refusal { retry_after: Some(span), ..self }
    }
}

/// The kinds there are.
pub mod codes {
    use super::RefusalCode;

    macro_rules! codes {
        ($($name:ident $status:literal $title:literal;)+) => {
            $(
                #[doc = $title]
                pub const $name: RefusalCode =
                    RefusalCode { name: stringify!($name), status: $status, title: $title };
            )+

            /// Every kind of refusal that is the proxy's own.
            pub const ALL: &[RefusalCode] = &[$($name),+];
        };
    }

    codes! {
        E_ENCODING_UNSUPPORTED 501 "The body's encoding is not known";
        E_EXPECTATION 417 "The expectation cannot be met";
        E_HEAD_TOO_LARGE 431 "The head of the request is too large";
        E_HEAD_TOO_SLOW 408 "The head of the request took too long";
        E_MAINTENANCE 503 "The route is in maintenance";
        E_METHOD_UNSUPPORTED 501 "The method is not known here";
        E_NO_ROUTE 404 "No route takes the request";
        E_PROTOCOL_UNSUPPORTED 505 "The version of HTTP is not known";
        E_PROXY_BODY_TOO_LARGE 413 "The body is too large for the route";
        E_PROXY_BODY_TOO_SLOW 408 "The body of the request took too long";
        E_RATE_LIMITED 429 "Too many requests";
        E_REQUEST_INVALID 400 "The request cannot be read with certainty";
        E_TLS_NEEDED 308 "The route is served over TLS only";
        E_UPSTREAMS_BUSY 503 "No upstream takes requests";
        E_UPSTREAM_ANSWER 502 "The upstream's answer makes no sense";
        E_UPSTREAM_AWAY 502 "The upstream cannot be reached";
        E_UPSTREAM_BROKE 502 "The upstream broke off";
        E_UPSTREAM_SLOW 504 "The upstream took too long";
        E_WORKERS_AWAY 503 "No worker can be had";
    }
}
