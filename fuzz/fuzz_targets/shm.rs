//! Any word, read as the heading of a record in memory shared with a local peer, any number of
//! bytes before the ring's end (MEM-16.2).
#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use oikaze_protocol::limits::RING_BYTES;
use oikaze_protocol::shm::{HEADING, Heading};

fuzz_target!(|bytes: &[u8]| {
    let Some((word, rest)) = bytes.split_first_chunk::<8>() else { return };
    let Some(left) = rest.first_chunk::<4>() else { return };
    let (word, left) =
        (u64::from_le_bytes(*word), u32::from_le_bytes(*left) as usize % (RING_BYTES + 1));
    if let Ok(heading) = Heading::decode(word, left) {
        assert_eq!(heading.encode(), word);
        assert!(HEADING + heading.len <= left && heading.head <= heading.len);
        assert!(heading.stride() >= HEADING);
    }
});
