//! Messages in the socket between local peers: memory of regions, pages for an exchange, and files
//! of arrays.

use oikaze_os::memory::FilePages;
use oikaze_os::shm::{ControlMessage, RegionGrant};
use oikaze_protocol::bytes::{ByteReader, ByteWriter};
use oikaze_protocol::rma::Rights;
use std::os::fd::OwnedFd;

/// Format of the socket message with a region's memory: this word, key u64, length u64, line u32,
/// rights u8, whether the owner makes fences u8.
const GRANT: &[u8; 4] = b"give";
const GRANT_LEN: usize = 4 + 8 + 8 + 4 + 1 + 1;

/// Format of a socket message with pages: one of these words, then number, key, offset, offset in
/// the file, and length, each u64. An answer has no key or offset.
pub(super) const QUESTION: &[u8; 4] = b"swap";
pub(super) const ANSWER: &[u8; 4] = b"took";
const OFFER_WORDS: usize = 5;
pub(super) const OFFER_LEN: usize = 4 + 8 * OFFER_WORDS;

/// Format of a socket message with the file of an array: this word, number of the array u64.
const SEGMENT: &[u8; 4] = b"segm";

/// File of an array that came through the socket (COH-16.1).
pub(crate) struct SentSegment {
    /// Number of the array.
    pub array: u64,
    pub file: OwnedFd,
}

/// Returns the message that carries the file of an array.
pub(super) fn segment_message(array: u64) -> Vec<u8> {
    let mut message = Vec::new();
    message.put(SEGMENT).put_u64(array);
    message
}

impl SentSegment {
    /// Returns `true` if the message is about the file of an array, with or without the file.
    pub fn is_one(message: &ControlMessage) -> bool {
        message.bytes().len() == 4 + 8 && message.bytes().starts_with(SEGMENT)
    }

    /// Converts a message; returns `None` if it makes no sense, or carries no file.
    pub fn from_message(mut message: ControlMessage) -> Option<SentSegment> {
        let file = message.descriptor.take()?;
        let mut bytes = ByteReader(message.bytes().strip_prefix(SEGMENT)?);
        Some(SentSegment { array: bytes.u64().ok()?, file })
    }
}

/// Memory of a region that came through the socket.
pub(crate) struct HandedRegion {
    pub key: u64,
    pub grant: RegionGrant,
}

/// Returns the message that hands over the memory of a region.
pub(super) fn grant_message(
    key: u64,
    len: u64,
    slot: u32,
    rights: Rights,
    makes_fences: bool,
) -> Vec<u8> {
    let mut message = Vec::with_capacity(GRANT_LEN);
    message.put(GRANT).put_u64(key).put_u64(len).put_u32(slot);
    message.put_u8(rights.0).put_u8(makes_fences.into());
    message
}

/// Returns the line of the region whose memory the message carries, if the message carries any.
pub(super) fn granted_slot(message: &ControlMessage) -> Option<usize> {
    parse_grant(message).map(|grant| grant.slot as usize)
}

/// Statement about a region's memory, before its values are checked.
struct GrantMessage {
    key: u64,
    len: u64,
    slot: u32,
    rights: u8,
    makes_fences: u8,
}

fn parse_grant(message: &ControlMessage) -> Option<GrantMessage> {
    let bytes: &[u8; GRANT_LEN] = message.bytes().try_into().ok()?;
    let mut bytes = ByteReader(bytes.strip_prefix(GRANT)?);
    Some(GrantMessage {
        key: bytes.u64().ok()?,
        len: bytes.u64().ok()?,
        slot: bytes.u32().ok()?,
        rights: bytes.u8().ok()?,
        makes_fences: bytes.u8().ok()?,
    })
}

impl HandedRegion {
    /// Converts a message that carries a descriptor; returns `None` for any other message.
    pub fn from_message(mut message: ControlMessage) -> Option<HandedRegion> {
        let file = message.descriptor.take()?;
        let GrantMessage { key, len, slot, rights, makes_fences } = parse_grant(&message)?;
        let rights = Some(Rights(rights)).filter(|rights| Rights::ALL.contains(*rights))?;
        let makes_fences = (makes_fences <= 1).then_some(makes_fences == 1)?;
        let (len, index) = (usize::try_from(len).ok()?, slot as usize);
        let grant = RegionGrant { file, len, rights, index, makes_fences };
        Some(HandedRegion { key, grant })
    }
}

/// Returns the message that offers pages.
pub(super) fn offer_message(word: &[u8; 4], numbers: [u64; 3], pages: &FilePages) -> Vec<u8> {
    let mut message = Vec::with_capacity(OFFER_LEN);
    message.put(word);
    for number in numbers.into_iter().chain([pages.offset, pages.len]) {
        message.put_u64(number);
    }
    message
}

/// Pages that were offered through the socket.
pub(crate) struct OfferedPages {
    pub answers: bool,
    pub number: u64,
    pub key: u64,
    pub offset: u64,
    pub pages: FilePages,
}

impl OfferedPages {
    /// Returns `true` if the message offers pages.
    pub fn is_one(message: &ControlMessage) -> bool {
        [QUESTION, ANSWER].iter().any(|word| message.bytes().starts_with(*word))
    }

    /// Returns `true` if the message is an answer that carries pages.
    pub fn is_answer(message: &ControlMessage) -> bool {
        message.bytes().starts_with(ANSWER) && message.descriptor.is_some()
    }

    /// Returns `true` if the message is a question, with or without its pages.
    pub fn is_question(message: &ControlMessage) -> bool {
        message.bytes().len() == OFFER_LEN && message.bytes().starts_with(QUESTION)
    }

    /// Returns `None` if the message makes no sense, or no pages come with it.
    pub fn from_message(mut message: ControlMessage) -> Option<OfferedPages> {
        let file = message.descriptor.take()?;
        let bytes: &[u8; OFFER_LEN] = message.bytes().try_into().ok()?;
        let mut words = ByteReader(bytes.get(4..)?);
        let mut word = || words.u64().ok();
        let (number, key, offset) = (word()?, word()?, word()?);
        let pages = FilePages::received(file, word()?, word()?).ok()?;
        Some(OfferedPages { answers: bytes.starts_with(ANSWER), number, key, offset, pages })
    }
}
