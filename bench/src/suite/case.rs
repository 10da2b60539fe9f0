//! Cases that the benches measure, with their sizes and their figures.

/// Test that a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    MessageLatency,
    FirstMessages,
    PutLatency,
    PutDone,
    PutBandwidth,
    MessageBandwidth,
    MessageRate,
    Mixed,
    Passive,
    Processor,
    Flood,
    GetLatency,
    GetBandwidth,
    FetchAdd,
    CompareSwap,
    Strided,
    Accumulate,
    Fifo,
    Consecutive,
    Placed,
}

named! {
    /// Result of a test: one number, under a name of its own.
    pub enum Figure {
        /// Half the time of a ping-pong of messages.
        MessageLat = "message_lat",
        /// `message_lat` of the first messages of two nodes or sockets.
        FirstLat = "first_lat",
        /// Half the time of a put and the answering put, each seen by polling memory.
        PutLat = "put_lat",
        /// Time of a put, from the call to its completion.
        PutDone = "put_done",
        /// Bandwidth of puts in flight, which walk through cold memory.
        PutBw = "put_bw",
        /// Bandwidth of messages in flight, from cold memory.
        MessageBw = "message_bw",
        /// Number of small messages a second.
        MessageRate = "message_rate",
        /// `put_lat` while bulk puts go one way: the median.
        MixedLat = "mixed_lat",
        /// `put_lat` while bulk puts go one way: the 99th percentile.
        MixedLatP99 = "mixed_lat_p99",
        /// Bandwidth of the bulk puts of `mixed_lat`.
        MixedBw = "mixed_bw",
        /// `put_lat` without bulk puts, in the job of `mixed_lat`.
        MixedIdleLat = "mixed_idle_lat",
        /// Bandwidth of the bulk puts alone, in the job of `mixed_lat`.
        MixedAloneBw = "mixed_alone_bw",
        /// `put_done` to a node that computes on its only core and does not call Oikaze.
        Passive = "passive",
        /// `put_done` to a node that waits, in the job of `passive`.
        PassiveDriven = "passive_driven",
        /// Processor seconds for a GiB: user and system time of both sides.
        Cpu = "cpu",
        /// `put_bw` while an attacker floods the receiving node's port with garbage.
        FloodBw = "flood_bw",
        /// `put_bw` while the same flood goes to another port of the same host.
        FloodElsewhereBw = "flood_elsewhere_bw",
        /// `put_bw` without a flood, in the same case.
        FloodAloneBw = "flood_alone_bw",
        /// Time of a get, from the call to its completion.
        GetLat = "get_lat",
        /// Bandwidth of gets in flight, which walk through cold memory.
        GetBw = "get_bw",
        /// Time of a fetch-add of a word, from the call until its old value is known.
        FetchAdd = "fetch_add",
        /// Time of a compare-and-swap of a word, from the call until its old value is known.
        CompareSwap = "compare_swap",
        /// Bandwidth of puts of blocks of rows, which walk through cold memory. The size is that of
        /// a block's payload.
        Strided = "strided",
        /// Bandwidth of doubles that are added to arrays.
        Accumulate = "accumulate",
        /// Number of elements a second that nodes push into a queue of another node.
        Fifo = "fifo",
        /// `put_lat` of a header of 32 bytes and the data at once.
        ConsecutiveLat = "consecutive_lat",
        /// Time of a put, from the call to its completion, if the kernel receives its bytes
        /// directly into their place.
        Placed = "placed",
        /// Time of the same put, if its bytes are received elsewhere and copied.
        PlacedCopy = "placed_copy",
        /// Processor seconds of the receiver for a GiB of the puts of `placed`.
        PlacedCpu = "placed_cpu",
        /// Processor seconds of the receiver for a GiB of the puts of `placed_copy`.
        PlacedCopyCpu = "placed_copy_cpu",
    }
}

