//! Hosts, path prefixes and addresses: their one way of writing, and what is legal.

use super::limits::{HOST_CHARS_MAX, PATH_BYTES_MAX};
use std::net::Ipv6Addr;

const LABEL_CHARS_MAX: usize = 63;
const PORT_OF_HTTP: u16 = 80;

/// What is wrong, and what would be right.
pub(super) type Fault = (&'static str, String);

/// A host as it is compared: in lower case, without the dot that ends a full name.
pub(super) fn normal_host(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('.').unwrap_or(&text);
    match bracketed(text) {
        Some(address) => format!("[{address}]"),
        None => text.to_owned(),
    }
}

/// What is wrong with a host in its normal form.
pub(super) fn fault_of_host(host: &str) -> Option<Fault> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let right = "give a host such as \"shop.example\", \"*.example\" or \"*\"";
    if host == "*" || is_host(name) && (name == host || bracketed(name).is_none()) {
        return if host == normal_host(host) {
            None
        } else {
            Some(("is not in its normal form", format!("give \"{}\"", normal_host(host))))
        };
    }
    let fault = if host.len() > HOST_CHARS_MAX {
        ("is too long", format!("give at most {HOST_CHARS_MAX} characters"))
    } else if host.contains("://") {
        ("is not a host", format!("{right}, without a scheme"))
    } else if host.contains('/') {
        ("is not a host", format!("{right}, and the path as `path`"))
    } else if split_address(host).is_some() {
        ("has a port", format!("{right}; routes are for every port"))
    } else if !host.is_ascii() {
        ("is not ASCII", "give the form that browsers send, such as \"xn--…\"".to_owned())
    } else if name.contains('*') {
        ("has a * elsewhere than in front", right.to_owned())
    } else {
        ("is not a host", right.to_owned())
    };
    Some(fault)
}

/// A path prefix without slashes at its end, which make no difference at segment borders.
pub(super) fn normal_path(text: &str) -> String {
    match text.trim_end_matches('/') {
        "" if text.starts_with('/') => "/".to_owned(),
        path => path.to_owned(),
    }
}

/// What is wrong with a path prefix in its normal form.
pub(super) fn fault_of_path(path: &str) -> Option<Fault> {
    let fault = if path.len() > PATH_BYTES_MAX {
        ("is too long", format!("give at most {PATH_BYTES_MAX} bytes"))
    } else if !path.starts_with('/') {
        ("does not begin with a slash", "give a path such as \"/api\"".to_owned())
    } else if path.contains("..") {
        ("contains \"..\"", "give the path that is meant".to_owned())
    } else if path.contains(['?', '#']) {
        ("has a query or fragment", "give the path alone, without ? and #".to_owned())
    } else if !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        let right = "give visible ASCII characters, others as %20, and no backslash".to_owned();
        ("has a character that no path has", right)
    } else if path != normal_path(path) {
        ("is not in its normal form", format!("give \"{}\"", normal_path(path)))
    } else {
        return None;
    };
    Some(fault)
}

/// An upstream's address as host and port, where that is what was meant.
pub(super) fn normal_address(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let (authority, url) = match text.strip_prefix("http://") {
        Some(rest) => (rest.strip_suffix('/').unwrap_or(rest), true),
        None => (text.as_str(), false),
    };
    match split_address(authority) {
        Some((host, port)) => written_address(host, port),
        None if url && (is_host(authority)) => {
            written_address(authority.trim_matches(['[', ']']), PORT_OF_HTTP)
        }
        None => text,
    }
}

fn written_address(host: &str, port: u16) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    }
}

/// What is wrong with an upstream's address in its normal form. One with `@` in it may hold a
/// password; the caller must not repeat it.
pub(super) fn fault_of_address(address: &str) -> Option<Fault> {
    let right = "give host:port, such as \"10.0.0.1:8080\" or \"[::1]:8080\"";
    let lower = address.to_ascii_lowercase();
    if let Some((host, port)) = split_address(address) {
        let normal = written_address(&host.to_ascii_lowercase(), port);
        return (normal != address)
            .then(|| ("is not in its normal form", format!("give \"{normal}\"")));
    }
    let (scheme, rest) = lower.split_once("://").unwrap_or(("http", &lower));
    let fault = if address.is_empty() {
        ("is missing", right.to_owned())
    } else if scheme == "https" {
        let reason = "upstreams are spoken to without TLS, inside of a network you trust; give \
                      host:port of its plain HTTP port, or of a TLS tunnel beside this node";
        ("wants TLS", reason.to_owned())
    } else if scheme != "http" {
        ("has a scheme that is not spoken", right.to_owned())
    } else if rest.contains('@') {
        ("has a login", format!("{right}; set an authorization header in `headers` instead"))
    } else if rest.contains(['/', '?', '#']) {
        ("has a path", format!("{right}; paths are forwarded as they come"))
    } else if rest.parse::<Ipv6Addr>().is_ok() {
        ("is an IPv6 address without brackets and port", right.to_owned())
    } else if is_host(rest) {
        ("has no port", right.to_owned())
    } else {
        ("is not an address", right.to_owned())
    };
    Some(fault)
}

/// Whether this can be the value of a `Host` header: a host, with a port or without.
pub(super) fn is_authority(text: &str) -> bool {
    is_host(text) || split_address(text).is_some()
}

/// Host and port of an address; the host without brackets.
pub(super) fn split_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let digits = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse::<u16>().ok().filter(|port| digits && *port > 0)?;
    is_host(host).then(|| (host.trim_matches(['[', ']']), port))
}

/// Whether this is a name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| {
        (1..=LABEL_CHARS_MAX).contains(&label.len())
            && label.bytes().all(of_name)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    bracketed(host).is_some() || host.len() <= HOST_CHARS_MAX && host.split('.').all(label)
}

fn bracketed(host: &str) -> Option<Ipv6Addr> {
    host.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}
