//! Plain pointers beside guards, where all nodes map the memory of an array (COH-16.8). Node 0 has
//! the pointers, as C and Python have them. Node 1 has the guards of Rust.

use oikaze::Job;
use oikaze::ffi::{ElementKind, PlainMemory, UntypedArray};
use oikaze::job::Feature;
use oikaze::message::Class;
use oikaze::shared::SharedArray;
use oikaze::testing::{cluster, cluster_with};
use std::hint::black_box;

/// Number of elements of the arrays: some pages.
const LEN: usize = 2000;

fn untyped(job: &Job) -> UntypedArray {
    let array = job.untyped_array("a", &[LEN], ElementKind::U64.into()).build_untyped().unwrap();
    assert_eq!(array.why_not_shared(), None);
    array
}

fn typed(job: &Job) -> SharedArray<u64> {
    let array = job.array::<u64>("a", LEN).unwrap();
    assert_eq!(array.why_not_shared(), None);
    array
}

/// Tells the other node that it is its turn. This orders the nodes without making memory visible.
fn give_turn(job: &Job) {
    give_turn_at(job, 0);
}

/// Gives the turn, and tells the line at which a guard was taken.
fn give_turn_at(job: &Job, line: u32) {
    let sent = job.peer(1 - job.rank()).unwrap().send(Class::Ordered, line.into(), b"");
    sent.wait().unwrap();
}

/// Takes the turn, and returns the line that the other node has told.
fn take_turn(job: &Job) -> u32 {
    u32::try_from(job.receive(Some(1 - job.rank())).unwrap().tag()).unwrap()
}

/// Lets the other node act meanwhile.
fn give_and_take_turn(job: &Job) {
    give_turn(job);
    take_turn(job);
}

/// Stores an element by its address, as C and Python do.
fn store(first: *mut u8, index: usize, value: u64) {
    assert!(index < LEN);
    // SAFETY: the callers pass addresses of aligned elements that are mapped, and of which `index`
    // is one; nodes take turns.
    unsafe { first.cast::<u64>().add(index).write_volatile(value) };
}

fn load(first: *mut u8, index: usize) -> u64 {
    assert!(index < LEN);
    // SAFETY: as in `store`.
    unsafe { first.cast::<u64>().add(index).read_volatile() }
}

