//! Processors that this process may run on, and how many of them it may keep busy.

use crate::processes::control_group::{GroupVersion, control_groups};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::path::Path;

/// Number of a logical processor, as the kernel counts.
pub type CpuId = usize;

/// Processors that this process may use now. A container's cpuset and quota may permit fewer than
/// the machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Logical processors of the affinity mask, in order.
    pub cpus: Vec<CpuId>,
    /// One logical processor of each core. These are the best ones to pin to, since two on one core
    /// share its execution units.
    pub cores: Vec<CpuId>,
    /// Number of threads that may run at the same time without being throttled. This is the number
    /// of `cpus`, or less if a control group's quota is lower.
    pub parallelism: usize,
    /// Number of threads that the quota of a control group permits to run at the same time, all
    /// processes of the group together. `None` means no limit.
    pub quota: Option<usize>,
}

impl Topology {
    /// Asks the kernel for the processors of this process.
    ///
    /// # Errors
    /// The affinity mask cannot be read.
    pub fn detect() -> io::Result<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let cpus = cpus_of_thread()?;
        // The standard library also finds control groups that are mounted elsewhere. It does not
        // tell a quota from the mask of a thread that may run on fewer processors.
        let allowed = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        let quota = quota_of(&groups, Path::new("/sys/fs/cgroup"))
            .into_iter()
            .chain((allowed < cpus.len()).then_some(allowed))
            .min();
        let cores = cores(&cpus, Path::new("/sys/devices/system/cpu"));
        Ok(Self::with_quota(cpus, cores, quota))
    }

    fn with_quota(cpus: Vec<CpuId>, cores: Vec<CpuId>, quota: Option<usize>) -> Self {
        let parallelism = quota.unwrap_or(usize::MAX).min(cpus.len()).max(1);
        Self { cpus, cores, parallelism, quota }
    }

    /// Returns the topology of a process one of whose threads is bound to `cpus`, which may lie
    /// outside the affinity mask.
    #[must_use]
    pub fn joined_by(mut self, cpus: &[CpuId]) -> Self {
        for cpu in cpus {
            if let Err(at) = self.cpus.binary_search(cpu) {
                self.cpus.insert(at, *cpu);
            }
        }
        // A quota holds for all processors together.
        Self::with_quota(self.cpus, self.cores, self.quota)
    }

    /// Returns `true` if each of `processes` similar processes, this one included, may have
    /// `threads` threads spin at once without keeping another thread from a processor.
    ///
    /// `others` holds the processors of those other processes that have reported theirs. A
    /// processor that several processes may use counts as an equal share for each.
    #[must_use]
    pub fn has_room_for(&self, threads: usize, processes: usize, others: &[Vec<CpuId>]) -> bool {
        const WHOLE: usize = 1 << 16;
        // The kernel does not say which processes share a quota.
        let within_quota =
            self.quota.is_none_or(|quota| threads.saturating_mul(processes) <= quota);
        let users = |cpu: &CpuId| 1 + others.iter().filter(|cpus| cpus.contains(cpu)).count();
        let share: usize = self.cpus.iter().map(|cpu| WHOLE.div_ceil(users(cpu))).sum();
        within_quota && threads.saturating_mul(WHOLE) <= share
    }
}

/// Returns how many threads the tightest quota permits to run at the same time, at least 1.
/// `groups` is `/proc/self/cgroup`, and `root` the mount point of the control groups.
fn quota_of(groups: &str, root: &Path) -> Option<usize> {
    let of_group = |group: &Path, version| -> Option<usize> {
        let read = |file: &str| std::fs::read_to_string(group.join(file)).ok();
        let (quota, period) = match version {
            GroupVersion::One => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
            GroupVersion::Two => {
                let text = read("cpu.max")?;
                let (quota, period) = text.split_once(' ')?;
                (quota.to_owned(), period.to_owned())
            }
        };
        // "max" and -1 mean no limit.
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let whole = number(&quota)?.checked_div(number(&period)?)?;
        Some(usize::try_from(whole).unwrap_or(usize::MAX).max(1))
    };
    control_groups(groups, root, "cpu")
        .into_iter()
        .filter_map(|(version, group)| of_group(&group, version))
        .min()
}

/// Returns how many threads of this process may run at the same time: [`Topology::parallelism`], or
/// 1 if the kernel does not say.
#[must_use]
pub fn usable_cores() -> usize {
    Topology::detect().map_or(1, |topology| topology.parallelism)
}