impl Figure {
    /// Returns the unit, which is the same for all systems.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::PutBw | Self::MessageBw | Self::MixedBw | Self::MixedAloneBw => "GB/s",
            Self::FloodBw | Self::FloodElsewhereBw | Self::FloodAloneBw => "GB/s",
            Self::GetBw | Self::Strided | Self::Accumulate => "GB/s",
            Self::MessageRate | Self::Fifo => "M/s",
            Self::Cpu | Self::PlacedCpu | Self::PlacedCopyCpu => "s/GiB",
            _ => "us",
        }
    }

    /// Returns the test that yields this figure.
    const fn test(self) -> Test {
        match self {
            Self::MessageLat => Test::MessageLatency,
            Self::FirstLat => Test::FirstMessages,
            Self::PutLat => Test::PutLatency,
            Self::PutDone => Test::PutDone,
            Self::PutBw => Test::PutBandwidth,
            Self::MessageBw => Test::MessageBandwidth,
            Self::MessageRate => Test::MessageRate,
            Self::MixedLat
            | Self::MixedLatP99
            | Self::MixedBw
            | Self::MixedIdleLat
            | Self::MixedAloneBw => Test::Mixed,
            Self::Passive | Self::PassiveDriven => Test::Passive,
            Self::Cpu => Test::Processor,
            Self::FloodBw | Self::FloodElsewhereBw | Self::FloodAloneBw => Test::Flood,
            Self::GetLat => Test::GetLatency,
            Self::GetBw => Test::GetBandwidth,
            Self::FetchAdd => Test::FetchAdd,
            Self::CompareSwap => Test::CompareSwap,
            Self::Strided => Test::Strided,
            Self::Accumulate => Test::Accumulate,
            Self::Fifo => Test::Fifo,
            Self::ConsecutiveLat => Test::Consecutive,
            Self::Placed | Self::PlacedCopy | Self::PlacedCpu | Self::PlacedCopyCpu => Test::Placed,
        }
    }
}

/// A test at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    pub test: Test,
    /// Size in bytes.
    pub size: usize,
}

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

/// Test, size in bytes, and the wires on which a quick bench runs it.
pub type Choice = (Test, usize, Quick);

/// Wires on which a quick bench runs a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quick {
    Everywhere,
    /// Runs only with jumbo frames.
    Jumbo,
    /// Runs only if the user asks for it.
    Never,
}

/// Selects the cases to be run on a wire. An empty list of figures or sizes stands for all of them.
pub fn chosen(
    all: &[Choice],
    figures: &[Figure],
    sizes: &[usize],
    mtu: u16,
    quick: bool,
) -> Vec<Case> {
    let asked = !figures.is_empty();
    let wanted = |test| !asked || figures.iter().any(|figure| figure.test() == test);
    let by_quick = |choice| match choice {
        Quick::Everywhere => true,
        Quick::Jumbo => mtu > 1500 || asked,
        Quick::Never => !sizes.is_empty(),
    };
    let cases = all.iter().filter(|&&(test, size, choice)| {
        wanted(test) && (sizes.is_empty() || sizes.contains(&size)) && (!quick || by_quick(choice))
    });
    cases.map(|&(test, size, _)| Case { test, size }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_run() {
        let all = [
            (Test::MessageLatency, 8, Quick::Everywhere),
            (Test::PutBandwidth, 64 * MIB, Quick::Never),
            (Test::Mixed, 8, Quick::Jumbo),
        ];
        let of = |figures: &[Figure], sizes: &[usize], mtu, quick| {
            chosen(&all, figures, sizes, mtu, quick).len()
        };
        assert_eq!(of(&[], &[], 9000, false), all.len());
        assert_eq!(of(&[], &[], 1500, true), 1);
        assert_eq!(of(&[Figure::MixedLatP99, Figure::MixedBw], &[], 9000, true), 1);
        assert_eq!(of(&[Figure::MixedLat], &[], 1500, true), 1);
        assert_eq!(
            chosen(&all, &[Figure::PutBw], &[64 * MIB], 9000, true),
            [Case { test: Test::PutBandwidth, size: 64 * MIB }]
        );
    }
}
