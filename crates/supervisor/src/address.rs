//! URLs of programs: found in what they print, completed, and made good for others.

use hyper::Uri;
use std::net::IpAddr;

/// What stands for the chosen port in arguments and URLs.
pub(crate) const PORT: &str = "{port}";

const SCHEMES: [&str; 4] = ["ws://", "wss://", "http://", "https://"];

/// The first URL in a line of output.
pub(crate) fn find(line: &str) -> Option<String> {
    let starts = SCHEMES.iter().filter_map(|scheme| line.find(scheme));
    let rest = &line[starts.min()?..];
    let end = rest.find(|c: char| c.is_whitespace() || c.is_control() || "\"'`<>".contains(c));
    let url = rest[..end.unwrap_or(rest.len())].trim_end_matches(['.', ',', ';', ')', ']', '}']);
    // An IPv6 address without a port ends in a bracket that belongs to it.
    let url = match rest[url.len()..].starts_with(']') && url.contains("://[") {
        true if !url.contains(']') => &rest[..=url.len()],
        _ => url,
    };
    check(url).ok().map(|()| url.to_owned())
}

/// Says what is wrong with a URL of a program.
pub(crate) fn check(url: &str) -> Result<(), &'static str> {
    if !SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
        return Err("give a ws://, wss://, http:// or https:// URL");
    }
    let uri: Uri = url.parse().map_err(|_| "give a URL, as in ws://127.0.0.1:9222/")?;
    let host = uri.host().filter(|host| !host.is_empty());
    host.map(|_| ()).ok_or("name a host, as in ws://127.0.0.1:9222/")
}

/// The host and port to connect to in order to see whether somebody listens.
pub(crate) fn to_connect(url: &str) -> Option<(String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let port = uri.port_u16().unwrap_or(match uri.scheme_str() {
        Some("wss" | "https") => 443,
        _ => 80,
    });
    let host = uri.host()?.trim_matches(['[', ']']);
    let host = match host.parse::<IpAddr>() {
        // Listening on any address includes loopback, and "any" is nowhere to connect to.
        Ok(IpAddr::V4(any)) if any.is_unspecified() => "127.0.0.1",
        Ok(IpAddr::V6(any)) if any.is_unspecified() => "::1",
        _ => host,
    };
    Some((host.to_owned(), port))
}

/// The URL as others reach it: a host that means "this machine" becomes `host`.
pub(crate) fn advertised(url: &str, host: Option<&str>) -> String {
    let Some(replacement) = host else { return url.to_owned() };
    let Some(found) = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)) else {
        return url.to_owned();
    };
    let own = match found.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || ip.is_unspecified(),
        Err(_) => found == "localhost" || found.ends_with(".localhost"),
    };
    if !own {
        return url.to_owned();
    }
    let bare_v6 = replacement.contains(':') && !replacement.starts_with('[');
    let replacement = if bare_v6 { format!("[{replacement}]") } else { replacement.to_owned() };
    // The host is the first thing after the scheme, except for what stands before an `@`.
    let authority = url.find("://").map_or(0, |at| at + 3);
    match url[authority..].find(&found) {
        Some(at) => {
            let at = authority + at;
            format!("{}{replacement}{}", &url[..at], &url[at + found.len()..])
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_url_of_a_line_is_found_without_what_surrounds_it() {
        let cases = [
            ("Listening on ws://127.0.0.1:9222/abc", Some("ws://127.0.0.1:9222/abc")),
            ("{\"wsEndpoint\":\"ws://localhost:1/x\"}", Some("ws://localhost:1/x")),
            ("ready (http://0.0.0.0:80).", Some("http://0.0.0.0:80")),
            ("ws://[::1]:5/ and http://b:1", Some("ws://[::1]:5/")),
            ("at http://[::1]", Some("http://[::1]")),
            ("wss://h:1/p?a=b&c=[d", Some("wss://h:1/p?a=b&c=[d")),
            ("no address here", None),
            ("ws:// alone", None),
        ];
        for (line, expected) in cases {
            assert_eq!(find(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn a_host_that_means_this_machine_is_replaced_for_others() {
        let cases = [
            ("ws://127.0.0.1:9/x", "ws://box:9/x"),
            ("ws://0.0.0.0:9/127.0.0.1", "ws://box:9/127.0.0.1"),
            ("http://localhost/", "http://box/"),
            ("ws://[::1]:9/", "ws://box:9/"),
            ("ws://[::]:9/", "ws://box:9/"),
            ("ws://10.0.0.7:9/", "ws://10.0.0.7:9/"),
        ];
        for (url, expected) in cases {
            assert_eq!(advertised(url, Some("box")), expected);
            assert_eq!(advertised(url, None), url);
        }
        assert_eq!(advertised("ws://localhost:9/", Some("fd00::1")), "ws://[fd00::1]:9/");
    }

    #[test]
    fn listening_anywhere_is_looked_for_on_loopback() {
        let at = |url| to_connect(url).expect("has an address");
        assert_eq!(at("ws://0.0.0.0:9/"), ("127.0.0.1".to_owned(), 9));
        assert_eq!(at("http://[::]:9/"), ("::1".to_owned(), 9));
        assert_eq!(at("wss://host/"), ("host".to_owned(), 443));
    }

    #[test]
    fn what_is_no_url_is_told_what_would_be_one() {
        assert!(check("ws://127.0.0.1:9222/").is_ok());
        assert!(check("127.0.0.1:9222").is_err());
        assert!(check("ws://").is_err());
        assert!(check("ftp://host/").is_err());
    }
}
