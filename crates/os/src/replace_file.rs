//! Files that appear under their names only when they are whole.
//!
//! The bytes go to a *part*, a file of a random name beside the final one. Renaming the part makes
//! it the file in one step (rename(2)), so a reader finds the old bytes or the new ones. Two
//! processes that write to one name therefore leave the whole file of one of them. A part of a
//! process that was killed is removed when the same file is written again.
//!
//! Symbolic links stay links: the file behind them is replaced. A replaced file keeps its mode, and
//! its owner and group where the system permits. Other hard links to it keep the old bytes.

use oikaze_protocol::fnv::fnv1a;
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of symbolic links in a row, as the kernel allows (MAXSYMLINKS).
const LINKS_MAX: usize = 40;
/// Maximum length of the final name inside the name of a part, so that both fit a directory entry.
const NAME_MAX: usize = 180;
/// Last characters of the name of a part.
const PART_END: &str = ".part";
/// Number of hexadecimal digits in the name of a part.
const DIGITS: usize = 16;
/// Age from which a part of another machine counts as abandoned. Some file systems keep locks on
/// each machine for itself, so a free lock says nothing about another machine's processes.
const ABANDONED_AGE: Duration = Duration::from_secs(24 * 3600);
/// Directory whose links stand for open files, such as `/proc/self/fd/1` behind `/dev/stdout`.
const PROC: &str = "/proc";

/// Rights of a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRights {
    /// Those of the replaced file. A new file gets what open(2) gives it by the umask.
    Kept,
    /// Reading and writing for this user only, because the file holds what others must not see.
    Private,
}

/// File that is being written, under the name of its part. Dropping the value removes the part.
#[derive(Debug)]
pub struct PartFile {
    file: File,
    number: u64,
    part: PartPath,
    target: Target,
    rights: FileRights,
}

/// Path of a part. Dropping the value removes the part.
#[derive(Debug)]
struct PartPath {
    path: PathBuf,
    /// Set when this process must not remove the part any more.
    is_settled: bool,
}

/// File that a path leads to.
#[derive(Debug)]
struct Target {
    /// Path of the file itself, behind all links.
    path: PathBuf,
    name: OsString,
    /// Metadata of the file that is replaced; `None` for a new file.
    replaced: Option<Metadata>,
}

/// Destination that a path leads to.
enum Destination {
    File(Target),
    /// Device, pipe, socket, or an open file under its name in `/proc`.
    Stream(PathBuf),
}

