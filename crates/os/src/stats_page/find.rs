//! Finds the boards of living processes.

use super::{HEADING, MAGIC, RecordLayout, StatsView, words_of};
use crate::memory::lasting_len;
use crate::memory::mapping::Mapping;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::Errno;
use std::fs::{read_dir, read_link};
use std::io;
use std::path::Path;

/// A board, and the process that has it.
#[derive(Debug)]
pub struct Found {
    /// Number of the process, as this process sees it.
    pub pid: u32,
    /// View of the board.
    pub view: StatsView,
}

/// Finds all boards of this name that this process may read, in order of process numbers. These are
/// the boards of the same user, or for root those of all users.
///
/// # Errors
/// `/proc` cannot be read.
pub fn find(name: &str) -> io::Result<Vec<Found>> {
    let wanted = format!("/memfd:{name} (deleted)");
    let mut pids: Vec<u32> = Vec::new();
    for entry in read_dir("/proc")? {
        // A process that ends during the scan is not an error.
        pids.extend(entry.ok().and_then(|entry| entry.file_name().to_str()?.parse::<u32>().ok()));
    }
    pids.sort_unstable();
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for pid in pids {
        // Processes of other users, kernel threads, and processes that have just ended are skipped.
        let Ok(descriptors) = read_dir(format!("/proc/{pid}/fd")) else { continue };
        for path in descriptors.filter_map(|entry| Some(entry.ok()?.path())) {
            if read_link(&path).is_ok_and(|target| target.as_os_str() == wanted.as_str())
                && let Ok((file, view)) = look(&path)
                // A child of fork holds its parent's board too.
                && !seen.contains(&file)
            {
                seen.push(file);
                found.push(Found { pid, view });
            }
        }
    }
    Ok(found)
}

/// Maps a board. Refuses a file on which an access could fail, or that is smaller than its heading
/// says.
fn look(path: &Path) -> io::Result<((u64, u64), StatsView)> {
    let not_a_board = io::Error::from(Errno::INVAL);
    let file: OwnedFd =
        open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
    let (stat, bytes) = (fstat(&file)?, usize::try_from(lasting_len(&file)?).unwrap_or(0));
    if bytes < HEADING * size_of::<u64>() || bytes > super::BOARD_MAX {
        return Err(not_a_board);
    }
    let mapping = Mapping::of_file_for_reading(&file, bytes).map_err(io::Error::other)?;
    let heading: Vec<u64> = words_of(&mapping, bytes)
        .iter()
        .take(4)
        .map(|word| word.load(super::sync::Ordering::Acquire))
        .collect();
    let &[MAGIC, version, records, words] = heading.as_slice() else { return Err(not_a_board) };
    let size = |number: u64| usize::try_from(number).map_err(|_| Errno::INVAL);
    let layout = RecordLayout { version, records: size(records)?, words: size(words)? };
    if layout.bytes().is_none_or(|needed| needed > bytes) {
        return Err(not_a_board);
    }
    // The width of these fields differs by platform.
    #[allow(clippy::unnecessary_cast)]
    Ok(((stat.st_dev as u64, stat.st_ino as u64), StatsView { mapping, layout }))
}
