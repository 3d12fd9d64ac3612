//! Which route is this request for?
//!
//! The host decides first: the very name, then the longest `*.suffix`, then `*`. Of a host's
//! prefixes the longest that ends where a segment of the path ends wins. A host none of whose
//! prefixes fits passes the request on to the next wider host.
//!
//! Paths are compared as they were sent: whoever wants `/a/../b` or `/%61` to mean something else
//! says so before asking here.

use crate::{Decision, Reason};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Longer names than this do not exist, so only `*` can be meant.
const HOST_LENGTH_MAX: usize = 253;
/// An explanation lists so many of those that were passed over.
const EXPLAINED_MAX: usize = 32;

/// All routes, by host and path.
#[derive(Clone, Debug, Default)]
pub struct Table {
    exact: BTreeMap<Box<str>, Paths>,
    /// By what comes after `*.`.
    below: BTreeMap<Box<str>, Paths>,
    any: Option<Paths>,
    duplicate: Option<(usize, usize)>,
}

/// The prefixes of one host.
#[derive(Clone, Debug)]
struct Paths {
    /// As the routes have it.
    host: Box<str>,
    /// The route of `/`, which fits everything.
    root: Option<usize>,
    /// The others, sorted.
    prefixes: Vec<Prefix>,
}

#[derive(Clone, Debug)]
struct Prefix {
    text: Box<str>,
    route: usize,
    /// The longest other prefix that this one begins with.
    shorter: Option<usize>,
}

/// What was found.
struct Found<'t> {
    route: usize,
    rule: &'static str,
    host: &'t str,
    path: &'t str,
}

impl Table {
    /// A table of routes, each a host (`shop.example`, `*.example`, `*`) and the prefix of a path.
    /// Of two with the same host and path the first counts: see [`Table::duplicate`].
    pub fn new<'r>(routes: impl Iterator<Item = (&'r str, &'r str)>) -> Self {
        let mut hosts: BTreeMap<Box<str>, BTreeMap<Box<str>, usize>> = BTreeMap::new();
        let mut duplicate = None;
        for (route, (host, path)) in routes.enumerate() {
            let path = if path.is_empty() { "/" } else { path };
            let first =
                *hosts.entry(plain(host).into()).or_default().entry(path.into()).or_insert(route);
            if first != route && duplicate.is_none() {
                duplicate = Some((first, route));
            }
        }
        let mut table = Table { duplicate, ..Table::default() };
        for (host, prefixes) in hosts {
            let paths = Paths::new(host.clone(), prefixes);
            if &*host == "*" {
                table.any = Some(paths);
            } else if let Some(suffix) = host.strip_prefix("*.") {
                table.below.insert(suffix.into(), paths);
            } else {
                table.exact.insert(host, paths);
            }
        }
        table
    }

    /// The first two routes, if any, that have the same host and path.
    pub const fn duplicate(&self) -> Option<(usize, usize)> {
        self.duplicate
    }

    /// The route of a request, as its place among those the table was made of. A port, a final dot
    /// and the case of the host do not matter, nor does what follows `?` in the path.
    pub fn find(&self, host: &str, path: &str) -> Option<usize> {
        self.walk(host, path, &mut |_, _| {}).map(|found| found.route)
    }

    /// The same answer, with what was compared on the way.
    pub fn explain(&self, host: &str, path: &str) -> Decision<Option<usize>> {
        let (mut rejected, mut compared) = (Vec::new(), 0_u64);
        let found = self.walk(host, path, &mut |who, rule| {
            compared += 1;
            if rejected.len() < EXPLAINED_MAX {
                rejected.push((who, rule));
            }
        });
        let mut reason = match &found {
            Some(found) => Reason::new(found.rule)
                .with("host", found.host.to_owned())
                .with("path", found.path.to_owned()),
            None => Reason::new("no-route"),
        };
        reason = reason.with("passed_over", compared);
        for ((host, path), rule) in rejected {
            reason = reason.rejecting(format!("{host}{path}"), rule);
        }
        reason.choose(found.map(|found| found.route))
    }

    /// Goes from the narrowest host to the widest. `passed` hears of each host and prefix that was
    /// looked at and does not fit.
    fn walk<'t>(
        &'t self,
        host: &str,
        path: &str,
        passed: &mut impl FnMut((&'t str, &'t str), &'static str),
    ) -> Option<Found<'t>> {
        let host = plain(host);
        let name = if host.len() <= HOST_LENGTH_MAX { &*host } else { "" };
        let exact = self.exact.get(name).map(|paths| ("exact-host", paths));
        let suffixes = name.match_indices('.').filter(|(dot, _)| *dot > 0);
        let below = suffixes.filter_map(|(dot, _)| self.below.get(&name[dot + 1..]));
        let any = self.any.as_ref().map(|paths| ("any-host", paths));
        exact.into_iter().chain(below.map(|paths| ("wildcard-host", paths))).chain(any).find_map(
            |(rule, paths)| {
                let found = paths.find(path, passed);
                if found.is_none() {
                    passed((&paths.host, ""), "no-prefix-fits");
                }
                found.map(|(route, prefix)| Found { route, rule, host: &paths.host, path: prefix })
            },
        )
    }
}

