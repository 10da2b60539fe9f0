//! Cases of the bench: programs with their arguments, the unit of each figure, and the places where
//! they are measured.

use super::system::System;
use crate::lab::{Place, WireMode};
use crate::suite::case::{KIB, MIB};

named! {
    /// Figure of the bench. The name on the command line is the name in the records.
    pub enum Case {
        /// Himeno benchmark, 32 × 32 × 64.
        HimenoXs = "himeno_xs",
        /// Himeno benchmark, 64 × 64 × 128.
        HimenoS = "himeno_s",
        /// Himeno benchmark, 128 × 128 × 256.
        HimenoM = "himeno_m",
        /// LU factorization of SPLASH-2, 1024 × 1024.
        Lu1024 = "lu_1024",
        /// LU factorization of SPLASH-2, 2048 × 2048.
        Lu2048 = "lu_2048",
        /// NAS CG, class A.
        CgA = "cg_a",
        /// Heat equation on 1024 × 1024 points.
        Heat1024 = "heat_1024",
        /// Transposition of a matrix, 2048 × 2048.
        Transpose = "transpose",
        /// Histogram of random keys in one table.
        Histogram = "histogram",
        /// Barriers without work in between.
        Barrier = "barrier",
        /// Barriers that each bring an update of one node to all others.
        BarrierUpdate = "barrier_update",
        /// The same if every twentieth word of the update changes. Some deliveries send these
        /// alone.
        BarrierUpdate5 = "barrier_update_5",
        /// Notifications of the other node that bring an update, beside messages.
        NotifyUpdate = "notify_update",
        /// Read of one page that is not valid here.
        Fetch = "fetch",
        /// Reads of 1 MiB of pages that are not valid here.
        FetchBw = "fetch_bw",
        /// Begin and end of a guard of one element, while no other node has a guard.
        Guard = "guard",
        /// Declaration of an array.
        Declare = "declare",
        /// Lock that two nodes pass to each other, with one element that each holder writes.
        Lock = "lock",
        /// The same with four nodes.
        Lock4 = "lock_4",
        /// Lock that three nodes pass to each other, with a page that each holder reads and writes.
        LockPage = "lock_page",
        /// Memory of four nodes that each read a whole array.
        Memory = "memory",
    }
}

named! {
    /// Place of the nodes.
    pub enum Mode {
        /// Two hosts of the lab. Every datagram and segment is really formed, as on a cable
        Wire = "wire",
        /// Two hosts of the lab. The kernel may pass up to 64 KiB uncut, as no cable does
        Whole = "whole",
        /// Processes of this machine, each on a core of its own
        Machine = "machine",
    }
}

impl Mode {
    /// Returns the place of the lab.
    pub const fn place(self, mtu: u16) -> Place {
        match self {
            Self::Wire => Place::Wire { mtu, mode: WireMode::Wire },
            Self::Whole => Place::Wire { mtu, mode: WireMode::Whole },
            Self::Machine => Place::Here,
        }
    }
}

named! {
    /// Unit of a figure.
    pub enum Unit {
        /// Millions of floating-point operations per second.
        Mflops = "MFLOPS",
        /// Millions of elements per second.
        Mops = "M/s",
        /// Microseconds, of which fewer are better.
        Us = "us",
        /// Billions of bytes per second.
        Gbs = "GB/s",
        /// Mebibytes, of which fewer are better.
        Mib = "MiB",
    }
}

/// Sizes of `barrier_update`, as in figure 7 of paper 004.
pub const UPDATE_SIZES: [usize; 5] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];

/// Deliveries of paper 004, as `OIKAZE_DELIVERY` names them.
pub const DELIVERIES: [&str; 5] = [
    "direct_map",
    "header_through",
    "message_through",
    "direct_diff_decode",
    "header_through_diff_decode",
];
/// Deliveries of a quick bench.
const QUICK_DELIVERIES: [&str; 2] = ["direct_map", "message_through"];

/// Deliveries of an update of which a part changes.
const CHANGE_DELIVERIES: [&str; 3] =
    ["direct_map", "direct_diff_decode", "header_through_diff_decode"];

/// Amount of work in one measurement: (of a quick bench, of a full bench).
type Times = (u32, u32);

