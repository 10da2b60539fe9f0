//! Means by which the nodes of a machine map one memory for an array (COH-16), and what such
//! memory takes.

use super::{Finding, Suitability, bytes};
use crate::features::DisabledFeatures;
use crate::memory::mapping::Mapping;
use crate::memory::tracking::sparse_file;
use crate::memory::{collapses_files, huge_page, lasting_len, reserve_file};
use crate::processes::process::in_child_of_fork;
use crate::shm::Listener;
use rustix::fd::AsFd;
use rustix::process::{Resource, getrlimit};
use std::fmt::Display;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of the file that one process makes and another one maps.
const TRIED_BYTES: usize = 4096;
/// Word that one process stores and the other one loads.
const TRIED_WORD: u64 = 0x6f69_6b61_7a65;
/// Length of memory files below which small arrays find the limit, too.
const FILE_LEAST: u64 = 1 << 30;

pub(super) fn findings(without: &DisabledFeatures) -> Vec<Finding> {
    vec![files_between_processes(without), huge_files(), longest_file()]
}

fn files_between_processes(without: &DisabledFeatures) -> Finding {
    let (what, needed) = (
        "memory of several processes",
        "sealed memory files, so that nodes of one machine map one memory for an array",
    );
    let off = [("shm", without.shm), ("arena", without.arena), ("segment", without.segment)];
    if let Some((word, _)) = off.into_iter().find(|(_, is_off)| *is_off) {
        let found = format!("switched off by OIKAZE_WITHOUT={word}");
        return Finding::new(what, found, needed, Suitability::Degraded).fix(format!(
            "Remove {word} from OIKAZE_WITHOUT; until then each node keeps pages of its own."
        ));
    }
    match pass_between_processes() {
        Ok(()) => Finding::new(what, "passed and mapped (tried)", needed, Suitability::Good),
        Err(why) => Finding::new(what, format!("no: {why}"), needed, Suitability::Degraded).fix(
            "Permit memfd_create, its seals and Unix sockets in the sandbox of all processes of the user; until then each node keeps pages of its own.",
        ),
    }
}

/// Passes a sealed memory file from a child process to this one, as nodes do, and maps it in both.
fn pass_between_processes() -> Result<(), String> {
    /// Number of the trial in this process.
    static TRIALS: AtomicU32 = AtomicU32::new(0);
    let trial = TRIALS.fetch_add(1, Ordering::Relaxed);
    let name = format!("oikaze-doctor-{}-{trial}", std::process::id());
    let listener = Listener::open(&name).map_err(|why| failed("listen", why))?;
    // The child's message waits in the socket until the child has ended.
    let steps = ["make a file", "map it", "connect", "send it"];
    let status = in_child_of_fork(|| match send_file(&name) {
        Ok(()) => 0,
        Err(step) => step,
    });
    let status = status.map_err(|why| failed("start a process", why))?;
    if status != 0 {
        let step = usize::try_from(status).ok().and_then(|step| steps.get(step.checked_sub(1)?));
        return Err(match step {
            Some(step) => format!("another process cannot {step}"),
            None => format!("another process has ended with status {status}"),
        });
    }
    let line = listener.accept().ok_or("nothing has come from another process")?;
    let line = line.map_err(|why| failed("accept another process", why))?;
    let message = line.hear().map_err(|why| failed("receive the file", why))?;
    let file = message.and_then(|message| message.descriptor).ok_or("the file has not come")?;
    let len = lasting_len(&file).map_err(|why| failed("read its seals", why))?;
    if len != TRIED_BYTES as u64 {
        return Err(format!("a file of {TRIED_BYTES} bytes came with {len}"));
    }
    let mapping = Mapping::of_file(file.as_fd(), TRIED_BYTES);
    let mapping = mapping.map_err(|why| failed("map the file", why))?;
    match word_of(&mapping).load(Ordering::Relaxed) {
        TRIED_WORD => Ok(()),
        _ => Err("the mapped file does not show what another process stored".to_owned()),
    }
}

