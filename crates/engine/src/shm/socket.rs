//! Control socket of a local peer. It carries the descriptors of memory and pages, which records in
//! the ring only announce, and wakeups.

use super::local_peer::LocalPeer;
use super::socket_messages::{
    HandedRegion, OfferedPages, SentSegment, granted_slot, offer_message, segment_message,
};
use oikaze_os::memory::FilePages;
use oikaze_os::shm::{ControlMessage, ControlSocket};
use oikaze_protocol::limits::GRANTS;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of exchanges that this node asks a local peer for at a time. This node keeps at
/// most as many requests of the local peer, beside its answers.
pub(super) const EXCHANGES_MAX: usize = 64;

/// Maximum number of files of arrays that this node keeps of a local peer. A node makes one array
/// at a time, and forgets files of earlier ones.
const SEGMENTS_MAX: usize = 8;

/// Number of polls for the file of an array. A socket has room for some hundred messages.
const SEGMENT_POLLS: usize = 16;

/// Maximum number of socket messages taken in one poll.
const MESSAGES_PER_POLL: usize = 64;

/// Offers pages for an exchange through the socket.
pub(super) fn offer_pages(
    local_peer: &LocalPeer,
    word: &[u8; 4],
    numbers: [u64; 3],
    pages: &FilePages,
) -> std::io::Result<()> {
    let file: BorrowedFd<'_> = pages.file();
    local_peer.pair.line.say(&offer_message(word, numbers, pages), Some(file))
}

/// Reserves one more descriptor for the pages that come back.
pub(super) fn keep_spare(local_peer: &mut LocalPeer) -> std::io::Result<()> {
    local_peer.spares.push(local_peer.pair.line.as_fd().try_clone_to_owned()?);
    Ok(())
}

/// Receives the next socket message. Spare descriptors are reserved for answers to open requests.
/// One spare is released during the receive and reserved again unless the message was an answer. If
/// the spare cannot be reserved again, a message that is not an answer loses its descriptor.
fn receive_next(local_peer: &mut LocalPeer) -> std::io::Result<Option<ControlMessage>> {
    let kept = local_peer.spares.pop().is_some();
    let mut message = local_peer.pair.line.hear()?;
    if kept
        && !message.as_ref().is_some_and(OfferedPages::is_answer)
        && keep_spare(local_peer).is_err()
    {
        if let Some(message) = &mut message {
            message.descriptor = None;
        }
        let _ = keep_spare(local_peer);
    }
    Ok(message)
}

/// Receives socket messages. Returns `false` if the socket has ended, or a message makes no sense.
pub(super) fn receive_messages(local_peer: &mut LocalPeer) -> bool {
    for _ in 0..MESSAGES_PER_POLL {
        match receive_next(local_peer) {
            Ok(None) => break,
            Ok(Some(message)) if ControlSocket::is_wake(&message) => {}
            // Without the file, this node says that it cannot map the array (COH-16.1).
            Ok(Some(message)) if SentSegment::is_one(&message) => {
                if let Some(sent) = SentSegment::from_message(message) {
                    if local_peer.segments.len() >= SEGMENTS_MAX {
                        local_peer.segments.remove(0);
                    }
                    local_peer.segments.push(sent);
                }
            }
            // If this process may open no more descriptors, the kernel delivers the bytes without
            // the descriptor. Without its descriptor, a region is reached through the ring instead,
            // and a request for an exchange is refused. The pages of an answer are lost, so the
            // socket fails.
            Ok(Some(message)) if message.descriptor.is_none() => {
                if !release_slot(local_peer, &message) && !OfferedPages::is_question(&message) {
                    return false;
                }
            }
            Ok(Some(message)) if OfferedPages::is_one(&message) => {
                match OfferedPages::from_message(message) {
                    Some(offer) if local_peer.offers.len() < 2 * EXCHANGES_MAX => {
                        local_peer.offers.push(offer)
                    }
                    _ => return false,
                }
            }
            Ok(Some(message)) => match HandedRegion::from_message(message) {
                Some(handed) if local_peer.handed.len() < GRANTS => local_peer.handed.push(handed),
                _ => return false,
            },
            Err(_) => return false,
        }
    }
    true
}

/// Receives socket messages and returns the one with this number. The local peer sent it before the
/// ring announced it.
pub(super) fn receive_offer(
    local_peer: &mut LocalPeer,
    answers: bool,
    number: u64,
) -> Option<OfferedPages> {
    if !receive_messages(local_peer) {
        local_peer.has_ended();
    }
    take_offer(local_peer, answers, number)
}

/// Returns the socket message with this number, if it has been received.
pub(super) fn take_offer(
    local_peer: &mut LocalPeer,
    answers: bool,
    number: u64,
) -> Option<OfferedPages> {
    let at = local_peer
        .offers
        .iter()
        .position(|offer| (offer.answers, offer.number) == (answers, number))?;
    Some(local_peer.offers.swap_remove(at))
}

/// Gives up a region whose descriptor was lost: frees its line in the peer's table of grants.
/// Returns `false` if the message was not about a region's memory.
fn release_slot(local_peer: &LocalPeer, message: &ControlMessage) -> bool {
    granted_slot(message).inspect(|slot| local_peer.pair.forgo(*slot)).is_some()
}

/// Sends the file of an array to a local peer.
pub(super) fn send_segment(
    local_peer: &LocalPeer,
    array: u64,
    file: BorrowedFd<'_>,
) -> std::io::Result<()> {
    local_peer.pair.line.say(&segment_message(array), Some(file))
}

/// Returns the file of an array that a local peer has sent, and forgets those of earlier arrays.
pub(super) fn take_segment(local_peer: &mut LocalPeer, array: u64) -> Option<OwnedFd> {
    // The file is behind the messages that were sent before.
    for _ in 0..SEGMENT_POLLS {
        if !receive_messages(local_peer) {
            local_peer.has_ended();
        }
        local_peer.segments.retain(|sent| sent.array >= array);
        let at = local_peer.segments.iter().rposition(|sent| sent.array == array);
        if let Some(at) = at {
            return Some(local_peer.segments.remove(at).file);
        }
    }
    None
}
