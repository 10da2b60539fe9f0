//! Memory for secrets: core dumps leave it out, and it is wiped when its value is dropped.

use crate::memory::mapping::Mapping;
use core::alloc::Layout;
use core::marker::PhantomData;
use core::mem::size_of;
use core::ops::{Deref, DerefMut};
use core::ptr;
use rustix::mm::{Advice, madvise};
use std::alloc::handle_alloc_error;
use zeroize::Zeroize;

/// A value in pages of its own. A core dump (core(5)) does not have these pages
/// (`MADV_DONTDUMP`), and they are overwritten when the value is dropped (SEAL-7.1).
///
/// Copies on the stack and in registers while the value was made are not covered.
pub struct Protected<T> {
    pages: Mapping,
    value: PhantomData<T>,
}

impl<T> Protected<T> {
    /// Moves a value into pages of its own.
    #[must_use]
    pub fn new(value: T) -> Self {
        const { assert!(align_of::<T>() <= 4096, "pages are aligned to at least 4 KiB") };
        let Ok(pages) = Mapping::anonymous(size_of::<T>().max(1)) else {
            // As `Box::new` does where there is no memory.
            handle_alloc_error(Layout::new::<T>())
        };
        // SAFETY: the whole mapping, which nobody else knows yet; the advice changes no bytes. A
        // kernel that does not know the advice (before Linux 3.4) dumps the pages, which harms
        // nothing else.
        let _ =
            unsafe { madvise(pages.base().as_ptr().cast(), pages.len(), Advice::LinuxDontDump) };
        // SAFETY: the mapping is writable, long enough, aligned to a page, and not shared.
        unsafe { pages.base().cast::<T>().write(value) };
        Self { pages, value: PhantomData }
    }

    /// Drops the value and overwrites its bytes. The value must not be used afterwards.
    fn wipe(&mut self) {
        // SAFETY: `new` has written a value here, and the caller is its only user. No one reads the
        // value again, because `wipe` is called once, by `drop`.
        unsafe { ptr::drop_in_place(self.pages.base().cast::<T>().as_ptr()) };
        // SAFETY: mapped, writable bytes that only this value reaches, and any bytes are valid.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(self.pages.base().as_ptr(), self.pages.len())
        };
        bytes.zeroize();
    }
}

impl<T> Drop for Protected<T> {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl<T> Deref for Protected<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` has written a value here, which lives as long as this one.
        unsafe { self.pages.base().cast::<T>().as_ref() }
    }
}

impl<T> DerefMut for Protected<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { self.pages.base().cast::<T>().as_mut() }
    }
}

// SAFETY: like a box, this value owns its `T` and nothing else of it is shared.
unsafe impl<T: Send> Send for Protected<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Protected<T> {}

#[cfg(test)]
mod tests {
    use super::Protected;
    use core::mem::ManuallyDrop;
    use std::sync::Arc;

    /// Returns the flags of the mapping that holds this address (proc_pid_smaps(5), `VmFlags`).
    fn flags_of<T>(at: *const T) -> Vec<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_here = false;
        for line in maps.lines() {
            let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
            let ends = range.map(|(first, end)| {
                (usize::from_str_radix(first, 16), usize::from_str_radix(end, 16))
            });
            if let Some((Ok(first), Ok(end))) = ends {
                is_here = (first..end).contains(&at.addr());
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_here) {
                return flags.split_whitespace().map(str::to_owned).collect();
            }
        }
        panic!("no mapping holds {at:?}");
    }

    /// SEAL-7.1: `dd` is the kernel's mark of pages that a core dump leaves out.
    #[test]
    fn core_dumps_leave_protected_values_out() {
        let (protected, plain) = (Protected::new([7_u8; 32]), Box::new([7_u8; 32]));
        let is_left_out = |flags: &[String]| flags.iter().any(|flag| flag == "dd");
        assert!(is_left_out(&flags_of(&raw const *protected)));
        assert!(!is_left_out(&flags_of(&raw const *plain)));
        assert_eq!(*protected, *plain);
    }

    /// SEAL-7.1.
    #[test]
    fn dropped_values_are_dropped_once_and_wiped() {
        let counted = Arc::new(());
        let mut protected =
            ManuallyDrop::new(Protected::new(([0x5a_u8; 64], Arc::clone(&counted))));
        protected.0[3] = 1;
        assert_eq!((protected.0[2], protected.0[3], Arc::strong_count(&counted)), (0x5a, 1, 2));
        let bytes = protected.pages.base();
        protected.wipe();
        assert_eq!(Arc::strong_count(&counted), 1);
        // SAFETY: the pages are still mapped, because the mapping is not dropped. The value in them
        // is gone, so they are read as bytes.
        let left = unsafe { core::slice::from_raw_parts(bytes.as_ptr(), protected.pages.len()) };
        assert!(left.iter().all(|&byte| byte == 0));
        // SAFETY: the value is gone, and the mapping is dropped once, here.
        unsafe { core::ptr::drop_in_place(&raw mut protected.pages) };
    }
}
