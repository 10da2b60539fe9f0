//! Arrays and collectives of elements whose type is known at run time only, as bindings of other
//! languages use them, beside nodes that know the type.

use crate::support::both_ways;
use oikaze::atomic::Combine;
use oikaze::collective::Collectives;
use oikaze::ffi::CollectiveKind as Kind;
use oikaze::ffi::UntypedOperator as U;
use oikaze::ffi::{ElementKind, ElementType, Untyped};
use oikaze::prelude::*;
use oikaze::shared::builder::Distribution;
use oikaze::shared::{Element, ElementField};
use oikaze::testing::cluster;

fn bytes_of<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

fn field(name: &str, kind: &str) -> ElementField {
    ElementField { name: name.into(), kind: kind.into() }
}

/// One node knows the type, the other does not; both have the same array.
#[test]
fn an_array_is_the_same_with_and_without_a_type() {
    for distribution in [
        Distribution::Block { axis: 0 },
        Distribution::Block { axis: 1 },
        Distribution::Cyclic { axis: 1, indices: 3 },
    ] {
        both_ways::cluster(2, |job| {
            let (rows, columns) = (40, 300);
            let value = |i: usize, j: usize| (i * columns + j) as f32;
            if job.rank() == 0 {
                let typed = job
                    .array_builder::<f32>("grid", [rows, columns])
                    .distribution(distribution.clone())
                    .build()
                    .unwrap();
                let mut guard = typed.write([0..rows, 100..200]).unwrap();
                for i in 0..rows {
                    (100..200).for_each(|j| guard[[i, j]] = value(i, j));
                }
                drop(guard);
                job.barrier().unwrap();
                job.barrier().unwrap();
                let all = typed.read(typed.whole()).unwrap();
                assert!((0..rows).all(|i| (100..columns).all(|j| all[[i, j]] == value(i, j))));
                drop(all);
                job.barrier().unwrap();
                typed.fill(2.5).unwrap();
                job.barrier().unwrap();
            } else {
                let untyped = job
                    .untyped_array("grid", &[rows, columns], ElementKind::F32.into())
                    .distribution(distribution.clone())
                    .build_untyped()
                    .unwrap();
                assert_eq!(untyped.strides(), [columns * 4, 4]);
                job.barrier().unwrap();
                let guard = untyped.read(&[3..5, 100..200]).unwrap();
                assert_eq!((guard.shape(), guard.ranges()), (vec![2, 100], vec![3..5, 100..200]));
                let first = guard.address().cast::<f32>();
                for j in 0..100 {
                    // SAFETY: the guard lends two rows of 100 elements.
                    let read = unsafe { first.add(columns + j).read() };
                    assert_eq!(read, value(4, 100 + j));
                }
                guard.release().unwrap();
                let mut guard = untyped.write(&[0..rows, 200..columns]).unwrap();
                guard.push_to(&[0]).unwrap();
                for i in 0..rows {
                    for j in 0..100 {
                        // SAFETY: the guard lends rows of 100 elements.
                        unsafe {
                            let place = guard.address().cast::<f32>().add(i * columns + j);
                            place.write(value(i, 200 + j));
                        }
                    }
                }
                assert!(job.barrier().is_err(), "a guard is alive");
                guard.release().unwrap();
                job.barrier().unwrap();
                job.barrier().unwrap();
                untyped.fill(&2.5_f32.to_ne_bytes()).unwrap_or_else(|error| panic!("{error}"));
                job.barrier().unwrap();
                let all = untyped.get(0..rows * columns).unwrap();
                assert!(all.chunks_exact(4).all(|one| one == 2.5_f32.to_ne_bytes()));
            }
            Ok(())
        });
    }
}

