//! How much memory can still be taken without waking the out-of-memory killer.
//!
//! Under the usual overcommit a memory file is granted page by page, so asking for too much does not fail: it kills. What the
//! kernel says is available (and what the control group leaves) is asked first. A guess, good for clear mistakes.

use super::MemoryError;
use std::fs::read_to_string;
use std::path::Path;

/// Refuses `len` bytes if clearly more than there is.
pub(super) fn check(len: usize) -> Result<(), MemoryError> {
    match memory_left().into_iter().find(|(available, _)| *available < len) {
        Some((available, limit)) => Err(MemoryError::NotAvailable { bytes: len, available, limit }),
        None => Ok(()),
    }
}

/// Bytes that can still be had, by each limit that is known, with whose it is.
pub(crate) fn memory_left() -> Vec<(usize, &'static str)> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    let group = read_to_string("/proc/self/cgroup").ok().and_then(|text| of_group(&text, Path::new("/sys/fs/cgroup")));
    let limits = [(machine, "the machine's free memory and swap"), (group, "the control group's memory limit")];
    limits.into_iter().filter_map(|(available, limit)| Some((available?, limit))).collect()
}

/// `MemAvailable` and `SwapFree` of `/proc/meminfo`, in bytes.
fn of_machine(text: &str) -> Option<usize> {
    let field = |name: &str| -> Option<usize> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1024)
    };
    field("MemAvailable")?.checked_add(field("SwapFree").unwrap_or(0))
}

/// What the tightest of the control groups (version 2) above us leaves.
fn of_group(text: &str, root: &Path) -> Option<usize> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let number = |file: std::path::PathBuf| read_to_string(file).ok()?.trim().parse::<usize>().ok();
    let own = root.join(path);
    own.ancestors()
        .take_while(|group| group.starts_with(root))
        .filter_map(|group| Some(number(group.join("memory.max"))?.saturating_sub(number(group.join("memory.current"))?)))
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_fields_are_found() {
        let text = "MemTotal:  100 kB\nMemAvailable:   40 kB\nSwapFree: 2 kB\n";
        assert_eq!(of_machine(text), Some(42 * 1024));
        assert_eq!(of_machine("MemAvailable: 40 kB\n"), Some(40 * 1024));
        assert_eq!(of_machine("nonsense"), None);
        assert_eq!(of_machine("MemAvailable: 99999999999999999999999 kB"), None);
    }

    #[test]
    fn without_a_control_group_there_is_no_limit() {
        assert_eq!(of_group("1:name=systemd:/x\n", Path::new("/sys/fs/cgroup")), None);
        assert_eq!(of_group("0::/none\n", Path::new("/nowhere")), None);
    }
}
