//! Random programs over one array, compared with a plain vector on every node. All nodes draw the
//! same steps from one seed: writes of blocks and ranges by guards of all kinds, operations at the
//! homes, other shapes and homes, files, and new arrays of the same name.

use super::cuts::cuts;
use super::files::Folder;
use crate::ways::ways_of_arrays;
use oikaze::prelude::*;
use oikaze::shared::block::ArrayBlock;
use oikaze::shared::builder::{Distribution, Homes};
use oikaze::shared::{Element, Shape};
use oikaze_protocol::random::{Random, mix};
use std::error::Error;
use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Time limit of each call, after which it hangs.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Element that a number determines.
trait Value: Element + PartialEq + Debug {
    fn of(number: u64) -> Self;

    /// Adds `number` to elements at their homes, if they are numbers. Returns the sums.
    fn add(_: &SharedArray<Self>, _: Range<usize>, _: u64) -> oikaze::Result<bool> {
        Ok(false)
    }

    fn plus(self, _: u64) -> Self {
        self
    }
}

impl Value for u64 {
    fn of(number: u64) -> Self {
        number
    }

    fn add(array: &SharedArray<Self>, range: Range<usize>, number: u64) -> oikaze::Result<bool> {
        array.accumulate(range.start, Sum, &vec![number; range.len()])?;
        Ok(true)
    }

    fn plus(self, number: u64) -> Self {
        self.wrapping_add(number)
    }
}

impl Value for u8 {
    fn of(number: u64) -> Self {
        number as u8
    }
}

impl Value for bool {
    fn of(number: u64) -> Self {
        number & 4 == 0
    }
}

/// An element that pages cut.
impl Value for [u32; 3] {
    fn of(number: u64) -> Self {
        [number as u32, (number >> 32) as u32, !number as u32]
    }
}

struct Program<'a, T: Value, const N: usize> {
    job: &'a Job,
    array: SharedArray<T>,
    expected: Vec<T>,
    shape: [usize; N],
    /// Equal on all nodes.
    common: Random,
    /// This node's own.
    own: Random,
    file: &'a Path,
}

fn shape<const N: usize>(random: &mut Random) -> [usize; N] {
    let longest = [20_000, 150, 30, 12][N - 1];
    [(); N].map(|()| if random.below(12) == 0 { 0 } else { 1 + random.below(longest) })
}

fn distribution<const N: usize>(
    shape: [usize; N],
    nodes: u32,
    random: &mut Random,
) -> Distribution {
    let axis = random.below(N);
    match random.below(5) {
        0 => Distribution::Pages(Homes::Block),
        1 => Distribution::Pages(Homes::Cyclic { pages: 1 + random.below(3) as u64 }),
        2 => Distribution::Cyclic { axis, indices: 1 + random.below(4) },
        3 => {
            let owners = (0..shape[axis]).map(|_| random.below(nodes as usize) as u32);
            Distribution::Explicit { axis, owners: owners.collect() }
        }
        _ => Distribution::Block { axis },
    }
}