/// Homes and blocks are those of the typed array, for elements that do not divide a page.
#[test]
fn homes_are_those_of_the_typed_array() {
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    struct Point {
        x: [f32; 2],
        mass: f32,
    }
    cluster(3, |job| {
        let element = ElementType::structure(12, vec![field("x[2]", "f32"), field("mass", "f32")]);
        let element = element.unwrap();
        let untyped = job.untyped_array("points", &[5000], element).build_untyped().unwrap();
        let typed = job.array::<Point>("others", 5000).unwrap();
        for rank in 0..3 {
            assert_eq!(untyped.home_range(rank), typed.home_range(rank));
            let blocks: Vec<_> = typed.home_blocks(rank).iter().map(|b| vec![b.range(0)]).collect();
            assert_eq!(untyped.home_blocks(rank), blocks);
        }
        assert_eq!(untyped.home_of(&[4999]), typed.home_of(4999));
        // Another struct is another array.
        let other = ElementType::structure(12, vec![field("y[2]", "f32"), field("mass", "f32")]);
        let wrong = match job.rank() {
            0 => job.array::<Point>("again", 10).map(drop),
            _ => job.untyped_array("again", &[10], other.unwrap()).build_untyped().map(drop),
        };
        let why = wrong.unwrap_err().to_string();
        assert!(why.contains("x[2]") && why.contains("y[2]"), "{why}");
        let _ = Point { x: [0.0; 2], mass: 0.0 };
        Ok(())
    });
}

#[test]
fn plain_memory_is_shared_and_outlives_the_array() {
    both_ways::cluster(2, |job| {
        let mut array =
            job.untyped_array("plain", &[3000], ElementKind::U64.into()).build_untyped().unwrap();
        let plain = array.plain().unwrap();
        let at = |index: usize| plain.address().cast::<u64>().wrapping_add(index);
        let mine = array.home_range(job.rank());
        for index in mine.clone() {
            // SAFETY: within the array, and of this node's home.
            unsafe { at(index).write(index as u64 + 1) };
        }
        job.barrier().unwrap();
        // SAFETY: within the array; nobody writes between the barriers.
        let sum: u64 = (0..3000).map(|index| unsafe { at(index).read() }).sum();
        assert_eq!(sum, 3000 * 3001 / 2);
        job.barrier().unwrap();
        array.resize(&[4000]).unwrap();
        assert_eq!(array.shape(), [4000]);
        assert_eq!(array.get(2999..3001).unwrap(), bytes_of(&[3000_u64, 0]));
        array.redistribute(Distribution::Cyclic { axis: 0, indices: 512 }).unwrap();
        array.free().unwrap();
        // SAFETY: the memory stays mapped. The old array shows its last bytes.
        assert_eq!(unsafe { at(mine.start).read() }, mine.start as u64 + 1);
        // SAFETY: as above. A page that was never here does not wait for a home that is no more.
        let _ = (0..3000).map(|index| unsafe { at(index).read() }).sum::<u64>();
        job.barrier().unwrap();
        Ok(())
    });
}

#[test]
fn one_sided_operations_act_on_numbers_of_their_kind() {
    both_ways::cluster(2, |job| {
        let array =
            job.untyped_array("sums", &[8, 100], ElementKind::F64.into()).build_untyped().unwrap();
        let old = array.fetch_combine(&[7, 99], Combine::Sum, bytes_of(&[1.5_f64])).unwrap();
        assert!([0.0, 1.5].contains(&bytemuck::pod_read_unaligned::<f64>(&old)));
        array.accumulate(0, Combine::Max, bytes_of(&[f64::from(job.rank()); 10])).unwrap();
        job.barrier().unwrap();
        assert_eq!(array.get(799..800).unwrap(), bytes_of(&[3.0_f64]));
        assert_eq!(array.get(9..11).unwrap(), bytes_of(&[1.0_f64, 0.0]));
        job.barrier().unwrap();
        if job.rank() == 0 {
            array.put(5, bytes_of(&[7.0_f64])).unwrap();
            let (expected, new) = ([7.0_f64], [8.0_f64]);
            let old = array.compare_exchange(&[0, 5], bytes_of(&expected), bytes_of(&new));
            assert_eq!(old.unwrap(), bytes_of(&expected));
            for (what, refused) in [
                ("800", array.put(800, bytes_of(&[1.0_f64])).map(drop)),
                ("bytes", array.put(0, &[0; 12]).map(drop)),
                ("shape", array.fetch_combine(&[8, 0], Combine::Sum, &[0; 8]).map(drop)),
                ("shape", array.fetch_combine(&[0], Combine::Sum, &[0; 8]).map(drop)),
                ("bytes", array.fetch_combine(&[0, 0], Combine::Sum, &[0; 4]).map(drop)),
                ("bytes", array.fill(&[0; 4])),
                ("shape", array.read(std::slice::from_ref(&(0..8))).map(drop)),
                ("shape", array.write(&[0..8, 3..101]).map(drop)),
                (
                    "axes",
                    job.untyped_array("none", &[], ElementKind::U8.into())
                        .build_untyped()
                        .map(drop),
                ),
            ] {
                let why = refused.unwrap_err().to_string();
                assert!(why.contains(what), "{what}: {why}");
            }
        } else {
            let wrong = job.untyped_array("none", &[1; 5], ElementKind::U8.into()).build_untyped();
            assert!(wrong.unwrap_err().to_string().contains("axes"));
        }
        let bytes =
            job.untyped_array("bytes", &[10], ElementKind::U8.into()).build_untyped().unwrap();
        let why = bytes.fetch_combine(&[0], Combine::Sum, &[1]).unwrap_err().to_string();
        assert!(why.contains("u32, i32"), "{why}");
        job.barrier().unwrap();
        Ok(())
    });
}

