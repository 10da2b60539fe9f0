//! Lines of PMI-1: words of `key=value` with one space between them.

use crate::store::protocol::clip_to;

/// Longest line that is read, in bytes.
pub const LINE_MAX: usize = 16 << 10;

/// Maximum number of bytes of a line in a message.
const SHOWN_MAX: usize = 200;

/// Reason why bytes are not a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError {
    /// More than [`LINE_MAX`] bytes without a newline.
    TooLong,
    /// Not UTF-8, or with control characters.
    NotText,
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LineError::TooLong => "a line without end",
            LineError::NotText => "bytes that are not text",
        })
    }
}

/// Collects the bytes of a line.
#[derive(Default)]
pub struct LineReader {
    bytes: Vec<u8>,
}

impl LineReader {
    /// Takes the next byte. Returns the line that ends with it.
    ///
    /// # Errors
    /// The bytes are not a line.
    pub fn take(&mut self, byte: u8) -> Result<Option<PmiLine>, LineError> {
        if byte == b'\n' {
            let text = String::from_utf8(std::mem::take(&mut self.bytes));
            let text = text.ok().filter(|text| !text.contains(char::is_control));
            return text.map(|text| Some(PmiLine(text))).ok_or(LineError::NotText);
        }
        if self.bytes.len() >= LINE_MAX {
            return Err(LineError::TooLong);
        }
        self.bytes.push(byte);
        Ok(None)
    }
}

/// Line without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmiLine(String);

impl PmiLine {
    /// Returns the value of a key. It ends with the word.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// Returns the rest of the line behind `key=`, spaces included.
    #[must_use]
    pub fn rest(&self, key: &str) -> Option<&str> {
        let word = format!("{key}=");
        let at = self.0.match_indices(&word).map(|(at, _)| at);
        let mut starts = at.filter(|at| *at == 0 || self.0.as_bytes().get(at - 1) == Some(&b' '));
        self.0.get(starts.next()? + word.len()..)
    }

    /// Returns `true` if the line is this word.
    #[must_use]
    pub fn is(&self, word: &str) -> bool {
        self.0 == word
    }

    /// Returns the value if the line is `key=value` and has no other word. The value may have
    /// spaces.
    #[must_use]
    pub fn only_value(&self, key: &str) -> Option<&str> {
        self.0.strip_prefix(key)?.strip_prefix('=')
    }

    /// Returns the first word of the line, for messages. It tells the kind of the request.
    #[must_use]
    pub fn command(&self) -> &str {
        clip_to(self.0.split(' ').next().unwrap_or_default(), SHOWN_MAX)
    }

    /// Returns the begin of the line, for messages. A value is not shown, because it may be secret.
    #[must_use]
    pub fn shown(&self) -> &str {
        clip_to(self.0.split(" value=").next().unwrap_or_default(), SHOWN_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the last line of the bytes.
    fn read(bytes: &[u8]) -> Result<Option<PmiLine>, LineError> {
        let mut reader = LineReader::default();
        bytes.iter().try_fold(None, |_, byte| reader.take(*byte))
    }

    #[test]
    fn words_of_a_line_are_found_by_their_keys() {
        let line =
            read(b"cmd=x\ncmd=put kvsname=k key=a=b value=c msg=two words\n").unwrap().unwrap();
        assert_eq!((line.value("cmd"), line.value("key")), (Some("put"), Some("a=b")));
        assert_eq!((line.value("name"), line.value("value")), (None, Some("c")));
        assert_eq!((line.rest("msg"), line.rest("name")), (Some("two words"), None));
        assert_eq!(line.shown(), "cmd=put kvsname=k key=a=b");
        assert_eq!((line.command(), line.only_value("kvsname")), ("cmd=put", None));
        let line = read(b"arg1=a b=c\n").unwrap().unwrap();
        assert_eq!((line.only_value("arg1"), line.only_value("b")), (Some("a b=c"), None));
    }

    #[test]
    fn bytes_that_are_no_line_are_refused() {
        assert_eq!(read(b"cmd=x"), Ok(None));
        assert_eq!(read(b"\xff\n"), Err(LineError::NotText));
        assert_eq!(read(b"cmd=\x1b[2J\n"), Err(LineError::NotText));
        assert_eq!(read(&[b'a'; LINE_MAX + 1]), Err(LineError::TooLong));
    }
}