/// Returns the processors of this machine that are online, in order. A process may be permitted
/// fewer ([`Topology::detect`]).
///
/// # Errors
/// `/sys` is not mounted, or does not list them.
pub fn online_cpus() -> io::Result<Vec<CpuId>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpulist(text.trim()).ok_or_else(|| {
        let why = format!("/sys/devices/system/cpu/online: {:?} is not a set", text.trim());
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

/// A core that was asked for and that this machine does not have.
///
/// ```
/// use oikaze_os::cpu::NoCore;
/// let why = NoCore::among(&[0, 9], &[0, 1, 2]).unwrap();
/// assert_eq!(why.to_string(), "this machine has no core 9; its cores are 0-2");
/// assert_eq!(NoCore::among(&[0, 2], &[0, 1, 2]), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this machine has no core {core}; its cores are {}", cpulist(.cores))]
pub struct NoCore {
    /// Number of the core that was asked for.
    pub core: CpuId,
    /// Cores of the machine, in order.
    pub cores: Vec<CpuId>,
}

impl NoCore {
    /// Returns the first of the cores `asked` that is not among the `cores` of the machine.
    #[must_use]
    pub fn among(asked: &[CpuId], cores: &[CpuId]) -> Option<NoCore> {
        let core = asked.iter().find(|core| !cores.contains(core))?;
        Some(NoCore { core: *core, cores: cores.to_vec() })
    }
}

/// Returns the processors that the cpuset of this process permits, in order. The affinity mask of
/// the calling thread, which is a part of them, does not matter.
///
/// # Errors
/// No thread can be started, or the kernel refuses the call.
pub fn permitted_cpus() -> io::Result<Vec<CpuId>> {
    // The mask of a thread of its own is widened, and ends with that thread.
    let asks = || {
        lift_affinity()?;
        cpus_of_thread()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, asks)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
    })
}

/// Lets the calling thread run on all processors that the cpuset of this process permits. Threads
/// that it starts later may run there, too.
///
/// # Errors
/// The kernel refuses the call.
pub fn lift_affinity() -> io::Result<()> {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // The kernel leaves out what the cpuset does not permit (`sched_setaffinity(2)`).
    Ok(sched_setaffinity(None, &all)?)
}

/// Returns the processors on which the calling thread may run, in order.
fn cpus_of_thread() -> io::Result<Vec<CpuId>> {
    let mask = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect())
}

/// Binds the calling thread to this processor, as [`bind_to_cores`] does.
///
/// # Errors
/// As [`bind_to_cores`].
pub fn pin_to_core(cpu: CpuId) -> io::Result<()> {
    bind_to_cores(&[cpu])
}

/// Binds the calling thread to these processors. They may lie outside the affinity mask of the
/// process, which holds for each thread on its own (`sched_setaffinity(2)`), but not outside its
/// cpuset.
///
/// # Errors
/// There are no such processors, or the cpuset of this process forbids them. The error names the
/// processors that were asked for, and those that are permitted.
pub fn bind_to_cores(cpus: &[CpuId]) -> io::Result<()> {
    let refused = |error: io::Error| {
        let asked = cpulist(cpus);
        let text = match permitted_cpus() {
            Ok(permitted) => format!(
                "cannot run on cores {asked}: {error}; this process may use cores {} (its cpuset)",
                cpulist(&permitted)
            ),
            Err(_) => format!("cannot run on cores {asked}: {error}; see cpuset cgroups"),
        };
        io::Error::new(error.kind(), text)
    };
    if cpus.iter().any(|cpu| *cpu >= CpuSet::MAX_CPU) {
        return Err(refused(io::Error::new(io::ErrorKind::InvalidInput, "no such number")));
    }
    let mut mask = CpuSet::new();
    cpus.iter().for_each(|cpu| mask.set(*cpu));
    sched_setaffinity(None, &mask).map_err(|error| refused(error.into()))
}

/// Returns the first allowed processor of each core. Where `/sys` does not list siblings, each
/// processor counts as a core.
fn cores(cpus: &[CpuId], sys: &Path) -> Vec<CpuId> {
    let mut taken: Vec<CpuId> = Vec::new();
    let mut cores = Vec::new();
    for cpu in cpus {
        if taken.contains(cpu) {
            continue;
        }
        cores.push(*cpu);
        let file = sys.join(format!("cpu{cpu}/topology/thread_siblings_list"));
        let siblings =
            std::fs::read_to_string(file).ok().and_then(|text| parse_cpulist(text.trim()));
        taken.extend(siblings.unwrap_or_default());
    }
    cores
}

