//! Messages: credit, long messages, posted receives, notifications, full queues.
#![forbid(unsafe_code)]

#[path = "../support/block_on.rs"]
mod block_on;
mod credit;
#[path = "../support/everywhere.rs"]
mod everywhere;
mod full_queue;
mod long_messages;
mod notify;
mod posted;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/ways.rs"]
mod ways;
