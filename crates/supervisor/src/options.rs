//! What a supervisor is told at its start, and what is wrong with it.

use crate::address::{self, PORT};
use crate::program::Output;
use rustix::fs::{Access, access};
use skep_policy::{NAME_LENGTH_MAX, Name};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LABELS_MAX: usize = 64;
const TEXT_MAX: usize = 128;
const SERVERS_MAX: usize = 64;
const SLOTS_MAX: u32 = 100_000;

/// What a supervisor is told. Not for debug output, because of the key.
#[derive(Clone)]
pub struct Options {
    /// The worker's name; one name is one worker.
    pub name: String,
    /// What kind of worker it is, such as `chromium`.
    pub kind: String,
    /// The program and its arguments; `{port}` in them becomes the chosen port.
    pub command: Vec<String>,
    /// Nodes; the next is tried when one does not answer.
    pub servers: Vec<String>,
    /// API key with the scope `worker`.
    pub key: Option<String>,
    /// Sessions at a time; `None` leaves it to the node.
    pub slots: Option<u32>,
    /// What sessions can ask for.
    pub labels: Vec<String>,
    /// The program's version, if sessions have to fit it.
    pub version: Option<String>,
    /// How the program's address is learnt.
    pub url_from: UrlFrom,
    /// Stands in the address in place of a host that means "this machine".
    pub advertise_host: Option<String>,
    /// How long the program may take until its address is known and answers.
    pub start_limit: Duration,
    /// How long it may take to end after SIGTERM.
    pub stop_limit: Duration,
    /// How long sessions may go on when the supervisor is to stop.
    pub drain_limit: Duration,
    /// Memory of the program and everything it started, above which it should be started anew.
    pub memory_max: Option<u64>,
    /// How long its memory does not count after its start: a program that needs more from the
    /// beginning would be started anew again and again.
    pub memory_grace: Duration,
    /// Age above which it should be started anew.
    pub age_max: Option<Duration>,
    /// How often the node hears of the worker.
    pub heartbeat_interval: Duration,
    /// Whether a new program is started before the old one is stopped.
    pub successor: bool,
    /// Where the lines go that the program prints.
    pub output: Output,
}

/// How a program's address is learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlFrom {
    /// It prints a line on its standard output with a URL in it.
    Stdout,
    /// It is this; `{port}` in it becomes a free port, which the program finds in `PORT`.
    Fixed(String),
}

/// Something that is wrong with the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The option.
    pub field: &'static str,
    /// What was given.
    pub value: String,
    /// What would be right.
    pub right: String,
}

/// Options that cannot be worked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadOptions(pub Vec<Problem>);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} is not allowed; {}", self.field, self.value, self.right)
    }
}

impl fmt::Display for BadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.0.iter().enumerate() {
            let between = if position == 0 { "" } else { "\n" };
            write!(f, "{between}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for BadOptions {}

/// `<hostname>-<pid>`, with everything replaced that cannot be in a name.
pub fn default_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut name: String = host.chars().map(|c| if fits(c) { c } else { '-' }).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        name.insert_str(0, "worker");
    }
    // Room for the process id.
    name.truncate(NAME_LENGTH_MAX - 12);
    format!("{name}-{}", std::process::id())
}

impl Options {
    /// The defaults for a program.
    pub fn new<T: Into<String>>(kind: &str, command: impl IntoIterator<Item = T>) -> Self {
        Options {
            name: default_name(),
            kind: kind.to_owned(),
            command: command.into_iter().map(Into::into).collect(),
            servers: vec!["http://127.0.0.1:6632".to_owned()],
            key: None,
            slots: None,
            labels: Vec::new(),
            version: None,
            url_from: UrlFrom::Stdout,
            advertise_host: None,
            start_limit: Duration::from_secs(60),
            stop_limit: Duration::from_secs(10),
            drain_limit: Duration::from_secs(300),
            memory_max: None,
            memory_grace: Duration::from_secs(30),
            age_max: None,
            heartbeat_interval: Duration::from_secs(5),
            successor: false,
            output: Output::default(),
        }
    }

