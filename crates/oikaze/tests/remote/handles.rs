//! An interface as a C binding would have it: calls with numbers only, which cover all operations
//! on remote memory.

use crate::support::{cluster, over_the_network};
use oikaze::Job;
use oikaze::atomic::Combine;
use oikaze::completion::{CompletionQueue, Counter, Operation};
use oikaze::ffi::{Accumulation, AtomicOp, Change, Handle, NumberKind, RegionId, Width};
use oikaze::memory::remote::{RemoteId, RemoteRegion};
use oikaze::memory::{Block, LocalRegion, Region, RegionSlice, Rights, page_size};
use oikaze::message::{Class, Fifo, RemoteFifo};
use oikaze_launch::Settings;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const LEN: usize = 1 << 16;

/// Interface to a job as C would have it: only numbers.
struct Face<'j>(&'j Job);

impl Face<'_> {
    fn keep(&self, operation: Operation<impl oikaze::completion::Outcome>) -> u64 {
        self.0.keep(operation.into_bits()).unwrap().to_bits()
    }

    fn here(&self, region: u64) -> LocalRegion {
        self.0.region(RegionId::from_bits(region)).unwrap()
    }

    fn there(&self, region: u64) -> std::sync::Arc<RemoteRegion> {
        self.0.kept(Handle::from_bits(region)).unwrap()
    }

    fn put(&self, there: u64, offset: u64, here: u64, at: usize, len: usize) -> u64 {
        self.keep(self.there(there).put(offset, self.here(here).slice(at..at + len).unwrap()))
    }

    fn get(&self, there: u64, offset: u64, here: u64, at: usize, len: usize) -> u64 {
        self.keep(self.there(there).get(offset, self.here(here).slice(at..at + len).unwrap()))
    }

    /// Puts bytes and adds one to the word that counts arrivals.
    fn put_signal(
        &self,
        there: u64,
        offset: u64,
        here: u64,
        at: usize,
        len: usize,
        word: u64,
    ) -> u64 {
        let there = self.there(there);
        self.keep(there.put_signal(
            offset,
            self.here(here).slice(at..at + len).unwrap(),
            &there.signal(word, 1),
        ))
    }

    /// Puts rows of `row` bytes, a stride apart.
    fn put_block(
        &self,
        there: u64,
        offset: u64,
        here: u64,
        row: u32,
        rows: u32,
        stride: u64,
    ) -> u64 {
        let block = |at| Block::new(at, row).rows(rows, stride);
        self.keep(
            self.there(there).put_block(block(offset), self.here(here).all(), block(0)).unwrap(),
        )
    }

    /// Gets planes of rows, given by numbers: bytes of a row, rows and their stride, planes and
    /// their stride.
    fn get_block(
        &self,
        there: u64,
        offset: u64,
        here: u64,
        at: u64,
        [row, rows, stride, planes, plane]: [u64; 5],
    ) -> u64 {
        let block =
            |at| Block::new(at, row as u32).rows(rows as u32, stride).planes(planes as u32, plane);
        self.keep(
            self.there(there).get_block(block(offset), self.here(here).all(), block(at)).unwrap(),
        )
    }

    fn put_list(&self, there: u64, here: u64, list: &[[u64; 3]]) -> u64 {
        self.keep(self.there(there).put_list(&self.list(here, list)))
    }

    fn get_list(&self, there: u64, here: u64, list: &[[u64; 3]]) -> u64 {
        self.keep(self.there(there).get_list(&self.list(here, list)))
    }

    /// Resolves a list of ranges, each given as the offset there, the offset here and the length.
    fn list(&self, here: u64, list: &[[u64; 3]]) -> Vec<(u64, RegionSlice)> {
        let here = self.here(here);
        list.iter()
            .map(|&[offset, at, len]| {
                (offset, here.slice(at as usize..(at + len) as usize).unwrap())
            })
            .collect()
    }

    /// Exchanges pages of a peer's region with pages of a region of this node.
    fn exchange(&self, there: u64, offset: u64, here: u64, at: u64, pages: u64) {
        self.there(there).exchange(offset, &self.here(here), at, pages).unwrap();
    }

    /// Exchanges pages of two regions of this node.
    fn exchange_here(&self, one: [u64; 2], other: [u64; 2], pages: u64) {
        self.0.exchange(&self.here(one[0]), one[1], &self.here(other[0]), other[1], pages).unwrap();
    }

    fn move_pages(&self, from: [u64; 2], to: [u64; 2], pages: u64) {
        self.0.move_pages(&self.here(from[0]), from[1], &self.here(to[0]), to[1], pages).unwrap();
    }

    fn fetch_add(&self, there: u64, offset: u64, bits: u32, add: u64) -> u64 {
        let width = if bits == 32 { Width::W32 } else { Width::W64 };
        self.keep(self.there(there).change(offset, AtomicOp::new(width, Change::Add(add)), true))
    }

    fn accumulate(
        &self,
        there: u64,
        offset: u64,
        element: NumberKind,
        here: u64,
        at: usize,
        len: usize,
    ) -> u64 {
        let how = Accumulation { element, combine: Combine::Sum };
        self.keep(
            self.there(there)
                .accumulate_as(offset, how, self.here(here).slice(at..at + len).unwrap())
                .unwrap(),
        )
    }

    fn push(&self, fifo: u64, element: &[u8]) -> u64 {
        self.keep(self.0.kept::<RemoteFifo>(Handle::from_bits(fifo)).unwrap().post(element))
    }

    fn pop(&self, fifo: u64) -> Vec<u8> {
        let mut element = Vec::new();
        self.0
            .kept::<Fifo>(Handle::from_bits(fifo))
            .unwrap()
            .pop_for(&mut element, PATIENCE)
            .unwrap();
        element
    }

    /// Waits for an operation and releases its handle, as `MPI_Wait` does.
    fn wait(&self, operation: u64) -> u64 {
        let handle = Handle::from_bits(operation);
        let value = self.0.kept::<Operation<u64>>(handle).unwrap().wait_for(PATIENCE).unwrap();
        self.0.release(handle).unwrap();
        value
    }
}

