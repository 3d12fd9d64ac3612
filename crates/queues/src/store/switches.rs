//! What operators switch off for maintenance.

use super::QueueStore;
use super::either::either;
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;

/// What can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// While it is on, every node keeps pushes to itself, on its disk.
    Push,
    /// While it is on, nobody gets messages.
    Pop,
}

impl Switch {
    pub(super) fn name(self) -> &'static str {
        match self {
            Switch::Push => "push",
            Switch::Pop => "pop",
        }
    }
}

/// All switches. One that was never touched is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Whether pushes are kept by each node.
    pub push: bool,
    /// Whether nobody gets messages.
    pub pop: bool,
    /// Since when `push` is as it is, and by whom.
    pub push_set: Option<SwitchSet>,
    /// Since when `pop` is as it is, and by whom.
    pub pop_set: Option<SwitchSet>,
}

/// Who set a switch to what it is, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchSet {
    /// When.
    pub since: Time,
    /// Who.
    pub by: Arc<str>,
}

impl Switches {
    /// Takes over a row. One that this version does not know changes nothing.
    pub(super) fn note(&mut self, name: &str, on: bool, since: Time, by: &str) {
        let set = Some(SwitchSet { since, by: by.into() });
        match name {
            "push" => (self.push, self.push_set) = (on, set),
            "pop" => (self.pop, self.pop_set) = (on, set),
            _ => {}
        }
    }
}

impl QueueStore {
    /// All switches.
    pub async fn switches(&self) -> Result<Switches, StoreError> {
        either!(self, store => store.switches().await)
    }

    /// Sets one. Setting it to what it is changes nothing, not even who did it.
    pub async fn set_switch(
        &self,
        switch: Switch,
        on: bool,
        by: &str,
    ) -> Result<Switches, StoreError> {
        either!(self, store => store.set_switch(switch, on, by).await)
    }
}
