//! What a node keeps while a demo runs: the story so far, for the dashboard.

use super::tasks::DemoTasks;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};

/// Events that a node keeps; the narrator leaves older ones out.
pub const EVENTS_MAX: usize = 100;

/// A demo as it is told.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DemoStory)]
pub struct Story {
    /// When it began, in milliseconds since 1970.
    pub started_at: i64,
    /// When it ends by itself, if it does.
    #[serde(default)]
    pub ends_at: Option<i64>,
    /// The nodes.
    pub nodes: Vec<StoryNode>,
    /// What happened so far, the oldest first.
    pub events: Vec<Told>,
    /// What comes next.
    #[serde(default)]
    pub next: Option<Next>,
}

/// A node of the demo.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DemoNode)]
pub struct StoryNode {
    pub name: String,
    /// Its dashboard.
    pub url: String,
    /// Whether it runs now.
    pub up: bool,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DemoEvent)]
pub struct Told {
    /// The first is 1.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// `workers`, `kill`, `return`, `burst`, `limit`, `start` or `end`.
    pub what: String,
    /// In one sentence.
    pub title: String,
    /// What came of it, a sentence each.
    pub outcome: Vec<String>,
    /// Why, as the decisions themselves say.
    pub because: Vec<String>,
    /// The page of the dashboard that shows it, as in `/polls`.
    pub page: String,
    /// Whether it is over.
    pub over: bool,
}

/// What comes next.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DemoNext)]
pub struct Next {
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// What will happen.
    pub title: String,
    /// Where it can be seen.
    pub page: String,
}

/// The part of a node that belongs to a demo.
pub struct DemoPlace {
    story: Mutex<(u64, Arc<Story>)>,
    pub tasks: Arc<DemoTasks>,
}

impl DemoPlace {
    /// Without a story yet.
    pub fn new() -> Self {
        DemoPlace { story: Mutex::default(), tasks: Arc::new(DemoTasks::new()) }
    }

    /// The story, and how often it was told anew.
    pub fn story(&self) -> (u64, Arc<Story>) {
        self.story.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the story.
    pub fn tell(&self, story: Story) {
        let mut kept = self.story.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = (kept.0 + 1, Arc::new(story));
    }
}

impl Default for DemoPlace {
    fn default() -> Self {
        DemoPlace::new()
    }
}
