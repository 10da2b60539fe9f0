//! Tests of pages that the kernel does not move (MEM-17.5), and of holes.

use super::*;
use rustix::mm::mlock;

/// Forks a child that runs `child` and exits with its answer. Returns the result of `parent`, which
/// runs meanwhile, and the child's answer.
///
/// The child of a process with other threads may do little. Copying bytes between regions is
/// permitted.
fn forked<R>(child: impl FnOnce() -> u8, parent: impl FnOnce() -> R) -> (R, i32) {
    let (read, write) = rustix::pipe::pipe().unwrap();
    // SAFETY: the child touches memory it has, allocates at most through the C library, which takes
    // care of forks, and ends without unwinding.
    match unsafe { libc::fork() } {
        0 => {
            let answer = child();
            drop(write);
            let _ = rustix::io::read(&read, &mut [0_u8; 1]);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(answer.into()) }
        }
        pid => {
            assert!(pid > 0);
            let result = parent();
            drop((read, write));
            let mut status = 0;
            // SAFETY: waits for our own child.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            (result, libc::WEXITSTATUS(status))
        }
    }
}

/// Returns 32 pages that a child inherits.
fn inherited(which: u64) -> (Region, Vec<u8>) {
    let bytes = pattern(32 * page_size(), which);
    let region = make_for_all(Memory::PrivateSmall, bytes.len()).region;
    region.write(0, &bytes).unwrap();
    (region, bytes)
}

/// Exchanges 32 pages, and checks the contents.
fn exchange_all(placement: &Placement, a: &(Region, Vec<u8>), b: &(Region, Vec<u8>)) -> Placed {
    let placed = placement.exchange(at(&a.0, 0), at(&b.0, 0), 32, PlacementMethod::Move).unwrap();
    assert!(bytes(&a.0) == b.1 && bytes(&b.0) == a.1);
    placed
}

#[test]
fn pages_once_shared_by_a_fork_are_copied() {
    if !alone(module_path!(), "pages_once_shared_by_a_fork_are_copied") {
        return;
    }
    let Some(placement) = moving() else { return };
    let (a, b) = (inherited(1), inherited(2));
    placement.exchange(at(&a.0, 0), at(&b.0, 0), 32, PlacementMethod::Move).unwrap();
    placement.exchange(at(&a.0, 0), at(&b.0, 0), 32, PlacementMethod::Move).unwrap();
    let (placed, _) = forked(|| 0, || exchange_all(&placement, &a, &b));
    assert_eq!(placed, Placed { moved: 0, copied: 32 * page_size() as u64 });
    // After a write, the pages are this process's own, and move again.
    a.0.write(0, &a.1).unwrap();
    b.0.write(0, &b.1).unwrap();
    assert!(exchange_all(&placement, &a, &b).moved > 0);
}

/// The child inherits the descriptor of its parent's memory, and must not use it.
#[test]
fn a_forked_child_copies_and_its_parent_keeps_its_bytes() {
    if !alone(module_path!(), "a_forked_child_copies_and_its_parent_keeps_its_bytes") {
        return;
    }
    let Some(placement) = moving() else { return };
    let (a, b) = (inherited(1), inherited(2));
    placement.exchange(at(&a.0, 0), at(&b.0, 0), 32, PlacementMethod::Move).unwrap();
    let child = || {
        let by_force =
            placement.exchange(at(&a.0, 0), at(&b.0, 0), 32, PlacementMethod::Move).is_err();
        let placed = placement.exchange(at(&a.0, 0), at(&b.0, 0), 32, PlacementMethod::Auto);
        let copied = placed.is_ok_and(|placed| placed.moved == 0 && placed.copied > 0);
        let mut first = [0; 64];
        let right = a.0.read(0, &mut first).is_ok() && first == a.1[..64];
        u8::from(!(by_force && copied && right))
    };
    let ((), answer) = forked(child, || ());
    assert_eq!(answer, 0);
    assert!(bytes(&a.0) == b.1 && bytes(&b.0) == a.1);
}

#[test]
fn locked_pages_are_copied_and_stay_locked() {
    let Some(placement) = moving() else { return };
    let (a, b) = (small(32, 1), small(32, 2));
    let page = page_size();
    // SAFETY: inside the region; locking changes no bytes.
    if let Err(why) = unsafe { mlock(a.0.view_ptr().wrapping_add(8 * page).cast(), 2 * page) } {
        return skipped(&format!("memory cannot be locked here: {why}"));
    }
    let placed = exchange_all(&placement, &a, &b);
    // The two pages, and some around them that were not tried one by one.
    assert!(placed.copied >= 2 * page as u64, "{placed:?}");
    assert!(placed.moved + placed.copied == 32 * page as u64, "{placed:?}");
    // Transfer onto locked pages.
    placement.transfer(at(&b.0, 0), at(&a.0, 0), 32, PlacementMethod::Move).unwrap();
    assert!(bytes(&a.0) == a.1);
}