impl Paths {
    fn new(host: Box<str>, mut prefixes: BTreeMap<Box<str>, usize>) -> Self {
        let root = prefixes.remove("/");
        let mut sorted: Vec<Prefix> = Vec::with_capacity(prefixes.len());
        for (text, route) in prefixes {
            let mut shorter = sorted.len().checked_sub(1);
            while let Some(place) = shorter
                && !text.starts_with(&*sorted[place].text)
            {
                shorter = sorted[place].shorter;
            }
            sorted.push(Prefix { text, route, shorter });
        }
        Paths { host, root, prefixes: sorted }
    }

    /// Every prefix of a path sorts before it, and whatever sorts between the two begins with that
    /// prefix as well. So the last one before the path and those it begins with are all there is.
    fn find<'t>(
        &'t self,
        path: &str,
        passed: &mut impl FnMut((&'t str, &'t str), &'static str),
    ) -> Option<(usize, &'t str)> {
        let after = self.prefixes.partition_point(|prefix| &*prefix.text <= path);
        let mut place = after.checked_sub(1);
        while let Some(prefix) = place.map(|place| &self.prefixes[place]) {
            if fits(&prefix.text, path) {
                return Some((prefix.route, &prefix.text));
            }
            passed((&self.host, &prefix.text), "path-differs");
            place = prefix.shorter;
        }
        self.root.map(|route| (route, "/"))
    }
}

/// Whether a path is at or below a prefix. One that ends in `/` is only for what is below.
fn fits(prefix: &str, path: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| {
        prefix.ends_with('/') || rest.is_empty() || rest.starts_with(['/', '?'])
    })
}

