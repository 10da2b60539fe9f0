//! Delay between two polls of a word that another processor will change.

/// Delays the next poll until the last load has ended. Without the delay, the processor issues
/// speculative loads, and must undo them when the word changes. The delay also keeps the next poll
/// from starting at once: a processor that is about to store has claimed the cache line, and an
/// early poll would take the line away before the store.
///
/// A pause instruction does both, but takes longer than necessary. A nearby core saw a put of 8
/// bytes after 61 ns with one fence, 61 ns with four fences, and 64 ns with a pause. A distant core
/// saw the put after 255, 225 and 224 ns.
#[inline]
pub fn between_looks() {
    #[cfg(target_arch = "x86_64")]
    for _ in 0..4 {
        // SAFETY: every x86-64 has it (SSE2), and it touches nothing.
        unsafe { core::arch::x86_64::_mm_lfence() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    core::hint::spin_loop();
}
