//! Mistakes with shared arrays.

use super::*;

#[test]
fn arrays_that_differ_between_nodes() {
    let differ =
        |job: &Job, a: &str, b: &str| if job.rank() == 0 { a.to_owned() } else { b.to_owned() };
    let advice = "all nodes must declare the same arrays in the same order";
    all_fail_in_both_ways(
        &["node 0 declared the name \"a\", node 1 declared the name \"b\"", advice],
        |job| job.array::<u64>(&differ(job, "a", "b"), 10).map(drop),
    );
    all_fail_in_both_ways(
        &[
            "array \"x\"",
            "node 0 declared the shape [100], node 1 declared the shape [101]",
            advice,
        ],
        |job| job.array::<u64>("x", 100 + job.rank() as usize).map(drop),
    );
    all_fail_in_both_ways(&["array \"x\"", "elements of type", advice], |job| match job.rank() {
        0 => job.array::<u64>("x", 100).map(drop),
        _ => job.array::<f64>("x", 100).map(drop),
    });
    all_fail_in_both_ways(
        &["array \"x\"", "homes in blocks", "cyclic homes of 2 pages", advice],
        |job| {
            let homes = [Homes::Block, Homes::Cyclic { pages: 2 }][job.rank() as usize].clone();
            job.array_with_homes::<u64>("x", 10_000, homes).map(drop)
        },
    );
    // One node declares the array, the other does not.
    all_fail_in_both_ways(
        &["node 1 called barrier while node 0 called declare array \"x\"", "same calls"],
        |job| match job.rank() {
            0 => job.array::<u64>("x", 100).map(drop),
            _ => job.barrier(),
        },
    );
}

#[test]
fn arrays_that_cannot_be() {
    all_fail_in_both_ways(&["array \"x\"", "allowed are at most"], |job| {
        job.array::<u64>("x", usize::MAX).map(drop)
    });
    all_fail_in_both_ways(&["array \"x\"", "10000000000000 bytes", "allowed are at most"], |job| {
        job.array::<u8>("x", 10_000_000_000_000).map(drop)
    });
    all_fail_in_both_ways(&["its name has 0 bytes"], |job| job.array::<u8>("", 1).map(drop));
    all_fail_in_both_ways(&["at least 1 page"], |job| {
        job.array_with_homes::<u8>("x", 1, Homes::Cyclic { pages: 0 }).map(drop)
    });
    all_fail_in_both_ways(&["names 1 homes for its 3 pages"], |job| {
        job.array_with_homes::<u8>("x", 9000, Homes::Explicit(vec![0])).map(drop)
    });
    all_fail_in_both_ways(&["not one of the 2 nodes"], |job| {
        job.array_with_homes::<u8>("x", 1, Homes::Explicit(vec![2])).map(drop)
    });
    all_fail_in_both_ways(&["an array of that name exists already"], |job| {
        let _first = job.array::<u8>("x", 1).unwrap();
        job.array::<u8>("x", 1).map(drop)
    });
}

/// The array exceeds any machine's memory, but not the limits of the format. It is refused before
/// memory is taken.
#[test]
fn an_array_larger_than_memory_fails_on_all_nodes_and_the_job_goes_on() {
    all_fail_in_both_ways(&["array \"x\"", "bytes are available", "a smaller array"], |job| {
        job.array::<u8>("x", 1 << 40).map(drop)
    });
    cluster_in_both_ways(2, &Settings::default(), |job| {
        failure(job.array::<u8>("x", 1 << 40).map(drop), &["bytes are available"]);
        // The name can be used again.
        let array = job.array::<u64>("x", 1000).unwrap();
        array.write(array.home_range(job.rank())).unwrap().fill(7);
        job.barrier().unwrap();
        assert!(array.read(0..1000).unwrap().iter().all(|&value| value == 7));
        job.barrier().unwrap();
    });
}

#[test]
fn an_array_that_was_not_agreed_on_leaves_no_memory_and_no_name() {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        let array = job.array::<u64>("disagreed", 1000 + 1000 * job.rank() as usize).map(drop);
        failure(array, &["node 0 declared the shape [1000], node 1 declared the shape [2000]"]);
        job.barrier().unwrap();
        let mappings = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!mappings.contains("disagreed"), "{mappings}");
        job.barrier().unwrap();
        let array = job.array::<u64>("disagreed", 2000).unwrap();
        array.write(array.home_range(job.rank())).unwrap().fill(7);
        job.barrier().unwrap();
        assert!(array.read(0..2000).unwrap().iter().all(|&value| value == 7));
    });
}

#[test]
fn elements_outside_an_array() {
    cluster_in_both_ways(1, &Settings::default(), |job| {
        let array = job.array::<u32>("x", 10).unwrap();
        failure(
            array.read(5..11).map(drop),
            &["elements 5..11 of array \"x\"", "the array has 10 elements"],
        );
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = 7..3;
        failure(array.write(reversed).map(drop), &["elements 7..3 of array \"x\""]);
        failure(array.write_lazily(0..usize::MAX).map(drop), &["\"x\"", "10"]);
        assert!(array.read(10..10).unwrap().is_empty());
        let _held = array.write(0..4).unwrap();
        failure(array.read(3..5).map(drop), &["\"x\""]);
    });
}
