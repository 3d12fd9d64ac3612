//! What the verbs about accounts, monitors and servers share: lists in pages, changing a part of
//! one, and doing one thing to several.

use super::ask::Path;
use super::cells::{list, name};
use super::client::NodeArgs;
use super::output::{self, Output, text, when};
use super::{CliError, Exit};
use clap::Args;
use hyper::Method;
use serde_json::{Map, Value, json};

/// The fields of one, as the API takes them.
pub type Fields = Map<String, Value>;

/// Which part of a list.
#[derive(Args)]
pub struct PageArgs {
    /// So many at most
    #[arg(long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only ids after this one
    #[arg(long, value_name = "ID")]
    after: Option<String>,
}

impl PageArgs {
    /// Asks for this part.
    pub fn of(&self, path: Path) -> Path {
        path.with("limit", self.limit).and("after", self.after.as_deref())
    }
}

/// What to look for, as a word or with its flag.
#[derive(Args)]
pub struct SearchArgs {
    /// Only those whose ids contain this
    #[arg(value_name = "SEARCH")]
    word: Option<String>,

    /// The same with a flag
    #[arg(long = "search", value_name = "TEXT", conflicts_with = "word")]
    flag: Option<String>,
}

impl SearchArgs {
    /// Asks for these.
    pub fn of(&self, path: Path) -> Path {
        path.and("search", self.word.as_ref().or(self.flag.as_ref()))
    }
}

/// One of them.
#[derive(Args)]
pub struct OneArgs {
    /// Its id
    pub id: String,

    #[command(flatten)]
    pub node: NodeArgs,
}

/// Some of them.
#[derive(Args)]
pub struct SomeArgs {
    /// Their ids
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<String>,

    #[command(flatten)]
    pub node: NodeArgs,
}

/// What became of one of them.
#[derive(Args)]
pub struct HistoryArgs {
    /// Its id
    pub id: String,

    #[command(flatten)]
    pub newest: NewestArgs,

    #[command(flatten)]
    pub node: NodeArgs,
}

impl HistoryArgs {
    /// Shows what changed between monitors and servers.
    pub async fn show(&self, kind: &str, output: Output) -> Result<Exit, CliError> {
        let path = Path::of(&[kind, &self.id, "history"]);
        let answer = self.node.get(self.newest.of(path).as_str()).await?;
        print(&answer, output, changes)
    }
}

/// What monitors and servers have in common, where one is changed.
#[derive(Args)]
pub struct ChangeArgs {
    /// Its id
    pub id: String,

    /// Its address
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<String>,

    /// Whose it is
    #[arg(long, value_name = "ID", conflicts_with = "no_account")]
    account: Option<String>,

    /// It is nobody's
    #[arg(long)]
    no_account: bool,

    #[command(flatten)]
    pub node: NodeArgs,
}

impl ChangeArgs {
    /// Puts in what was given.
    pub fn over(&self, fields: &mut Fields) {
        put(fields, "ip", self.ip.as_ref());
        put(fields, "account", self.account.as_ref());
        if self.no_account {
            fields.remove("account");
        }
    }

    /// Changes the one of this kind, of which `change` is given how it is now.
    pub async fn change(
        &self,
        kind: &str,
        change: impl FnOnce(&Value) -> Fields,
    ) -> Result<Value, CliError> {
        let path = Path::of(&[kind, &self.id]);
        let view: Value = self.node.get(path.as_str()).await?;
        replace(&self.node, &path, change(&view)).await
    }
}

/// Which of the newest of something.
#[derive(Args)]
pub struct NewestArgs {
    /// So many of the newest
    #[arg(long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only earlier ones than this: what the list before named as the next
    #[arg(long, value_name = "MARK")]
    before: Option<String>,
}

impl NewestArgs {
    /// Asks for these.
    pub fn of(&self, path: Path) -> Path {
        path.with("limit", self.limit).and("before", self.before.as_deref())
    }
}

/// A limit: a number from 0 on, or `none` for none of its own.
pub fn limit(given: &str) -> Result<Value, String> {
    match given {
        "none" => Ok(Value::Null),
        number => number.parse::<u32>().map(Value::from).map_err(|_| {
            "it must be a whole number from 0 on, or `none` for no limit of its own".to_owned()
        }),
    }
}

/// Labels as they are given, `NAME=VALUE`.
pub fn label(given: &str) -> Result<(String, String), String> {
    match given.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it must be a name and a value, such as city=ams".to_owned()),
    }
}

/// Those of the fields that can be written, as the node has them now.
pub fn kept(view: &Value, names: &[&str]) -> Fields {
    let field = |name: &&str| {
        let value = view.get(*name).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), value.clone()))
    };
    names.iter().filter_map(field).collect()
}

/// Puts in what was given.
pub fn put(fields: &mut Fields, name: &str, value: Option<&String>) {
    if let Some(value) = value {
        fields.insert(name.to_owned(), json!(value));
    }
}

