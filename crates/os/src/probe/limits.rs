//! Memory, mappings, files and cores.

use rustix::process::{Resource, getrlimit};

use super::{Finding, Suitability, bytes, number};
use crate::cpu;
use crate::memory::memory_left;

/// Bytes of memory that the smallest useful job takes.
const MEMORY_LEAST: u64 = 64 << 20;
/// Bytes of memory that suffice for the demo (Himeno S on four nodes) with room to spare.
const MEMORY_FINE: u64 = 1 << 30;
/// The kernel's default limit of mappings.
const MAPPINGS: u64 = 65_530;
const FILES: u64 = 256;

pub(super) fn findings() -> Vec<Finding> {
    vec![mappings(), memory(), shm(), locked(), files(), cores()]
}

fn mappings() -> Finding {
    let needed = format!(
        "{MAPPINGS}: about 300, and 3 for each array; where pages are tracked by mprotect, each run of equal pages is one"
    );
    match number::<u64>("/proc/sys/vm/max_map_count") {
        Some(limit) => {
            let ok = if limit >= MAPPINGS { Suitability::Good } else { Suitability::Degraded };
            Finding::new("vm.max_map_count", limit.to_string(), needed, ok)
                .fix("sysctl -w vm.max_map_count=1048576")
        }
        None => Finding::new(
            "vm.max_map_count",
            "unknown (/proc/sys is hidden)",
            needed,
            Suitability::Good,
        ),
    }
}

fn memory() -> Finding {
    let needed = format!(
        "{} at the least, for arrays and buffers; an array that all nodes of a machine map counts once",
        bytes(MEMORY_LEAST)
    );
    let least = memory_left().into_iter().min_by_key(|(left, _)| *left);
    match least {
        Some((left, limit)) => {
            let left = left as u64;
            let ok = match left {
                MEMORY_FINE.. => Suitability::Good,
                MEMORY_LEAST.. => Suitability::Degraded,
                _ => Suitability::Missing,
            };
            Finding::new("memory left", format!("{} ({limit})", bytes(left)), needed, ok)
                .fix("Raise the container's memory limit or end other programs; arrays are divided among nodes, so more nodes help too.")
        }
        None => Finding::new(
            "memory left",
            "unknown (/proc/meminfo is hidden)",
            needed,
            Suitability::Good,
        ),
    }
}

fn shm() -> Finding {
    let found = match rustix::fs::statvfs("/dev/shm") {
        Ok(stat) => format!("{} free", bytes(stat.f_bavail.saturating_mul(stat.f_frsize))),
        Err(e) => format!("not there ({e})"),
    };
    Finding::new(
        "/dev/shm",
        found,
        "nothing: memory files (memfd) do not count there, but as memory that is left",
        Suitability::Good,
    )
}

fn locked() -> Finding {
    let found = getrlimit(Resource::Memlock).current.map_or("unlimited".to_owned(), bytes);
    Finding::new(
        "locked memory (ulimit -l)",
        found,
        "nothing: no memory is pinned",
        Suitability::Good,
    )
}

fn files() -> Finding {
    let limit = getrlimit(Resource::Nofile).current;
    let ok =
        if limit.is_none_or(|l| l >= FILES) { Suitability::Good } else { Suitability::Degraded };
    let most = getrlimit(Resource::Nofile).maximum;
    let text = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |l| l.to_string());
    let found = format!("{} (ulimit -Hn: {})", text(limit), text(most));
    Finding::new(
        "open files (ulimit -n)",
        found,
        format!("{FILES}: about 30, two for each node of this machine, and one for each array"),
        ok,
    )
    .fix("Raise it: ulimit -n 4096, or a container's --ulimit nofile=4096")
}

fn cores() -> Finding {
    let cores = cpu::usable_cores();
    let ok = if cores >= 2 { Suitability::Good } else { Suitability::Degraded };
    Finding::new("usable cores", cores.to_string(), "2, so that waiting may spin beside the program", ok)
        .fix("Give the container or job more cores; with one, waiting blocks, which costs some 25 µs a message.")
}
