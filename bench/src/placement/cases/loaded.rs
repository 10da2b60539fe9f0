//! Case `loaded`: latency and bandwidth while threads compute on the nodes' cores (003's open
//! question), beside TCP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::error::{Error, Tried};
use crate::lab::{HOSTS, Lab};
use crate::placement::Extent;
use crate::placement::collected::{Collected, Key};
use crate::placement::modes::{Mode, WAITS};
use crate::placement::programs::{Setup, Values, node, options, role, sockets};
use crate::suite::case::KIB;

/// Computing threads on each core.
const THREADS: [u32; 3] = [0, 1, 2];
/// Bytes of a put or a write for bandwidth.
const BULK: usize = 64 * KIB;

/// Threads that compute on each of the hosts' cores until this value is dropped.
pub struct Busy {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    /// Starts this many threads on each core.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(on_each: u32) -> Result<Busy, Error> {
        let over = Arc::new(AtomicBool::new(false));
        let mut busy = Busy { over: Arc::clone(&over), threads: Vec::new() };
        for core in (0..HOSTS.len()).flat_map(|core| (0..on_each).map(move |_| core)) {
            let seen = Arc::clone(&over);
            let compute = move || {
                let _ = oikaze_os::cpu::pin_to_core(core);
                let mut sum = 0_u64;
                while !seen.load(Ordering::Relaxed) {
                    sum = std::hint::black_box(sum.wrapping_add(1));
                }
            };
            let thread = std::thread::Builder::new().name("busy".into()).spawn(compute);
            busy.threads.push(thread.tried("starting a computing thread")?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Measures one round.
pub fn round(lab: &Lab, modes: &[&'static Mode], extent: Extent, all: &mut Collected) {
    let threads = if extent.quick { &THREADS[..2] } else { &THREADS[..] };
    let milliseconds = if extent.quick { 250 } else { 1000 };
    let settings = [("milliseconds", milliseconds), ("bulk", BULK)];
    for &threads in threads {
        let busy = match Busy::start(threads) {
            Ok(busy) => busy,
            Err(why) => return all.add_all("computing threads", Err(why)),
        };
        for mode in modes {
            for (wait, system) in WAITS.into_iter().zip(mode.systems) {
                let setup = Setup { engines: mode.engines, waits: wait, without: None };
                let found = node(lab, &setup, &role("load", &settings));
                all.add_all(
                    &format!("loaded {threads}, {system}"),
                    found.and_then(keys(system, threads)),
                );
            }
        }
        for (system, block) in [("tcp spin", None), ("tcp block", Some("--block".to_owned()))] {
            let protocol = ["--protocol", "tcp"].map(str::to_owned);
            let arguments = options(&settings).into_iter().chain(protocol).chain(block);
            let found = sockets(lab, "load", &arguments.collect::<Vec<_>>());
            all.add_all(
                &format!("loaded {threads}, {system}"),
                found.and_then(keys(system, threads)),
            );
        }
        drop(busy);
    }
}

fn keys(system: &'static str, threads: u32) -> impl Fn(Values) -> Result<Vec<(Key, f64)>, Error> {
    move |values| {
        let key = |case, size, unit| Key {
            threads: Some(threads),
            mode: Some("computing"),
            ..Key::new(case, size, system, unit)
        };
        Ok(vec![
            (key("loaded_lat", 8, "us"), values.get("p50")?),
            (key("loaded_lat_p99", 8, "us"), values.get("p99")?),
            (key("loaded_bw", BULK, "GB/s"), values.get("bandwidth")?),
        ])
    }
}
