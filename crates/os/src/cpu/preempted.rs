//! Counts preemptions of a thread.

use core::mem::MaybeUninit;

/// Returns how often the kernel has taken the core from the calling thread for another thread while
/// the calling thread could run. Interrupts and hypervisors do not count. Costs one system call
/// (`getrusage(2)`).
#[must_use]
pub fn preemptions() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the room is as large as what the kernel writes there, and zeros are a valid value if
    // it writes nothing.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_nivcsw).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::preemptions;
    use crate::cpu::{Topology, pin_to_core};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Two threads that share one core preempt each other in the end.
    #[test]
    fn threads_that_share_a_core_are_preempted() {
        let Some(&core) = Topology::detect().ok().as_ref().and_then(|machine| machine.cpus.first())
        else {
            return;
        };
        let done = AtomicU32::new(0);
        let spin = || {
            pin_to_core(core).unwrap();
            let before = preemptions();
            let mut seen = false;
            while done.load(Ordering::Relaxed) < 2 {
                if !seen && preemptions() > before {
                    seen = true;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(spin);
            scope.spawn(spin);
        });
    }
}