#[test]
fn collectives_are_those_of_ranks_that_know_the_type() {
    cluster(3, |job| {
        let rank = job.rank();
        let mine = [f64::from(rank), 10.0];
        // Rank 0 knows the type.
        let sums: Vec<u8> = if rank == 0 {
            bytes_of(&job.start().all_reduce(&mine, Sum).wait().unwrap()).to_vec()
        } else {
            let doubles = Untyped::of(job, ElementKind::F64);
            let sum = Some(U::Sum);
            doubles.even(Kind::AllReduce, 0, bytes_of(&mine), sum).wait().unwrap().into_vec()
        };
        assert_eq!(sums, bytes_of(&[3.0, 30.0]));

        // Bytes need no alignment.
        let words = Untyped::of(job, ElementKind::U32);
        let mut room = [0_u8; 25];
        let values = [rank, rank + 7];
        let gathered =
            words.even_into(Kind::AllGather, 0, Some(bytes_of(&values)), &mut room[1..], None);
        gathered.unwrap();
        assert_eq!(&room[1..], bytes_of(&[0, 7, 1, 8, 2, 9]));
        let mut shifted = [0_u8; 9];
        shifted[1..].copy_from_slice(bytes_of(&[rank, 1]));
        words.even_into(Kind::AllReduce, 0, None, &mut shifted[1..], Some(U::Max)).unwrap();
        assert_eq!(&shifted[1..], bytes_of(&[2, 1]));
        let mut said = if rank == 1 { [5_u8; 8] } else { [0; 8] };
        words.even_into(Kind::Broadcast, 1, None, &mut said, None).unwrap();
        assert_eq!(said, [5; 8]);
        let mut turned = [0; 12];
        let values = [rank, rank + 10, rank + 20];
        words.even_into(Kind::AllToAll, 0, Some(bytes_of(&values)), &mut turned, None).unwrap();
        let ten = 10 * rank;
        assert_eq!(turned, bytes_of(&[ten, ten + 1, ten + 2]));

        let even = |kind, root, values: &[u32], operator| {
            words.even(kind, root, bytes_of(values), operator).wait().unwrap().into_vec()
        };
        let to_root = even(Kind::Gather, 2, &[rank], None);
        assert_eq!(to_root, if rank == 2 { bytes_of(&[0, 1, 2]) } else { &[] });
        let six: Vec<u32> = (0..6).collect();
        let parts = even(Kind::Scatter, 0, &six, None);
        assert_eq!(parts, bytes_of(&[2 * rank, 2 * rank + 1]));
        let least = even(Kind::Reduce, 0, &[rank + 4], Some(U::Min));
        assert_eq!(least, if rank == 0 { bytes_of(&[4]) } else { &[] });
        let scanned = even(Kind::Scan, 0, &[1], Some(U::Sum));
        assert_eq!(scanned, bytes_of(&[rank + 1]));
        let before = even(Kind::ExclusiveScan, 0, &[2], Some(U::Product));
        let expected: &[u32] = if rank == 0 { &[] } else { &[1 << rank] };
        assert_eq!(before, bytes_of(expected));
        let mine = even(Kind::ReduceScatter, 0, &[1, 2, 3], Some(U::Sum));
        assert_eq!(mine, bytes_of(&[3 * (rank + 1)]));
        let best = even(Kind::AllReduce, 0, &[rank % 2, rank], Some(U::MinLocation));
        assert_eq!(best, bytes_of(&[0, 0]));

        let texts = Untyped::of(job, ElementKind::U8);
        let uneven = |kind, root, vectors: &[&[u8]], operator| {
            texts.uneven(kind, root, vectors, operator).wait().unwrap().into_vectors()
        };
        let all = uneven(Kind::AllGather, 0, &[&vec![b'a'; rank as usize]], None);
        assert_eq!(all, [&b""[..], b"a", b"aa"]);
        let given: Vec<&[u8]> = vec![b"x", b"yy", b""];
        let got = uneven(Kind::AllToAll, 0, &given, None);
        assert!(got.iter().all(|one| one == given[rank as usize]));
        assert_eq!(uneven(Kind::Scatter, 1, &given, None), [given[rank as usize]]);
        assert_eq!(uneven(Kind::Gather, 0, &[b"z"], None).len(), if rank == 0 { 3 } else { 0 });
        let sum = uneven(Kind::ReduceScatter, 0, &[&[1], &[2, 3], &[]], Some(U::Sum));
        let expected: [&[u8]; 3] = [&[3], &[6, 9], &[]];
        assert_eq!(sum, [expected[rank as usize]]);

        let complex = Untyped::of(job, ElementKind::Complex64);
        let one = [1.0_f32, 1.0];
        let turned = complex.even(Kind::AllReduce, 0, bytes_of(&one), Some(U::Product));
        assert_eq!(turned.wait().unwrap().into_vec(), bytes_of(&[-2.0_f32, 2.0]), "(1 + i) cubed");
        let exact = Untyped::of(job, ElementKind::F64).sum_exact(bytes_of(&[1e100, 0.1, -1e100]));
        assert_eq!(exact.unwrap(), job.sum_exact(&[0.1]).unwrap());
        Ok(())
    });
}