/// Parses a set of cores that a user gives: a core, or a list as [`parse_cpulist`] takes it. A
/// single core is not bounded, so that an error can name a core that does not exist.
#[must_use]
pub fn parse_cores(text: &str) -> Option<Vec<CpuId>> {
    text.parse().map_or_else(|_| parse_cpulist(text), |core| Some(vec![core]))
}

/// Parses a set of processors in the kernel's notation, such as `0-3,8,10-11`. Returns `None` if
/// the text is no such set.
#[must_use]
pub fn parse_cpulist(text: &str) -> Option<Vec<CpuId>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (CpuId, CpuId) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CpuSet::MAX_CPU || cpus.len() >= CpuSet::MAX_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Formats a set of processors in the kernel's notation, the inverse of [`parse_cpulist`].
#[must_use]
pub fn cpulist(cpus: &[CpuId]) -> String {
    let mut parts: Vec<(CpuId, CpuId)> = Vec::new();
    for cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => parts.push((*cpu, *cpu)),
        }
    }
    let text =
        |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    parts.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::{
        Topology, bind_to_cores, cores, cpulist, lift_affinity, online_cpus, parse_cpulist,
        permitted_cpus, pin_to_core, quota_of,
    };
    use crate::processes::control_group::tests::tree;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn this_machine() {
        let topology = Topology::detect().unwrap();
        assert!(!topology.cpus.is_empty() && !topology.cores.is_empty());
        assert!(topology.cores.iter().all(|core| topology.cpus.contains(core)));
        assert!(topology.parallelism >= 1 && topology.parallelism <= topology.cpus.len());
        assert!(topology.has_room_for(1, 1, &[]));
        assert!(!topology.has_room_for(topology.cpus.len() + 1, 1, &[]));
    }

    #[test]
    fn who_spins_leaves_room_for_the_others() {
        let on = |cpus: &[usize], quota: usize| {
            let quota = Some(quota).filter(|quota| *quota < cpus.len());
            Topology::with_quota(cpus.into(), cpus.into(), quota)
        };
        let same = |cpus: &[usize], others: usize| vec![cpus.to_vec(); others];
        // All processes may run on all processors.
        assert!(on(&[0, 1], 2).has_room_for(1, 2, &same(&[0, 1], 1)));
        assert!(!on(&[0, 1], 2).has_room_for(1, 3, &same(&[0, 1], 2)));
        assert!(!on(&[0, 1], 2).has_room_for(2, 2, &same(&[0, 1], 1)));
        let six: Vec<usize> = (0..6).collect();
        assert!(on(&six, 6).has_room_for(1, 6, &same(&six, 5)));
        // Each process is bound to its own processor, as resource managers do; then two share one.
        assert!(on(&[0], 1).has_room_for(1, 4, &[vec![1], vec![2], vec![3]]));
        assert!(!on(&[0], 1).has_room_for(1, 4, &[vec![1], vec![0], vec![3]]));
        // One process may run where others are bound, and elsewhere too.
        assert!(on(&[0, 1, 2, 3], 4).has_room_for(1, 2, &same(&[0], 1)));
        assert!(!on(&[0], 1).has_room_for(1, 2, &same(&[0, 1, 2, 3], 1)));
        // Two processes share a quota of two processors.
        assert!(on(&six, 2).has_room_for(1, 2, &same(&six, 1)));
        assert!(!on(&six, 2).has_room_for(1, 3, &same(&six, 2)));
    }

    #[test]
    fn engine_outside_the_mask_brings_its_processor_along() {
        let one = Topology::with_quota(vec![0], vec![0], None);
        assert!(!one.clone().joined_by(&[0]).has_room_for(2, 1, &[]));
        let both = one.joined_by(&[1]);
        assert_eq!((both.cpus.as_slice(), both.parallelism), ([0, 1].as_slice(), 2));
        assert!(both.has_room_for(2, 1, &[]));
        let quota = Topology::with_quota(vec![0, 1], vec![0, 1], Some(1));
        assert_eq!(quota.joined_by(&[3]).parallelism, 1, "a quota is not lifted");
    }

    /// A container with a quota of two processors, in which `oikaze run --bind` has bound each node
    /// to one processor, and its engine to two others.
    #[test]
    fn quota_holds_for_a_process_that_is_bound_to_fewer_processors() {
        let files = [("pod/cpu.max", "200000 100000\n"), ("pod/app/cpu.max", "max 100000\n")];
        let tree = tree("bound", &files);
        let quota = quota_of("0::/pod/app\n", &tree.0);
        let bound = Topology::with_quota(vec![0], vec![0], quota);
        assert_eq!(bound.parallelism, 1);
        assert!(bound.has_room_for(1, 2, &[vec![1]]) && !bound.has_room_for(1, 3, &[vec![1]]));
        let joined = bound.joined_by(&[1, 2]);
        assert_eq!((joined.cpus.len(), joined.parallelism), (3, 2));
        assert!(!joined.has_room_for(3, 1, &[]), "three threads would be throttled");
    }

    #[test]
    fn tightest_quota_of_both_versions_is_found() {
        let files = [
            ("a/cpu.max", "400000 100000\n"),
            ("a/b/cpu.max", "150000 100000\n"),
            ("cpu/c/cpu.cfs_quota_us", "300000\n"),
            ("cpu/c/cpu.cfs_period_us", "100000\n"),
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
            ("tiny/cpu.max", "1000 100000\n"),
            ("odd/cpu.max", "5 0\n"),
        ];
        let tree = tree("quota", &files);
        for (groups, quota) in [
            ("0::/a/b/none\n", Some(1)),
            ("0::/a\n", Some(4)),
            ("0::/other\n", None),
            ("4:cpu,cpuacct:/c\n0::/\n", Some(3)),
            ("4:cpu,cpuacct:/\n", None),
            ("0::/tiny\n", Some(1)),
            ("0::/odd\n", None),
            ("", None),
        ] {
            assert_eq!(quota_of(groups, &tree.0), quota, "{groups}");
        }
    }

    /// The error names what was asked for, and what the cpuset permits, which is more than the mask
    /// of the thread.
    #[test]
    fn refused_cores_are_named_with_those_that_are_permitted() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let permitted = permitted_cpus().unwrap();
                pin_to_core(permitted[0]).unwrap();
                // Linux has no processor of this number here.
                for cores in [vec![1000], vec![usize::MAX]] {
                    let error = bind_to_cores(&cores).unwrap_err().to_string();
                    let asked = format!("cannot run on cores {}: ", cpulist(&cores));
                    let may = format!("; this process may use cores {} (", cpulist(&permitted));
                    assert!(error.starts_with(&asked) && error.contains(&may), "{error}");
                }
                lift_affinity().unwrap();
                assert_eq!(Topology::detect().unwrap().cpus, permitted);
            });
        });
    }

    #[test]
    fn a_pinned_thread_stays_there() {
        let allowed = Topology::detect().unwrap().cpus;
        // Runs in its own thread, so that the mask ends with it.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let last = *allowed.last().unwrap();
                pin_to_core(last).unwrap();
                assert_eq!(Topology::detect().unwrap().cpus, [last]);
            });
        });
        assert!(bind_to_cores(&[]).is_err(), "a thread runs somewhere");
    }

    /// The mask of the application is not the engine's.
    #[test]
    fn thread_is_bound_outside_the_mask_that_it_inherited() {
        let online = online_cpus().unwrap();
        let allowed = Topology::detect().unwrap().cpus;
        assert!(allowed.iter().all(|cpu| online.contains(cpu)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin_to_core(allowed[0]).unwrap();
                scope.spawn(|| {
                    bind_to_cores(&allowed).unwrap();
                    assert_eq!(Topology::detect().unwrap().cpus, allowed);
                });
            });
        });
    }

    #[test]
    fn without_sys_each_processor_is_a_core() {
        assert_eq!(cores(&[0, 2, 5], Path::new("/nonexistent")), [0, 2, 5]);
    }

    #[test]
    fn lists_that_make_no_sense() {
        for text in ["", "-", "1-", "a", "1,,2", "0-99999999999", "-1", "3-1"] {
            assert_eq!(parse_cpulist(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn lists_are_read_as_they_are_written(cpus in prop::collection::btree_set(0..200usize, 1..40)) {
            let cpus: Vec<usize> = BTreeSet::into_iter(cpus).collect();
            prop_assert_eq!(parse_cpulist(&cpulist(&cpus)), Some(cpus));
        }
    }
}