    /// Everything that is wrong with them.
    pub fn check(&self) -> Result<(), BadOptions> {
        let mut problems = Vec::new();
        let mut refuse = |field, value: &dyn fmt::Display, right: &str| {
            let (value, right) = (value.to_string(), right.to_owned());
            problems.push(Problem { field, value, right });
        };
        for (field, value) in [("name", &self.name), ("kind", &self.kind)] {
            if let Err(bad) = value.parse::<Name>() {
                refuse(field, value, &format!("{bad}; give a name such as chromium-1"));
            }
        }
        if let Err(right) = self.check_command() {
            refuse("command", &self.command.join(" "), &right);
        }
        if self.servers.is_empty() || self.servers.len() > SERVERS_MAX {
            let right = format!("give 1 to {SERVERS_MAX} URLs of nodes");
            refuse("servers", &self.servers.len(), &right);
        }
        for server in &self.servers {
            if let Err(right) = check_server(server) {
                refuse("servers", server, right);
            }
        }
        if self.key.as_ref().is_some_and(|key| !is_key(key)) {
            refuse("key", &"(not shown)", "give visible ASCII characters without blanks");
        }
        if self.slots.is_some_and(|slots| slots == 0 || slots > SLOTS_MAX) {
            let given = self.slots.unwrap_or_default();
            refuse("slots", &given, &format!("give 1 to {SLOTS_MAX}, or leave it out"));
        }
        if self.labels.len() > LABELS_MAX {
            refuse("labels", &self.labels.len(), &format!("give at most {LABELS_MAX}"));
        }
        let texts = self.labels.iter().map(|label| ("labels", label));
        for (field, text) in texts.chain(self.version.iter().map(|text| ("version", text))) {
            if !is_plain(text) {
                let right = format!("give 1 to {TEXT_MAX} visible ASCII characters without blanks");
                refuse(field, text, &right);
            }
        }
        if let Some(host) = self.advertise_host.as_ref().filter(|host| !is_host(host)) {
            refuse("advertise_host", host, "give a host name or an address, without a port");
        }
        if let Err((value, right)) = self.check_url() {
            refuse("url", &value, &right);
        }
        for (field, span, least, most) in self.spans() {
            let (from, to) = (Duration::from_millis(least), Duration::from_secs(most));
            if span < from || span > to {
                refuse(field, &format!("{span:?}"), &format!("give {from:?} to {to:?}"));
            }
        }
        if self.memory_max == Some(0) {
            refuse("memory_max", &0, "give at least 1 byte, or leave it out");
        }
        if problems.is_empty() { Ok(()) } else { Err(BadOptions(problems)) }
    }

    /// Field, value, the least in milliseconds and the most in seconds.
    fn spans(&self) -> Vec<(&'static str, Duration, u64, u64)> {
        let mut spans = vec![
            ("start_limit", self.start_limit, 100, 3_600),
            ("stop_limit", self.stop_limit, 0, 3_600),
            ("drain_limit", self.drain_limit, 0, 86_400),
            ("heartbeat_interval", self.heartbeat_interval, 50, 60),
        ];
        spans.extend(self.age_max.map(|age| ("age_max", age, 1_000, 31_536_000)));
        spans
    }

    /// Whether a port has to be chosen for each start.
    pub(crate) fn wants_port(&self) -> bool {
        let in_url = matches!(&self.url_from, UrlFrom::Fixed(url) if url.contains(PORT));
        in_url || self.command.iter().any(|part| part.contains(PORT))
    }

    fn check_command(&self) -> Result<(), String> {
        let Some(program) = self.command.first().filter(|program| !program.is_empty()) else {
            return Err("give a program and its arguments, as in -- node server.js".to_owned());
        };
        if self.command.iter().any(|part| part.contains('\0')) {
            return Err("leave out the NUL characters".to_owned());
        }
        let found = where_it_is(program).is_some();
        found.then_some(()).ok_or_else(|| {
            format!("give a program that is there and may be run; {program:?} is none")
        })
    }