/// Arguments that do not fit fail on all ranks, also if only one rank gives them.
#[test]
fn arguments_that_do_not_fit_leave_nobody_waiting() {
    cluster(2, |job| {
        let words = Untyped::of(job, ElementKind::U32);
        let one = job.rank() == 1;
        let len = if one { 7 } else { 8 };
        let refused = words
            .even(Kind::AllGather, 0, &[0; 8][..len], None)
            .wait()
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(!one || refused.contains("7 bytes"), "{refused}");
        let doubles = Untyped::of(job, ElementKind::F64);
        let operator = if one { U::Xor } else { U::Sum };
        let refused =
            doubles.even(Kind::AllReduce, 0, &[0; 8], Some(operator)).wait().map(drop).unwrap_err();
        assert!(!one || refused.to_string().contains("Xor"), "{refused}");
        let refused = words.sum_exact(&[0; 8]).unwrap_err().to_string();
        assert!(refused.contains("u32"), "{refused}");
        // A binding refuses what it cannot turn into bytes, here a collective of uneven parts.
        let why = "an object of type set has no buffer".to_owned();
        let gathered = match one {
            true => words.refused(Kind::AllGather, why),
            false => words.uneven(Kind::AllGather, 0, &[&[0; 8]], None),
        };
        let refused = gathered.wait().unwrap_err().to_string();
        assert!(!one || refused.contains("type set"), "{refused}");
        // The team goes on.
        assert_eq!(job.all_reduce(1, Sum).unwrap(), 2);
        Ok(())
    });
}

/// Lengths that no plan takes fail on all ranks (COLL-2.5).
#[test]
fn lengths_that_no_memory_has_fail_on_all_ranks() {
    cluster(2, |job| {
        let endless = vec![(); usize::MAX];
        let refused = job.all_gather_uneven(&endless).unwrap_err().to_string();
        assert!(refused.contains("all_gather_uneven"), "{refused}");
        assert_eq!(job.all_reduce(1, Sum).unwrap(), 2, "the team goes on");
        Ok(())
    });
}
