//! Pages that are evicted now and then, and return some time after an access (MEM-1.10).

use crate::random::Random;
use oikaze_os::memory::Disk;
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::time::Time;
use std::time::Duration;

/// Probability that pages of a region are evicted in a turn.
const EVICTED: f64 = 0.01;
/// Maximum number of pages that are evicted together.
const TOGETHER: u64 = 4;
/// Maximum time until a page returns, in nanoseconds.
const SEEK: u64 = 5_000_000;

/// Disks of one node.
#[derive(Debug, Default)]
pub(super) struct Disks {
    /// Disks, each with the number of pages of its region.
    disks: Vec<(Disk, u64)>,
    /// Pages that are being fetched: time, index of the disk, page.
    coming: Vec<(Time, usize, u64)>,
}

impl Disks {
    /// Adds the disk of a region of `len` bytes.
    pub fn add(&mut self, disk: Disk, len: usize) {
        self.disks.push((disk, len.div_ceil(PAGE) as u64));
    }

    /// Evicts and brings in pages until `now`, and returns the time when the next page comes.
    pub fn advance(&mut self, now: Time, random: &mut Random) -> Option<Time> {
        for (at, (disk, pages)) in self.disks.iter().enumerate() {
            if random.chance(EVICTED) {
                let first = random.below(*pages);
                disk.evict(first..(first + random.between(1, TOGETHER)).min(*pages));
            }
            for page in disk.take_wanted() {
                if !self.coming.iter().any(|(_, of, one)| (*of, *one) == (at, page)) {
                    self.coming.push((
                        now + Duration::from_nanos(random.spread(1_000, SEEK)),
                        at,
                        page,
                    ));
                }
            }
        }
        let disks = &self.disks;
        self.coming.retain(|(when, at, page)| {
            if *when <= now {
                disks[*at].0.bring(*page);
            }
            *when > now
        });
        self.coming.iter().map(|(when, _, _)| *when).min()
    }
}