/// Makes one and gives it as the node has it then.
pub async fn create(node: &NodeArgs, path: &Path, fields: Fields) -> Result<Value, CliError> {
    node.call(Method::POST, path.as_str(), Some(Value::Object(fields))).await
}

/// Writes one anew and gives it as the node has it then.
pub async fn replace(node: &NodeArgs, path: &Path, fields: Fields) -> Result<Value, CliError> {
    node.call(Method::PUT, path.as_str(), Some(Value::Object(fields))).await
}

/// Prints an answer: as JSON, or for people.
pub fn print(answer: &Value, output: Output, table: impl FnOnce(&Value)) -> Result<Exit, CliError> {
    match output {
        Output::Json => output::json(answer),
        Output::Table => table(answer),
    }
    Ok(Exit::Ok)
}

/// Prints a page of a list, and how to get at the next one.
pub fn page(answer: &Value, rows: &str, table: impl FnOnce(&[Value])) {
    let found = list(&answer[rows]);
    if found.is_empty() {
        return output::line(&format!("no {}", rows.trim_end_matches('s')));
    }
    table(found);
    let next = &answer["next"];
    if !next.is_null() {
        let (shown, total) = (found.len(), text(answer, "total"));
        let next = text(answer, "next");
        output::line(&format!("\n{shown} of {total}; the next with --after {next}"));
    }
}

/// Does one thing to several, says which could not be done, and ends as the first of them.
pub async fn each(
    ids: &[String],
    output: Output,
    done: &str,
    ask: impl AsyncFn(&str) -> Result<Value, CliError>,
) -> Result<Exit, CliError> {
    let (mut answers, mut failed) = (Vec::new(), None);
    for id in ids {
        match ask(id).await {
            Ok(answer) => {
                if output == Output::Table {
                    output::line(&format!("{id} {done}"));
                }
                answers.push(answer);
            }
            Err(error) if failed.is_none() => failed = Some(error),
            Err(error) => output::error(&error.message),
        }
    }
    if output == Output::Json {
        output::json(&answers);
    }
    failed.map_or(Ok(Exit::Ok), Err)
}

/// Deletes several of what is listed at `place`.
pub async fn remove(
    node: &NodeArgs,
    place: &[&str],
    ids: &[String],
    output: Output,
) -> Result<Exit, CliError> {
    each(ids, output, "deleted", async |id| {
        tell(node, Method::DELETE, &[place, &[id]].concat(), id).await
    })
    .await
}

/// Tells a node something about one of them that has no answer, and gives its id as one.
pub async fn tell(
    node: &NodeArgs,
    method: Method,
    place: &[&str],
    id: &str,
) -> Result<Value, CliError> {
    node.tell(method, Path::of(place).as_str()).await?;
    Ok(json!({ "id": id }))
}

/// A time, or a dash.
pub fn at(value: &Value, field: &str) -> String {
    value[field].as_i64().map_or("-".to_owned(), when)
}

/// A text, or a dash.
pub fn or_dash(value: &Value, field: &str) -> String {
    match name(value, field) {
        text if text.is_empty() => "-".to_owned(),
        text => text,
    }
}

/// A number with so many digits after the point, or a dash.
pub fn number(value: &Value, field: &str, digits: usize) -> String {
    value[field].as_f64().map_or("-".to_owned(), |number| format!("{number:.digits$}"))
}

/// What changed between monitors and servers, the newest first.
pub fn changes(answer: &Value) {
    let found = list(&answer["changes"]);
    if found.is_empty() {
        return output::line("no change");
    }
    output::table(
        &["ID", "WHEN", "SERVER", "MONITOR", "FROM", "TO", "RULE", "WHY"],
        found.iter().map(|one| {
            vec![
                text(one, "explain"),
                at(one, "at"),
                text(one, "server"),
                text(one, "monitor"),
                text(one, "from"),
                text(one, "to"),
                text(one, "rule"),
                name(one, "reason"),
            ]
        }),
    );
    if !answer["next"].is_null() {
        output::line(&format!("\nthe next with --before {}", text(answer, "next")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_none_and_never_below_zero() {
        assert_eq!(
            [limit("0"), limit("7"), limit("none")],
            [Ok(json!(0)), Ok(json!(7)), Ok(json!(null))]
        );
        for wrong in ["-1", "1.5", "many", ""] {
            assert!(limit(wrong).expect_err("no limit").contains("from 0 on"), "{wrong}");
        }
    }

    #[test]
    fn a_label_has_a_name_and_a_value() {
        assert_eq!(label("city=ams=1"), Ok(("city".to_owned(), "ams=1".to_owned())));
        assert!(label("city").is_err() && label("=ams").is_err());
    }

    #[test]
    fn only_what_can_be_written_is_sent_back() {
        let view = json!({ "id": "a", "account": null, "ip": "192.0.2.1", "seen_at": 5 });
        let fields = kept(&view, &["id", "account", "ip"]);
        assert_eq!(Value::Object(fields), json!({ "id": "a", "ip": "192.0.2.1" }));
    }
}
