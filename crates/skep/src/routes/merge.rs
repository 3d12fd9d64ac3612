//! Routes of the file and routes of the API as one: the file wins, and the loser is told.

use crate::settings::{FileRoute, policy_flaw};
use serde::Serialize;
use skep_routes::spec::{ROUTES_MAX, RouteSpec};
use skep_routes::store::StoredRoute;
use skep_routes::tls::{HostCertificate, PairFiles};
use skep_sessions::SessionsOptions;
use std::sync::Arc;

/// Where a route comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(tag = "from", rename_all = "lowercase")]
pub enum Source {
    /// A file of this node.
    File {
        /// File and line.
        place: String,
    },
    /// The API, and so the database.
    Api {
        /// The one to name when it is changed.
        version: i64,
        /// In milliseconds since 1970.
        created_at_ms: i64,
        /// In milliseconds since 1970.
        updated_at_ms: i64,
        /// Who last changed it.
        updated_by: String,
    },
}

/// A route that this node knows.
#[derive(Clone, Debug)]
pub struct KnownRoute {
    pub spec: Arc<RouteSpec>,
    pub source: Source,
    /// Why it is not used, if it is not.
    pub unused: Option<String>,
}

/// All routes that this node knows.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Those of the file first.
    pub routes: Vec<KnownRoute>,
    /// What works otherwise than somebody will have meant it.
    pub warnings: Vec<String>,
}

impl Known {
    /// The route of this name; the one in use if there are two.
    pub fn get(&self, name: &str) -> Option<&KnownRoute> {
        self.routes.iter().find(|route| route.spec.name == name)
    }

    /// Those in use.
    pub fn used(&self) -> impl Iterator<Item = &KnownRoute> {
        self.routes.iter().filter(|route| route.unused.is_none())
    }

    /// The certificates of those in use.
    pub fn certificates(&self) -> Vec<HostCertificate> {
        self.used().filter_map(|route| certificate_of(&route.spec)).collect()
    }

    /// The place in the file of a route with this name, or for this host and path.
    pub fn of_file(&self, name: &str, place: Option<(&str, &str)>) -> Option<(&str, &str)> {
        self.routes.iter().find_map(|route| match &route.source {
            Source::File { place: line } => {
                let spec = &route.spec;
                let same = Some((spec.host.as_str(), spec.path.as_str())) == place;
                (spec.name == name || same).then_some((spec.name.as_str(), line.as_str()))
            }
            Source::Api { .. } => None,
        })
    }
}

/// The certificate that a route asks for.
pub fn certificate_of(spec: &RouteSpec) -> Option<HostCertificate> {
    let tls = spec.tls.as_ref()?;
    let files = PairFiles { certificate: (&tls.certificate).into(), key: (&tls.key).into() };
    Some(HostCertificate { host: spec.host.clone(), files })
}

/// Puts both together.
pub fn merge(file: &[FileRoute], stored: &[StoredRoute], sessions: &SessionsOptions) -> Known {
    let of_file = |route: &FileRoute| KnownRoute {
        spec: route.spec.clone(),
        source: Source::File { place: route.origin.to_string() },
        unused: None,
    };
    let mut known = Known { routes: file.iter().map(of_file).collect(), ..Known::default() };
    for row in stored {
        let spec = match row.read() {
            Ok(spec) => Arc::new(spec),
            Err(error) => {
                known.warnings.push(format!("the route {:?} is not used: {error}", row.name));
                continue;
            }
        };
        let in_use = known.used().count();
        let unused = match known.of_file(&spec.name, Some((&spec.host, &spec.path))) {
            Some((name, line)) if name == spec.name => {
                Some(format!("{line} has a route of this name"))
            }
            Some((name, line)) => {
                Some(format!("the route {name:?} of {line} is for the same host and path"))
            }
            None if in_use >= ROUTES_MAX => Some(format!("there are {ROUTES_MAX} others")),
            None => None,
        };
        if let Some(why) = &unused {
            let name = &spec.name;
            known.warnings.push(format!("the route {name:?} of the API is not used: {why}"));
        }
        // Settings of nodes may differ, and a route that serves is better than none.
        if let Some(flaw) = policy_flaw(&spec, sessions) {
            known.warnings.push(format!("the route {:?}: {flaw}", spec.name));
        }
        let source = Source::Api {
            version: row.version,
            created_at_ms: row.created_at_ms,
            updated_at_ms: row.updated_at_ms,
            updated_by: row.updated_by.clone(),
        };
        known.routes.push(KnownRoute { spec, source, unused });
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Origin;

    fn of_file(name: &str, host: &str) -> FileRoute {
        let spec = RouteSpec { host: host.to_owned(), ..RouteSpec::minimal(name, "a:1") };
        FileRoute { spec: Arc::new(spec), origin: Origin::File("skep.toml".into(), 3) }
    }

    fn stored(name: &str, host: &str) -> StoredRoute {
        let spec = RouteSpec { host: host.to_owned(), ..RouteSpec::minimal(name, "b:1") };
        StoredRoute {
            name: name.to_owned(),
            spec: serde_json::to_string(&spec).expect("serialises"),
            version: 7,
            created_at_ms: 1,
            updated_at_ms: 2,
            updated_by: "somebody".to_owned(),
        }
    }

    fn used(known: &Known) -> Vec<(&str, bool)> {
        let of = |one: &KnownRoute| matches!(one.source, Source::File { .. });
        known.used().map(|one| (one.spec.name.as_str(), of(one))).collect()
    }

    #[test]
    fn the_file_wins_over_the_api_by_name_and_by_place() {
        let file = [of_file("shop", "shop.example")];
        let rows = [stored("shop", "other.example"), stored("cart", "shop.example")];
        let rows = [&rows[..], &[stored("blog", "blog.example")]].concat();
        let known = merge(&file, &rows, &SessionsOptions::new("a"));
        assert_eq!(used(&known), [("shop", true), ("blog", false)]);
        assert_eq!(known.routes.len(), 4, "those that are not used are known");
        assert_eq!(
            known.warnings,
            [
                "the route \"shop\" of the API is not used: skep.toml:3 has a route of this name",
                "the route \"cart\" of the API is not used: the route \"shop\" of skep.toml:3 is \
                 for the same host and path",
            ]
        );
        assert_eq!(known.of_file("shop", None), Some(("shop", "skep.toml:3")));
        assert_eq!(known.of_file("blog", None), None);
    }

    #[test]
    fn a_damaged_row_costs_nobody_else_anything() {
        let broken = StoredRoute { spec: "{".to_owned(), ..stored("broken", "b.example") };
        let rows = [broken, stored("blog", "blog.example")];
        let known = merge(&[], &rows, &SessionsOptions::new("a"));
        assert_eq!(used(&known), [("blog", false)]);
        assert!(known.warnings[0].contains("\"broken\" is not used"), "{:?}", known.warnings);
    }

    #[test]
    fn routes_beyond_the_limit_are_left_out_and_named() {
        let rows: Vec<_> = (0..=ROUTES_MAX)
            .map(|number| stored(&format!("r{number}"), &format!("{number}.example")))
            .collect();
        let known = merge(&[], &rows, &SessionsOptions::new("a"));
        assert_eq!(known.used().count(), ROUTES_MAX);
        assert_eq!(known.warnings.len(), 1);
    }
}
