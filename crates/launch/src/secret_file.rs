//! Secret of a job from a file that only its owner can read (LAUNCH-6.4).

use oikaze_os::secrets::secret::Secret;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use zeroize::Zeroize;

/// Maximum length of such a file in bytes: 64 hexadecimal digits, and space around them.
const LENGTH_MAX: u64 = 4096;

/// Reads a secret: 64 hexadecimal digits.
///
/// # Errors
/// The file cannot be read, is no such file, or can be read by others. The text says what to do,
/// and shows nothing of the content.
pub fn read(path: &Path) -> Result<Secret, String> {
    let refused = |why: &str| format!("secret file {}: {why}", path.display());
    // Opening a pipe would wait for its writer.
    let mut file = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(|why| refused(&why.to_string()))?;
    // The checks and the content are of the same file, whatever takes its name meanwhile.
    let metadata = file.metadata().map_err(|why| refused(&why.to_string()))?;
    if let Some(why) = unsafe_file(&metadata) {
        return Err(refused(&why));
    }
    let mut text = String::new();
    let read = Read::by_ref(&mut file).take(LENGTH_MAX).read_to_string(&mut text);
    let secret = read.ok().and_then(|_| Secret::from_hex(text.trim()));
    text.zeroize();
    secret.ok_or_else(|| {
        refused(if metadata.len() == 0 {
            "it is empty: make a secret by `openssl rand -hex 32`"
        } else {
            "it does not hold 64 hexadecimal digits: make them by `openssl rand -hex 32`"
        })
    })
}

/// Returns why a file with this metadata is not used.
fn unsafe_file(file: &Metadata) -> Option<String> {
    let me = rustix::process::geteuid().as_raw();
    if !file.is_file() {
        Some("it is not a regular file".into())
    } else if file.uid() != me && file.uid() != 0 {
        Some(format!("it belongs to user {}, who could change it: copy it", file.uid()))
    } else if file.mode() & 0o077 != 0 {
        let mode = file.mode() & 0o777;
        Some(format!(
            "others can read or change it (mode {mode:03o}): chmod 600 it, and make a new secret"
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// LAUNCH-6.4.
    #[test]
    fn only_private_files_with_a_secret_are_read() {
        let folder = std::env::temp_dir().join(format!("oikaze-secret-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("secret");
        let hex = "5f".repeat(32);
        for (content, mode, expected) in [
            (hex.clone(), 0o600, None),
            (format!("{hex}\n"), 0o400, None),
            (hex.clone(), 0o640, Some("chmod 600")),
            (hex.clone(), 0o604, Some("others can read")),
            (hex.clone(), 0o620, Some("others can read or change")),
            (String::new(), 0o600, Some("it is empty")),
            (hex[1..].to_owned(), 0o600, Some("64 hexadecimal digits")),
            (format!("{hex}00"), 0o600, Some("64 hexadecimal digits")),
            ("x".repeat(100_000), 0o600, Some("64 hexadecimal digits")),
        ] {
            let _ = fs::remove_file(&path);
            fs::write(&path, &content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match (read(&path), expected) {
                (Ok(secret), None) => assert_eq!(secret.to_hex(), hex),
                (Err(why), Some(text)) => {
                    assert!(why.contains(text) && why.contains("secret file"), "{why}");
                    assert!(!why.contains("5f5f"), "{why}");
                }
                (found, _) => panic!("{found:?} for mode {mode:o}"),
            }
        }
        fs::remove_file(&path).unwrap();
        assert!(read(&path).unwrap_err().contains("No such file"));
        assert!(read(&folder).unwrap_err().contains("not a regular file"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
