//! Barriers and other collectives of coherence against collectives of data: the nodes call both in
//! one order (COLL-3.9).

use crate::everywhere::{LIMIT, everywhere};
use crate::ways::ExchangeWay::{self, OneWithout, Rings, TwoMachines};
use crate::ways::ways;
use oikaze::prelude::*;

/// A collective, by its name in errors.
type NamedCall = (&'static str, fn(&Job, &SharedArray<u8>) -> oikaze::Result<()>);

const COHERENCE: [NamedCall; 5] = [
    ("barrier", |job, _| job.barrier()),
    ("barrier_reduce", |job, _| job.barrier_reduce(1_u64, Sum).map(drop)),
    ("fill array \"shared\"", |_, array| array.fill(1)),
    ("barrier", |job, _| job.barrier()),
    // Last, because nodes number their arrays differently afterwards.
    ("declare array \"mine\"", |job, _| job.array::<u64>("mine", 100).map(drop)),
];
const DATA: [NamedCall; 5] = [
    ("all_reduce of 1 i32 with Sum", |job, _| job.all_reduce(1, Sum).map(drop)),
    ("all_gather of 1 u32", |job, _| job.all_gather(&[7_u32]).map(drop)),
    ("barrier of a team", |job, _| job.team().barrier()),
    ("split of a team", |job, _| job.split(Some(0), 0).map(drop)),
    ("sum_exact", |job, _| job.sum_exact(&[1.0]).map(drop)),
];

/// Lets the nodes for which `is_data` is true make the calls of data, and the others those of
/// coherence. Each call has to fail by the mistake on every node.
fn check_mistakes(nodes: u32, further: ExchangeWay, is_data: impl Fn(u32) -> bool + Sync) {
    for way in ways(further) {
        let texts = way.run(nodes, &Job::builder().time_limit(LIMIT), |job| {
            let array = job.array::<u8>("shared", 10_000)?;
            let mut texts = Vec::new();
            for ((_, coherence), (_, data)) in COHERENCE.iter().zip(&DATA) {
                let call = if is_data(job.rank()) { data } else { coherence };
                let error = call(job, &array).err().map(|error| error.to_string());
                texts.push(error.unwrap_or_default());
            }
            // The nodes agree on what is next.
            job.barrier()?;
            assert_eq!(job.all_reduce(1_u32, Sum)?, nodes);
            assert_eq!(job.barrier_reduce(1_u64, Sum)?, u64::from(nodes));
            Ok(texts)
        });
        for (rank, texts) in texts.iter().enumerate() {
            for (text, ((coherence, _), (data, _))) in texts.iter().zip(COHERENCE.iter().zip(&DATA))
            {
                let names = [format!("calls {coherence}"), format!("calls {data}")];
                let names_both = names.iter().all(|name| text.contains(name));
                assert!(names_both, "{way:?}: {names:?} at rank {rank} of {nodes}: {texts:#?}");
                assert!(text.contains("in the same order"), "{text}");
            }
        }
    }
}

/// COLL-3.9, COH-6.2. Errors name the call of the program (COLL-3.10).
#[test]
fn coherence_against_data_fails_on_both_nodes_and_names_both_calls() {
    check_mistakes(2, Rings, |rank| rank == 0);
    check_mistakes(2, OneWithout, |rank| rank == 1);
}

/// COLL-3.9: also on nodes that wait for nobody whose call differs.
#[test]
fn coherence_against_data_fails_on_all_of_four_nodes() {
    check_mistakes(4, TwoMachines, |rank| rank == 0);
    check_mistakes(4, Rings, |rank| rank != 2);
    check_mistakes(4, OneWithout, |rank| rank < 2);
}

/// COLL-3.9: two calls in the other order.
#[test]
fn calls_in_another_order_fail_on_all_nodes_and_the_job_goes_on() {
    everywhere(3, Rings, |job| {
        let calls: [fn(&Job) -> oikaze::Result<()>; 2] =
            [|job| job.barrier(), |job| job.all_reduce(1, Sum).map(drop)];
        let first = usize::from(job.rank() == 1);
        let errors = [first, 1 - first].map(|call| calls[call](job).err());
        for error in errors {
            let text = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains("calls barrier, and rank ") || text.contains("calls all_reduce"));
        }
        job.barrier()?;
        assert_eq!(job.all_reduce(2, Sum)?, 6);
        Ok(())
    });
}

/// COLL-3.9: a node that has begun a collective of data before the barrier waits for it behind the
/// barrier, however late another node comes, and nobody is accused.
#[test]
fn data_in_flight_across_a_barrier_with_a_late_node_is_no_mistake() {
    everywhere(3, OneWithout, |job| {
        for late in 0..job.size() {
            let before = job.start().all_reduce(&[1_u32], Sum);
            if job.rank() == late {
                // Longer than the others wait before they send notices (COLL-3.3).
                std::thread::sleep(std::time::Duration::from_millis(350));
            }
            job.barrier()?;
            let after = job.start().all_gather(&[job.rank()]);
            job.barrier()?;
            assert_eq!(before.wait()?, [job.size()]);
            assert_eq!(after.wait()?, (0..job.size()).collect::<Vec<_>>());
        }
        Ok(())
    });
}

/// COLL-3.9: calls of a smaller team have an order of their own.
#[test]
fn calls_of_a_smaller_team_are_not_compared_with_barriers() {
    everywhere(3, TwoMachines, |job| {
        let team = job.split(Some(u32::from(job.rank() == 2)), 0)?.ok_or("a team")?;
        let pending = (job.rank() == 0).then(|| team.start().all_reduce(&[1], Sum));
        if job.rank() == 2 {
            std::thread::sleep(std::time::Duration::from_millis(350));
        }
        job.barrier()?;
        let sum = match pending {
            Some(pending) => pending.wait()?,
            None => team.start().all_reduce(&[1], Sum).wait()?,
        };
        assert_eq!(sum, [team.size() as i32]);
        Ok(())
    });
}
