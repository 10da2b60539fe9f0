//! Asymmetric fences between the two steps of each of two sides, where the rare side bears the
//! whole cost.
//!
//! `membarrier` (membarrier(2)) makes each processor that runs a thread of a registered process
//! pass a full fence before the call returns. So on the frequent side only the compiler must keep
//! the order of the two steps. Wherever the fence falls, it stands between the two steps, before
//! both, or after both.

use std::sync::atomic::{Ordering, compiler_fence, fence};

use crate::features::DisabledFeatures;
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;

/// Processes whose threads are the frequent side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Threads of this process.
    Process,
    /// Threads of any registered process of this machine.
    Machine,
}

/// Fence of the frequent side. If `asymmetric`, the rare side has called [`heavy`] with a reach
/// that includes this thread.
#[inline]
pub(crate) fn light(asymmetric: bool) {
    if asymmetric { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
}

impl Reach {
    fn command(self) -> MembarrierCommand {
        match self {
            Reach::Process => MembarrierCommand::PrivateExpedited,
            Reach::Machine => MembarrierCommand::GlobalExpedited,
        }
    }
}

/// Returns `true` if the kernel makes fences for this process, and this process has registered so
/// that others can request fences in it. The answer is found once.
#[inline]
pub(crate) fn are_asymmetric(reach: Reach) -> bool {
    static FOUND: OnceLock<[bool; 2]> = OnceLock::new();
    let [process, machine] = *FOUND.get_or_init(|| {
        let wanted = !DisabledFeatures::of_process().unwrap_or_default().membarrier;
        let works = |register, reach: Reach| {
            wanted && membarrier(register).is_ok() && membarrier(reach.command()).is_ok()
        };
        [
            works(MembarrierCommand::RegisterPrivateExpedited, Reach::Process),
            works(MembarrierCommand::RegisterGlobalExpedited, Reach::Machine),
        ]
    });
    match reach {
        Reach::Process => process,
        Reach::Machine => machine,
    }
}

/// Fence of the rare side. Threads with [`light`] fences pass a full fence too, if
/// [`are_asymmetric`] returns `true`.
pub(crate) fn heavy(reach: Reach) {
    fence(Ordering::SeqCst);
    if are_asymmetric(reach) && membarrier(reach.command()).is_err() {
        // The call worked before, so a seccomp filter was installed since, and the frequent side
        // goes on without fences. No processor holds a store back for 10 ms.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
