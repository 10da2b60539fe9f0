//! Cases of the bench: programs with their arguments, and the unit of each figure.

use clap::ValueEnum;

use super::system::System;
use crate::suite::case::{KIB, MIB};

/// Figure of the bench. The name on the command line is the name in the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Case {
    /// Himeno benchmark, 32 × 32 × 64.
    HimenoXs,
    /// Himeno benchmark, 64 × 64 × 128.
    HimenoS,
    /// Himeno benchmark, 128 × 128 × 256.
    HimenoM,
    /// LU factorization of SPLASH-2, 1024 × 1024.
    #[value(name = "lu_1024")]
    Lu1024,
    /// LU factorization of SPLASH-2, 2048 × 2048.
    #[value(name = "lu_2048")]
    Lu2048,
    /// NAS CG, class A.
    CgA,
    /// Heat equation on 1024 × 1024 points.
    #[value(name = "heat_1024")]
    Heat1024,
    /// Transposition of a matrix, 2048 × 2048.
    Transpose,
    /// Histogram of random keys in one table.
    Histogram,
    /// Barriers without work in between.
    Barrier,
}

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Millions of floating-point operations per second.
    Mflops,
    /// Millions of elements per second.
    Mops,
    /// Microseconds, of which fewer are better.
    Us,
}

impl Unit {
    /// Returns the name in the records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mflops => "MFLOPS",
            Self::Mops => "M/s",
            Self::Us => "us",
        }
    }
}

/// Amount of work in one measurement: (of a quick bench, of a full bench).
type Times = (u32, u32);

impl Case {
    /// Returns the name in the records and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HimenoXs => "himeno_xs",
            Self::HimenoS => "himeno_s",
            Self::HimenoM => "himeno_m",
            Self::Lu1024 => "lu_1024",
            Self::Lu2048 => "lu_2048",
            Self::CgA => "cg_a",
            Self::Heat1024 => "heat_1024",
            Self::Transpose => "transpose",
            Self::Histogram => "histogram",
            Self::Barrier => "barrier",
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
        }
    }

    /// Returns the unit, which is the same for all systems.
    pub const fn unit(self) -> Unit {
        match self {
            Self::HimenoXs | Self::HimenoS | Self::HimenoM => Unit::Mflops,
            Self::Lu1024 | Self::Lu2048 | Self::CgA | Self::Heat1024 => Unit::Mflops,
            Self::Transpose | Self::Histogram => Unit::Mops,
            Self::Barrier => Unit::Us,
        }
    }

    /// Returns the bytes of shared memory that the program works on.
    pub const fn size(self) -> usize {
        match self {
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
        }
    }

    /// Returns the arguments of the program, which are the same for all systems.
    pub fn arguments(self, quick: bool) -> Vec<String> {
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
        };
        let mut arguments: Vec<String> = size.iter().map(|&word| word.to_owned()).collect();
        if let Some((few, many)) = times {
            let times = if quick { few } else { many };
            arguments.extend(["--iterations".to_owned(), times.to_string()]);
        }
        arguments
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

    /// Returns `true` if the system has the case.
    pub const fn has(self, system: System) -> bool {
        match self {
            // `lu` takes guards only.
            Self::Lu1024 | Self::Lu2048 => !matches!(system, System::OikazePlain),
            Self::Barrier => matches!(system, System::Oikaze | System::Mpi),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_command_line_are_those_of_the_records() {
        for case in Case::value_variants() {
            assert_eq!(case.to_possible_value().expect("none is hidden").get_name(), case.name());
        }
    }

    #[test]
    fn quick_bench_does_less_of_the_same() {
        for case in Case::value_variants() {
            let (quick, full) = (case.arguments(true), case.arguments(false));
            assert_eq!(quick.len(), full.len());
            let differing = quick.iter().zip(&full).filter(|(one, other)| one != other);
            for (few, many) in differing {
                let number = |text: &str| text.parse::<u32>().expect("a number of iterations");
                assert!(number(few) < number(many), "{}", case.name());
            }
        }
    }

    #[test]
    fn every_case_has_both_sides() {
        for case in Case::value_variants() {
            assert!(case.has(System::Oikaze) && case.has(System::Mpi), "{}", case.name());
        }
    }
}
