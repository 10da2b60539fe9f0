//! Cases that the benches measure, with their sizes and their figures.

use clap::ValueEnum;

/// Test that a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    MessageLatency,
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

/// Result of a test: one number, under a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Figure {
    /// Half a ping-pong of messages.
    MessageLat,
    /// Half of a put and the answering put, each seen by polling memory.
    PutLat,
    /// A put, from the call to its completion.
    PutDone,
    /// Puts in flight, walking through cold memory.
    PutBw,
    /// Messages in flight, from cold memory.
    MessageBw,
    /// Small messages a second.
    MessageRate,
    /// `put_lat` while bulk goes one way: the median.
    MixedLat,
    /// The same: 99 of 100 are faster.
    MixedLatP99,
    /// The bulk meanwhile.
    MixedBw,
    /// The same exchange without bulk, in the same job.
    MixedIdleLat,
    /// The same bulk without exchange, in the same job.
    MixedAloneBw,
    /// `put_done` to a node that computes on its only core and does not call.
    Passive,
    /// The same to a node that waits, in the same job.
    PassiveDriven,
    /// Processor seconds, both sides, user and system, for a GiB.
    Cpu,
    /// `put_bw` while somebody floods the receiving node's port with garbage.
    FloodBw,
    /// The same while the same flood goes to another port of the same host.
    FloodElsewhereBw,
    /// The same without a flood.
    FloodAloneBw,
    /// A get, from the call to its completion.
    GetLat,
    /// Gets in flight, walking through cold memory.
    GetBw,
    /// A fetch-add of a word, from the call until its old value is known.
    FetchAdd,
    /// A compare-and-swap of a word, the same.
    CompareSwap,
    /// Puts of blocks of rows in flight, walking through cold memory; the size is that of a block's
    /// payload.
    Strided,
    /// Doubles added to arrays in flight.
    Accumulate,
    /// Elements pushed into a queue of another node, a second, from two nodes.
    Fifo,
    /// As `put_lat`, of a header of 32 bytes and the data at once.
    ConsecutiveLat,
    /// A put, from the call to its completion, whose bytes are received directly into their place.
    Placed,
    /// The same, with bytes that are received elsewhere and copied.
    PlacedCopy,
    /// Processor seconds of the receiver for a GiB of the one.
    PlacedCpu,
    /// And of the other.
    PlacedCopyCpu,
}

impl Figure {
    /// Returns the name in the records and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MessageLat => "message_lat",
            Self::PutLat => "put_lat",
            Self::PutDone => "put_done",
            Self::PutBw => "put_bw",
            Self::MessageBw => "message_bw",
            Self::MessageRate => "message_rate",
            Self::MixedLat => "mixed_lat",
            Self::MixedLatP99 => "mixed_lat_p99",
            Self::MixedBw => "mixed_bw",
            Self::MixedIdleLat => "mixed_idle_lat",
            Self::MixedAloneBw => "mixed_alone_bw",
            Self::Passive => "passive",
            Self::PassiveDriven => "passive_driven",
            Self::Cpu => "cpu",
            Self::FloodBw => "flood_bw",
            Self::FloodElsewhereBw => "flood_elsewhere_bw",
            Self::FloodAloneBw => "flood_alone_bw",
            Self::GetLat => "get_lat",
            Self::GetBw => "get_bw",
            Self::FetchAdd => "fetch_add",
            Self::CompareSwap => "compare_swap",
            Self::Strided => "strided",
            Self::Accumulate => "accumulate",
            Self::Fifo => "fifo",
            Self::ConsecutiveLat => "consecutive_lat",
            Self::Placed => "placed",
            Self::PlacedCopy => "placed_copy",
            Self::PlacedCpu => "placed_cpu",
            Self::PlacedCopyCpu => "placed_copy_cpu",
        }
    }

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
    fn names_on_the_command_line_are_those_of_the_records() {
        for figure in Figure::value_variants() {
            assert_eq!(
                figure.to_possible_value().expect("none is hidden").get_name(),
                figure.name()
            );
        }
    }

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
