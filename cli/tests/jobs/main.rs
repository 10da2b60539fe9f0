//! Jobs that `oikaze run` starts: their options, their waits, and how they end.

mod endings;
mod ends;
mod local_peers;
mod modes;
mod run;
#[path = "../support/mod.rs"]
mod support;
mod waits;
