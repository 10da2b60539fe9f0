//! Tells whether other threads run.

use std::fs::{read_dir, read_to_string};

/// Returns `true` if any thread of this process except the caller is running or ready to run, or if
/// that is unknown. A call costs some 20 µs.
pub(in super::super) fn others_run() -> bool {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let Ok(threads) = read_dir("/proc/self/task") else { return true };
    threads.flatten().filter(|thread| thread.file_name() != own.as_str()).any(|thread| {
        // The thread's name may contain anything, but no parenthesis follows its end.
        let state = read_to_string(thread.path().join("stat")).ok();
        state.is_some_and(|text| {
            text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R'))
        })
    })
}

/// Returns `true` if more threads are ready to run on this machine than it has processors, and
/// `false` if that is unknown.
pub(super) fn machine_is_crowded() -> bool {
    read_to_string("/proc/stat").is_ok_and(|text| is_crowded(&text))
}

fn is_crowded(stat: &str) -> bool {
    let processors =
        stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count();
    let running = stat
        .lines()
        .find_map(|line| line.strip_prefix("procs_running "))
        .and_then(|count| count.parse().ok());
    running.is_some_and(|running: usize| running > processors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_machine_is_crowded_if_threads_wait_for_processors() {
        let stat = |running: &str| {
            format!(
                "cpu  9 9\ncpu0 4 4\ncpu1 5 5\nintr 7\nprocs_running {running}\nprocs_blocked 9\n"
            )
        };
        assert!(is_crowded(&stat("3")) && !is_crowded(&stat("2")) && !is_crowded(&stat("x")));
        assert!(!is_crowded(""));
        assert!(
            read_to_string("/proc/stat")
                .is_ok_and(|text| text.contains("\nprocs_running ") && text.contains("\ncpu0 "))
        );
    }

    #[test]
    fn a_busy_thread_is_seen() {
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    core::hint::spin_loop();
                }
            });
            while !others_run() {
                std::thread::yield_now();
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
