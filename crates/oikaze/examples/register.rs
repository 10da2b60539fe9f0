//! Measures what it costs to register memory and to end the registration, at any size: `cargo run
//! --release --example register [MILLIONS]`.
//!
//! An entry is written, and nothing is pinned or touched, so that the length makes no difference.
//! The memory exists before; the engine is free.

use oikaze::{Region, Rights};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let millions: f64 = std::env::args().nth(1).map_or(Ok(1.0), |text| text.parse())?;
    let count = (millions * 1e6) as u64;
    let job = oikaze::join()?;
    for len in [4096, 1 << 20, 1 << 36] {
        let memory = Region::private_with_capacity(4096, len)?;
        memory.grow(len)?;
        let begun = Instant::now();
        for _ in 0..count {
            drop(job.register(memory.clone())?);
        }
        let dropped = begun.elapsed();
        let begun = Instant::now();
        for _ in 0..count {
            job.register(memory.clone())?.deregister()?;
        }
        let deregistered = begun.elapsed();
        let mut again = job.register(memory.clone())?;
        let begun = Instant::now();
        for _ in 0..count {
            again = again.reregister(Rights::ALL)?;
        }
        let each = |span: std::time::Duration| span.as_nanos() as f64 / count as f64;
        let (dropped, deregistered, again) =
            (each(dropped), each(deregistered), each(begun.elapsed()));
        println!(
            "{len:>12} bytes: register and drop {dropped:.0} ns, and deregister {deregistered:.0} ns, register again {again:.0} ns"
        );
    }
    Ok(())
}
