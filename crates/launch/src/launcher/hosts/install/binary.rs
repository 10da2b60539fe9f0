//! This command's own file, which the launcher sends to hosts that lack it.

use crate::launcher::program::{OWN, elf};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Number of bytes of one read.
const CHUNK: usize = 64 << 10;

/// File of the running command.
pub struct Binary {
    file: File,
    /// Length in bytes.
    pub len: u64,
    digest: OnceLock<String>,
}

impl Binary {
    /// Opens the file of the running command.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn own() -> io::Result<Binary> {
        let file = File::open(OWN)?;
        let len = file.metadata()?.len();
        Ok(Binary { file, len, digest: OnceLock::new() })
    }

    /// Returns `true` if the file needs no loader and no library, so that it runs on every host of
    /// its architecture.
    #[must_use]
    pub fn is_static(&self) -> bool {
        elf::is_static(&self.file)
    }

    /// Returns the SHA-256 in hexadecimal digits. Threads that ask at the same time compute it
    /// once.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn digest(&self) -> io::Result<&str> {
        if let Some(digest) = self.digest.get() {
            return Ok(digest);
        }
        let digest = digest(self.bytes())?;
        Ok(self.digest.get_or_init(|| digest))
    }

    /// Writes all of the file.
    ///
    /// # Errors
    /// The file cannot be read, or `to` fails.
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let sent = io::copy(&mut BufReader::with_capacity(CHUNK, self.bytes()), to)?;
        if sent == self.len { to.flush() } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn bytes(&self) -> Bytes<'_> {
        Bytes { file: &self.file, at: 0, end: self.len }
    }
}

/// Reads a file from its beginning, without the position that all its descriptors share.
struct Bytes<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Bytes<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let len = into.len().min(left);
        let len = self.file.read_at(into.get_mut(..len).unwrap_or_default(), self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

/// Returns the SHA-256 of all bytes, in hexadecimal digits.
///
/// # Errors
/// The reader fails.
pub fn digest(mut from: impl Read) -> io::Result<String> {
    let (mut hasher, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => hasher.update(chunk.get(..len).unwrap_or_default()),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4, example of one block.
    #[test]
    fn digest_is_sha_256_in_hexadecimal_digits() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(&b"abc"[..]).unwrap(), expected);
    }

    #[test]
    fn own_file_is_sent_whole() {
        let own = Binary::own().unwrap();
        let mut sent = Vec::new();
        own.send(&mut sent).unwrap();
        assert_eq!(sent, std::fs::read(std::env::current_exe().unwrap()).unwrap());
        assert_eq!(own.digest().unwrap(), digest(&sent[..]).unwrap());
        assert!(!own.is_static(), "cargo links tests dynamically");
    }
}
