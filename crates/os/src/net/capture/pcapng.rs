//! Captures for Wireshark, tshark and tcpdump in pcapng (draft-ietf-opsawg-pcapng): one interface
//! of raw IP packets, times in nanoseconds, each packet with its direction.

use super::{CapturedDatagram, Recorder, packet};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
/// Magic number that shows the byte order of the file.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// LINKTYPE_RAW: packets begin with an IPv4 or IPv6 header.
const RAW: u16 = 101;
/// Option codes and values.
const END: u16 = 0;
const INTERFACE_NAME: u16 = 2;
const APPLICATION: u16 = 4;
const RESOLUTION: u16 = 9;
const FLAGS: u16 = 2;
const NANOSECONDS: u8 = 9;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writes pcapng. All numbers are little-endian.
#[derive(Clone, Debug)]
pub struct Pcapng {
    interface: String,
    packet: Vec<u8>,
}

impl Pcapng {
    /// A capture on an interface of this name.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        Self { interface: interface.to_owned(), packet: Vec::new() }
    }
}

impl Recorder for Pcapng {
    fn begin(&mut self, into: &mut Vec<u8>) {
        block(into, SECTION, |body| {
            body.extend(BYTE_ORDER.to_le_bytes());
            // Version 1.0. The length of the section is unknown at its start.
            body.extend([1, 0, 0, 0]);
            body.extend(u64::MAX.to_le_bytes());
            option(body, APPLICATION, concat!("oikaze ", env!("CARGO_PKG_VERSION")).as_bytes());
            option(body, END, &[]);
        });
        block(into, INTERFACE, |body| {
            body.extend(u32::from(RAW).to_le_bytes());
            // No limit: packets are never truncated.
            body.extend(0u32.to_le_bytes());
            option(body, INTERFACE_NAME, self.interface.as_bytes());
            option(body, RESOLUTION, &[NANOSECONDS]);
            option(body, END, &[]);
        });
    }

    fn record(&mut self, datagram: &CapturedDatagram<'_>, into: &mut Vec<u8>) {
        self.packet.clear();
        packet::write(datagram, &mut self.packet);
        let at = u64::try_from(datagram.at.as_nanos()).unwrap_or(u64::MAX);
        let len = u32::try_from(self.packet.len()).unwrap_or(u32::MAX);
        block(into, PACKET, |body| {
            // The interface, both halves of the time, captured bytes, bytes on the wire.
            [0, (at >> 32) as u32, at as u32, len, len]
                .iter()
                .for_each(|word| body.extend(word.to_le_bytes()));
            body.extend_from_slice(&self.packet);
            pad(body, self.packet.len());
            option(body, FLAGS, &(if datagram.sent { OUTBOUND } else { INBOUND }).to_le_bytes());
            option(body, END, &[]);
        });
    }
}

/// Appends a block: kind, length, body, length again.
fn block(into: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    into.extend(kind.to_le_bytes());
    into.extend([0; 4]);
    body(into);
    let len = u32::try_from(into.len() - start + 4).unwrap_or(u32::MAX).to_le_bytes();
    into.extend(len);
    if let Some(place) = into.get_mut(start + 4..start + 8) {
        place.copy_from_slice(&len);
    }
}

fn option(into: &mut Vec<u8>, code: u16, value: &[u8]) {
    into.extend(code.to_le_bytes());
    into.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    into.extend_from_slice(value);
    pad(into, value.len());
}

/// Pads to the next multiple of four.
fn pad(into: &mut Vec<u8>, len: usize) {
    into.extend(std::iter::repeat_n(0, len.next_multiple_of(4) - len));
}
