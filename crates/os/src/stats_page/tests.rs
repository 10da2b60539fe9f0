use super::*;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::process::id;
use std::sync::atomic::{AtomicBool, Ordering};

const LAYOUT: RecordLayout = RecordLayout { version: 7, records: 3, words: 10 };

fn board(name: &str) -> (String, Board) {
    let name = format!("oikaze-test-{}-{name}", id());
    let board = Board::new(&name, LAYOUT).unwrap();
    (name, board)
}

fn only(name: &str) -> Found {
    let mut found = find(name).unwrap();
    assert_eq!(found.len(), 1);
    found.pop().unwrap()
}

#[test]
fn what_is_written_is_found_and_gone_with_its_board() {
    let (name, mut board) = board("found");
    let found = only(&name);
    assert_eq!((found.pid, found.view.layout()), (id(), LAYOUT));
    assert_eq!(found.view.read(2), Some(vec![0; 10]));
    let before = found.view.sequence(2);
    board.write(2, &[1, 2, 3]);
    assert_eq!(found.view.read(2), Some(vec![1, 2, 3, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(found.view.sequence(2), before.map(|before| before + 1));
    assert_eq!((found.view.read(1), found.view.read(3)), (Some(vec![0; 10]), None));
    board.write(3, &[9]);
    board.write(1, &[5; 99]);
    assert_eq!(found.view.read(1), Some(vec![5; 10]), "no record reaches into the next");
    assert_eq!(found.view.read(2).unwrap()[0], 1, "no record reaches into the next");
    drop(board);
    assert!(find(&name).unwrap().is_empty());
    assert_eq!(found.view.read(2).unwrap()[2], 3, "who looks keeps what it looks at");
}

#[test]
fn nobody_else_can_write_or_resize() {
    let (name, board) = board("sealed");
    let path = std::path::PathBuf::from(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&board._file)
    ));
    let again = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    assert_eq!(ftruncate(&again, 0), Err(Errno::PERM));
    assert_eq!(ftruncate(&again, 1 << 20), Err(Errno::PERM));
    assert_eq!(rustix::io::write(&again, b"x"), Err(Errno::PERM));
    // SAFETY: a new mapping at an address of the kernel's choice.
    let mapped = unsafe {
        mmap(
            std::ptr::null_mut(),
            4096,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &again,
            0,
        )
    };
    assert_eq!(mapped.unwrap_err(), Errno::PERM);
    assert_eq!(again.metadata().unwrap().len(), LAYOUT.bytes().unwrap() as u64);
    assert_eq!(only(&name).view.read(0), Some(vec![0; 10]));
}

/// A file under the name of a board is either a valid board or ignored.
#[test]
fn what_is_no_board_is_left_alone() {
    let name = format!("oikaze-test-{}-odd", id());
    let make = |heading: &[u64], len: usize, seal: bool| {
        let file = memfd_create(&name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let bytes: Vec<u8> = heading.iter().flat_map(|word| word.to_le_bytes()).collect();
        rustix::io::write(&file, &bytes).unwrap();
        ftruncate(&file, len as u64).unwrap();
        if seal {
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        }
        file
    };
    let _odd = [
        make(&[], 0, true),
        make(&[MAGIC, 1, 1, 1], 32, true),
        make(&[MAGIC, 1, 1, 7], 127, true),
        make(&[MAGIC + 1, 1, 1, 7], 4096, true),
        make(&[MAGIC, 1, u64::MAX, u64::MAX], 4096, true),
        make(&[MAGIC, 1, u64::MAX / 8, 7], 4096, true),
        make(&[MAGIC, 1, 64, 7], 4096, true),
        make(&[MAGIC, 1, 1, 7], 4096, false),
    ];
    assert!(find(&name).unwrap().is_empty());
    let _fits = make(&[MAGIC, 1, 63, 7], 4096, true);
    assert_eq!(only(&name).view.read(62), Some(vec![0; 7]));
}

/// A writer that was killed in the middle of a record hides that record, and no reader waits for
/// it.
#[test]
fn a_writer_that_stopped_in_the_middle_is_not_waited_for() {
    let (name, mut board) = board("stopped");
    let all = words_of(&board.mapping, LAYOUT.bytes().unwrap());
    all[LAYOUT.place(1).unwrap().start].store(5, Ordering::Relaxed);
    let found = only(&name);
    assert_eq!((found.view.read(1), found.view.read(0)), (None, Some(vec![0; 10])));
    board.write(1, &[1]);
    assert!(found.view.read(1).is_some(), "the next write mends it");
}

#[test]
fn a_reader_beside_a_writer_sees_whole_records() {
    let (name, mut board) = board("beside");
    let found = only(&name);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (1..=20_000).for_each(|number| board.write(0, &[number; 10]));
            done.store(true, Ordering::Release);
        });
        let mut last = 0;
        while !done.load(Ordering::Acquire) {
            let Some(seen) = found.view.read(0) else { continue };
            assert!(seen.iter().all(|number| *number == seen[0]), "{seen:?} after {last}");
            assert!(seen[0] >= last, "{seen:?} after {last}");
            last = seen[0];
        }
    });
    assert_eq!(found.view.read(0), Some(vec![20_000; 10]));
}

#[test]
fn too_large_a_board_is_refused() {
    for (records, words) in [(usize::MAX, 1), (1, usize::MAX), (1 << 20, 1 << 10)] {
        assert!(
            Board::new("oikaze-test-large", RecordLayout { version: 0, records, words }).is_err()
        );
    }
}
