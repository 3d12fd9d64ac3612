//! What of a page is to be run, and the ports that it names.

use std::collections::BTreeMap;

/// The port of the API that pages name.
pub const API: u16 = 6632;
/// The port of the gateway that pages name.
pub const GATEWAY: u16 = 8080;

/// A step of a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A block that readers see.
    Block(String),
    /// A command that they do not see.
    Run(String),
    /// A command whose output stands in for a name.
    Let { name: String, command: String },
    /// A block that is not run, and why.
    LeftOut(String),
}

/// What a page says to do, with the line of each step.
pub struct Page {
    pub steps: Vec<(usize, Step)>,
}

impl Page {
    /// Reads a page. What is wrong with its marks is told with its place.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut left_out: Option<String> = None;
        let mut lines = text.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            let wrong = |what: &str| Err(format!("{name}:{}: {what}: {line}", at + 1));
            let mark = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
            let words = mark.and_then(|mark| mark.split_once(": "));
            if let Some(language) = line.strip_prefix("```") {
                let inside = lines.by_ref().map(|(_, line)| line);
                let block: Vec<&str> = inside.take_while(|line| *line != "```").collect();
                match (language, left_out.take()) {
                    ("sh", Some(why)) => steps.push((at + 1, Step::LeftOut(why))),
                    ("sh", None) => steps.push((at + 1, Step::Block(block.join("\n")))),
                    (_, Some(_)) => return wrong("what is not run anyway is marked"),
                    (_, None) => {}
                }
                continue;
            }
            if left_out.is_some() {
                return wrong("a block was to follow its mark");
            }
            match words {
                Some(("run", command)) => steps.push((at + 1, Step::Run(command.to_owned()))),
                Some(("not run", why)) if why.split_whitespace().count() > 1 => {
                    left_out = Some(why.to_owned());
                }
                Some(("not run", _)) => return wrong("say why, in some words"),
                Some((other, command)) => {
                    if let Some(name) = other.strip_prefix("let ") {
                        let (name, command) = (name.to_owned(), command.to_owned());
                        steps.push((at + 1, Step::Let { name, command }));
                    }
                }
                None if mark.is_some_and(|mark| mark.starts_with("not run")) => {
                    return wrong("say why");
                }
                None => {}
            }
        }
        Ok(Page { steps })
    }

    /// What the shell is to do, with the lines where it stands.
    pub fn commands(&self) -> impl Iterator<Item = (usize, String)> {
        let mut names: Vec<&str> = Vec::new();
        self.steps.iter().filter_map(move |(line, step)| {
            let command = match step {
                Step::Block(block) => names
                    .iter()
                    .fold(block.clone(), |text, name| with_words(&text, name, &format!("${name}"))),
                Step::Run(command) => command.clone(),
                Step::Let { name, command } => {
                    names.push(name);
                    format!("{name}=$({command})")
                }
                Step::LeftOut(_) => return None,
            };
            Some((*line, command))
        })
    }

    /// Whether something that is run names `what`.
    pub fn names(&self, what: &str) -> bool {
        self.commands().any(|(_, command)| command.contains(what))
    }

    /// Whether a step begins with `command`.
    pub fn starts_with(&self, command: &str) -> bool {
        let whole = |found: &str| {
            let rest = found.strip_prefix(command);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        };
        self.commands().any(|(_, found)| whole(&found))
    }
}

/// Free ports in the place of those that a page names.
pub struct Ports(BTreeMap<u16, u16>);

impl Ports {
    /// Those that stand behind a name of this machine, and the two that every node has.
    pub fn of(page: &Page) -> Self {
        let mut ports = Ports(BTreeMap::new());
        ports.free_for(API);
        ports.free_for(GATEWAY);
        for (_, command) in page.commands() {
            for host in ["127.0.0.1:", "localhost:"] {
                for rest in command.split(host).skip(1) {
                    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                    // Small ones are those of the system: nobody listens there, or port 0.
                    let port = rest[..end].parse().ok().filter(|port: &u16| *port >= 1_024);
                    port.map(|port| ports.free_for(port));
                }
            }
        }
        ports
    }

    /// The one that stands in for `port`.
    pub fn free_for(&mut self, port: u16) -> u16 {
        *self.0.entry(port).or_insert_with(skep_testkit::free_port)
    }

    /// A text with the ports of this test, also where they stand alone as numbers.
    pub fn rewrite(&self, text: &str) -> String {
        // In one go: a port of the test may be one that a page names too.
        let mut rewritten = String::new();
        for word in words(text) {
            match word.parse().ok().and_then(|port: u16| self.0.get(&port)) {
                Some(port) => rewritten.push_str(&port.to_string()),
                None => rewritten.push_str(word),
            }
        }
        rewritten
    }
}

/// A text with one word in the place of another.
fn with_words(text: &str, word: &str, other: &str) -> String {
    words(text).map(|found| if found == word { other } else { found }).collect()
}

/// The words of a text, and what is between them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest.find(|c: char| in_word(c) != in_word(first)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

#[test]
fn a_mark_needs_a_reason_and_a_block() {
    let parse = |text: &str| Page::parse("page.md", text).map(|page| page.steps);
    let left_out = parse("<!-- not run: goes on -->\n```sh\nskep serve\n```\n");
    assert_eq!(left_out, Ok(vec![(2, Step::LeftOut("goes on".to_owned()))]));
    for wrong in [
        "<!-- not run -->\n```sh\ntrue\n```\n",
        "<!-- not run: no -->\n```sh\ntrue\n```\n",
        "<!-- not run: goes on -->\n\n```sh\ntrue\n```\n",
        "<!-- not run: is text -->\n```text\ntrue\n```\n",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn ports_that_a_page_names_are_free_ones_everywhere_in_it() {
    let text = "```sh\nserver 9001 &\ncurl localhost:9001 19001 127.0.0.1:0 30000\n```\n";
    let page = Page::parse("page.md", text).expect("is right");
    let mut ports = Ports::of(&page);
    let free = ports.free_for(9001);
    let (_, command) = page.commands().next().expect("a block");
    let expected = format!("server {free} &\ncurl localhost:{free} 19001 127.0.0.1:0 30000");
    assert_eq!(ports.rewrite(&command), expected);
}
