//! Any bytes at all, read as an IP packet that the kernel has not looked at; and given right
//! lengths and sums (RFC 791, 768, 8200).
#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use oikaze_os::net::ip::{datagram, finish};

fuzz_target!(|bytes: &[u8]| {
    for checked in [false, true] {
        if let Some(received) = datagram(bytes, checked) {
            assert!(received.arrival.bytes.len() < bytes.len());
            assert!(datagram(bytes, false).is_some(), "what is right is so unlooked at");
        }
    }
    let mut packet = bytes.to_vec();
    if finish(&mut packet).is_some() && packet[0] == 0x45 {
        assert_eq!(
            datagram(&packet, true).map(|received| received.arrival.bytes.len()),
            Some(packet.len() - 28)
        );
    }
});
