//! Tells whether the program runs under Valgrind, which executes one thread at a time.
//!
//! A thread that the kernel stops at a page fault keeps Valgrind's lock, so no other thread could
//! serve the fault. Waits in system calls are not a problem.

/// Returns `true` if Valgrind executes this program. Costs a few instructions.
#[must_use]
pub fn is_running() -> bool {
    /// Request of a client, in words of `valgrind.h`: `VG_USERREQ__RUNNING_ON_VALGRIND`.
    const RUNNING_ON_VALGRIND: usize = 0x1001;
    let arguments = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    request(&arguments) != 0
}

/// Makes a request of Valgrind, which recognises this sequence of instructions. Without Valgrind
/// they change nothing, and the result is 0.
#[cfg(target_arch = "x86_64")]
fn request(arguments: &[usize; 6]) -> usize {
    let mut result = 0_usize;
    // SAFETY: the rotations of `rdi` add up to 128 bits, which leaves it as it was, and the
    // exchange of a register with itself does nothing. Valgrind reads the arguments and writes
    // `rdx`.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") result,
            inout("rdi") 0_usize => _,
        );
    }
    result
}

/// Makes a request of Valgrind, which recognises this sequence of instructions. Without Valgrind
/// they change nothing, and the result is 0.
#[cfg(target_arch = "aarch64")]
fn request(arguments: &[usize; 6]) -> usize {
    let mut result = 0_usize;
    // SAFETY: the rotations of `x12` add up to 128 bits, which leaves it as it was, and the last
    // instruction does nothing. Valgrind reads the arguments and writes `x3`.
    unsafe {
        std::arch::asm!(
            "ror x12, x12, #3",
            "ror x12, x12, #13",
            "ror x12, x12, #51",
            "ror x12, x12, #61",
            "orr x10, x10, x10",
            in("x4") arguments.as_ptr(),
            inout("x3") result,
            inout("x12") 0_usize => _,
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn request(_arguments: &[usize; 6]) -> usize {
    0
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    fn valgrind_is_not_found_where_there_is_none() {
        assert!(!super::is_running());
    }
}
