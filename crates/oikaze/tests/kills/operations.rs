//! One-sided operations and messages of every kind.

use oikaze::collective::operator::{Max, Sum};
use oikaze::completion::{Operation, Outcome};
use oikaze::memory::remote::RemoteRegion;
use oikaze::memory::{Block, LocalRegion, Region, RegionSlice};
use oikaze::message::{Class, RemoteFifo};
use oikaze::{Job, Peer, Result};

/// Name of an operation, and a function that waits for its end.
pub type Waits = (&'static str, Box<dyn FnOnce() -> Result<()>>);

/// Memory of this node, source and destination of operations.
pub struct Source(LocalRegion);

impl Source {
    pub fn new(job: &Job) -> Self {
        Self(job.register(Region::zeroed(1 << 20).expect("memory")).expect("room"))
    }

    pub fn part(&self, len: usize) -> RegionSlice {
        self.0.slice(0..len).expect("it is long enough")
    }
}

/// A peer and its published objects.
pub struct Target {
    pub peer: Peer,
    /// Region that local peers map where memory is shared.
    pub mapped: RemoteRegion,
    /// Region that is reached by messages.
    pub private: RemoteRegion,
    /// Region of pages that are exchanged.
    pub huge: RemoteRegion,
    pub queue: RemoteFifo,
}

impl Target {
    pub fn find(peer: &Peer) -> Result<Self> {
        let (mapped, private) = (peer.region("mapped")?, peer.region("private")?);
        let (huge, queue) = (peer.region("huge")?, peer.fifo("queue")?);
        Ok(Self { peer: peer.clone(), mapped, private, huge, queue })
    }

    /// Begins an operation, whose kind depends on `number`.
    pub fn begin(&self, number: u64, source: &Source) -> Waits {
        let Self { peer, private, queue, .. } = self;
        let there = if number & 1 == 0 { private } else { &self.mapped };
        let len = [0, 8, 1000, 5000, 40_000, 300_000][(number >> 8) as usize % 6];
        let part = || source.part(len);
        let rows = |len: u32| Block::new(65_536, len).rows(100, 3 * u64::from(len));
        match (number >> 1) % 20 {
            0 => waits("put", there.put(4096, part())),
            1 => waits("put of a copy", there.put_copy(64, &[5; 200]).expect("a small one")),
            2 => waits("put with a signal", there.put_signal(4096, part(), &private.signal(0, 1))),
            3 => waits(
                "put of a block",
                there
                    .put_block(rows(500), source.part(50_000), Block::new(0, 50_000))
                    .expect("a block"),
            ),
            4 => waits(
                "put of a list",
                there.put_list(&[(0, part()), (400_000, part()), (800_000, source.part(9))]),
            ),
            5 => waits("get", there.get(4096, part())),
            6 => waits(
                "get of a block",
                there
                    .get_block(rows(100), source.part(10_000), Block::new(0, 10_000))
                    .expect("a block"),
            ),
            7 => waits(
                "get of a list",
                there.get_list(&[(0, part()), (400_000, part()), (800_000, source.part(9))]),
            ),
            8 => waits("fetch-add", there.fetch_add(8, 1)),
            9 => waits("compare-and-swap", there.compare_exchange(16, 0, 1)),
            10 => waits("swap", there.word::<u32>(24).swap(9)),
            11 => waits("add", there.word::<u64>(32).add(1)),
            12 => waits(
                "accumulate",
                there.accumulate::<f64>(8000, Sum, part()).expect("whole numbers"),
            ),
            13 => waits(
                "accumulate of a copy",
                there.accumulate_copy(8000, Max, &[1u32; 50]).expect("a small one"),
            ),
            14 => waits("push", queue.post(b"an element")),
            15 => waits("ordered message", peer.send(Class::Ordered, number >> 2, &[1; 100])),
            16 => {
                waits("unordered message", peer.send(Class::Unordered, number >> 2, &vec![1; len]))
            }
            17 => waits("synchronous message", peer.send(Class::Sync, number >> 2, &[1; 10])),
            18 => {
                waits("message from a region", peer.send_from(Class::Ordered, number >> 2, part()))
            }
            _ => waits(
                "long message",
                peer.send_from(Class::Unordered, number >> 2, source.part(1 << 20)),
            ),
        }
    }
}

fn waits<T: Outcome + 'static>(what: &'static str, operation: Operation<T>) -> Waits {
    (what, Box::new(move || operation.wait().map(drop)))
}
