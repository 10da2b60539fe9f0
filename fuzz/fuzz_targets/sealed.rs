//! Sealed datagrams with the real cryptography, changed, cut, repeated and exchanged between lanes
//! and epochs: only what was sealed opens, as what it was.
#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use oikaze_os::secrets::seal::Chain;
use oikaze_protocol::limits::HEADER_LEN;
use oikaze_protocol::seal::{
    Cipher, CipherKind, DATAGRAMS_PER_KEY, ReceiveChain, SendChain, TAG_LEN,
};
use oikaze_protocol::wire::Lane;

/// Datagram as it was sealed, and the text in it.
struct Sealed {
    number: u64,
    lane: Lane,
    header: [u8; HEADER_LEN],
    text: Vec<u8>,
    bytes: Vec<u8>,
}

fuzz_target!(|input: &[u8]| {
    let secret = [5; 32];
    let each = |lane| Chain::new(CipherKind::Aes128Gcm, &secret, lane);
    let mut send = Lane::BOTH.map(|lane| SendChain::new(&each(lane)));
    let mut receive = Lane::BOTH.map(|lane| ReceiveChain::new(&each(lane)));
    let (mut numbers, mut latest) = ([1u64; 2], [0u64; 2]);
    let mut sealed: Vec<Sealed> = Vec::new();
    let mut input = input;
    while let Some(([action, at, change], rest)) = input.split_first_chunk::<3>() {
        input = rest;
        let lane = Lane::BOTH[usize::from(at % 2)];
        if action % 4 == 0 || sealed.is_empty() {
            // Numbers grow, sometimes by most of an epoch.
            let step = if change % 8 == 0 { DATAGRAMS_PER_KEY / 2 } else { u64::from(*change) + 1 };
            numbers[lane as usize] += step;
            let (number, len) = (numbers[lane as usize], usize::from(*at) % 40);
            let text: Vec<u8> = rest.iter().copied().chain(0..).take(len).collect();
            let (mut bytes, mut tag) = (text.clone(), [0; TAG_LEN]);
            let mut header = [*change; HEADER_LEN];
            header[8..16].copy_from_slice(&number.to_le_bytes());
            let cipher = send[lane as usize].cipher(number).expect("no epoch is skipped");
            cipher.seal(number, &header, &mut bytes, &mut tag);
            bytes.extend(tag);
            sealed.push(Sealed { number, lane, header, text, bytes });
            if sealed.len() > 32 {
                sealed.remove(0);
            }
            continue;
        }
        let Sealed { number, lane, header, text, bytes } = &sealed[usize::from(*at) % sealed.len()];
        let (mut number, mut lane, mut header, mut bytes) =
            (*number, *lane, *header, bytes.clone());
        let genuine = match action % 4 {
            1 => true,
            2 => {
                let place = usize::from(*change) % (HEADER_LEN + bytes.len());
                let byte = header.iter_mut().chain(&mut bytes).nth(place).expect("a byte");
                *byte ^= action | 1;
                false
            }
            _ => {
                match change % 4 {
                    0 => bytes.truncate(usize::from(change / 4) % bytes.len()),
                    1 => bytes.push(*change),
                    2 => lane = Lane::BOTH[1 - lane as usize],
                    _ => number = number.wrapping_add(u64::from(change / 4) << (action % 60) | 1),
                }
                false
            }
        };
        let epoch = number / DATAGRAMS_PER_KEY;
        let opens = receive[lane as usize].open(number, &header, &mut bytes);
        let latest = &mut latest[lane as usize];
        assert_eq!(opens, genuine && epoch.abs_diff(*latest) <= 1, "number {number}");
        if opens {
            assert_eq!(bytes[..text.len()], text[..]);
            *latest = (*latest).max(epoch);
        }
    }
});
