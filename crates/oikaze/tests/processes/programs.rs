//! Litmus shapes and random programs on real processes, with each tracker, delivery, transport,
//! way of exchange and class of updates. Loads return what some sequential execution would return
//! (COH-1.1, COH-10, COH-15.4).

use crate::cuts::cuts;
use crate::nodes::{PART, run_nodes};
use crate::ways::{ways_of_arrays, ways_of_part};
use oikaze::prelude::*;
use oikaze::shared::builder::{Delivery, Homes};
use oikaze_launch::Settings;
use oikaze_protocol::random::Random;
use std::ops::Range;
use std::time::Duration;

/// Time limit of each wait of a node.
const LIMIT: Duration = Duration::from_secs(30);
const NODES: u32 = 3;
/// Number of elements of a page.
const PAGE: usize = 512;
/// Mechanisms left out: with shared memory and without, with each way of tracking pages. If none is
/// left out, nodes of one machine map the memory of an array, and track no pages.
const WITHOUT: [&str; 5] = ["", "segment,uffd", "segment,uffd-full", "shm", "shm,uffd"];

/// Plays the part of a node that another test starts. Not a test by itself.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let (name, seed) = part.split_once(' ').unwrap();
    let seed = seed.parse().unwrap();
    let job = oikaze::join().unwrap();
    match name {
        "litmus" => litmus(&job, seed).unwrap(),
        "random" => random(&job, seed).unwrap(),
        other => panic!("no part {other}"),
    }
    job.leave().unwrap();
}

/// Runs a part on three processes with each tracker, transport and delivery, and with the
/// deliveries that the runtime chooses. The ways of exchange take turns.
fn everywhere(part: &str) {
    let settings = Settings { time_limit: Some(LIMIT), ..Settings::default() };
    let deliveries = Delivery::ALL.map(Delivery::name).into_iter().chain([""]);
    for (seed, delivery) in deliveries.enumerate() {
        for (more, without) in WITHOUT.into_iter().enumerate() {
            let class = Class::ALL[(seed + more) % Class::ALL.len()];
            let part = format!("{part} {}", seed * WITHOUT.len() + more);
            let ways = if without.is_empty() { ways_of_arrays } else { ways_of_part };
            for way in ways(seed + more) {
                run_nodes(NODES, ("programs::plays_its_part", &part), &settings, |rank| {
                    let mut variables = way.variables(rank, NODES, without);
                    variables.push(("OIKAZE_DELIVERY", delivery.to_owned()));
                    variables.push(("OIKAZE_UPDATE_CLASS", class.name().to_owned()));
                    variables
                });
            }
        }
    }
}

#[test]
fn litmus_shapes_have_no_forbidden_outcome() {
    everywhere("litmus");
}

#[test]
fn random_programs_equal_a_plain_vector() {
    everywhere("random");
}

/// Cells of the litmus shapes: x, y and z, on pages with different homes or on one page.
struct Cells {
    array: SharedArray<u64>,
    places: [usize; 3],
    lazily: bool,
}

impl Cells {
    fn store(&self, cell: usize, value: u64) -> oikaze::Result<()> {
        let place = self.places[cell]..self.places[cell] + 1;
        match self.lazily {
            true => self.array.write_lazily(place)?[0] = value,
            false => self.array.write_merged(place)?[0] = value,
        }
        Ok(())
    }

    fn load(&self, cell: usize) -> oikaze::Result<u64> {
        let place = self.places[cell]..self.places[cell] + 1;
        Ok(match self.lazily {
            true => self.array.read_lazily(place)?[0],
            false => self.array.read(place)?[0],
        })
    }
}

const X: usize = 0;
const Y: usize = 1;
const Z: usize = 2;

