//! Engine mode `process`: a server sends and receives for the nodes of its machine
//! (spec/serve.md).
//!
//! [`ServedLink`] is the node's end, a link as any other. [`Server`] is the other end. Between the
//! two are rings in a sealed memory file, the same as between local peers. A node's engine seals
//! what it sends, so the server needs no keys.

mod client;
mod counters;
mod link;
mod refusal_log;
mod server;
mod stall;
#[cfg(test)]
pub(crate) mod tests;

pub use link::{ConnectError, Reconnect, ServedLink};
pub use server::{ServeError, ServeOptions, Server};

use crate::shm::{ControlSocket, SAID_MAX};
use oikaze_protocol::serve::{self, HEAD, HeadBytes, OpenAnswer};
use oikaze_protocol::shm::{Heading, RecordKind};
use std::io;
use std::time::Duration;

/// Name of the server that is meant if no other is named.
pub const DEFAULT_NAME: &str = "default";
/// Maximum length of a server's name. A name in the kernel has at most 107 bytes, and that of the
/// socket also has the number of the user.
pub const NAME_MAX: usize = 64;
/// Time for a request and its answer.
const OPEN_TIME: Duration = Duration::from_secs(5);
/// Polls of a ring that find nothing, before the socket is asked whether the other end still lives.
const POLLS_PER_CHECK: u32 = 512;

const _: () = assert!(serve::SAID_MAX <= SAID_MAX, "a request and an answer fit into a message");

/// Returns the abstract name of the socket of a user's server (SERVE-1.1). Users do not share
/// names, so that no server of one user stands in the way of another's.
fn socket_name(user: u32, name: &str) -> String {
    format!("oikaze-serve-{user}-{name}")
}

/// Checks the name of a server.
///
/// # Errors
/// The text says which names are permitted.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(is_word) {
        return Ok(());
    }
    Err(format!(
        "{name:?} names no server; give 1 to {NAME_MAX} letters, digits, dots, dashes or underscores"
    ))
}

/// Heading of a record. The ring sets its length to that of the parts that are put in.
const HEADING: Heading = Heading { head: HEAD, ..Heading::plain(RecordKind::Whole, HEAD) };

/// Returns the number of bytes behind the head of a record (SERVE-3.4).
fn rest_of(heading: &Heading) -> io::Result<usize> {
    let is_record = heading.kind == RecordKind::Whole && heading.head == HEAD;
    heading.len.checked_sub(HEAD).filter(|_| is_record).ok_or_else(nonsense)
}

/// Error for a record that makes no sense.
fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a record in the shared memory makes no sense")
}

/// Tells a node why it is not served, or no more.
fn tell_why(line: &ControlSocket, why: &str) {
    // A node that has gone needs no reason.
    let _ = line.say(&OpenAnswer::Refused(why.to_owned()).encode(), None);
}

/// Reads the head of the oldest record.
fn head_of(reader: &crate::shm::Reader) -> HeadBytes {
    reader.bytes(0)
}