impl PartFile {
    /// Makes a part for a file, and removes parts of it that killed processes have left.
    ///
    /// # Errors
    /// The path leads to something other than a regular file, or to a file that this user may not
    /// write; the folder is missing or not writable.
    pub fn create(path: &Path, rights: FileRights) -> io::Result<PartFile> {
        match destination(path)? {
            Destination::File(target) => PartFile::beside(target, rights),
            Destination::Stream(_) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is a device, a pipe or a socket, which cannot be replaced by a file",
            )),
        }
    }

    fn beside(target: Target, rights: FileRights) -> io::Result<PartFile> {
        remove_abandoned(&target);
        // The owner decides on reading only when the file is whole.
        let mode =
            if target.replaced.is_some() || rights == FileRights::Private { 0o600 } else { 0o666 };
        loop {
            let number = random()?;
            let path = target.part(number);
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(mode)
                .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
                .open(&path);
            let file = match opened {
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => opened?,
            };
            // The lock tells other processes that the part is in use. File systems without locks
            // refuse it, and no process removes parts there.
            let lock = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            let is_taken = lock == Err(Errno::WOULDBLOCK) || file.metadata()?.nlink() == 0;
            // Another process may have taken the part for an abandoned one before it was locked.
            let part = PartPath { path, is_settled: is_taken };
            if !is_taken {
                return Ok(PartFile { file, number, part, target, rights });
            }
        }
    }

    /// Opens the part that another process has made for the same file, by its
    /// [`number`](PartFile::number).
    ///
    /// # Errors
    /// There is no such part, because the path leads to another file or folder here.
    pub fn open(path: &Path, number: u64) -> io::Result<PartFile> {
        let Destination::File(target) = destination(path)? else {
            return Err(Errno::NOENT.into());
        };
        let part = PartPath { path: target.part(number), is_settled: false };
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new().write(true).custom_flags(flags).open(&part.path)?;
        Ok(PartFile { file, number, part, target, rights: FileRights::Kept })
    }

    /// Returns the number by which other processes [open](PartFile::open) the part.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the file to write to.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the part the name and the rights of the file that it replaces.
    ///
    /// # Errors
    /// The system refuses, and the part is removed.
    pub fn publish(mut self) -> io::Result<File> {
        self.set_rights()?;
        fs::rename(&self.part.path, &self.target.path)?;
        self.part.is_settled = true;
        Ok(self.file)
    }

    /// Leaves the part to the process that made it.
    pub fn leave(mut self) {
        self.part.is_settled = true;
    }

    fn set_rights(&self) -> io::Result<()> {
        let (FileRights::Kept, Some(replaced)) = (self.rights, &self.target.replaced) else {
            return Ok(());
        };
        let own = self.file.metadata()?;
        if own.uid() != replaced.uid() {
            // Only a privileged process may give files away.
            let _ = rustix::fs::fchown(&self.file, Some(Uid::from_raw(replaced.uid())), None);
        }
        let mut mode = replaced.mode() & 0o777;
        if own.gid() != replaced.gid()
            && rustix::fs::fchown(&self.file, None, Some(Gid::from_raw(replaced.gid()))).is_err()
        {
            // The rights of that group are not for another group.
            mode &= !0o070 | (mode & 0o007) << 3;
        }
        Ok(rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))?)
    }
}

