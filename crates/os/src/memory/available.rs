//! Estimates how much memory can be taken without invoking the out-of-memory killer.
//!
//! With the usual overcommit setting, a memory file gets its pages one by one. Asking for too much
//! memory therefore does not fail, but kills a process later. The caller first checks the memory
//! that the kernel reports as available, and that the control group leaves. This estimate catches
//! clear mistakes only.

use crate::processes::control_group::{GroupVersion, control_groups};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Returns `true` if `len` bytes are clearly available by all known limits.
#[must_use]
pub fn has_memory_for(len: usize) -> bool {
    memory_left().into_iter().all(|(available, _)| available >= len)
}

/// Returns the bytes still available by each known limit, with the limit's name.
pub(crate) fn memory_left() -> Vec<(usize, &'static str)> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    let group = read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| of_group(&text, Path::new("/sys/fs/cgroup")));
    let limits = [
        (machine, "the machine's free memory and swap"),
        (group, "the control group's memory limit"),
    ];
    limits.into_iter().filter_map(|(available, limit)| Some((available?, limit))).collect()
}

/// Returns the sum of `MemAvailable` and `SwapFree` of `/proc/meminfo`, in bytes.
fn of_machine(text: &str) -> Option<usize> {
    let field = |name: &str| -> Option<usize> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':')
            .split_whitespace()
            .next()?
            .parse::<usize>()
            .ok()?
            .checked_mul(1024)
    };
    field("MemAvailable")?.checked_add(field("SwapFree").unwrap_or(0))
}

/// File names of one version of control groups.
struct Names {
    limit: &'static str,
    used: &'static str,
    /// Fields of `memory.stat` that count cached files, which the kernel reclaims before it kills a
    /// process.
    cached: [&'static str; 2],
}

const VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};
const VERSION_2: Names =
    Names { limit: "memory.max", used: "memory.current", cached: ["inactive_file", "active_file"] };

/// Returns the bytes left by the tightest control group above this process. `text` is
/// `/proc/self/cgroup`.
fn of_group(text: &str, root: &Path) -> Option<usize> {
    let left = |(version, group): (GroupVersion, PathBuf)| match version {
        GroupVersion::One => left_in(&group, &VERSION_1),
        GroupVersion::Two => left_in(&group, &VERSION_2),
    };
    control_groups(text, root, "memory").into_iter().filter_map(left).min()
}

fn left_in(group: &Path, version: &Names) -> Option<usize> {
    let number = |file: &str| read_to_string(group.join(file)).ok()?.trim().parse::<usize>().ok();
    let limit = number(version.limit)?;
    let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
    let field = |name: &str| {
        stat.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<usize>().ok())
    };
    let cached =
        version.cached.iter().filter_map(|name| field(name)).fold(0, usize::saturating_add);
    Some(limit.saturating_sub(number(version.used)?.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::control_group::tests::tree;

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

    #[test]
    fn the_tightest_group_counts_and_cached_files_do_not() {
        let files = [
            ("a/memory.max", "max\n"),
            ("a/memory.current", "50\n"),
            ("a/b/memory.max", "1000\n"),
            ("a/b/memory.current", "900\n"),
            ("a/b/memory.stat", "anon 300\ninactive_file 500\nactive_file 40\n"),
            ("a/b/c/memory.max", "5000\n"),
            ("a/b/c/memory.current", "1\n"),
        ];
        let tree = tree("two", &files);
        assert_eq!(of_group("0::/a/b/c\n", &tree.0), Some(640));
        assert_eq!(of_group("0::/a\n", &tree.0), None);
    }

    #[test]
    fn version_1_is_read_too_and_a_hosts_path_falls_back_to_the_mount() {
        let files = [
            ("memory/memory.limit_in_bytes", "1000\n"),
            ("memory/memory.usage_in_bytes", "700\n"),
            ("memory/memory.stat", "inactive_file 7\ntotal_inactive_file 100\n"),
        ];
        let tree = tree("one", &files);
        assert_eq!(of_group("5:devices:/\n4:cpu,memory:/docker/abc\n0::/\n", &tree.0), Some(400));
    }
}
