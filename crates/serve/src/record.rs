//! Records and messages between a node and its server.

use oikaze_os::shm::{CONTROL_MESSAGE_MAX, ControlSocket, Reader};
use oikaze_protocol::serve::{self, HEAD, HeadBytes, OpenAnswer};
use oikaze_protocol::shm::{Heading, RecordKind};
use std::io;
use std::time::Duration;

/// Time for a request and its answer.
pub(super) const OPEN_TIME: Duration = Duration::from_secs(5);
/// Polls of a ring that find nothing, before the socket is asked whether the other end still lives.
pub(super) const POLLS_PER_CHECK: u32 = 512;

const _: () = assert!(
    serve::CONTROL_MESSAGE_MAX <= CONTROL_MESSAGE_MAX,
    "a request and an answer fit into a message"
);

/// Heading of a record. The ring sets its length to that of the parts that are put in.
pub(super) const HEADING: Heading =
    Heading { head: HEAD, ..Heading::plain(RecordKind::Whole, HEAD) };

/// Returns the number of bytes behind the head of a record (SERVE-3.4).
pub(super) fn rest_of(heading: &Heading) -> io::Result<usize> {
    let is_record = heading.kind == RecordKind::Whole && heading.head == HEAD;
    heading.len.checked_sub(HEAD).filter(|_| is_record).ok_or_else(nonsense)
}

/// Error for a record that makes no sense.
pub(super) fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a record in the shared memory makes no sense")
}

/// Tells a node why it is not served, or no more.
pub(super) fn send_reason(line: &ControlSocket, why: &str) {
    // A node that has gone needs no reason.
    let _ = line.say(&OpenAnswer::Refused(why.to_owned()).encode(), None);
}

/// Reads the head of the oldest record.
pub(super) fn head_of(reader: &Reader) -> HeadBytes {
    reader.bytes(0)
}
