//! Settings by their names, as they stand in snapshots, requests and on the command line.

use super::flaw::{FLAWS_MAX, Flaw, no_such, quoted};
use serde_json::{Map, Value};
use skep_policy::monitors::Settings;

/// Spans have this ending where they are numbers, and may be texts such as `9m` without it.
const SECONDS: &str = "_seconds";

/// These settings with some of them changed; or all that is wrong with the changes, whose place is
/// `path`.
pub fn with_settings(
    base: &Settings,
    changes: &Map<String, Value>,
    path: &str,
) -> Result<Settings, Vec<Flaw>> {
    let mut all = to_map(base);
    let mut flaws = Vec::new();
    for (name, value) in changes {
        match changed(&mut all, name, value) {
            Ok(()) => {}
            Err(right) => flaws.push(Flaw::new(format!("{path}.{name}"), shown(value), right)),
        }
    }
    if flaws.is_empty() {
        match serde_json::from_value::<Settings>(Value::Object(all)) {
            Ok(settings) => match settings.check() {
                Ok(()) => return Ok(settings),
                Err(flaw) => {
                    let place = format!("{path}.{}", flaw.field);
                    flaws.push(Flaw::new(place, flaw.value, flaw.right));
                }
            },
            // Every value was looked at alone, so this is one that none of the types can hold.
            Err(error) => flaws.push(Flaw::new(path, "not usable", error.to_string())),
        }
    }
    flaws.truncate(FLAWS_MAX);
    Err(flaws)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// All settings by name.
fn to_map(settings: &Settings) -> Map<String, Value> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(map)) => map,
        other => unreachable!("settings are an object of numbers: {other:?}"),
    }
}

/// Changes one, or tells what would be right.
fn changed(all: &mut Map<String, Value>, name: &str, value: &Value) -> Result<(), String> {
    let long = format!("{name}{SECONDS}");
    if all.contains_key(&long) {
        let right = "it must be a time such as 90s, 9m, 24h or 3d";
        let seconds = value.as_str().and_then(seconds).ok_or(right)?;
        all.insert(long, seconds.into());
        return Ok(());
    }
    let Some(old) = all.get_mut(name) else {
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        return Err(no_such("setting", name, names.iter().copied()));
    };
    let (fits, right) = match name {
        _ if name.ends_with(SECONDS) => {
            (value.as_f64().is_some_and(|one| one >= 0.0), "it must be a number of seconds")
        }
        "subnet_v4" | "subnet_v6" | "diversity_v4" | "diversity_v6" => {
            let fits = value.as_u64().is_some_and(|one| u8::try_from(one).is_ok());
            (fits, "it must be the length of a prefix")
        }
        _ => {
            let fits = value.as_u64().is_some_and(|one| u32::try_from(one).is_ok());
            (fits, "it must be a whole number from 0")
        }
    };
    if !fits {
        return Err(right.to_owned());
    }
    *old = value.clone();
    Ok(())
}

/// `90s`, `9m`, `24h`, `3d`.
fn seconds(text: &str) -> Option<u64> {
    let at = text.find(|one: char| !one.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let each = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn with(changes: Value) -> Result<Settings, Vec<String>> {
        let Value::Object(changes) = changes else { panic!("an object") };
        with_settings(&Settings::default(), &changes, "set")
            .map_err(|flaws| flaws.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn settings_are_changed_by_name_and_spans_in_seconds_or_words() {
        let found = with(json!({
            "target_active": 9, "diversity_v4": 16, "look_back": "2d", "silent_after_seconds": 90,
        }))
        .expect("fine");
        assert_eq!((found.target_active, found.diversity_v4), (9, 16));
        assert_eq!(found.look_back, Duration::from_secs(2 * 86_400));
        assert_eq!(found.silent_after, Duration::from_secs(90));
        assert_eq!(with(json!({})), Ok(Settings::default()));
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let flaws = with(json!({
            "target_actve": 9, "subnet_v4": 300, "floor_active": -1, "look_back": "soon",
            "silent_after_seconds": "1h",
        }))
        .expect_err("wrong");
        assert_eq!(flaws.len(), 5, "{flaws:#?}");
        let all = flaws.join("\n");
        for part in [
            "set.target_actve is 9; there is no such setting; did you mean target_active?",
            "set.subnet_v4 is 300; it must be the length of a prefix",
            "set.floor_active is -1; it must be a whole number from 0",
            "set.look_back is \"soon\"; it must be a time such as 90s, 9m, 24h or 3d",
            "set.silent_after_seconds is \"1h\"; it must be a number of seconds",
        ] {
            assert!(all.contains(part), "{part}\n{all}");
        }
    }

    #[test]
    fn numbers_that_cannot_work_together_are_refused() {
        let flaws = with(json!({"target_active": 0})).expect_err("wrong");
        assert_eq!(flaws, ["set.target_active is 0; it must be between 1 and 1000"]);
        let flaws = with(json!({"budget": 3, "budget_raised": 2})).expect_err("wrong");
        assert_eq!(flaws, ["set.budget_raised is 2; it must not be below budget"]);
    }
}
