//! The examples of the help pages, and the commands in each.

/// A page of the help.
pub struct Page {
    /// Its verb, without `skep`.
    pub verb: String,
    /// Its examples, without what stands beside them.
    pub examples: Vec<String>,
}

/// The pages of all verbs that do something, in the order of the help.
pub fn pages(command: &clap::Command) -> Vec<Page> {
    fn visit(command: &clap::Command, verb: &str, found: &mut Vec<Page>) {
        let inner = command.get_subcommands();
        let inner: Vec<_> =
            inner.filter(|one| one.get_name() != "help" && !one.is_hide_set()).collect();
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        if inner.is_empty() || !help.is_empty() {
            found.push(Page { verb: verb.to_owned(), examples: examples(&help) });
        }
        for one in inner {
            visit(one, format!("{verb} {}", one.get_name()).trim(), found);
        }
    }
    let mut found = Vec::new();
    visit(command, "", &mut found);
    found
}

/// The lines below `Examples:`, of which some go on in the next line.
fn examples(help: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let mut goes_on = false;
    for line in lines.take_while(|line| line.starts_with("  ")) {
        let (text, more) = match line.trim().strip_suffix('\\') {
            Some(text) => (text.trim().to_owned(), true),
            None => (command_of(line.trim()), false),
        };
        match found.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(&format!(" {text}")),
            None => found.push(text),
        }
        goes_on = more;
    }
    found
}

/// A line without what stands beside it, two spaces or more to the right.
fn command_of(line: &str) -> String {
    let mut quote = None;
    let mut spaces = 0;
    for (at, one) in line.char_indices() {
        match (quote, one) {
            (None, '\'' | '"') => quote = Some(one),
            (Some(open), one) if open == one => quote = None,
            _ => {}
        }
        spaces = if one == ' ' && quote.is_none() { spaces + 1 } else { 0 };
        if spaces == 2 {
            return line[..at].trim().to_owned();
        }
    }
    line.to_owned()
}

/// The words of each `skep` in a line of a shell, as the program gets them.
pub fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut is_file = false;
    for word in words(line) {
        match word.as_str() {
            "|" | "&&" => commands.push(Vec::new()),
            "<" | ">" => is_file = true,
            _ if is_file => is_file = false,
            _ => commands.last_mut().expect("there is one").push(word),
        }
    }
    let of_ours = |words: Vec<String>| {
        let place = words.iter().position(|word| word == "skep")?;
        let settings = words[..place].iter().all(|word| word.contains('='));
        settings.then(|| words[place..].to_vec())
    };
    commands.into_iter().filter_map(of_ours).collect()
}

/// Words as a shell splits them; signs that stand alone are words.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut begun, mut quote) = (Vec::new(), String::new(), false, None);
    for one in line.chars() {
        match (quote, one) {
            (None, '\'' | '"') => (quote, begun) = (Some(one), true),
            (Some(open), one) if open == one => quote = None,
            (None, ' ') => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            (_, one) => {
                word.push(one);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

#[test]
fn examples_are_read_without_what_stands_beside_them() {
    let help =
        "Examples:\n  skep a 'b  c'            d e\n  skep a --b \\\n      --c | skep d > e\n\n  x";
    let found = examples(help);
    assert_eq!(found, ["skep a 'b  c'", "skep a --b --c | skep d > e"]);
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(commands(&found[0]), [words(&["skep", "a", "b  c"])]);
    assert_eq!(commands(&found[1]), [words(&["skep", "a", "--b", "--c"]), words(&["skep", "d"])]);
    assert_eq!(commands("A=b skep c && echo skep ''"), [words(&["skep", "c"])]);
}
