//! What several parts do with what they were asked.

use crate::http::extract::Asker;
use crate::http::problem::Problem;
use crate::node::Shared;
use serde_json::Value;

/// Writes down what somebody did, to what, and with which values.
pub async fn note(shared: &Shared, asker: &Asker, action: &'static str, about: (&str, &str)) {
    let who = (&asker.known(), &*asker.address.to_string());
    shared.access.try_record(shared.stores.database(), who, action, about).await;
}

/// A parameter, if something stands there.
pub fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// A label as in `env`, or with its value as in `env=prod`.
pub fn label(text: String) -> (String, Option<String>) {
    match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (text, None),
    }
}

/// A body that names what the path names too must name the same; one that does not gets the name.
pub fn named(mut body: Value, field: &str, name: &str) -> Result<Value, Problem> {
    if let Some(fields) = body.as_object_mut() {
        let given = fields.entry(field).or_insert_with(|| name.into());
        let same = match given {
            Value::Number(number) => number.to_string() == name,
            ref other => other.as_str() == Some(name),
        };
        if !same {
            let detail = format!("{field}: the path says {name:?} and the body {given}; give one");
            return Err(Problem::field(field, detail));
        }
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_gets_the_name_of_its_path_and_may_not_have_another() {
        let whole = named(json!({ "ip": "192.0.2.1" }), "id", "7").expect("is named");
        assert_eq!(whole, json!({ "id": "7", "ip": "192.0.2.1" }));
        assert!(named(json!({ "id": "7" }), "id", "7").is_ok());
        assert!(named(json!({ "id": 7 }), "id", "7").is_ok());
        let told = named(json!({ "name": "b" }), "name", "a").expect_err("differs").to_string();
        assert!(told.contains("the path says \"a\" and the body \"b\""), "{told}");
        // What is no object is refused by whoever reads it.
        assert_eq!(named(json!([1]), "id", "a").expect("is left alone"), json!([1]));
    }

    #[test]
    fn a_label_may_have_a_value() {
        assert_eq!(label("env".to_owned()), ("env".to_owned(), None));
        assert_eq!(label("env=a=b".to_owned()), ("env".to_owned(), Some("a=b".to_owned())));
    }
}
