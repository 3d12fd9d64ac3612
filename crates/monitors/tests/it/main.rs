//! Monitors on real databases.

mod review;
mod review_kit;
mod review_nodes;
mod store;
mod store_differential;
mod store_import;
mod store_kit;
mod store_races;
mod store_review;
mod store_samples;
