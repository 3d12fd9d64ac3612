//! What this node is set to, and where each value came from.

use crate::http::extract::Parameters;
use crate::node::Shared;
use crate::settings::{Effective, environment_name};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(list))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// Only settings in whose name, value, origin or meaning each of these words stands; capitals
    /// make no difference.
    search: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct SettingsAnswer {
    /// In the order of the documentation.
    settings: Vec<SettingView>,
}

/// A setting of this node.
#[derive(Serialize, utoipa::ToSchema)]
struct SettingView {
    /// Its name in `skep.toml`.
    #[schema(example = "api.listen")]
    key: &'static str,
    /// Its value since the node started; of a secret only whether it is set.
    value: String,
    /// Its value if nobody sets it.
    default: String,
    /// Whether somebody set it.
    is_set: bool,
    /// Where it was set, as in `skep.toml:3`, `SKEP_API__LISTEN` or `--listen`.
    origin: String,
    /// What it is for.
    help: String,
    /// What it may hold.
    expected: String,
    /// Its name in the environment.
    environment: String,
}

impl SettingView {
    fn of(one: &Effective) -> Self {
        SettingView {
            key: one.key,
            value: one.value.clone(),
            default: one.default.clone(),
            is_set: one.is_set,
            origin: one.origin.clone(),
            help: one.help.clone(),
            expected: one.expected.clone(),
            environment: environment_name(one.key),
        }
    }
}

/// What this node is set to, and where each value came from; secrets are not told
#[utoipa::path(
    get, path = "/api/v1/settings", tag = "node", extensions(("x-scope" = json!("admin"))),
    params(Wanted),
    responses((status = 200, description = "Every setting that fits", body = SettingsAnswer))
)]
async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(wanted): Parameters<Wanted>,
) -> Json<SettingsAnswer> {
    let words = words(wanted.search.as_deref().unwrap_or_default());
    let found = shared.settings.effective.iter().filter(|one| fits(one, &words));
    Json(SettingsAnswer { settings: found.map(SettingView::of).collect() })
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_lowercase).collect()
}

fn fits(one: &Effective, words: &[String]) -> bool {
    let all = [one.key, &one.value, &one.origin, &one.help].join("\n").to_lowercase();
    words.iter().all(|word| all.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_found_by_name_value_origin_or_meaning_and_by_every_word() {
        let one = Effective {
            key: "pools.high.max",
            value: "12".to_owned(),
            default: "8".to_owned(),
            is_set: true,
            origin: "skep.toml:3".to_owned(),
            help: "The most workers of its own.".to_owned(),
            expected: "a number".to_owned(),
        };
        for text in ["", "high", "POOLS max", "12", "skep.toml", "most Workers", "workers 12"] {
            assert!(fits(&one, &words(text)), "{text:?}");
        }
        for text in ["critical", "workers 13", "8"] {
            assert!(!fits(&one, &words(text)), "{text:?}");
        }
    }
}
