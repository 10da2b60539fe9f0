//! One stream's unfinished line: all of its bytes, and how a terminal shows it.

/// A longer line is printed in pieces of this length, so that a node cannot fill the launcher's
/// memory.
pub const LINE_MAX: usize = 16 << 20;

/// Bytes since the last newline.
#[derive(Default)]
pub struct Line {
    bytes: Vec<u8>,
    /// Set if the stream goes to a terminal. Text that a carriage return overwrites is then
    /// forgotten.
    live: bool,
    /// Set if the line has been redrawn.
    redrawn: bool,
}

impl Line {
    /// Makes an empty line of a stream that goes to a terminal (`live`), or elsewhere.
    #[must_use]
    pub fn new(live: bool) -> Line {
        Line { live, ..Line::default() }
    }

    /// Takes bytes and hands out each finished line, without its newline. Nothing is lost unless
    /// the line is live.
    pub fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (front, rest) = bytes.split_at(end);
            self.append(front, &mut line);
            line(self.shown());
            *self = Line::new(self.live);
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.append(bytes, &mut line);
    }

    fn append(&mut self, mut bytes: &[u8], line: &mut impl FnMut(&[u8])) {
        while self.bytes.len() + bytes.len() > LINE_MAX {
            let (front, rest) =
                bytes.split_at(LINE_MAX.saturating_sub(self.bytes.len()).min(bytes.len()));
            self.bytes.extend(front);
            line(&self.bytes);
            self.bytes.clear();
            bytes = rest;
        }
        self.bytes.extend(bytes);
        if self.live {
            let kept = self.overwritten();
            self.redrawn |= kept > 0;
            self.bytes.drain(..kept);
        }
    }

    /// Returns the length of the front that a terminal no longer shows: up to the last carriage
    /// return that text follows.
    fn overwritten(&self) -> usize {
        let text = self.bytes.iter().rposition(|&byte| byte != b'\r').unwrap_or(0);
        self.bytes
            .get(..text)
            .unwrap_or_default()
            .iter()
            .rposition(|&byte| byte == b'\r')
            .map_or(0, |at| at + 1)
    }

    /// Returns the line as it is printed.
    #[must_use]
    pub fn shown(&self) -> &[u8] {
        if !self.live {
            return &self.bytes;
        }
        let text = self.bytes.iter().rposition(|&byte| byte != b'\r').map_or(0, |at| at + 1);
        self.bytes.get(..text).unwrap_or_default()
    }

    /// Returns a live line that is being redrawn, as it looks now.
    #[must_use]
    pub fn drawing(&self) -> Option<&[u8]> {
        let returned = self.bytes.last() == Some(&b'\r');
        (self.live && (self.redrawn || returned)).then(|| self.shown())
    }

    /// Returns `true` if there is nothing to print.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shown().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn line_beyond_the_maximum_is_printed_in_pieces_without_loss() {
        let (mut line, mut all, mut pieces) = (Line::new(false), 0, 0);
        for _ in 0..3 {
            line.push(&vec![b'x'; LINE_MAX / 2 + 1], |piece| {
                (all, pieces) = (all + piece.len(), pieces + 1)
            });
        }
        assert_eq!((pieces, all + line.shown().len()), (1, 3 * (LINE_MAX / 2 + 1)));
    }

    proptest! {
        /// LAUNCH-5.2: however the bytes are cut into reads, all of them come out.
        #[test]
        fn lines_join_to_the_bytes_that_came(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..60), cut in 1usize..9) {
            let (mut line, mut out) = (Line::new(false), Vec::new());
            for piece in bytes.chunks(cut) {
                line.push(piece, |text| out.extend(text.iter().copied().chain([b'\n'])));
            }
            out.extend(line.shown());
            prop_assert_eq!(out, bytes);
        }
    }
}
