//! Fences between two steps of two sides, whose cost one side can bear alone.
//!
//! `membarrier` makes each processor that runs a thread of a process that has registered for it
//! pass a full fence before the call returns. So the frequent side need only see that its compiler
//! keeps the order of its two steps: wherever the fence falls, it is as if it stood between them,
//! or both steps come before it, or after.

use std::sync::atomic::{Ordering, compiler_fence, fence};

use crate::without::Without;
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;

/// Whose threads the frequent side are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Of this process.
    Process,
    /// Of any process of this machine that has registered.
    Machine,
}

/// The fence of the frequent side; the other side, if it is asymmetric, has called [`heavy`] with a
/// reach that includes this thread.
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

/// Does this process have its fences made by the kernel, and register to have others make them?
/// Found out once.
#[inline]
pub(crate) fn are_asymmetric(reach: Reach) -> bool {
    static FOUND: OnceLock<[bool; 2]> = OnceLock::new();
    let [process, machine] = *FOUND.get_or_init(|| {
        let wanted = !Without::from_env().unwrap_or_default().membarrier;
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

/// The fence of the rare side. Threads with [`light`] fences pass one too, if [`are_asymmetric`]
/// says so.
pub(crate) fn heavy(reach: Reach) {
    fence(Ordering::SeqCst);
    if are_asymmetric(reach) && membarrier(reach.command()).is_err() {
        // It worked before: a filter has been installed since, and the frequent side goes on
        // without fences. No processor keeps a store to itself for so long.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
