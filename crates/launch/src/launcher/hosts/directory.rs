//! Directory of one job on another host, with the files that the launcher has sent (LAUNCH-8.5).

use super::files::is_plain;
use super::install::megabytes;
use super::pipe::{FileHeader, Order};
use crate::launcher::error::LaunchError;
use crate::launcher::guard::Guard;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Names the directory in which commands and files are kept, on each host.
pub const CACHE_DIR: &str = "OIKAZE_CACHE_DIR";

/// Directory of one job. Dropping the value removes it.
pub struct JobDirectory(PathBuf);

impl JobDirectory {
    /// Makes a directory and receives the files of an order. Returns `None` if there are none.
    ///
    /// # Errors
    /// No directory has room for the files and allows programs, or the launcher is gone.
    pub fn receive(
        order: &Order,
        from: &mut impl Read,
        guard: &mut Guard,
    ) -> Result<Option<JobDirectory>, LaunchError> {
        if order.files.is_empty() {
            return Ok(None);
        }
        let name = format!("oikaze-job-{:x}-{}", order.incarnation, order.first);
        let size = order.files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.size));
        let named = order.environment.iter().find(|(name, _)| name.0 == *CACHE_DIR);
        let named = named.map(|(_, value)| value.0.clone());
        let mut reasons = Vec::new();
        for base in bases(named.or_else(|| std::env::var_os(CACHE_DIR))) {
            match JobDirectory::make(&base, &name, size) {
                Ok(directory) => {
                    guard.directory(&directory.0);
                    for file in &order.files {
                        directory.write(file, from)?;
                    }
                    return Ok(Some(directory));
                }
                Err(why) => reasons.push(format!("{}: {why}", base.display())),
            }
        }
        Err(LaunchError::Usage(format!(
            "the files of --ship find no place ({}): let {CACHE_DIR} name a directory of that host \
             with {} of free space, in which programs may run",
            reasons.join("; "),
            megabytes(size)
        )))
    }

    fn make(base: &Path, name: &str, size: u64) -> io::Result<JobDirectory> {
        std::fs::create_dir_all(base)?;
        let system = statvfs(base)?;
        if system.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(io::Error::other(
                "no program may be executed there (see mount for noexec)",
            ));
        }
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        if free < size {
            return Err(io::Error::other(format!("it has only {} of free space", megabytes(free))));
        }
        let path = base.join(name);
        // Fails if there is anything of that name, so that no other user can have planted it.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(JobDirectory(path))
    }

    fn write(&self, file: &FileHeader, from: &mut impl Read) -> Result<(), LaunchError> {
        let name = Path::new(&file.path.0);
        if !is_plain(name) {
            return Err(LaunchError::Usage("the launcher's order makes no sense".into()));
        }
        let path = self.0.join(name);
        let failed = || LaunchError::system(format!("write {} (--ship)", path.display()));
        let mode = file.mode & 0o777 | 0o600;
        let open = || -> io::Result<File> {
            std::fs::create_dir_all(path.parent().unwrap_or(&self.0))?;
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)
        };
        let mut to = open().map_err(failed())?;
        let copied = io::copy(&mut from.take(file.size), &mut to).map_err(failed())?;
        if copied < file.size {
            return Err(failed()(io::ErrorKind::UnexpectedEof.into()));
        }
        to.set_permissions(Permissions::from_mode(mode)).map_err(failed())
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a word of the program's command line. If it names a file that lies elsewhere here,
    /// it becomes the path of the file.
    #[must_use]
    pub fn rename(&self, word: OsString, order: &Order) -> OsString {
        let renamed = order.renamed.iter().find(|(name, _)| name.0 == word);
        renamed.map_or(word, |(_, path)| self.0.join(&path.0).into_os_string())
    }
}

impl Drop for JobDirectory {
    fn drop(&mut self) {
        // A file of another user that a node has left may stay. Nobody is there to hear of it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the directories to try. Those that the system clears after a crash come first.
fn bases(named: Option<OsString>) -> Vec<PathBuf> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return vec![named.into()];
    }
    let variable =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let temporary = variable("TMPDIR").unwrap_or_else(|| "/tmp".into());
    let home = variable("HOME").map(|home| home.join(".cache"));
    let cache = variable("XDG_CACHE_HOME").or(home).map(|cache| cache.join("oikaze"));
    let all = [Some(temporary), Some("/var/tmp".into()), cache, Some("/dev/shm".into())];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::word::Word;

    fn header(path: &str, size: u64, mode: u32) -> FileHeader {
        FileHeader { path: Word(path.into()), size, mode }
    }

    fn directory(name: &str) -> JobDirectory {
        let name = format!("oikaze-test-{}-{name}", std::process::id());
        JobDirectory::make(&std::env::temp_dir(), &name, 0).unwrap()
    }

    /// LAUNCH-8.5: files keep contents and rights, and go with the job.
    #[test]
    fn files_are_written_and_removed() {
        let directory = directory("files");
        let mut from = &b"abcdef"[..];
        directory.write(&header("bin/a", 2, 0o755), &mut from).unwrap();
        directory.write(&header("b", 4, 0o444), &mut from).unwrap();
        let path = directory.path().to_owned();
        let read = |name| std::fs::read(path.join(name)).unwrap();
        assert_eq!((read("bin/a"), read("b")), (b"ab".to_vec(), b"cdef".to_vec()));
        let mode = std::fs::metadata(path.join("bin/a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn path_that_leads_out_of_the_directory_is_refused() {
        let directory = directory("outside");
        for path in ["../a", "/tmp/a", "a/../../b", ""] {
            assert!(directory.write(&header(path, 0, 0o600), &mut &b""[..]).is_err(), "{path}");
        }
    }

    #[test]
    fn file_that_is_cut_off_and_directory_that_exists_are_errors() {
        let directory = directory("cut");
        assert!(directory.write(&header("a", 3, 0o600), &mut &b"ab"[..]).is_err());
        let name = directory.path().file_name().unwrap().to_str().unwrap();
        assert!(JobDirectory::make(&std::env::temp_dir(), name, 0).is_err());
        let full = JobDirectory::make(&std::env::temp_dir(), "oikaze-test-full", u64::MAX);
        assert!(full.err().unwrap().to_string().contains("free space"));
    }
}