/// Makes a file with a word in it, and sends it to the listener. Returns the number of the step
/// that failed, from 1.
fn send_file(name: &str) -> Result<(), i32> {
    let file = sparse_file("doctor", TRIED_BYTES).map_err(|_| 1)?;
    reserve_file(&file, 0, TRIED_BYTES).map_err(|_| 1)?;
    let mapping = Mapping::of_file(file.as_fd(), TRIED_BYTES).map_err(|_| 2)?;
    word_of(&mapping).store(TRIED_WORD, Ordering::Relaxed);
    let line = Listener::call_name(name).map_err(|_| 3)?;
    line.say(&[1], Some(file.as_fd())).map_err(|_| 4)
}

fn word_of(mapping: &Mapping) -> &AtomicU64 {
    // SAFETY: the mapping has a page, which begins at a multiple of 8 and lives as long as the
    // result. Other processes access the word by atomics, too.
    unsafe { AtomicU64::from_ptr(mapping.base().as_ptr().cast()) }
}

fn failed(doing: &str, why: impl Display) -> String {
    format!("{doing}: {why}")
}

fn huge_files() -> Finding {
    let (what, needed) =
        ("huge pages of memory files", "optional: arrays of 2 MiB and more are touched faster");
    let policy = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let policy = policy.ok().and_then(|text| {
        let chosen = text.split_once('[')?.1.split_once(']')?.0;
        Some(format!("shmem_enabled is {chosen}"))
    });
    let policy = policy.unwrap_or_else(|| "shmem_enabled is not there".to_owned());
    let Some(size) = huge_page() else {
        let found = format!("none, or switched off by OIKAZE_WITHOUT=huge; {policy}");
        return Finding::new(what, found, needed, Suitability::Good);
    };
    match collapses_files() {
        Ok(()) => {
            let found = format!("{} by MADV_COLLAPSE (tried); {policy}", bytes(size as u64));
            Finding::new(what, found, needed, Suitability::Good)
        }
        Err(why) => Finding::new(
            what,
            format!("none: {why}; {policy}"),
            needed,
            Suitability::Degraded,
        )
        .fix("Upgrade the kernel to 6.1, or, as root: echo always > /sys/kernel/mm/transparent_hugepage/shmem_enabled. If the kernel lacks memory, end other programs."),
    }
}

fn longest_file() -> Finding {
    let limit = getrlimit(Resource::Fsize).current;
    let found = limit.map_or("unlimited".to_owned(), bytes);
    let ok = if limit.is_none_or(|limit| limit >= FILE_LEAST) {
        Suitability::Good
    } else {
        Suitability::Degraded
    };
    let needed = "the length of the longest array: it is a file in memory";
    Finding::new("length of a file (ulimit -f)", found, needed, ok)
        .fix("Raise it: ulimit -f unlimited")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_passed_between_processes_more_than_once() {
        for _ in 0..2 {
            assert_eq!(pass_between_processes(), Ok(()));
        }
    }

    #[test]
    fn what_switches_shared_arrays_off_is_named() {
        for word in ["shm", "arena", "segment"] {
            let finding = files_between_processes(&DisabledFeatures::parse(word).unwrap());
            assert_eq!(finding.ok, Suitability::Degraded, "{finding}");
            assert!(finding.found.ends_with(&format!("OIKAZE_WITHOUT={word}")), "{finding}");
            assert!(finding.fix.contains(word), "{finding}");
        }
        let finding = files_between_processes(&DisabledFeatures::default());
        assert_eq!(finding.ok, Suitability::Good, "{finding}");
    }

    /// Linux has MADV_COLLAPSE since 6.1.
    #[test]
    fn huge_pages_of_files_are_found_where_the_kernel_has_them() {
        let finding = huge_files();
        assert!(finding.found.contains("shmem_enabled is "), "{finding}");
        if finding.ok == Suitability::Degraded {
            assert!(finding.found.contains("MADV_COLLAPSE"), "{finding}");
        }
    }
}
