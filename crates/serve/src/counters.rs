//! Counters of a link as words of a record.

use oikaze_os::net::{Offload, Statistics};

/// One counter of a link.
type Counter = fn(&mut Statistics) -> &mut u64;
/// Size of a buffer of a link in bytes.
type Size = fn(&mut Statistics) -> &mut usize;
/// State of a mechanism of a link.
type State = fn(&mut Statistics) -> &mut Offload;

/// Counters in the order of their words. The sizes follow, and then a word with all states.
const COUNTERS: [Counter; 16] = [
    |of| &mut of.datagrams_out,
    |of| &mut of.frames_out,
    |of| &mut of.spliced,
    |of| &mut of.bytes_out,
    |of| &mut of.calls_out,
    |of| &mut of.datagrams_in,
    |of| &mut of.in_place,
    |of| &mut of.by_tcx,
    |of| &mut of.bytes_in,
    |of| &mut of.calls_in,
    |of| &mut of.would_block,
    |of| &mut of.unreachable,
    |of| &mut of.too_big,
    |of| &mut of.truncated,
    |of| &mut of.overflowed,
    |of| &mut of.receive_paths_avoided,
];
const SIZES: [Size; 2] = [|of| &mut of.send_buffer, |of| &mut of.receive_buffer];
/// States in the order of the bytes of their word.
const STATES: [State; 4] =
    [|of| &mut of.gso, |of| &mut of.gro, |of| &mut of.tcx_receive, |of| &mut of.splice];

/// Adds the counters of a server that has ended to those of the server after it.
pub(super) fn add(statistics: &mut Statistics, ended: &Statistics) {
    let mut ended = *ended;
    for counter in COUNTERS {
        let sum = counter(statistics).saturating_add(*counter(&mut ended));
        *counter(statistics) = sum;
    }
}

/// Returns the bytes of a record with these counters.
pub(super) fn encode(statistics: &Statistics) -> Vec<u8> {
    let mut of = *statistics;
    let mut states = [0; 8];
    states.iter_mut().zip(STATES).for_each(|(byte, state)| *byte = code(*state(&mut of)));
    let mut words: Vec<u64> = COUNTERS.iter().map(|counter| *counter(&mut of)).collect();
    words.extend(SIZES.map(|size| *size(&mut of) as u64));
    words.push(u64::from_le_bytes(states));
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns the counters of a record. Words that are missing are 0, and further ones are ignored,
/// because the counters are only shown.
pub(super) fn decode(bytes: &[u8]) -> Statistics {
    let mut statistics = Statistics::default();
    let mut words = bytes.as_chunks::<8>().0.iter();
    for (counter, word) in COUNTERS.iter().zip(words.by_ref()) {
        *counter(&mut statistics) = u64::from_le_bytes(*word);
    }
    for (size, word) in SIZES.iter().zip(words.by_ref()) {
        *size(&mut statistics) = u64::from_le_bytes(*word) as usize;
    }
    for (state, byte) in STATES.iter().zip(words.next().into_iter().flatten()) {
        *state(&mut statistics) = offload(*byte);
    }
    statistics
}

fn code(offload: Offload) -> u8 {
    match offload {
        Offload::Off => 0,
        Offload::On => 1,
        Offload::Refused => 2,
    }
}

fn offload(code: u8) -> Offload {
    match code {
        1 => Offload::On,
        2 => Offload::Refused,
        _ => Offload::Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of words.
    const WORDS: usize = COUNTERS.len() + SIZES.len() + 1;

    #[test]
    fn counters_are_read_as_they_are_written() {
        let mut words = [0; WORDS];
        words.iter_mut().zip(1..).for_each(|(word, number)| *word = number);
        words[WORDS - 1] = u64::from_le_bytes([1, 2, 0, 1, 0, 0, 0, 0]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let statistics = decode(&bytes);
        assert_eq!(encode(&statistics), bytes);
        assert_eq!((statistics.datagrams_out, statistics.receive_buffer), (1, 18));
        assert_eq!(decode(&[]), Statistics::default());
    }
}
