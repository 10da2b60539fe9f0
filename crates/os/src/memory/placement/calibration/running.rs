//! Do other threads of this process run?

use std::fs::{read_dir, read_to_string};

/// Is any thread of this process but the caller on a core, or ready for one? A look costs some 20 µs. `true` if it cannot be known.
pub(in super::super) fn others_run() -> bool {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let Ok(threads) = read_dir("/proc/self/task") else { return true };
    threads.flatten().filter(|thread| thread.file_name() != own.as_str()).any(|thread| {
        // The name may contain anything, but no parenthesis comes after its end.
        let state = read_to_string(thread.path().join("stat")).ok();
        state.is_some_and(|text| text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, Ordering};

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