/// A host without port and final dot, in lower case.
fn plain(host: &str) -> Cow<'_, str> {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        // What is in brackets has colons of its own.
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        Some(_) | None => host,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROUTES: &[(&str, &str)] = &[
        ("shop.example", "/"),
        ("shop.example", "/api"),
        ("shop.example", "/api/v2"),
        ("shop.example", "/api-old"),
        ("*.example", "/"),
        ("*.eu.example", "/files/"),
        ("only.example", "/deep"),
        ("*", "/everywhere"),
        ("[::1]", "/six"),
    ];

    fn table() -> Table {
        Table::new(ROUTES.iter().copied())
    }

    #[test]
    fn host_then_longest_prefix_decides() {
        let table = table();
        let cases = [
            ("shop.example", "/", Some(0)),
            ("shop.example", "/apix", Some(0)),
            ("shop.example", "/api", Some(1)),
            ("shop.example", "/api?q=/api/v2", Some(1)),
            ("shop.example", "/api/", Some(1)),
            ("shop.example", "/api/v1", Some(1)),
            ("shop.example", "/api/v2", Some(2)),
            ("shop.example", "/api/v2/x", Some(2)),
            ("shop.example", "/api/v20", Some(1)),
            ("shop.example", "/api-old/x", Some(3)),
            ("shop.example", "*", Some(0)),
            ("Shop.Example.:8080", "/api", Some(1)),
            ("shop.example:", "/api", Some(1)),
            ("a.example", "/api", Some(4)),
            ("a.b.c.example", "/api", Some(4)),
            ("a.eu.example", "/files/x", Some(5)),
            ("a.eu.example", "/files/", Some(5)),
            ("a.eu.example", "/files", Some(4)),
            ("eu.example", "/files/x", Some(4)),
            ("only.example", "/deep/x", Some(6)),
            ("only.example", "/else", Some(4)),
            ("example", "/", None),
            (".example", "/", None),
            ("other", "/everywhere/x", Some(7)),
            ("other", "/elsewhere", None),
            ("", "/everywhere", Some(7)),
            ("[::1]:8080", "/six", Some(8)),
            ("[::1]", "/six", Some(8)),
            ("::1", "/six", None),
            ("a:b:1", "/", None),
        ];
        for (host, path, expected) in cases {
            assert_eq!(table.find(host, path), expected, "{host} {path}");
        }
    }

    #[test]
    fn a_host_longer_than_any_name_is_only_for_everybody() {
        let long = format!("{}.example", "a".repeat(300));
        assert_eq!(table().find(&long, "/"), None);
        assert_eq!(table().find(&long, "/everywhere"), Some(7));
    }

    #[test]
    fn an_empty_table_has_no_route() {
        assert_eq!(Table::new([].into_iter()).find("a", "/"), None);
    }

    #[test]
    fn two_routes_with_the_same_host_and_path_are_told() {
        assert_eq!(table().duplicate(), None);
        let twice = [("a", "/x"), ("b", "/"), ("B.", ""), ("b", "/")];
        let table = Table::new(twice.into_iter());
        assert_eq!(table.duplicate(), Some((1, 2)));
        assert_eq!(table.find("b", "/"), Some(1));
    }

    #[test]
    fn an_explanation_lists_what_was_compared() {
        let told = table().explain("a.eu.example", "/files");
        assert_eq!(told.chosen, Some(4));
        assert_eq!(
            told.reason.to_string(),
            "wildcard-host: host *.example, path /, passed_over 1; \
             not *.eu.example (no-prefix-fits)"
        );
        let told = table().explain("shop.example", "/api/v20");
        assert_eq!(
            told.reason.to_string(),
            "exact-host: host shop.example, path /api, passed_over 1; \
             not shop.example/api/v2 (path-differs)"
        );
        assert_eq!(table().explain("other", "/").reason.rule, "no-route");
    }

    #[test]
    fn an_explanation_is_bounded() {
        let paths: Vec<String> =
            (1..200).map(|length| format!("/{}", "a".repeat(length))).collect();
        let table = Table::new(paths.iter().map(|path| ("*", path.as_str())));
        let told = table.explain("x", &format!("/{}", "a".repeat(500)));
        assert_eq!(told.chosen, None);
        assert_eq!(told.reason.rejected.len(), EXPLAINED_MAX);
        assert_eq!(told.reason.numbers, [("passed_over", 200_u64.into())]);
    }

    /// The rules again, by looking at every route.
    fn by_looking_at_all(routes: &[(String, String)], host: &str, path: &str) -> Option<usize> {
        let width = |pattern: &str| match pattern.strip_prefix('*') {
            None => (pattern == host).then_some(usize::MAX),
            Some(suffix) => {
                (host.ends_with(suffix) && host.len() > suffix.len()).then_some(suffix.len())
            }
        };
        let fitting = routes.iter().enumerate().filter_map(|(route, (pattern, prefix))| {
            let below = format!("{}/", prefix.trim_end_matches('/'));
            let fits = prefix == "/" || path == prefix || path.starts_with(&below);
            let best = (width(pattern)?, prefix.len(), std::cmp::Reverse(route));
            fits.then_some((best, route))
        });
        fitting.max().map(|(_, route)| route)
    }

    proptest! {
        #[test]
        fn the_table_finds_what_looking_at_every_route_finds(
            routes in prop::collection::vec(
                ("(\\*|(\\*\\.)?[ab](\\.[ab]){0,2})", "(/|(/[ab-]{1,2}){1,3}/?)"), 0..40,
            ),
            host in "[ab](\\.[ab]){0,3}", path in "(/[ab-]{0,2}){1,4}",
        ) {
            let pairs = routes.iter().map(|(host, path)| (host.as_str(), path.as_str()));
            let table = Table::new(pairs);
            let found = table.find(&host, &path);
            prop_assert_eq!(found, by_looking_at_all(&routes, &host, &path));
            prop_assert_eq!(table.explain(&host, &path).chosen, found);
            let shouted = format!("{}.:443", host.to_uppercase());
            prop_assert_eq!(table.find(&shouted, &path), found);
        }

        #[test]
        fn no_request_is_too_odd(host in ".{0,300}", path in ".{0,100}") {
            let table = table();
            prop_assert_eq!(table.explain(&host, &path).chosen, table.find(&host, &path));
        }
    }
}
