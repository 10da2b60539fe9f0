//! Counters of a link as words of a record.

use crate::net::{Offload, Statistics};

/// Number of words.
const WORDS: usize = 19;

/// Returns the bytes of a record with these counters.
pub(super) fn encode(statistics: &Statistics) -> Vec<u8> {
    words(statistics).iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns the counters of a record. What is missing is 0, and what is too much is ignored, because
/// the counters are only shown.
pub(super) fn decode(bytes: &[u8]) -> Statistics {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let [
        datagrams_out,
        frames_out,
        spliced,
        bytes_out,
        calls_out,
        datagrams_in,
        in_place,
        by_tcx,
        bytes_in,
        calls_in,
        would_block,
        unreachable,
        too_big,
        truncated,
        overflowed,
        receive_paths_avoided,
        send_buffer,
        receive_buffer,
        offloads,
    ] = words;
    let [gso, gro, tcx_receive, splice, ..] = offloads.to_le_bytes().map(offload);
    Statistics {
        datagrams_out,
        frames_out,
        spliced,
        bytes_out,
        calls_out,
        datagrams_in,
        in_place,
        by_tcx,
        bytes_in,
        calls_in,
        would_block,
        unreachable,
        too_big,
        truncated,
        overflowed,
        receive_paths_avoided,
        send_buffer: send_buffer as usize,
        receive_buffer: receive_buffer as usize,
        gso,
        gro,
        tcx_receive,
        splice,
    }
}

fn words(of: &Statistics) -> [u64; WORDS] {
    let offloads = [of.gso, of.gro, of.tcx_receive, of.splice].map(code);
    let [gso, gro, tcx, splice] = offloads;
    [
        of.datagrams_out,
        of.frames_out,
        of.spliced,
        of.bytes_out,
        of.calls_out,
        of.datagrams_in,
        of.in_place,
        of.by_tcx,
        of.bytes_in,
        of.calls_in,
        of.would_block,
        of.unreachable,
        of.too_big,
        of.truncated,
        of.overflowed,
        of.receive_paths_avoided,
        of.send_buffer as u64,
        of.receive_buffer as u64,
        u64::from_le_bytes([gso, gro, tcx, splice, 0, 0, 0, 0]),
    ]
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
