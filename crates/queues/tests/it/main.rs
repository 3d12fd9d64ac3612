//! Both stores against what they promise, against the model, and against being killed.

mod administration;
mod browsing;
mod claims;
mod crashes;
mod groups;
mod keeping;
mod kit;
mod letters;
mod limits;
mod locks;
mod model;
mod partitions;
mod pushes;
mod redrives;
mod removals;
mod schedules;
mod settlements;
mod sharing;
mod stats;
mod switches;
mod traces;
mod transactions;
mod waiting;
