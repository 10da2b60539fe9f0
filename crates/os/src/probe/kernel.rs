//! Kernel version, userfaultfd, and permissions.

use oikaze_protocol::limits::PAGE;

use super::{Finding, Suitability, number, status_field};
use crate::features::DisabledFeatures;
use crate::kernel_version::parse_version;
use crate::memory::tracking::{self, TrackerKind, userfaultfd_features};

/// Oldest kernel that is tested (Ubuntu 22.04).
const OLDEST: (u32, u32) = (5, 15);
/// First kernel that can map pages write-protected, which userfaultfd tracking needs.
const UFFD_TRACKS: (u32, u32) = (6, 4);
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_PTRACE: u32 = 19;

pub(super) fn findings(without: &DisabledFeatures) -> Vec<Finding> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut findings = vec![version(), page_size(), seccomp(&status)];
    findings.extend(capabilities(&status));
    findings.push(unprivileged());
    findings.extend([TrackerKind::UserfaultfdFull, TrackerKind::UserfaultfdUserMode].map(mode));
    findings.extend(features());
    findings.push(barriers());
    findings.push(chosen(without));
    findings
}

fn version() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let ok = match parse_version(&release) {
        Some(v) if v >= UFFD_TRACKS => Suitability::Good,
        Some(v) if v < OLDEST => Suitability::Missing,
        _ => Suitability::Degraded,
    };
    Finding::new("kernel", release, "5.15; 6.4 for tracking pages by userfaultfd", ok)
        .fix("Upgrade the kernel (docs/KERNELS.md says what works where).")
}

fn page_size() -> Finding {
    let found = rustix::param::page_size();
    let ok = if found == PAGE { Suitability::Good } else { Suitability::Missing };
    Finding::new("page size", found.to_string(), format!("{PAGE}, for shared arrays"), ok)
        .fix("Boot a kernel with 4 KiB pages, the same on all nodes; messages and remote memory work with any.")
}

fn seccomp(status: &str) -> Finding {
    let found = match status_field(status, "Seccomp").as_deref() {
        Some("0") => "none",
        Some("1") => "strict",
        Some("2") => "a filter is active (usual in containers)",
        _ => "unknown",
    };
    // A filter alone does no harm; the probes of single features show what it forbids.
    Finding::new(
        "seccomp",
        found,
        "any that permits userfaultfd (docs/seccomp-oikaze.json)",
        Suitability::Good,
    )
}

fn has(status: &str, capability: u32) -> bool {
    let set = status_field(status, "CapEff")
        .and_then(|set| u64::from_str_radix(&set, 16).ok())
        .unwrap_or(0);
    set >> capability & 1 == 1
}

fn capabilities(status: &str) -> [Finding; 2] {
    let yes = |capability| if has(status, capability) { "yes" } else { "no" };
    [
        Finding::new(
            "CAP_SYS_PTRACE",
            yes(CAP_SYS_PTRACE),
            "optional: gives full userfaultfd",
            Suitability::Good,
        ),
        Finding::new(
            "CAP_NET_ADMIN",
            yes(CAP_NET_ADMIN),
            "optional: socket buffers beyond net.core.rmem_max; --netns",
            Suitability::Good,
        ),
    ]
}

fn unprivileged() -> Finding {
    let found = number::<u32>("/proc/sys/vm/unprivileged_userfaultfd")
        .map_or("not there".to_owned(), |n| n.to_string());
    Finding::new(
        "vm.unprivileged_userfaultfd",
        found,
        "optional: 1 gives full userfaultfd to everyone",
        Suitability::Good,
    )
}

fn mode(kind: TrackerKind) -> Finding {
    let (what, needed) = match kind {
        TrackerKind::UserfaultfdFull => (
            "userfaultfd, full",
            "so that system calls may be given invalid pages of shared arrays",
        ),
        _ => ("userfaultfd, user mode only", "for fast tracking without privileges"),
    };
    match tracking::open(kind) {
        Ok(_) => Finding::new(what, "works (tried)", needed, Suitability::Good),
        Err(e) => Finding::new(what, e.reason(), needed, Suitability::Degraded).fix(e.remedy()),
    }
}

/// Features that the kernel names: those that tracking needs and those that a later version may
/// use.
fn features() -> Vec<Finding> {
    let list = match userfaultfd_features() {
        Ok(list) => list,
        Err(e) => {
            let asked = format!("could not be asked: {e}");
            let finding = Finding::new(
                "userfaultfd features",
                asked,
                "minor faults and write-protect on shmem",
                Suitability::Degraded,
            );
            return vec![finding.fix("See \"userfaultfd, user mode only\".")];
        }
    };
    let features = list.into_iter().map(|feature| {
        let (needed, ok) = match (feature.needed, feature.there) {
            (true, true) => ("for page tracking", Suitability::Good),
            (true, false) => ("for page tracking by userfaultfd", Suitability::Degraded),
            (false, _) if feature.name.ends_with("MOVE") => {
                ("for moving pages instead of bytes", Suitability::Good)
            }
            (false, _) => ("by nothing yet", Suitability::Good),
        };
        let found = if feature.there { "yes" } else { "no" };
        Finding::new(feature.name, found, format!("{needed} (Linux {})", feature.since), ok)
            .fix("Upgrade the kernel; until then pages are tracked by mprotect.")
    });
    features.collect()
}

fn barriers() -> Finding {
    let needed = "for puts between nodes of one machine without fences of their own";
    if crate::sync::makes_fences() {
        return Finding::new("membarrier", "works (tried)", needed, Suitability::Good);
    }
    Finding::new("membarrier", "refused, or switched off", needed, Suitability::Degraded)
        .fix("Permit membarrier in the sandbox; remove it from OIKAZE_WITHOUT if it is there.")
}

fn chosen(without: &DisabledFeatures) -> Finding {
    let needed = "any of the three works; userfaultfd is faster";
    match tracking::choose(without) {
        Ok(choice) => {
            let ok = if choice.tracker.kind() == TrackerKind::Mprotect { Suitability::Degraded } else { Suitability::Good };
            Finding::new("page tracking", choice.to_string(), needed, ok)
                .fix("Permit userfaultfd (docs/KERNELS.md), and remove uffd from OIKAZE_WITHOUT if it is there.")
        }
        Err(e) => Finding::new("page tracking", e.reason(), needed, Suitability::Missing)
            .fix("Remove uffd and mprotect from OIKAZE_WITHOUT; permit userfaultfd, mprotect and sigaction in the sandbox."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits() {
        let status = "CapEff:\t0000000000080000\n";
        assert!(has(status, CAP_SYS_PTRACE) && !has(status, CAP_NET_ADMIN));
        assert!(!has("", CAP_SYS_PTRACE) && !has("CapEff:\tnonsense", CAP_SYS_PTRACE));
    }
}
