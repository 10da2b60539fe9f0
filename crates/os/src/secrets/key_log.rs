//! Log of the keys of connections, for who opens a capture (SEAL-6), as `SSLKEYLOGFILE` of TLS.
//! Written only on request.

use crate::secrets::seal::Chain;
use oikaze_protocol::seal::CipherKind;
use oikaze_protocol::wire::Lane;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use zeroize::Zeroizing;

/// Environment variable that names the file.
pub const KEY_LOG_VARIABLE: &str = "OIKAZE_KEY_LOG";
/// First word of each line.
const LABEL: &str = "OIKAZE_SEAL_1";

/// File to which the keys of connections are appended.
#[derive(Debug)]
pub struct KeyLog {
    path: PathBuf,
    /// The file; `None` after it could not be written.
    file: Mutex<Option<File>>,
}

impl KeyLog {
    /// Opens the file that the environment names. Returns `None` if it names none.
    ///
    /// # Errors
    /// As [`KeyLog::open`].
    pub fn from_env() -> io::Result<Option<Self>> {
        let path = std::env::var_os(KEY_LOG_VARIABLE).filter(|path| !path.is_empty());
        path.map(|path| Self::open(Path::new(&path))).transpose()
    }

    /// Opens a file to append to (SEAL-6.2). Makes it for this user only if it does not exist.
    ///
    /// # Errors
    /// The file cannot be opened, is not a regular file, belongs to another user, or can be read or
    /// written by others.
    pub fn open(path: &Path) -> io::Result<Self> {
        let error = |why: &str| io::Error::other(format!("{}: {why}", path.display()));
        // Opening a pipe would wait for its reader. A link may lead to another user's file.
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(flags);
        let file = options.open(path).map_err(|why| match Errno::from_io_error(&why) {
            Some(Errno::LOOP) => error("it is a symbolic link: name the file itself"),
            _ => error(&why.to_string()),
        })?;
        let metadata = file.metadata().map_err(|why| error(&why.to_string()))?;
        if !metadata.is_file() {
            return Err(error("it is not a regular file"));
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(error("it belongs to another user: name another file"));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(error("others can read or write it: chmod 600 it"));
        }
        Ok(Self { path: path.to_owned(), file: Mutex::new(Some(file)) })
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends the first secret of one lane of one direction (SEAL-4.2). `connection` is the id in
    /// the headers of that direction. Says once on standard error if the file cannot be written.
    pub fn write(&self, cipher: CipherKind, connection: u64, lane: Lane, first: &Chain) {
        let mut line = Zeroizing::new(String::with_capacity(160));
        // Writing to a string cannot fail.
        let _ = write!(line, "{LABEL} {} {connection:016x} {} ", cipher.name(), lane as u8);
        for byte in first.expose() {
            let _ = write!(line, "{byte:02x}");
        }
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.as_mut().map(|file| append(file, line.as_bytes()));
        if let Some(Err(why)) = written {
            eprintln!("oikaze: writing keys to {}: {why}; it gets no more", self.path.display());
            *file = None;
        }
    }
}

/// Appends a line by one system call, so that the lines of several nodes do not mix (SEAL-6.3).
fn append(file: &mut File, line: &[u8]) -> io::Result<()> {
    let written = loop {
        match file.write(line) {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            written => break written?,
        }
    };
    if written == line.len() {
        return Ok(());
    }
    // Another node's line may follow already, so the rest may not. A line that is too short is
    // not a key for a reader.
    let _ = file.write(b"\n");
    Err(io::Error::new(io::ErrorKind::StorageFull, "the line was cut off"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// SEAL-6.1, SEAL-6.2, SEAL-6.3.
    #[test]
    fn lines_are_appended_for_this_user_only() {
        let folder = std::env::temp_dir().join(format!("oikaze-key-log-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("keys");
        let chain = Chain::new(CipherKind::Aes128Gcm, &[3; 32], Lane::Bulk);
        for connection in [7, u64::MAX] {
            let log = KeyLog::open(&path).unwrap();
            log.write(CipherKind::Aes128Gcm, connection, Lane::Bulk, &chain);
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        let secret: String = chain.expose().iter().map(|byte| format!("{byte:02x}")).collect();
        let line = |id: &str| format!("OIKAZE_SEAL_1 AES-128-GCM {id} 1 {secret}\n");
        assert_eq!(text, line("0000000000000007") + &line("ffffffffffffffff"));
        let link = folder.join("link");
        symlink(&path, &link).unwrap();
        let why = KeyLog::open(&link).unwrap_err().to_string();
        assert!(why.contains("name the file itself"), "{why}");
        for mode in [0o640, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let why = KeyLog::open(&path).unwrap_err().to_string();
            assert!(why.contains("chmod 600") && why.contains("keys"), "{why}");
        }
        assert!(KeyLog::open(&folder).is_err());
        fs::remove_dir_all(&folder).unwrap();
        assert!(KeyLog::open(&path).unwrap_err().to_string().contains("No such file"));
    }
}
