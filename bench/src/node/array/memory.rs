//! Memory of a job whose nodes all read one whole array.

use clap::Args;
use oikaze::Job;
use oikaze::prelude::{Collectives, Sum};

use crate::error::{Error, Tried};
use crate::node::output::{failed, tell};

/// Summary of a process's mappings (proc_pid_smaps(5)).
const MAPPINGS: &str = "/proc/self/smaps_rollup";

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Bytes of the array.
    #[arg(long)]
    size: usize,
}

/// Prints `mib`, the memory of all nodes in MiB. Each page that several processes map counts once.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let array = job.array::<u8>("whole", settings.size).map_err(failed)?;
    array.write(array.home_range(job.rank())).map_err(failed)?.fill(1);
    job.barrier().map_err(failed)?;
    let read: usize = array.read(..).map_err(failed)?.iter().map(|&byte| usize::from(byte)).sum();
    if read != settings.size {
        return Err(Error::new(format!("{read} of {} bytes were read (a defect)", settings.size)));
    }
    // All nodes have read before the first one counts, and all have counted before the first one
    // ends.
    job.barrier().map_err(failed)?;
    let kib = proportional_kib(&std::fs::read_to_string(MAPPINGS).tried(MAPPINGS)?)
        .ok_or_else(|| Error::new(format!("{MAPPINGS} has no Pss")))?;
    let kib = job.all_reduce(kib, Sum).map_err(failed)?;
    if job.rank() == 0 {
        tell(&[("mib", kib as f64 / 1024.0)]);
    }
    job.barrier().map_err(failed)
}

/// Returns the proportional set size in KiB: each page divided by the processes that map it.
fn proportional_kib(mappings: &str) -> Option<u64> {
    let line = mappings.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::proportional_kib;

    #[test]
    fn proportional_size_is_found_among_others() {
        let mappings = "00400000-7fff0000 ---p 00000000 00:00 0    [rollup]\n\
                        Rss:              5000 kB\nPss:              1234 kB\n\
                        Pss_Dirty:         567 kB\n";
        assert_eq!(proportional_kib(mappings), Some(1234));
        assert_eq!(proportional_kib("Rss: 5000 kB\n"), None);
    }
}
