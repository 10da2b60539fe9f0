//! Messages in the socket between local peers: memory of regions, and pages for an exchange.

use oikaze_os::memory::FilePages;
use oikaze_os::shm::{RegionGrant, Said};
use oikaze_protocol::rma::Rights;

/// Format of the socket message with a region's memory: this word, key u64, length u64, line u32,
/// rights u8, whether the owner makes fences u8.
const GRANT: &[u8; 4] = b"give";
const GIFT_LEN: usize = 4 + 8 + 8 + 4 + 1 + 1;

/// Format of a socket message with pages: one of these words, then number, key, offset, offset in
/// the file, and length, each u64. An answer has no key or offset.
pub(super) const QUESTION: &[u8; 4] = b"swap";
pub(super) const ANSWER: &[u8; 4] = b"took";
const OFFER_WORDS: usize = 5;
pub(super) const OFFER_LEN: usize = 4 + 8 * OFFER_WORDS;

/// Memory of a region that came through the socket.
pub(crate) struct HandedRegion {
    pub key: u64,
    pub gift: RegionGrant,
}

/// Returns the message that hands over the memory of a region.
pub(super) fn grant_message(
    key: u64,
    len: u64,
    line: u32,
    rights: Rights,
    makes_fences: bool,
) -> Vec<u8> {
    let mut said = Vec::with_capacity(GIFT_LEN);
    said.extend_from_slice(GRANT);
    said.extend_from_slice(&key.to_le_bytes());
    said.extend_from_slice(&len.to_le_bytes());
    said.extend_from_slice(&line.to_le_bytes());
    said.extend_from_slice(&[rights.0, makes_fences.into()]);
    said
}

/// Returns the line of the region whose memory the message carries, if the message carries any.
pub(super) fn gift_line(said: &Said) -> Option<usize> {
    gift_of(said).and_then(line_of)
}

fn gift_of(said: &Said) -> Option<&[u8; GIFT_LEN]> {
    said.bytes().try_into().ok().filter(|bytes: &&[u8; GIFT_LEN]| bytes.starts_with(GRANT))
}

fn line_of(gift: &[u8; GIFT_LEN]) -> Option<usize> {
    gift.get(20..24)
        .and_then(|word| word.try_into().ok())
        .map(|line| u32::from_le_bytes(line) as usize)
}

impl HandedRegion {
    /// Converts a message that carries a descriptor; returns `None` for any other message.
    pub fn from_said(mut said: Said) -> Option<HandedRegion> {
        let file = said.descriptor.take()?;
        let bytes = gift_of(&said)?;
        let word = |at: usize| {
            bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes)
        };
        let &[rights, makes_fences @ (0 | 1)] = bytes.get(24..)? else { return None };
        let rights = Some(Rights(rights)).filter(|rights| Rights::ALL.contains(*rights))?;
        let (key, len, index) = (word(4)?, usize::try_from(word(12)?).ok()?, line_of(bytes)?);
        let gift = RegionGrant { file, len, rights, index, makes_fences: makes_fences == 1 };
        Some(HandedRegion { key, gift })
    }
}

/// Returns the message that offers pages.
pub(super) fn offer_message(word: &[u8; 4], numbers: [u64; 3], pages: &FilePages) -> Vec<u8> {
    let mut said = Vec::with_capacity(OFFER_LEN);
    said.extend_from_slice(word);
    numbers
        .into_iter()
        .chain([pages.offset, pages.len])
        .for_each(|word| said.extend_from_slice(&word.to_le_bytes()));
    said
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
    pub fn is_one(said: &Said) -> bool {
        [QUESTION, ANSWER].iter().any(|word| said.bytes().starts_with(*word))
    }

    /// Returns `true` if the message is an answer that carries pages.
    pub fn is_answer(said: &Said) -> bool {
        said.bytes().starts_with(ANSWER) && said.descriptor.is_some()
    }

    /// Returns `true` if the message is a question, with or without its pages.
    pub fn is_question(said: &Said) -> bool {
        said.bytes().len() == OFFER_LEN && said.bytes().starts_with(QUESTION)
    }

    /// Returns `None` if the message makes no sense, or no pages come with it.
    pub fn from_said(mut said: Said) -> Option<OfferedPages> {
        let file = said.descriptor.take()?;
        let bytes: &[u8; OFFER_LEN] = said.bytes().try_into().ok()?;
        let words = bytes.get(4..)?.as_chunks::<8>().0;
        let word = |index: usize| words.get(index).copied().map(u64::from_le_bytes);
        let pages = FilePages::received(file, word(3)?, word(4)?).ok()?;
        Some(OfferedPages {
            answers: bytes.starts_with(ANSWER),
            number: word(0)?,
            key: word(1)?,
            offset: word(2)?,
            pages,
        })
    }
}
