//! What is the matter with the routes of this node, for `policy::routes::alerts` to judge.

use skep_policy::routes::alerts::{Matters, certificate_ends, upstreams_out};
use skep_routes::RouteView;

/// What is the matter with these routes. `ends` says when the certificate of a route ends.
pub fn matters(
    routes: &[RouteView],
    ends: impl Fn(&RouteView) -> Option<i64>,
    now_ms: i64,
) -> Matters {
    let mut matters = Matters::new();
    for route in routes {
        let away = |one: &&skep_routes::UpstreamView| matches!(one.standing, "out" | "down");
        let out: Vec<&str> =
            route.upstreams.iter().filter(away).map(|one| one.address.as_ref()).collect();
        let upstreams = upstreams_out(&out, route.upstreams.len());
        let certificate = ends(route).and_then(|end| certificate_ends(&route.host, end, now_ms));
        let about = |kind| (route.name.clone(), kind);
        matters.extend(upstreams.map(|reason| (about("upstreams-out"), reason)));
        matters.extend(certificate.map(|reason| (about("certificate-ends"), reason)));
    }
    matters
}
