//! Memory that bandwidth is measured over, for the programs of the bench that do not use Oikaze.

use std::io;

use memmap2::{Advice, MmapMut};

/// Returns `len` bytes, touched, in huge pages where the kernel grants them, as Oikaze's regions
/// are.
///
/// # Errors
/// The system has no room.
pub fn touched(len: usize) -> io::Result<MmapMut> {
    let mut memory = MmapMut::map_anon(len)?;
    // A kernel without huge pages gives small ones.
    let _ = memory.advise(Advice::HugePage);
    memory.fill(1);
    Ok(memory)
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_of_it_is_touched() {
        let memory = super::touched(5 << 20).expect("memory");
        assert!(memory.len() == 5 << 20 && memory.iter().all(|&byte| byte == 1));
    }
}