/// Checks that plain pointers are refused, and that the error names node 1 and a line of this file.
#[track_caller]
fn refused(plain: oikaze::Result<PlainMemory>, line: u32) {
    let text = plain.map(drop).unwrap_err().to_string();
    let place = format!("plain.rs:{line}:");
    for word in ["array \"a\"", "a guard of node 1 that", &place, "End that guard first"] {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn plain_pointer_beside_a_guard_of_another_node_is_refused_and_names_it() {
    cluster(2, |job| {
        if job.rank() == 0 {
            let array = untyped(job);
            // An error leaves no mark: the next guard is in the way again.
            for _ in 0..3 {
                let line = take_turn(job);
                refused(array.plain(), line);
                give_turn(job);
            }
            take_turn(job);
            assert_eq!(array.plain().unwrap().len(), 8 * LEN);
        } else {
            let array = typed(job);
            let (guard, line) = (array.read(7..8).unwrap(), line!());
            give_turn_at(job, line);
            take_turn(job);
            drop(guard);
            let (guard, line) = (array.write(7..8).unwrap(), line!());
            give_turn_at(job, line);
            take_turn(job);
            drop(guard);
            let (guards, line) = (array.read_many(&[1..2, 9..10]).unwrap(), line!());
            give_turn_at(job, line);
            take_turn(job);
            drop(guards);
            give_turn(job);
        }
        job.barrier()?;
        Ok(())
    });
}

/// Each node keeps pages of its own then, and a store is seen by no guard of another node.
#[test]
fn plain_pointer_beside_a_guard_is_taken_where_memory_is_not_shared() {
    let settings = Job::builder().without([Feature::Segment]);
    cluster_with(2, settings, |job| {
        let array = job.untyped_array("a", &[LEN], ElementKind::U64.into()).build_untyped()?;
        assert!(array.why_not_shared().is_some_and(|why| why.contains("OIKAZE_WITHOUT=segment")));
        let other = job.array::<u64>("b", LEN)?;
        assert_eq!(other.why_not_shared(), array.why_not_shared());
        if job.rank() == 0 {
            take_turn(job);
            let plain = array.plain()?;
            store(plain.address(), 0, 5);
            give_turn(job);
        } else {
            let guard = array.read(std::slice::from_ref(&(0..LEN)))?;
            give_and_take_turn(job);
            assert_eq!(load(guard.address(), 0), 0);
            guard.release()?;
        }
        job.barrier()?;
        assert_eq!(array.get(0..1)?, 5_u64.to_ne_bytes());
        job.barrier()?;
        Ok(())
    });
}

#[test]
fn memory_of_a_write_guard_marks_and_address_and_memory_to_read_do_not() {
    cluster(2, |job| {
        if job.rank() == 0 {
            let array = untyped(job);
            let line = take_turn(job);
            // Other elements than those of the guard of node 1.
            let read = array.read(std::slice::from_ref(&(0..10))).unwrap();
            let guard = array.write(std::slice::from_ref(&(10..20))).unwrap();
            assert_eq!((read.memory().len(), read.memory().address()), (80, read.address()));
            store(guard.address(), 9, 3);
            refused(guard.memory(), line);
            let merged = array.write_merged(std::slice::from_ref(&(20..30))).unwrap();
            // A copy of its own: nobody sees what is stored there after the end.
            assert_eq!(merged.memory().unwrap().len(), 80);
            refused(guard.memory(), line);
            give_and_take_turn(job);
            let memory = guard.memory().unwrap();
            assert_eq!((memory.len(), memory.address()), (80, guard.address()));
            read.release().unwrap();
            merged.release().unwrap();
            guard.release().unwrap();
            give_and_take_turn(job);
            // The guard is over, and its memory is that of a plain pointer.
            store(memory.address(), 0, 4);
            give_turn(job);
        } else {
            let array = typed(job);
            let (guard, line) = (array.read(100..101).unwrap(), line!());
            give_turn_at(job, line);
            take_turn(job);
            drop(guard);
            give_and_take_turn(job);
            let guard = array.read(10..20).unwrap();
            give_and_take_turn(job);
            assert_eq!((guard[0], guard[9]), (0, 3), "the guard is a copy");
            drop(guard);
            assert_eq!(array.read(10..11).unwrap()[0], 4);
        }
        job.barrier()?;
        Ok(())
    });
}

/// COH-6.10, COH-16.11: the other node waits until the reader has ended and the call is repeated.
/// Views of the old array keep its memory.
#[test]
fn resize_under_a_live_reader_is_refused_and_old_views_do_not_change() {
    cluster(2, |job| {
        let mut array = untyped(job);
        let part = std::slice::from_ref(&(0..10));
        if job.rank() == 0 {
            store(array.write(part)?.address(), 9, 7);
        }
        job.barrier()?;
        let reader = if job.rank() == 1 { Some(array.read(part)?) } else { None };
        let view = reader.as_ref().map(|reader| reader.memory());
        if let Some(reader) = reader {
            let error = array.resize(&[2 * LEN]).unwrap_err().to_string();
            for word in ["resize array \"a\"", "a guard that reads bytes 0..80"] {
                assert!(error.contains(word), "{word:?} is not in: {error}");
            }
            assert_eq!((array.shape(), load(reader.address(), 9)), (vec![LEN], 7));
            reader.release()?;
        }
        array.resize(&[2 * LEN])?;
        assert_eq!(array.why_not_shared(), None);
        if job.rank() == 0 {
            store(array.write(part)?.address(), 9, 8);
        }
        job.barrier()?;
        assert_eq!(array.get(9..10)?, 8_u64.to_ne_bytes());
        assert!(view.is_none_or(|view| load(view.address(), 9) == 7));
        job.barrier()?;
        Ok(())
    });
}

/// COH-16.3: Python's guards have views that outlive them. A program whose views are refused has no
/// guard, and another node may own its bytes.
#[test]
fn guard_whose_memory_is_refused_does_not_count_as_owned() {
    cluster(2, |job| {
        let part = std::slice::from_ref(&(10..20));
        if job.rank() == 0 {
            let array = untyped(job);
            let line = take_turn(job);
            refused(array.write_with_memory(part, false).map(|(_, memory)| memory), line);
            // A guard that merges shows a copy of its own, which needs no mark.
            array.write_with_memory(part, true)?.0.release()?;
            give_turn(job);
            job.barrier()?;
            let (guard, memory) = array.write_with_memory(part, false)?;
            assert_eq!((memory.len(), memory.address()), (80, guard.address()));
            guard.release()?;
            give_turn(job);
        } else {
            let array = typed(job);
            let (guard, line) = (array.read(100..101)?, line!());
            give_turn_at(job, line);
            take_turn(job);
            drop(guard);
            array.write(10..20)?.fill(1);
            job.barrier()?;
            take_turn(job);
            array.write(15..25)?.fill(2);
        }
        // Both nodes have had a guard of these elements.
        let text = job.barrier().unwrap_err().to_string();
        assert!(text.contains("array \"a\""), "{text}");
        Ok(())
    });
}

#[test]
fn read_guard_of_a_marked_array_is_a_copy_that_does_not_change() {
    cluster(2, |job| {
        if job.rank() == 0 {
            let array = untyped(job);
            let plain = array.plain().unwrap();
            store(plain.address(), 600, 1);
            give_and_take_turn(job);
            (0..LEN).for_each(|index| store(plain.address(), index, 2));
            give_turn(job);
        } else {
            let array = typed(job);
            take_turn(job);
            let one = array.read(600..602).unwrap();
            let many = array.read_many(&[0..3, 1500..1501]).unwrap();
            let lazy = array.read_lazily(600..602).unwrap();
            let all = |guards: &[&[u64]]| black_box(guards).concat();
            let shown = [&one[..], &lazy[..], &many[0][..], &many[1][..]];
            let before = all(&shown);
            assert_eq!(before, [1, 0, 1, 0, 0, 0, 0, 0]);
            give_and_take_turn(job);
            assert_eq!(all(&shown), before);
            drop((one, many, lazy));
            assert_eq!(array.read(600..602).unwrap()[..], [2, 2], "a later guard shows more");
        }
        job.barrier()?;
        Ok(())
    });
}

#[test]
fn write_guard_of_a_marked_array_stores_what_has_changed_at_its_end() {
    for released in [true, false] {
        cluster(2, |job| {
            if job.rank() == 0 {
                let array = untyped(job);
                let plain = array.plain().unwrap();
                let at = |index| load(plain.address(), index);
                give_and_take_turn(job);
                assert_eq!([at(1), at(2)], [0, 0], "nothing is stored before the end");
                store(plain.address(), 2, 20);
                give_and_take_turn(job);
                assert_eq!([at(1), at(2), at(1200)], [10, 20, 30]);
            } else {
                let array = typed(job);
                take_turn(job);
                let mut guard = array.write(0..1300).unwrap();
                (guard[1], guard[1200]) = (10, 30);
                give_and_take_turn(job);
                assert_eq!(guard[..3], [0, 10, 0]);
                match released {
                    true => guard.release().unwrap(),
                    false => drop(guard),
                }
                give_turn(job);
            }
            job.barrier()?;
            Ok(())
        });
    }
}

/// COH-16.7: nothing is stored under a guard of another node. The error names the node. After a
/// drop the next collective fails on all nodes.
#[test]
fn end_of_a_write_guard_of_a_marked_array_under_another_guard_is_a_race() {
    cluster(2, |job| {
        let of_barrier = || job.barrier().unwrap_err().to_string();
        let race = "merging bytes 56..72 of array \"a\": a guard of node 0 that writes";
        if job.rank() == 0 {
            let array = untyped(job);
            let _plain = array.plain().unwrap();
            give_and_take_turn(job);
            let guard = array.write(std::slice::from_ref(&(0..10))).unwrap();
            give_and_take_turn(job);
            assert!((0..10).all(|index| load(guard.address(), index) == 0));
            guard.release().unwrap();
            let text = of_barrier();
            assert!(text.contains("node 1 cannot go on") && text.contains(race), "{text}");
        } else {
            let array = typed(job);
            take_turn(job);
            let [mut one, mut two] = [5..7, 7..9].map(|part| array.write(part).unwrap());
            (one[0], two[0]) = (1, 1);
            give_and_take_turn(job);
            let text = one.release().unwrap_err().to_string();
            for word in ["merging bytes 40..56 of array \"a\"", "a guard of node 0 that writes"] {
                assert!(text.contains(word), "{word:?} is not in: {text}");
            }
            drop(two);
            give_turn(job);
            let text = of_barrier();
            assert!(text.contains(race), "{text}");
        }
        job.barrier()?;
        Ok(())
    });
}

/// Guards by an address lend no reference, so a plain pointer of any node may be beside them.
#[test]
fn marks_of_all_nodes_leave_guards_by_address_in_place() {
    cluster(2, |job| {
        let array = untyped(job);
        let plain = array.plain().unwrap();
        let me = job.rank() as usize;
        job.barrier()?;
        let part = 10 * me..10 * me + 10;
        let guard = array.write(std::slice::from_ref(&part)).unwrap();
        let memory = guard.memory().unwrap();
        assert_eq!(memory.address(), guard.address());
        store(memory.address(), 0, me as u64 + 1);
        // The element of the other node is seen at once: nothing is a copy.
        give_and_take_turn(job);
        assert_eq!(load(plain.address(), 10 * (1 - me)), 2 - me as u64);
        // Guards of two nodes over one element are refused as they are without a mark.
        if me == 0 {
            let whole = array.read(std::slice::from_ref(&(0..LEN))).map(drop);
            let text = whole.unwrap_err().to_string();
            assert!(text.contains("bytes 0..80"), "the own guard comes first: {text}");
            let other = array.read(std::slice::from_ref(&(10..11))).map(drop);
            let text = other.unwrap_err().to_string();
            assert!(text.contains("a guard of node 1 that writes bytes 80..160"), "{text}");
        }
        give_and_take_turn(job);
        guard.release().unwrap();
        job.barrier()?;
        Ok(())
    });
}
