//! Types of elements: structs, fixed arrays, `bool`.

use super::failure;
use crate::both_ways::cluster;
use oikaze::shared::Element;

#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
struct Particle {
    position: [f64; 3],
    mass: f32,
    charge: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Pair {
    one: Particle,
    index: u64,
}

/// As [`Particle`], of the same size.
#[derive(Clone, Copy, Debug, Element)]
#[repr(C)]
struct Other {
    position: [f64; 3],
    mass: f32,
    charge: u32,
}

#[derive(Clone, Copy, Debug, Element)]
#[repr(C)]
struct Renamed {
    position: [f64; 3],
    weight: f32,
    charge: i32,
}

#[derive(Clone, Copy, Debug, Element)]
#[repr(transparent)]
struct Wrapped([f64; 3]);

#[test]
fn structs_travel_between_nodes() {
    cluster(2, |job| {
        let pairs = job.array::<Pair>("pairs", [300, 4])?;
        let mine = pairs.home_block(job.rank());
        let made = |i: usize, j: usize| {
            let position = [i as f64, j as f64, 0.5];
            Pair { one: Particle { position, mass: 2.0, charge: -1 }, index: (i * j) as u64 }
        };
        let mut guard = pairs.write(mine)?;
        for i in mine.range(0) {
            (0..4).for_each(|j| guard[[i, j]] = made(i, j));
        }
        drop(guard);
        job.barrier()?;
        let all = pairs.read(pairs.whole())?;
        assert!((0..300).all(|i| (0..4).all(|j| all[[i, j]] == made(i, j))));
        drop(all);
        let wrapped = job.array::<Wrapped>("wrapped", 10)?;
        assert_eq!(wrapped.read(0..10)?[9].0, [0.0; 3]);
        Ok(job.barrier()?)
    });
}

#[test]
fn elements_that_differ_name_the_field_and_both_nodes() {
    cluster(2, |job| {
        let differ = |words: [&str; 2],
                      zero: &dyn Fn() -> oikaze::Result<()>,
                      one: &dyn Fn() -> oikaze::Result<()>| {
            let outcome = if job.rank() == 0 { zero() } else { one() };
            let [zero, one] = words;
            failure(
                outcome,
                &[
                    &format!("node 0 declared elements of type {zero}"),
                    &format!("node 1 declared elements of type {one}"),
                ],
            );
        };
        let make = |name: &str| job.array::<Particle>(name, 10).map(drop);
        let field = "struct, whose field";
        differ(
            [&format!("{field} 2 is charge: i32"), &format!("{field} 2 is charge: u32")],
            &|| make("x"),
            &|| job.array::<Other>("x", 10).map(drop),
        );
        differ(
            [&format!("{field} 1 is mass: f32"), &format!("{field} 1 is weight: f32")],
            &|| make("x"),
            &|| job.array::<Renamed>("x", 10).map(drop),
        );
        differ(["u64", "f64"], &|| job.array::<u64>("x", 10).map(drop), &|| {
            job.array::<f64>("x", 10).map(drop)
        });
        Ok(make("x")?)
    });
}

#[test]
fn bool_elements_hold_only_true_and_false() {
    cluster(2, |job| {
        let flags = job.array::<bool>("flags", [8, 5000])?;
        if job.rank() == 1 {
            flags.write([0..8, 4999..5000])?.fill(true);
        }
        job.barrier()?;
        let all = flags.read(flags.whole())?;
        assert!((0..8).all(|i| all[[i, 4999]] && !all[[i, 4998]]));
        assert_eq!(all.iter().filter(|flag| **flag).count(), 8);
        drop(all);
        assert!(!flags.read_lazily(0..10)?[3]);
        Ok(job.barrier()?)
    });
}

#[test]
fn elements_without_bytes_are_refused() {
    cluster(1, |job| {
        failure(job.array::<[u8; 0]>("x", 10).map(drop), &["array \"x\"", "no bytes"]);
        Ok(())
    });
}