fn words(region: &Region, at: u64, count: u64) -> Vec<u64> {
    (0..count).map(|n| region.load_u64(at + 8 * n).unwrap()).collect()
}

/// MEM-19.1, MEM-19.3: through the network, through rings, and with mapped memory.
#[test]
fn everything_can_be_done_by_numbers() {
    for (settings, shared) in [
        (over_the_network(&Settings::default()), false),
        (Settings::default(), false),
        (Settings::default(), true),
    ] {
        cluster(2, &settings, |job| everything(&job, shared));
    }
}

fn everything(job: &Job, shared: bool) {
    let face = Face(job);
    let other = 1 - job.rank();
    let memory =
        || if shared { Region::shared(LEN).unwrap() } else { Region::zeroed(LEN).unwrap() };
    // From here on, C has only numbers. The regions stay registered because the job keeps them.
    let source = job.register(memory()).unwrap();
    let inbox = job.expose(memory(), Rights::ALL).unwrap();
    let fifo = job.fifo("queue", 16, 64).unwrap();
    let (here, target) = (source.id().to_bits(), inbox.id().to_bits());
    let ids = [inbox.remote_id().to_bytes(), fifo.remote_id().to_bytes()].concat();
    let kept = [job.keep(source).unwrap(), job.keep(inbox).unwrap(), job.keep(fifo).unwrap()];
    let mine = kept[2].to_bits();
    job.peer(other).unwrap().send(Class::Ordered, 0, &ids).wait_for(PATIENCE).unwrap();
    let told = job.receive_for(Some(other), PATIENCE).unwrap();
    let (region, queue) = told.bytes().split_at(RemoteId::BYTES);
    let there = job.remote(RemoteId::from_bytes(region).unwrap()).unwrap().mapped();
    let there = job.keep(there).unwrap().to_bits();
    let pushes =
        job.keep(job.remote_fifo(RemoteId::from_bytes(queue).unwrap()).unwrap()).unwrap().to_bits();

    face.here(here).store_u64(0, 11).unwrap();
    face.here(here).store_u64(8, 22).unwrap();
    face.wait(face.put(there, 64, here, 0, 16));
    face.wait(face.put_list(there, here, &[[128, 0, 8], [256, 8, 8]]));
    face.wait(face.put_block(there, 512, here, 8, 2, 8));
    face.wait(face.accumulate(there, 64, NumberKind::U64, here, 0, 16));
    assert_eq!(face.wait(face.fetch_add(there, 72, 64, 5)), 44);
    assert_eq!(face.wait(face.fetch_add(there, 72, 32, 1)), 49);
    face.wait(face.get(there, 64, here, 1024, 16));
    assert_eq!(words(&face.here(here), 1024, 2), [22, 50]);
    face.wait(face.push(pushes, b"by number"));
    // A fence, and a signal behind it.
    job.peer(other).unwrap().fence();
    face.wait(face.put_signal(there, 2048, here, 0, 8, 0));
    face.here(target).wait_until_for(0, PATIENCE, |word| word == 1).unwrap();
    let expected = [(64, 22), (72, 50), (128, 11), (256, 22), (512, 11), (520, 22), (2048, 11)];
    expected.iter().for_each(|(at, word)| {
        assert_eq!(face.here(target).load_u64(*at).unwrap(), *word, "at {at}")
    });
    assert_eq!(face.pop(mine), b"by number");
    // Gets the bytes back, in pieces and in rows.
    face.wait(face.get_list(there, here, &[[128, 1040, 8], [64, 1048, 8]]));
    assert_eq!(words(&face.here(here), 1040, 2), [11, 22]);
    face.wait(face.get_block(there, 64, here, 1280, [8, 2, 64, 2, 448]));
    assert_eq!(
        [1280, 1344, 1728, 1792].map(|at| face.here(here).load_u64(at).unwrap()),
        [22, 11, 11, 0]
    );
    pages_change_place(&face, there, here, target);

    // Completions are reported by numbers, too.
    let (queue, counter) =
        (job.keep(job.completion_queue()).unwrap(), job.keep(job.counter()).unwrap());
    // These words are not in the page that is exchanged over there, perhaps only now.
    let (told, counted) = (face.fetch_add(there, 3072, 64, 7), face.fetch_add(there, 3072, 64, 7));
    let (queue, counter) =
        (job.kept::<CompletionQueue>(queue).unwrap(), job.kept::<Counter>(counter).unwrap());
    job.kept::<Operation<u64>>(Handle::from_bits(told)).unwrap().report_to(&queue, told).unwrap();
    job.kept::<Operation<u64>>(Handle::from_bits(counted)).unwrap().count_in(&counter).unwrap();
    let mut ended = Vec::new();
    queue.wait_for(1, PATIENCE, &mut ended).unwrap();
    assert_eq!(ended.pop().map(|one| one.context), Some(told));
    counter.wait_for(1, PATIENCE).unwrap();
    [told, counted].into_iter().for_each(|operation| _ = face.wait(operation));
    job.barrier().unwrap();
}