impl Case {
    /// Returns the test of `oikaze perf` that measures the case, if no program of `apps/` does.
    pub const fn perf(self) -> Option<&'static str> {
        match self {
            Self::Barrier => Some("barrier"),
            Self::BarrierUpdate | Self::BarrierUpdate5 => Some("barrier-update"),
            Self::NotifyUpdate => Some("notify-update"),
            Self::Fetch | Self::FetchBw => Some("fetch"),
            _ => None,
        }
    }

    /// Returns the role of the bench's own node ([`crate::node`]) that measures the case, if
    /// neither `oikaze perf` nor a program of `apps/` does.
    pub const fn node(self) -> Option<&'static str> {
        match self {
            Self::Guard => Some("guard"),
            Self::Declare => Some("declare"),
            Self::Lock | Self::Lock4 | Self::LockPage => Some("lock"),
            Self::Memory => Some("memory"),
            _ => None,
        }
    }

    /// Returns `true` if a program of `apps/` measures the case, which has a serial program, too.
    pub const fn is_app(self) -> bool {
        self.perf().is_none() && self.node().is_none()
    }

    /// Returns the number of nodes, if the case has no choice.
    pub const fn nodes(self) -> Option<u32> {
        match self {
            Self::LockPage => Some(3),
            Self::Lock4 | Self::Memory => Some(4),
            _ => None,
        }
    }

    /// Returns the name of the program: of the file in `bench/mpi`, and of Oikaze's binary.
    pub const fn program(self) -> &'static str {
        match self {
            Self::HimenoXs | Self::HimenoS | Self::HimenoM => "himeno",
            Self::Lu1024 | Self::Lu2048 => "lu",
            Self::CgA => "cg",
            Self::Heat1024 => "heat",
            Self::Transpose => "transpose",
            Self::Histogram => "histogram",
            Self::Barrier => "barrier",
            Self::BarrierUpdate | Self::BarrierUpdate5 => "barrier_update",
            Self::NotifyUpdate => "notify_update",
            Self::Fetch | Self::FetchBw => "fetch",
            Self::Guard => "guard",
            Self::Declare => "declare",
            Self::Lock | Self::Lock4 | Self::LockPage => "lock",
            Self::Memory => "memory",
        }
    }

    /// Returns the unit, which is the same for all systems.
    pub const fn unit(self) -> Unit {
        match self {
            Self::HimenoXs | Self::HimenoS | Self::HimenoM => Unit::Mflops,
            Self::Lu1024 | Self::Lu2048 | Self::CgA | Self::Heat1024 => Unit::Mflops,
            Self::Transpose | Self::Histogram => Unit::Mops,
            Self::Barrier | Self::BarrierUpdate | Self::BarrierUpdate5 => Unit::Us,
            Self::NotifyUpdate => Unit::Us,
            Self::Fetch | Self::Guard | Self::Declare => Unit::Us,
            Self::Lock | Self::Lock4 | Self::LockPage => Unit::Us,
            Self::FetchBw => Unit::Gbs,
            Self::Memory => Unit::Mib,
        }
    }

    /// Returns the sizes of the case: bytes of shared memory that the program works on, that a
    /// barrier or a notification brings, or that are fetched.
    pub fn sizes(self, quick: bool) -> Vec<usize> {
        let size = match self {
            Self::BarrierUpdate if quick => return [4, 64, 1024].map(|size| size * KIB).into(),
            Self::BarrierUpdate => return UPDATE_SIZES.into(),
            Self::BarrierUpdate5 => 64 * KIB,
            Self::NotifyUpdate => return vec![size_of::<u64>(), 8 * KIB],
            Self::Fetch | Self::LockPage => 4 * KIB,
            Self::FetchBw => MIB,
            Self::HimenoXs => MIB / 2,
            Self::HimenoS => 4 * MIB,
            Self::HimenoM => 32 * MIB,
            Self::Lu1024 => 8 * MIB,
            Self::Lu2048 => 32 * MIB,
            Self::CgA => 14_000 * size_of::<f64>(),
            Self::Heat1024 => 16 * MIB,
            Self::Transpose => 64 * MIB,
            Self::Histogram => 32 * KIB,
            Self::Barrier => 0,
            Self::Guard | Self::Lock | Self::Lock4 => size_of::<u64>(),
            Self::Declare | Self::Memory if quick => 128 * MIB,
            Self::Declare | Self::Memory => 1024 * MIB,
        };
        vec![size]
    }

    /// Returns the deliveries that a system measures in the case: the runtime's own choice
    /// (`None`), and those that are forced. Nothing is delivered into memory that all nodes map.
    pub fn deliveries(self, system: System, mode: Mode, quick: bool) -> Vec<Option<&'static str>> {
        let forced: &[&str] = match (self, system, quick) {
            _ if mode == Mode::Machine => &[],
            (Self::BarrierUpdate, System::Oikaze, false) => &DELIVERIES,
            (Self::BarrierUpdate, System::Oikaze, true) => &QUICK_DELIVERIES,
            (Self::BarrierUpdate5, System::Oikaze, _) => &CHANGE_DELIVERIES,
            _ => &[],
        };
        std::iter::once(None).chain(forced.iter().copied().map(Some)).collect()
    }

    /// Returns the arguments of the program, which are the same for all systems.
    pub fn arguments(self, size: usize, quick: bool) -> Vec<String> {
        if self.is_of_perf() {
            /// Bytes that a quick bench brings in one run, within the limits below.
            const QUICK_BYTES: usize = 32 * MIB;
            let times = (QUICK_BYTES / size).clamp(64, 1000) * if quick { 1 } else { 8 };
            let (size, times) = (size.to_string(), times.to_string());
            let mut arguments = vec!["--size", &size, "--iterations", &times];
            if self == Self::BarrierUpdate5 {
                // MPI sends all bytes, and takes no notice of this.
                arguments.extend(["--changed", "5"]);
            }
            return arguments.into_iter().map(str::to_owned).collect();
        }
        let bytes = size.to_string();
        let (size, times): (&[&str], Option<Times>) = match self {
            Self::HimenoXs => (&["--size", "XS"], Some((1000, 8000))),
            Self::HimenoS => (&["--size", "S"], Some((100, 800))),
            // Ten iterations are those of the published result.
            Self::HimenoM => (&["--size", "M"], Some((10, 60))),
            // A factorization has no iterations.
            Self::Lu1024 => (&["--n", "1024"], None),
            Self::Lu2048 => (&["--n", "2048"], None),
            // The class decides on the iterations.
            Self::CgA => (&["--size", "A"], None),
            Self::Heat1024 => (&["--size", "1024"], Some((200, 1500))),
            Self::Transpose => (&["--size", "2048"], Some((8, 40))),
            Self::Histogram => (&["--size", "4096"], Some((200, 1000))),
            Self::Barrier => (&[], Some((5000, 50_000))),
            Self::Guard => (&[], Some((50_000, 500_000))),
            Self::Lock | Self::Lock4 => (&[], Some((5000, 50_000))),
            Self::LockPage => (&["--bytes", &bytes], Some((3000, 30_000))),
            Self::Declare | Self::Memory => (&["--size", &bytes], None),
            Self::BarrierUpdate | Self::BarrierUpdate5 | Self::NotifyUpdate => (&[], None),
            Self::Fetch | Self::FetchBw => (&[], None),
        };
        let mut arguments: Vec<String> = size.iter().map(|&word| word.to_owned()).collect();
        if let Some((few, many)) = times {
            let times = if quick { few } else { many };
            arguments.extend(["--iterations".to_owned(), times.to_string()]);
        }
        arguments
    }

    /// Returns `true` if `oikaze perf` measures the case with a size.
    const fn is_of_perf(self) -> bool {
        matches!(self, Self::BarrierUpdate | Self::BarrierUpdate5 | Self::NotifyUpdate)
            || matches!(self, Self::Fetch | Self::FetchBw)
    }

    /// Returns the arguments of `oikaze perf get` that the case is compared with.
    pub fn get_arguments(self, size: usize) -> Vec<String> {
        let (size, half) = match self {
            Self::FetchBw => (size, "throughput"),
            _ => (size_of::<u64>(), "latency"),
        };
        ["--size", &size.to_string(), "--only", half].map(str::to_owned).into()
    }

    /// Returns the number of runs in one round, the median of which counts. A factorization of a
    /// small matrix ends before a second run would.
    pub const fn runs(self, quick: bool) -> u32 {
        match self {
            Self::Lu1024 if !quick => 3,
            _ => 1,
        }
    }

    /// Returns `true` if a quick bench measures the case without being asked.
    pub const fn is_quick(self) -> bool {
        !matches!(self, Self::Lu2048)
    }

    /// Returns `true` if the case is measured there. Nodes that map the same memory fetch nothing,
    /// and have no choice of deliveries. Nodes of two hosts share no memory.
    pub fn is_in(self, mode: Mode) -> bool {
        match self {
            Self::Fetch | Self::FetchBw | Self::BarrierUpdate5 => mode != Mode::Machine,
            // A switch joins the three hosts, and forms every datagram.
            Self::LockPage => mode == Mode::Wire,
            Self::Guard | Self::Declare | Self::Lock | Self::Lock4 | Self::Memory => {
                mode == Mode::Machine
            }
            _ => true,
        }
    }

    /// Returns `true` if the system has the case.
    pub const fn has(self, system: System) -> bool {
        match system {
            System::Oikaze | System::OikazeFull | System::OikazePages => true,
            // The page size makes no difference to what takes place in a few pages.
            System::OikazeSmall => self.is_app() || matches!(self, Self::Declare),
            System::OikazeC => matches!(self, Self::HimenoXs | Self::HimenoS | Self::HimenoM),
            System::OikazeHomes => self.is_app(),
            // `lu` takes guards only.
            System::OikazePlain => self.is_app() && !matches!(self, Self::Lu1024 | Self::Lu2048),
            System::OikazeGet => matches!(self, Self::Fetch | Self::FetchBw),
            System::OikazeMessage => matches!(self, Self::Barrier | Self::LockPage),
            System::Mpi => !matches!(self, Self::Fetch | Self::FetchBw) && self.node().is_none(),
            System::Serial => self.is_app(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn quick_bench_does_less_of_the_same() {
        for case in Case::value_variants() {
            let size = case.sizes(true).first().copied().expect("a size");
            let (quick, full) = (case.arguments(size, true), case.arguments(size, false));
            assert_eq!(quick.len(), full.len());
            let differing = quick.iter().zip(&full).filter(|(one, other)| one != other);
            for (few, many) in differing {
                let number = |text: &str| text.parse::<u32>().expect("a number of iterations");
                assert!(number(few) < number(many), "{}", case.name());
            }
        }
    }

    #[test]
    fn deliveries_are_those_of_the_library() {
        let known = oikaze::shared::builder::Delivery::ALL.map(|delivery| delivery.name());
        assert_eq!(DELIVERIES, known);
        assert!(QUICK_DELIVERIES.iter().all(|delivery| DELIVERIES.contains(delivery)));
    }

    #[test]
    fn only_updates_have_deliveries_and_sizes() {
        let updates = Case::BarrierUpdate;
        let of = |case: Case, system, mode| case.deliveries(system, mode, false);
        assert_eq!(of(updates, System::Oikaze, Mode::Wire).len(), 1 + DELIVERIES.len());
        assert_eq!(of(updates, System::Oikaze, Mode::Machine), [None]);
        assert_eq!(of(updates, System::Mpi, Mode::Wire), [None]);
        assert!(updates.sizes(true).iter().all(|size| UPDATE_SIZES.contains(size)));
        assert_eq!(of(Case::HimenoS, System::Oikaze, Mode::Wire), [None]);
        assert_eq!(Case::HimenoS.sizes(false).len(), 1);
    }

    #[test]
    fn every_case_has_both_sides() {
        let pages = [System::OikazePages, System::OikazeMessage];
        let others = [System::Mpi, System::OikazeGet].into_iter().chain(pages);
        for mode in Mode::value_variants() {
            for case in Case::value_variants().iter().filter(|case| case.is_in(*mode)) {
                let mut others = others.clone().filter(|system| system.is_in(*mode));
                let has_other = others.any(|system| case.has(system));
                assert!(case.has(System::Oikaze) && has_other, "{} {mode:?}", case.name());
            }
        }
    }

    #[test]
    fn every_mode_has_a_place_of_the_same_name() {
        for mode in Mode::value_variants() {
            let wire = mode.place(1500).wire();
            let name = wire.map_or(Mode::Machine.name(), |(_, wire)| wire.name());
            assert_eq!(name, mode.name());
        }
    }
}
