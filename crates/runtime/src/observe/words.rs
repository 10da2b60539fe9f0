//! Row of numbers, written and read in one order.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Writer of a row.
#[derive(Debug, Default)]
pub(super) struct Row(pub Vec<u64>);

impl Row {
    pub fn put(&mut self, word: u64) {
        self.0.push(word);
    }

    pub fn all(&mut self, words: &[u64]) {
        self.0.extend_from_slice(words);
    }

    /// Writes two counts in a word.
    pub fn pairs(&mut self, counts: &[u32]) {
        self.0.extend(
            counts.chunks(2).map(|pair| {
                pair.iter().rev().fold(0, |word, count| word << 32 | u64::from(*count))
            }),
        );
    }

    /// Writes the first bytes of a text, in `words` words.
    pub fn text(&mut self, text: &str, words: usize) {
        let mut bytes = text.bytes().chain(std::iter::repeat(0));
        for _ in 0..words {
            let word: [u8; 8] = std::array::from_fn(|_| bytes.next().unwrap_or(0));
            self.put(u64::from_le_bytes(word));
        }
    }

    /// Writes an address as three words; an unknown address is all zero.
    pub fn address(&mut self, address: Option<SocketAddr>) {
        let bits = |ip| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let bits_and_port = address.map_or((0, 0), |address| (bits(address.ip()), address.port()));
        self.all(&[
            bits_and_port.0 as u64,
            (bits_and_port.0 >> 64) as u64,
            u64::from(bits_and_port.1),
        ]);
    }
}

/// Reader of a row, which trusts nothing.
pub(super) struct Reader<'a>(pub std::slice::Iter<'a, u64>);

impl Reader<'_> {
    pub fn take(&mut self) -> Option<u64> {
        self.0.next().copied()
    }

    pub fn all<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.take()?;
        }
        Some(words)
    }

    pub fn pairs<const N: usize>(&mut self) -> Option<[u32; N]> {
        let mut counts = [0; N];
        for pair in counts.chunks_mut(2) {
            let word = self.take()?;
            for (at, count) in pair.iter_mut().enumerate() {
                *count = (word >> (32 * at)) as u32;
            }
        }
        Some(counts)
    }

    /// Reads a text, and keeps only what a terminal can show without harm.
    pub fn text(&mut self, words: usize) -> Option<String> {
        self.shown(words, |byte| byte.is_ascii_graphic())
    }

    /// Reads a text as [`Reader::text`] does, with spaces between several words.
    pub fn line(&mut self, words: usize) -> Option<String> {
        self.shown(words, |byte| byte.is_ascii_graphic() || byte == b' ')
    }

    fn shown(&mut self, words: usize, is_safe: impl Fn(u8) -> bool) -> Option<String> {
        let mut bytes = Vec::new();
        for _ in 0..words {
            bytes.extend(self.take()?.to_le_bytes());
        }
        let shown = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let safe = |byte: &u8| if is_safe(*byte) { char::from(*byte) } else { '?' };
        Some(shown.iter().map(safe).collect())
    }

    /// Reads an address; the inner `None` means that it is not known.
    pub fn address(&mut self) -> Option<Option<SocketAddr>> {
        let [low, high, port] = self.all()?;
        let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
        let port = u16::try_from(port).ok()?;
        Some((port != 0).then(|| SocketAddr::new(IpAddr::V6(ip).to_canonical(), port)))
    }
}