/// Exchanges pages within the node, and with the other node.
fn pages_change_place(face: &Face, there: u64, here: u64, target: u64) {
    let (page, rank) = (page_size() as u64, u64::from(face.0.rank()));
    face.0.barrier().unwrap();
    face.exchange_here([here, 0], [target, 2 * page], 1);
    assert_eq!(words(&face.here(target), 2 * page, 2), [11, 22]);
    face.move_pages([target, 2 * page], [here, 0], 1);
    assert_eq!(words(&face.here(here), 0, 2), [11, 22]);
    // Each node exchanges its own range of the other node's region.
    let (mine, others) = ((3 + rank) * page, (4 - rank) * page);
    face.here(target).store_u64(others, 100 + rank).unwrap();
    face.0.barrier().unwrap();
    face.exchange(there, mine, here, 0, 1);
    assert_eq!(words(&face.here(here), 0, 2), [101 - rank, 0]);
    face.0.barrier().unwrap();
    assert_eq!(words(&face.here(target), others, 2), [11, 22]);
}

/// MEM-19.3: the program lends memory, as [`Region::lent`] lends the result of `malloc`. Peers and
/// local operations reach the memory, and the program gets it back.
#[test]
fn memory_of_another_language_is_registered_where_it_lies() {
    for settings in [over_the_network(&Settings::default()), Settings::default()] {
        cluster(2, &settings, |job| {
            let mut memory = vec![0_u64; LEN / 8];
            oikaze_os::memory::with_borrowed_mut(bytemuck::cast_slice_mut(&mut memory), |lent| {
                let inbox =
                    job.publish(&format!("of {}", job.rank()), lent.clone(), Rights::ALL).unwrap();
                job.barrier().unwrap();
                let there = job
                    .peer(1 - job.rank())
                    .unwrap()
                    .region(&format!("of {}", 1 - job.rank()))
                    .unwrap();
                inbox.store_u64(8, 40 + u64::from(job.rank())).unwrap();
                there.put(LEN as u64 / 2, inbox.slice(8..16).unwrap()).wait().unwrap();
                there.fetch_add(0, 7).wait().unwrap();
                job.barrier().unwrap();
                inbox.deregister().unwrap().end_loan();
                assert!(lent.load_u64(0).is_err(), "it is the program's again");
            });
            assert_eq!(
                [memory[0], memory[1], memory[LEN / 16]],
                [7, 40 + u64::from(job.rank()), 41 - u64::from(job.rank())]
            );
            job.barrier().unwrap();
        });
    }
}

