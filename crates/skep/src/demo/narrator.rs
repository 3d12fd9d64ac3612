//! Tells what happens: on the terminal as it does, and to every node for its dashboard.

use super::story::{EVENTS_MAX, Next, Story, StoryNode, Told};
use crate::access::now_ms;
use serde_json::{Value, json};
use skep_chaos::world::Place;
use std::sync::Arc;
use std::time::Duration;

/// Prints a line.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// How long a node may take to hear the story; the next time it is told all of it again.
const TELL_LIMIT: Duration = Duration::from_secs(2);
/// As wide as a time.
const INDENT: &str = "          ";

/// The one who tells.
pub struct Narrator {
    place: Arc<Place>,
    say: Say,
    story: Story,
    told: u64,
}

impl Narrator {
    pub fn new(place: Arc<Place>, names: &[String], ends_at: Option<i64>, say: Say) -> Self {
        let nodes = names.iter().zip(&place.api).map(|(name, url)| StoryNode {
            name: name.clone(),
            url: format!("{url}/"),
            up: true,
        });
        let nodes = nodes.collect();
        let story = Story { started_at: now_ms(), ends_at, nodes, ..Story::default() };
        Narrator { place, say, story, told: 0 }
    }

    /// Begins an event; everything that is told until the next belongs to it.
    pub async fn event(&mut self, what: &str, title: &str, page: &str) {
        self.told += 1;
        let at = now_ms();
        if let Some(before) = self.story.events.last_mut() {
            before.over = true;
        }
        self.story.events.push(Told {
            number: self.told,
            at,
            what: what.to_owned(),
            title: title.to_owned(),
            outcome: Vec::new(),
            because: Vec::new(),
            page: page.to_owned(),
            over: false,
        });
        let surplus = self.story.events.len().saturating_sub(EVENTS_MAX);
        self.story.events.drain(..surplus);
        self.story.next = None;
        (self.say)(&format!("{}  {title}", clock(at)));
        self.publish().await;
    }

    /// What came of it.
    pub async fn outcome(&mut self, text: &str) {
        (self.say)(&format!("{INDENT}{text}"));
        if let Some(event) = self.story.events.last_mut() {
            event.outcome.push(text.to_owned());
        }
        self.publish().await;
    }

    /// Why, as a decision says.
    pub async fn because(&mut self, text: &str) {
        (self.say)(&format!("{INDENT}because {text}"));
        if let Some(event) = self.story.events.last_mut() {
            event.because.push(text.to_owned());
        }
        self.publish().await;
    }

    /// It is over; this comes next.
    pub async fn over(&mut self, next: Option<Next>) {
        if let Some(event) = self.story.events.last_mut() {
            event.over = true;
        }
        self.story.next = next;
        self.publish().await;
    }

    /// Says which nodes run.
    pub async fn publish(&mut self) {
        for (number, node) in self.story.nodes.iter_mut().enumerate() {
            node.up = !self.place.is_down(number);
        }
        let body = json!(self.story);
        for number in 0..self.place.api.len() {
            if !self.place.is_down(number) {
                // One that does not hear it now hears it with the next.
                let told = self.place.ask(number, "PUT", "/api/v1/demo", Some(&body), TELL_LIMIT);
                let _ = told.await;
            }
        }
    }

    /// Everything that was told.
    pub fn events(&self) -> &[Told] {
        &self.story.events
    }
}

/// The time of day, UTC.
fn clock(at_ms: i64) -> String {
    let stamp = jiff::Timestamp::from_millisecond(at_ms).unwrap_or_default();
    let text = format!("{stamp:.0}");
    text.get(11..19).unwrap_or(&text).to_owned()
}

/// A reason in words: a text as it is; a rule with the numbers that it looked at.
pub fn words(reason: &Value) -> Option<String> {
    if let Some(text) = reason.as_str() {
        return Some(text.to_owned()).filter(|text| !text.is_empty());
    }
    let rule = reason["rule"].as_str()?;
    let numbers: Vec<String> = reason["numbers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| match value.as_str() {
            Some(text) => format!("{name} {text}"),
            None => format!("{name} {value}"),
        })
        .collect();
    Some(match numbers.is_empty() {
        true => rule.to_owned(),
        false => format!("{rule}: {}", numbers.join(", ")),
    })
}

/// `a`, `a and b`, `a, b and c`.
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [many @ .., last] => format!("{} and {last}", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_in_words() {
        let reason = json!({ "rule": "unowned", "numbers": { "from": "demo-2", "load": 3 } });
        assert_eq!(words(&reason).as_deref(), Some("unowned: from demo-2, load 3"));
        assert_eq!(words(&json!("its account has more")).as_deref(), Some("its account has more"));
        assert_eq!(words(&json!({ "rule": "draining" })).as_deref(), Some("draining"));
        assert_eq!(words(&json!(null)), None);
    }

    #[test]
    fn lists_end_with_and() {
        let items = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(list(&items), "a, b and c");
        assert_eq!(list(&items[..2]), "a and b");
        assert_eq!(list(&items[..1]), "a");
    }

    #[test]
    fn the_time_of_day_is_told_to_the_second() {
        assert_eq!(clock(1_794_727_390_000), "07:23:10");
    }
}