    fn check_url(&self) -> Result<(), (String, String)> {
        let UrlFrom::Fixed(url) = &self.url_from else { return Ok(()) };
        let refused = |right: &str| Err((url.clone(), right.to_owned()));
        if let Err(right) = address::check(&url.replace(PORT, "1")) {
            return refused(right);
        }
        if self.successor && !url.contains(PORT) {
            return refused(
                "with a successor two programs run side by side, each needs a port of its own: \
                 put {port} in its place, as in ws://127.0.0.1:{port}/",
            );
        }
        Ok(())
    }
}

/// The file that a program's name means, if it can be run.
fn where_it_is(program: &str) -> Option<PathBuf> {
    let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| runs(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| runs(path))
}

fn check_server(server: &str) -> Result<(), &'static str> {
    const RIGHT: &str = "give the URL of a node, as in http://127.0.0.1:6632";
    let uri: hyper::Uri = server.parse().map_err(|_| RIGHT)?;
    if server.contains('@') {
        return Err("leave out what stands before the @; a key has an option of its own");
    }
    match (uri.scheme_str(), uri.host(), uri.query()) {
        (Some("http" | "https"), Some(_), None) => Ok(()),
        _ => Err(RIGHT),
    }
}

fn is_plain(text: &str) -> bool {
    (1..=TEXT_MAX).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic())
}

fn is_key(key: &str) -> bool {
    (1..=1_024).contains(&key.len()) && key.chars().all(|c| c.is_ascii_graphic())
}

fn is_host(host: &str) -> bool {
    let bracketed = if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let url: Option<hyper::Uri> = format!("http://{bracketed}/").parse().ok();
    url.is_some_and(|url| url.host() == Some(&bracketed) && url.port().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Options {
        Options::new("chromium", ["sh", "-c", "exit 0"])
    }

    fn complaint(change: impl FnOnce(&mut Options)) -> String {
        let mut options = good();
        change(&mut options);
        options.check().expect_err("is refused").to_string()
    }

    #[test]
    fn the_defaults_are_fine() {
        assert_eq!(good().check(), Ok(()));
        assert!(default_name().parse::<Name>().is_ok());
    }

    #[test]
    fn a_refusal_names_field_value_and_what_would_be_right() {
        assert_eq!(
            complaint(|options| options.slots = Some(0)),
            "slots: \"0\" is not allowed; give 1 to 100000, or leave it out"
        );
        assert_eq!(
            complaint(|options| options.heartbeat_interval = Duration::ZERO),
            "heartbeat_interval: \"0ns\" is not allowed; give 50ms to 60s"
        );
        assert!(complaint(|options| options.kind = String::new()).starts_with("kind: \"\" is not"));
        assert!(complaint(|options| options.name = "a b".to_owned()).contains("holds ' '"));
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let told = complaint(|options| {
            options.name = "a/b".to_owned();
            options.labels = vec!["two words".to_owned()];
            options.servers = vec!["localhost:6632".to_owned(), "http://me:pw@host".to_owned()];
        });
        assert_eq!(told.lines().count(), 4, "{told}");
    }

    #[test]
    fn a_key_is_never_shown() {
        let told = complaint(|options| options.key = Some("secret key".to_owned()));
        assert!(!told.contains("secret"), "{told}");
    }

    #[test]
    fn a_program_that_is_not_there_is_refused_before_anything_starts() {
        let told = complaint(|options| options.command = vec!["no-such-program-here".to_owned()]);
        assert!(told.contains("\"no-such-program-here\" is none"), "{told}");
        assert!(complaint(|options| options.command.clear()).starts_with("command: \"\""));
    }

    #[test]
    fn a_successor_needs_a_port_of_its_own() {
        let fixed = |url: &str| UrlFrom::Fixed(url.to_owned());
        let told = complaint(|options| {
            options.successor = true;
            options.url_from = fixed("ws://127.0.0.1:9222/");
        });
        assert!(told.contains("{port}"), "{told}");
        let mut options = good();
        options.successor = true;
        options.url_from = fixed("ws://127.0.0.1:{port}/");
        assert_eq!(options.check(), Ok(()));
        assert!(options.wants_port());
    }
}