fn litmus(job: &Job, seed: u64) -> oikaze::Result<()> {
    for (shape, places) in
        [[0, 1, 2], [3, PAGE, 2 * PAGE + 7], [PAGE, 5, PAGE + 1]].iter().enumerate()
    {
        let name = format!("cells {shape}");
        let homes = Homes::Cyclic { pages: 1 };
        let array = job.array_with_homes::<u64>(&name, 3 * PAGE, homes)?;
        let cells =
            Cells { array, places: *places, lazily: (seed as usize + shape).is_multiple_of(2) };
        for round in 1..=12 {
            // The roles go round.
            let role = (job.rank() + round as u32) % NODES;
            message_passing(job, &cells, role, round)?;
            job.barrier()?;
            store_buffering(job, &cells, role, 100 + round)?;
            job.barrier()?;
            transitivity(job, &cells, role, 200 + round)?;
            job.barrier()?;
            notified(job, &cells, role, 300 + round)?;
            job.barrier()?;
        }
    }
    Ok(())
}

/// Two stores under one lock are seen together, or not at all.
fn message_passing(job: &Job, cells: &Cells, role: u32, value: u64) -> oikaze::Result<()> {
    let lock = job.lock(1)?;
    if role == 0 {
        cells.store(X, value)?;
        cells.store(Y, value)?;
    } else {
        let (y, x) = (cells.load(Y)?, cells.load(X)?);
        assert!(x == value || y != value, "message passing: y = {y}, and x = {x}");
    }
    lock.release()
}

/// Two nodes each store to a cell and then load the other one's. One of them sees the other.
fn store_buffering(job: &Job, cells: &Cells, role: u32, value: u64) -> oikaze::Result<()> {
    let mut seen = true;
    if role < 2 {
        let (mine, other) = if role == 0 { (X, Y) } else { (Y, X) };
        let lock = job.lock(10 + mine as u64)?;
        cells.store(mine, value)?;
        lock.release()?;
        let lock = job.lock(10 + other as u64)?;
        seen = cells.load(other)? == value;
        lock.release()?;
    }
    let seen = job.all_gather(&[(role, seen)].map(|(role, seen)| [role, u32::from(seen)]))?;
    let blind = seen.iter().filter(|[role, seen]| *role < 2 && *seen == 0).count();
    assert!(blind < 2, "store buffering: {seen:?}");
    Ok(())
}

/// A node passes on what it saw under one lock by way of another lock.
fn transitivity(job: &Job, cells: &Cells, role: u32, value: u64) -> oikaze::Result<()> {
    match role {
        0 => {
            cells.store(X, value)?;
            let lock = job.lock(1)?;
            cells.store(Y, value)?;
            lock.release()
        }
        1 => {
            let lock = job.lock(1)?;
            let has_seen = cells.load(Y)? == value;
            lock.release()?;
            let lock = job.lock(2)?;
            if has_seen {
                cells.store(Z, value)?;
            }
            lock.release()
        }
        _ => {
            let lock = job.lock(2)?;
            let has_seen = cells.load(Z)? == value;
            lock.release()?;
            // Without the locks of the others, the load of x would be a race.
            if has_seen {
                assert_eq!(cells.load(X)?, value, "transitivity");
            }
            Ok(())
        }
    }
}

/// Stores before a notification are seen after the wait, there and further on.
fn notified(job: &Job, cells: &Cells, role: u32, value: u64) -> oikaze::Result<()> {
    let (before, after) = ((job.rank() + NODES - 1) % NODES, (job.rank() + 1) % NODES);
    if role > 0 {
        job.wait_notify(before)?;
        let (x, y) = (cells.load(X)?, cells.load(Y)?);
        assert_eq!((x, y == value), (value, role == 2), "notified: y = {y}");
    }
    if role < 2 {
        cells.store(role as usize, value)?;
        job.notify(after)?;
    }
    Ok(())
}

/// An array and what it must hold.
struct Checked {
    array: SharedArray<u64>,
    expected: Vec<u64>,
    /// Plain loads and stores are used, too.
    is_plain: bool,
}

impl Checked {
    fn new(job: &Job, name: &str, is_plain: bool, homes: Homes) -> oikaze::Result<Checked> {
        let len = 5 * PAGE;
        let array = job.array_with_homes::<u64>(name, len, homes)?;
        Ok(Checked { array, expected: vec![0; len], is_plain })
    }

