//! Both stores against what they promise, against the model, and against being killed.

mod administration;
mod claims;
mod crashes;
mod kit;
mod limits;
mod model;
mod pushes;
mod settlements;
mod transactions;