/// MEM-19.2: a number that is not a valid handle is refused with the reason.
#[test]
fn what_a_handle_does_not_mean_is_refused() {
    cluster(1, &Settings::default(), |job| {
        let said = |result: oikaze::Result<()>| result.unwrap_err().to_string();
        let region = job.expose(Region::zeroed(4096).unwrap(), Rights::ALL).unwrap();
        let id = region.id();
        let there = job.remote(region.remote_id()).unwrap();
        let operation = job.keep(there.fetch_add(0, 1).into_bits()).unwrap();
        let text = said(job.kept::<Counter>(operation).map(drop));
        assert!(text.contains("the counter of handle"), "{text}");
        assert!(text.contains("another kind: operation"), "{text}");
        job.kept::<Operation<u64>>(operation).unwrap().wait_for(PATIENCE).unwrap();
        job.release(operation).unwrap();
        for stale in [operation, Handle::from_bits(0), Handle::from_bits(u64::MAX)] {
            let text = said(job.kept::<Operation<u64>>(stale).map(drop));
            assert!(text.contains("it was released"), "{text}");
            assert!(job.release(stale).is_err());
        }
        // A region stays registered while it is kept, and its number finds it until then.
        let kept = job.keep(region).unwrap();
        assert_eq!(job.region(id).unwrap().len(), 4096);
        job.release(kept).unwrap();
        assert!(said(job.region(id).map(drop)).contains("not registered any more"));
        // An operation goes on after its handle was released.
        let region = job.expose(Region::zeroed(4096).unwrap(), Rights::ALL).unwrap();
        let there = job.remote(region.remote_id()).unwrap();
        let put = job.keep(there.put_copy(0, &[7]).unwrap().into_bits()).unwrap();
        job.release(put).unwrap();
        job.flush().unwrap();
        let mut byte = [0];
        region.read(0, &mut byte).unwrap();
        assert_eq!(byte, [7]);
    });
}
