//! Options by which the user chooses among a bench's own cases and systems.

use clap::{Args, ValueEnum};

use super::cores::Wanted;

/// Systems `S` that the user wants.
#[derive(Args)]
pub struct SystemSelection<S>
where
    S: ValueEnum + PartialEq + Send + Sync + 'static,
{
    /// Only these systems.
    #[arg(long, value_delimiter = ',', value_enum)]
    system: Vec<S>,
    /// Leaves systems out.
    #[arg(long, value_delimiter = ',', value_enum)]
    without: Vec<S>,
}

impl<S> SystemSelection<S>
where
    S: ValueEnum + PartialEq + Send + Sync + 'static,
{
    /// Returns the systems that the user wants, of all in this order.
    pub fn of(&self, all: impl IntoIterator<Item = S>) -> impl Iterator<Item = S> {
        let is_asked = |system: &S| self.system.is_empty() || self.system.contains(system);
        all.into_iter().filter(move |system| is_asked(system) && !self.without.contains(system))
    }
}

/// Cases `C` and systems `S` that the user wants, and where they are measured.
#[derive(Args)]
pub struct Selection<C, S>
where
    C: ValueEnum + PartialEq + Send + Sync + 'static,
    S: ValueEnum + PartialEq + Send + Sync + 'static,
{
    /// Only these cases; repeated, or several separated by commas.
    #[arg(long, value_delimiter = ',', value_enum)]
    pub case: Vec<C>,
    #[command(flatten)]
    systems: SystemSelection<S>,
    /// MTU of the wire.
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u16).range(1500..=9000))]
    pub mtu: u16,
    /// Measures only while the two cores have a cache in common (near), or have none (far): a
    /// hypervisor moves them.
    #[arg(long, value_enum, default_value_t)]
    pub cores: Wanted,
}

impl<C, S> Selection<C, S>
where
    C: ValueEnum + PartialEq + Send + Sync + 'static,
    S: ValueEnum + PartialEq + Send + Sync + 'static,
{
    /// Returns `true` if the user has asked for the case, or for no case.
    pub fn has_case(&self, case: &C) -> bool {
        self.case.is_empty() || self.case.contains(case)
    }

    /// Returns the systems that the user wants, of all in this order.
    pub fn systems(&self, all: impl IntoIterator<Item = S>) -> impl Iterator<Item = S> {
        self.systems.of(all)
    }
}
