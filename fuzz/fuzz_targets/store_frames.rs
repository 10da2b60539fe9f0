//! Sealed frames of the store's connections, changed, cut, repeated and left out: only the next
//! frame of the same direction opens, as what it was.
#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use oikaze_launch::Secret;
use oikaze_launch::store::seal::{FrameSeal, From, cut};

fuzz_target!(|input: &[u8]| {
    // Any bytes, as frames of either phase.
    for sealed in [false, true] {
        let mut read = input.to_vec();
        while let Ok(Some(content)) = cut(&mut read, sealed) {
            assert!(content.len() < input.len());
        }
    }
    let key = Secret::from_bytes([9; 32]);
    let mut seals = [From::Node, From::Store].map(|from| FrameSeal::new(&key, from));
    let mut opens = [From::Node, From::Store].map(|from| FrameSeal::new(&key, from));
    let mut frames: [Vec<(Vec<u8>, Vec<u8>)>; 2] = [Vec::new(), Vec::new()];
    let mut next = [0; 2];
    let mut input = input;
    while let Some(([action, at, change], rest)) = input.split_first_chunk::<3>() {
        input = rest;
        let from = usize::from(at % 2);
        if action % 3 == 0 {
            let body: Vec<u8> = rest.iter().copied().take(usize::from(*change)).collect();
            let frame = seals[from].frame(&body);
            frames[from].push((body, frame));
            continue;
        }
        let Some(index) = usize::from(at / 2).checked_rem(frames[from].len()) else { continue };
        let (body, frame) = &frames[from][index];
        let mut read = frame.clone();
        let content = cut(&mut read, true).expect("a frame").expect("a whole one");
        assert!(read.is_empty());
        if action % 3 == 1 {
            let mut wrong = content.clone();
            let place = usize::from(*change) % wrong.len();
            match action % 2 {
                0 => wrong.truncate(place),
                _ => wrong[place] ^= action | 1,
            }
            assert!(opens[from].open(&wrong).is_err(), "a changed frame opens");
            assert!(opens[1 - from].open(&content).is_err(), "the other direction opens it");
            continue;
        }
        let opened = opens[from].open(&content);
        assert_eq!(opened.is_ok(), index == next[from]);
        if let Ok(opened) = opened {
            assert_eq!(&opened, body);
            next[from] += 1;
        }
    }
});
