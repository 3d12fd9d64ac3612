//! The table of sessions in every store.