    /// Every node writes a part of its own. `common` draws the same on all nodes, `own` does not.
    fn write(
        &mut self,
        job: &Job,
        round: u64,
        common: &mut Random,
        own: &mut Random,
    ) -> oikaze::Result<()> {
        let is_sparse = common.below(3) == 0;
        let value = |place: usize| round << 32 | place as u64;
        for (rank, part) in (0..).zip(cuts(self.expected.len(), NODES, common)) {
            let places = part.clone().step_by(if is_sparse { 5 } else { 1 });
            if rank == job.rank() && !part.is_empty() {
                let start = part.start;
                let fill = |words: &mut [u64]| {
                    places.clone().for_each(|place| words[place - start] = value(place));
                };
                match own.below(4) {
                    0 if self.is_plain => fill(&mut self.array.write_lazily(part)?),
                    0 | 1 => fill(&mut self.array.write_merged(part)?),
                    2 => {
                        let mut guard = self.array.write(part)?;
                        fill(&mut guard);
                        guard.push_to(&[own.below(NODES as usize) as u32])?;
                    }
                    _ => fill(&mut self.array.write(part)?),
                }
            }
            places.for_each(|place| self.expected[place] = value(place));
        }
        Ok(())
    }

    fn check(&self, own: &mut Random, what: &str) -> oikaze::Result<()> {
        let mut part = || {
            let end = own.below(self.expected.len() + 1);
            own.below(end + 1)..end
        };
        let (one, other) = (part(), part());
        let is_right = |words: &[u64], part: &Range<usize>| {
            assert!(*words == self.expected[part.clone()], "{what}: {part:?}");
        };
        match own.below(5) {
            0 if self.is_plain => is_right(&self.array.read_lazily(one.clone())?, &one),
            0 | 1 => {
                self.array.prefetch(one.clone())?;
                is_right(&self.array.read(one.clone())?, &one);
            }
            2 => {
                let parts = [one, other];
                let guards = self.array.read_many(&parts)?;
                guards.iter().zip(&parts).for_each(|(words, part)| is_right(words, part));
            }
            3 => is_right(&self.array.get(one.clone())?, &one),
            _ => is_right(&self.array.read(one.clone())?, &one),
        }
        Ok(())
    }
}

fn random(job: &Job, seed: u64) -> oikaze::Result<()> {
    let (mut common, me) = (Random::new(seed), u64::from(job.rank()));
    let mut own = Random::new(seed ^ (me + 1) << 40);
    let homes = |n| if n == 0 { Homes::Block } else { Homes::Cyclic { pages: 1 } };
    let mut arrays = [
        Checked::new(job, "guarded", false, homes(common.below(2)))?,
        Checked::new(job, "plain", true, homes(common.below(2)))?,
    ];
    let counters = job.array::<u64>("counters", 4)?;
    let mut counted = [0; 4];
    for array in &arrays {
        let end = own.below(array.expected.len() + 1);
        array.array.subscribe(own.below(end + 1)..end)?;
    }
    job.barrier()?;
    for round in 1..=20 {
        let what = format!("seed {seed}, round {round}, node {me}");
        for array in &mut arrays {
            array.write(job, round, &mut common, &mut own)?;
        }
        // Every node counts as often as the common numbers say, in an order of its own.
        for rank in 0..u64::from(NODES) {
            for (counter, sum) in counted.iter_mut().enumerate() {
                let times = common.below(3) as u64;
                *sum += times;
                for _ in (0..times).filter(|_| rank == me) {
                    let lock = job.lock(counter as u64)?;
                    counters.write_merged(counter..counter + 1)?[0] += 1;
                    lock.release()?;
                }
            }
        }
        job.barrier()?;
        for array in &arrays {
            array.check(&mut own, &what)?;
        }
        assert_eq!(*counters.read(0..4)?, counted, "{what}");
        job.barrier()?;
    }
    Ok(())
}