impl<T: Value, const N: usize> Program<'_, T, N>
where
    [usize; N]: Shape,
{
    /// Returns the places of a block's elements in row-major order.
    fn places(&self, block: &ArrayBlock) -> Vec<usize> {
        let mut places = vec![0];
        for axis in 0..N {
            let along = |place: usize| {
                block.range(axis).map(move |index| (place, index)).collect::<Vec<_>>()
            };
            let extent = self.shape[axis];
            let next = places.into_iter().flat_map(along);
            places = next.map(|(place, index)| place * extent + index).collect();
        }
        places
    }

    fn value(&self, step: u64, place: usize) -> T {
        T::of(mix(step << 32 | place as u64))
    }

    /// Cuts the array along a random axis into a block for each node.
    fn blocks(&mut self) -> oikaze::Result<Vec<ArrayBlock>> {
        let axis = self.common.below(N);
        let parts = cuts(self.shape[axis], self.job.size(), &mut self.common);
        let whole = self.shape.map(|extent| 0..extent);
        let block = |part: &Range<usize>| {
            let mut ranges = whole.clone();
            ranges[axis] = part.clone();
            self.array.block(ranges)
        };
        parts.iter().map(block).collect()
    }

    fn write_blocks(&mut self, step: u64, is_merged: bool) -> oikaze::Result<()> {
        let is_changed = |place: usize| !is_merged || (place as u64 + step).is_multiple_of(3);
        for (rank, block) in (0..).zip(self.blocks()?) {
            let places = self.places(&block);
            if rank == self.job.rank() {
                let mut guard = match is_merged {
                    true => self.array.write_merged(block)?,
                    false => self.array.write(block)?,
                };
                for (element, place) in guard.iter_mut().zip(&places) {
                    if is_changed(*place) {
                        *element = self.value(step, *place);
                    }
                }
                if !is_merged && self.own.below(3) == 0 {
                    let to = self.own.below(self.job.size() as usize) as u32;
                    guard.push_to(&[to])?;
                }
            }
            for place in places.into_iter().filter(|place| is_changed(*place)) {
                self.expected[place] = self.value(step, place);
            }
        }
        Ok(())
    }

    fn write_ranges(&mut self, step: u64, kind: usize) -> oikaze::Result<()> {
        let parts = cuts(self.expected.len(), self.job.size(), &mut self.common);
        for (rank, part) in (0..).zip(parts) {
            let values: Vec<T> = part.clone().map(|place| self.value(step, place)).collect();
            if rank == self.job.rank() {
                match kind {
                    0 => self.array.write(part.clone())?.copy_from_slice(&values),
                    1 => self.array.write_lazily(part.clone())?.copy_from_slice(&values),
                    _ => self.array.put(part.start, &values)?,
                }
            }
            self.expected[part].copy_from_slice(&values);
        }
        Ok(())
    }

    /// Gives the array another shape, as a resize does.
    fn resize(&mut self) -> oikaze::Result<()> {
        let (old, new) = (self.shape, shape(&mut self.common));
        if let Err(why) = self.array.resize(new) {
            // A list of owners fits no other extent.
            assert!(why.to_string().contains("owners for the"), "{why}");
            return Ok(());
        }
        let mut expected = vec![T::zeroed_value(); new.iter().product()];
        let whole = self.array.whole();
        self.shape = new;
        for place in self.places(&whole) {
            let (mut rest, mut index) = (place, [0; N]);
            for axis in (0..N).rev() {
                index[axis] = rest % new[axis];
                rest /= new[axis];
            }
            if (0..N).all(|axis| index[axis] < old[axis]) {
                let from = (0..N).fold(0, |from, axis| from * old[axis] + index[axis]);
                expected[place] = self.expected[from];
            }
        }
        self.expected = expected;
        Ok(())
    }

    fn step(&mut self, step: u64) -> oikaze::Result<()> {
        let nodes = self.job.size();
        match self.common.below(14) {
            0..3 => self.write_blocks(step, false)?,
            3 => self.write_blocks(step, true)?,
            4..6 => self.write_ranges(step, 0)?,
            6 => self.write_ranges(step, 1)?,
            7 => self.write_ranges(step, 2)?,
            8 => {
                let end = self.common.below(self.expected.len() + 1);
                let range = self.common.below(end + 1)..end;
                if T::add(&self.array, range.clone(), step)? {
                    let sum = step * u64::from(nodes);
                    self.expected[range].iter_mut().for_each(|old| *old = old.plus(sum));
                }
            }
            9 => {
                let value = self.value(step, 0);
                self.array.fill(value)?;
                self.expected.fill(value);
            }
            10 => self.resize()?,
            11 => {
                let distribution = distribution(self.shape, nodes, &mut self.common);
                self.array.redistribute(distribution)?;
            }
            12 => {
                self.array.save(self.file)?;
                self.array.fill(T::of(step))?;
                self.array.load(self.file)?;
            }
            _ => {
                let shape = shape(&mut self.common);
                let distribution = distribution(shape, nodes, &mut self.common);
                let make = |name: &str| {
                    let builder = self.job.array_builder::<T>(name, shape);
                    builder.distribution(distribution.clone()).build()
                };
                let other = make("other")?;
                let old = std::mem::replace(&mut self.array, other);
                if self.common.below(2) == 0 {
                    old.free()?
                } else {
                    drop(old)
                }
                self.array = make("array")?;
                self.shape = shape;
                self.expected = vec![T::zeroed_value(); shape.iter().product()];
            }
        }
        self.job.barrier()
    }

    /// Compares random parts, in each way of reading.
    fn check(&mut self, what: &str) -> oikaze::Result<()> {
        for _ in 0..3 {
            let ranges = self.shape.map(|extent| {
                let end = self.own.below(extent + 1);
                self.own.below(end + 1)..end
            });
            let block = self.array.block(ranges)?;
            if self.own.below(4) == 0 {
                self.array.halo(block, 1)?;
            }
            let guard = self.array.read(block)?;
            let expected = self.places(&block).into_iter().map(|place| self.expected[place]);
            assert!(guard.iter().copied().eq(expected), "{what}: block {block:?}");
            drop(guard);
            let end = self.own.below(self.expected.len() + 1);
            let range = self.own.below(end + 1)..end;
            let expected = &self.expected[range.clone()];
            match self.own.below(4) {
                0 => assert!(self.array.get(range.clone())? == expected, "{what}: get {range:?}"),
                1 => {
                    let guard = self.array.read_lazily(range.clone())?;
                    assert!(guard[..] == *expected, "{what}: lazily {range:?}");
                }
                _ => {
                    let guard = self.array.read(range.clone())?;
                    assert!(guard[..] == *expected, "{what}: range {range:?}");
                }
            }
        }
        self.job.barrier() // before anybody writes again
    }
}