impl Drop for PartPath {
    fn drop(&mut self) {
        if !self.is_settled {
            // Another process that writes it, too, may have removed it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Destination that a user names for bytes: a file that appears when it is whole, or a device or
/// pipe that takes bytes as they come.
#[derive(Debug)]
pub enum Output {
    /// Regular file that is being written.
    File(Box<PartFile>),
    /// Device, pipe, or an open file under its name in `/proc`, which is appended to.
    Stream(File),
}

impl Output {
    /// Opens a destination. Opening a pipe waits for its reader.
    ///
    /// # Errors
    /// As [`PartFile::create`], and as open(2) for devices and pipes.
    pub fn open(path: &Path, rights: FileRights) -> io::Result<Output> {
        Ok(match destination(path)? {
            Destination::File(target) => Output::File(Box::new(PartFile::beside(target, rights)?)),
            Destination::Stream(path) => {
                let flags = OFlags::NOCTTY.bits().cast_signed();
                let opened = OpenOptions::new().append(true).custom_flags(flags).open(path);
                Output::Stream(opened?)
            }
        })
    }

    /// Returns the file to write to.
    #[must_use]
    pub fn file(&self) -> &File {
        match self {
            Output::File(part) => part.file(),
            Output::Stream(file) => file,
        }
    }

    /// Lets the file appear under its name. Returns it for further writing.
    ///
    /// # Errors
    /// As [`PartFile::publish`].
    pub fn publish(self) -> io::Result<File> {
        match self {
            Output::File(part) => part.publish(),
            Output::Stream(file) => Ok(file),
        }
    }
}

/// Writes a whole file, or bytes to a device or pipe.
///
/// # Errors
/// As [`Output::open`]; the bytes cannot be written, and an older file stays as it was.
pub fn write(path: &Path, bytes: &[u8], rights: FileRights) -> io::Result<()> {
    let output = Output::open(path, rights)?;
    output.file().write_all(bytes)?;
    output.publish().map(drop)
}

impl Target {
    /// Returns the path of a part. The final name is in it, so that it cannot be taken for the part
    /// of another file.
    fn part(&self, number: u64) -> PathBuf {
        let mut name = self.part_start();
        name.push(format!("{number:0DIGITS$x}{PART_END}"));
        self.path.with_file_name(name)
    }

    fn part_start(&self) -> OsString {
        let bytes = self.name.as_bytes();
        let mut name = OsString::from(".");
        name.push(OsStr::from_bytes(bytes.get(..NAME_MAX).unwrap_or(bytes)));
        name.push(".");
        name
    }
}

/// Follows symbolic links to what a path leads to, which may not exist yet.
fn destination(path: &Path) -> io::Result<Destination> {
    let mut path = path.to_owned();
    for _ in 0..=LINKS_MAX {
        // `folder/` and `folder/..` name directories, even if there is none.
        let is_directory = path.as_os_str().as_bytes().ends_with(b"/");
        let name = path.file_name().filter(|_| !is_directory).ok_or(Errno::ISDIR)?.to_owned();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")))?;
        path = folder.join(&name);
        let found = match fs::symlink_metadata(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                return Ok(Destination::File(Target { path, name, replaced: None }));
            }
            found => found?,
        };
        if found.is_symlink() {
            if folder.starts_with(PROC) {
                return Ok(Destination::Stream(path));
            }
            check_link(&found, &fs::metadata(&folder)?)?;
            path = folder.join(fs::read_link(&path)?);
        } else if found.is_file() {
            // Replacing a file needs rights on its folder only. open(2) asks for those of the file.
            rustix::fs::accessat(CWD, &path, Access::WRITE_OK, AtFlags::EACCESS)?;
            return Ok(Destination::File(Target { path, name, replaced: Some(found) }));
        } else if found.is_dir() {
            return Err(Errno::ISDIR.into());
        } else {
            return Ok(Destination::Stream(path));
        }
    }
    Err(Errno::LOOP.into())
}

/// Refuses links that another user may have planted, as the kernel does (fs.protected_symlinks).
fn check_link(link: &Metadata, folder: &Metadata) -> io::Result<()> {
    const SHARED: u32 = 0o1002;
    let is_foreign =
        link.uid() != rustix::process::geteuid().as_raw() && link.uid() != folder.uid();
    if is_foreign && folder.mode() & SHARED == SHARED {
        let why = "another user has made this link in a folder that all users can write";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// Removes parts of a file whose processes have ended, which their locks tell.
fn remove_abandoned(target: &Target) {
    let start = target.part_start();
    let Some(Ok(entries)) = target.path.parent().map(fs::read_dir) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let number = (name.as_bytes().strip_prefix(start.as_bytes()))
            .and_then(|rest| rest.strip_suffix(PART_END.as_bytes()))
            .filter(|digits| digits.len() == DIGITS)
            .and_then(|digits| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        let Some(number) = number else { continue };
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let Ok(part) = OpenOptions::new().write(true).custom_flags(flags).open(entry.path()) else {
            continue;
        };
        let is_old = |found: &Metadata| {
            found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED_AGE))
        };
        let is_of_here = number >> MACHINE_SHIFT == machine();
        if part.metadata().is_ok_and(|found| found.is_file() && (is_of_here || is_old(&found)))
            && rustix::fs::flock(&part, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            // Another user's part in a shared folder stays.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Position of the number of the machine in that of a part.
const MACHINE_SHIFT: u32 = 48;

/// Returns a short number of this machine, which is another one after it has started again.
fn machine() -> u64 {
    let boot_id = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    fnv1a(boot_id) >> MACHINE_SHIFT
}

/// Draws the number of a part.
fn random() -> io::Result<u64> {
    let drawn = getrandom::u64().map_err(|why| io::Error::other(why.to_string()))?;
    Ok(machine() << MACHINE_SHIFT | drawn >> (u64::BITS - MACHINE_SHIFT))
}

#[cfg(test)]
mod tests;