/// Pins pages while it lives, as a program with an io_uring does. Returns `None`, with a message,
/// where there is no io_uring.
fn pinned(at: *mut u8, len: usize) -> Option<std::os::fd::OwnedFd> {
    use std::os::fd::{AsRawFd, FromRawFd};
    /// `struct io_uring_params`, without any request.
    #[repr(C, align(8))]
    struct Params([u8; 120]);
    const REGISTER_BUFFERS: libc::c_uint = 0;
    let mut params = Params([0; 120]);
    // SAFETY: the kernel writes no more than the parameters it is given room for.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, &raw mut params) };
    if fd < 0 {
        skipped(&format!("no io_uring here: {}", std::io::Error::last_os_error()));
        return None;
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let ring = unsafe { std::os::fd::OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) };
    let buffer = libc::iovec { iov_base: at.cast(), iov_len: len };
    // SAFETY: one mapped, writable buffer of a region of ours; pinning it changes none of its
    // bytes.
    let refused = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            REGISTER_BUFFERS,
            &raw const buffer,
            1,
        )
    };
    if refused != 0 {
        skipped(&format!("pages cannot be pinned here: {}", std::io::Error::last_os_error()));
        return None;
    }
    Some(ring)
}

#[test]
fn pinned_pages_are_copied_and_stay_where_they_are() {
    let Some(placement) = moving() else { return };
    let (a, b) = (small(32, 1), small(32, 2));
    let page = page_size();
    let first = a.0.view_ptr().wrapping_add(8 * page);
    let Some(ring) = pinned(first, 3 * page) else { return };
    let placed = exchange_all(&placement, &a, &b);
    // The three pages, and some around them that were not tried one by one.
    let all = 32 * page as u64;
    assert!(placed.copied >= 3 * page as u64 && placed.moved > 0, "{placed:?}");
    assert!(placed.moved + placed.copied == all, "{placed:?}");
    // Transfer from there, and onto it.
    placement.transfer(at(&a.0, 0), at(&b.0, 0), 32, PlacementMethod::Move).unwrap();
    assert!(bytes(&b.0) == b.1);
    a.0.write(0, &a.1).unwrap();
    placement.transfer(at(&b.0, 0), at(&a.0, 0), 32, PlacementMethod::Move).unwrap();
    assert!(bytes(&a.0) == b.1);
    drop(ring);
}

#[test]
fn holes_stay_holes_and_read_as_zeros() {
    let Some(placement) = moving() else { return };
    let page = page_size();
    let a = small(32, 1);
    let (b, mut expected) = (make(Memory::PrivateSmall, 32 * page).region, vec![0; 32 * page]);
    b.write(5 * page as u64, &[9; 10]).unwrap();
    expected[5 * page..][..10].fill(9);
    let b = (b, expected);
    assert_eq!(exchange_all(&placement, &a, &b), Placed { moved: 32 * page as u64, copied: 0 });
    // Exchange back, with a locked page in the way: a hole at one end becomes zeros at the other,
    // not what was there before.
    // SAFETY: inside the region.
    if unsafe { mlock(b.0.view_ptr().wrapping_add(3 * page).cast(), page) }.is_ok() {
        placement.exchange(at(&a.0, 0), at(&b.0, 0), 32, PlacementMethod::Move).unwrap();
        assert!(bytes(&a.0) == a.1 && bytes(&b.0) == b.1);
    }
}

/// Memory given up with MADV_FREE keeps its content or becomes zeros, and does so after a move as
/// well.
#[test]
fn freed_pages_are_moved_with_what_is_left_of_them() {
    let Some(placement) = moving() else { return };
    let page = page_size();
    let (a, b) = (small(32, 1), small(32, 2));
    // SAFETY: inside the region; its bytes may become zeros, which the test takes into account.
    unsafe { madvise(a.0.view_ptr().wrapping_add(4 * page).cast(), 8 * page, Advice::LinuxFree) }
        .unwrap();
    placement.exchange(at(&a.0, 0), at(&b.0, 0), 32, PlacementMethod::Move).unwrap();
    assert!(bytes(&a.0) == b.1);
    let found = bytes(&b.0);
    for (index, (got, was)) in found.chunks(page).zip(a.1.chunks(page)).enumerate() {
        let given_up = (4..12).contains(&index) && got.iter().all(|byte| *byte == 0);
        assert!(got == was || given_up, "page {index}");
    }
}

/// Pages that appear between the moves, as by a forbidden touch, are copied over.
#[test]
fn a_page_in_the_way_is_overwritten() {
    let Some(placement) = moving() else { return };
    let page = page_size();
    let (a, b) = (small(32, 1), small(32, 2));
    // A transfer finds a page at its destination only if that page cannot be dropped, so call the
    // mover directly.
    let mover = super::super::mover::Mover::open().unwrap();
    let (memory, watched) = b.0.private_memory().unwrap();
    assert!(mover.watch(memory, watched));
    let (to, from) = (NonNull::new(b.0.view_ptr()).unwrap(), NonNull::new(a.0.view_ptr()).unwrap());
    // SAFETY: two private regions of 32 pages, the destination watched, no references into them.
    let placed = unsafe { mover.carry(to, from, 32 * page) };
    assert_eq!(placed, Placed { moved: 0, copied: 32 * page as u64 });
    assert!(bytes(&b.0) == a.1);
    // Watched by one mover and moved by another, so copied.
    assert!(placement.exchange(at(&a.0, 0), at(&b.0, 0), 32, PlacementMethod::Move).is_err());
    assert_eq!(
        placement.exchange(at(&a.0, 0), at(&b.0, 0), 32, PlacementMethod::Auto).unwrap().moved,
        0
    );
}