trait Zeroed {
    fn zeroed_value() -> Self;
}

impl<T: Value> Zeroed for T {
    /// Returns the element whose bytes are zero.
    fn zeroed_value() -> Self {
        let zeroes = vec![0; size_of::<T>()];
        bytemuck::checked::pod_read_unaligned(&zeroes)
    }
}

fn run<T: Value, const N: usize>(nodes: u32, seed: u64, steps: u64)
where
    [usize; N]: Shape,
{
    let folder = Folder::new(&format!("random-{}-{N}-{seed}", std::any::type_name::<T>()));
    let file = folder.0.join(if seed.is_multiple_of(2) { "a.npy" } else { "a.raw" });
    let run = |job: &Job| -> Result<(), Box<dyn Error>> {
        let mut common = Random::new(seed);
        let shape = shape(&mut common);
        let distribution = distribution(shape, nodes, &mut common);
        let array = job.array_builder("array", shape).distribution(distribution).build()?;
        let expected = vec![T::zeroed_value(); shape.iter().product()];
        let own = Random::new(seed ^ u64::from(job.rank() + 1) << 40);
        let mut program = Program { job, array, expected, shape, common, own, file: &file };
        for step in 1..=steps {
            let what = format!("seed {seed}, {nodes} nodes, step {step}");
            program.step(step).map_err(|why| format!("{what}: {why}"))?;
            program.check(&what)?;
        }
        Ok(())
    };
    for way in ways_of_arrays(seed as usize + N) {
        way.run(nodes, &Job::builder().time_limit(CALL_LIMIT), run);
    }
}

/// Programs of each number of dimensions and each kind of element. OIKAZE_ARRAY_SEEDS is a number
/// of seeds for each.
#[test]
fn random_programs_equal_a_plain_vector() {
    let seeds = std::env::var("OIKAZE_ARRAY_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..seeds.unwrap_or(1) {
        for nodes in [1, 2, 4] {
            let seed = seed * 10 + u64::from(nodes);
            run::<u64, 1>(nodes, seed, 30);
            run::<[u32; 3], 2>(nodes, seed, 30);
            run::<u8, 3>(nodes, seed, 30);
            run::<bool, 4>(nodes, seed, 30);
            run::<u64, 2>(nodes, seed, 30);
        }
    }
}
