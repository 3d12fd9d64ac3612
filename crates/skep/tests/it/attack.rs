//! A review of the whole by attack: what somebody would try who means ill, and that nothing comes
//! of it. What a capability says about its own doors is tested with the capability.

mod bombs;
mod cross_site;
mod decoders;
mod doors;
mod kit;
mod pages;
mod passwords;
mod reach;
mod secrets;
mod words;
