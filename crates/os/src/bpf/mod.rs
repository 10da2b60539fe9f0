//! Programs that run in the kernel where packets come in: bpf(2), as far as it is needed here.

mod assembler;
mod system;

pub(crate) use assembler::{Assembler, Condition, Instruction, Register, Width};
#[cfg(test)]
pub(crate) use system::run_on;
pub(crate) use system::{Link, Loaded, Map, attach_to_ingress, load_classifier};
