//! BPF programs that run in the kernel where packets come in: the parts of bpf(2) that are needed
//! here.

mod assembler;
mod system;

pub(crate) use assembler::{Assembler, Condition, Instruction, Register, Width};
#[cfg(test)]
pub(crate) use system::run_on;
pub(crate) use system::{Attachment, Loaded, Map, attach_to_ingress, load_classifier};
