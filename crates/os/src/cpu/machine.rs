//! Processors of this machine as `/sys` and `/proc` describe them: cores, SMT siblings, caches,
//! NUMA nodes, and the interrupts of network cards. From these follow where applications and
//! communication run best.

#[cfg(test)]
mod tests;

use super::core_binding::CoreBinding;
use super::topology::{CpuId, cpulist, parse_cpulist};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Processors of a machine, and what they share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Physical cores, each with its SMT siblings, in the order of their first processor.
    pub cores: Vec<Vec<CpuId>>,
    /// Caches that data passes through, in order of level.
    pub caches: Vec<Cache>,
    /// Processors of each NUMA node, by its number.
    pub numa_nodes: BTreeMap<u32, Vec<CpuId>>,
    /// Network interfaces that have interrupts of their own.
    pub nics: Vec<Nic>,
}

/// A cache and the processors that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Level, from 1.
    pub level: u32,
    /// Size, as the kernel writes it, such as `32K`.
    pub size: String,
    /// Processors that share the cache.
    pub cpus: Vec<CpuId>,
}

/// A network interface, and the processors that its interrupts go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Name of the interface.
    pub name: String,
    /// NUMA node that the card is attached to, if known.
    pub numa_node: Option<u32>,
    /// Number of its interrupts.
    pub interrupts: usize,
    /// Processors that have served its interrupts, or may serve them if none has yet.
    pub cpus: Vec<CpuId>,
    /// Processors that each interrupt in use goes to now, by its number.
    pub targets: BTreeMap<u32, Vec<CpuId>>,
}

/// Interrupts of a network interface that go to cores of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisplacedInterrupts {
    /// Name of the interface.
    pub nic: String,
    /// Numbers of the interrupts.
    pub interrupts: Vec<u32>,
    /// Cores of the application that they go to.
    pub cores: Vec<CpuId>,
    /// Cores that they should go to.
    pub better: Vec<CpuId>,
}

impl Machine {
    /// Reads the description of this machine.
    #[must_use]
    pub fn here() -> Machine {
        Machine::read(Path::new("/"))
    }

    /// Reads the description below `root`, which has `sys` and `proc`. What is not described there
    /// is left out: containers and virtual machines hide much.
    #[must_use]
    pub fn read(root: &Path) -> Machine {
        let cpus = root.join("sys/devices/system/cpu");
        let online = read_list(&cpus.join("online")).unwrap_or_default();
        let of_cpu = |cpu: &CpuId| cpus.join(format!("cpu{cpu}"));
        let mut cores: Vec<Vec<CpuId>> = Vec::new();
        let mut caches: Vec<Cache> = Vec::new();
        for cpu in &online {
            if !cores.iter().any(|core| core.contains(cpu)) {
                let siblings = read_list(&of_cpu(cpu).join("topology/thread_siblings_list"));
                let mut core = siblings.unwrap_or_else(|| vec![*cpu]);
                core.retain(|sibling| online.contains(sibling));
                cores.push(core);
            }
            for cache in caches_of(&of_cpu(cpu)) {
                if !caches.contains(&cache) {
                    caches.push(cache);
                }
            }
        }
        caches.sort_by_key(|cache| cache.level);
        let interrupts = Interrupts::read(&root.join("proc"));
        Machine {
            cores,
            caches,
            numa_nodes: numa_nodes(&root.join("sys/devices/system/node")),
            nics: nics(&root.join("sys/class/net"), &interrupts),
        }
    }

    /// Returns all processors, in order.
    #[must_use]
    pub fn cpus(&self) -> Vec<CpuId> {
        let mut cpus: Vec<CpuId> = self.cores.iter().flatten().copied().collect();
        cpus.sort_unstable();
        cpus
    }

    /// Returns the machine with these processors only, for a process that may use no others.
    #[must_use]
    pub fn restricted_to(mut self, cpus: &[CpuId]) -> Machine {
        for core in &mut self.cores {
            core.retain(|cpu| cpus.contains(cpu));
        }
        self.cores.retain(|core| !core.is_empty());
        self
    }

    /// Returns where `nodes` nodes of a job run best on this machine, and why.
    ///
    /// A node whose share is two physical cores or more gives the last of them to communication.
    /// On one core with SMT, communication takes the sibling. Otherwise a thread of its own would
    /// only take the application's core away, so communication stays with the thread that waits.
    #[must_use]
    pub fn advice(&self, nodes: usize) -> Advice {
        let cores = self.cores_by_distance();
        let nodes = nodes.max(1);
        if cores.len() < nodes {
            return Advice {
                bind: None,
                why: format!(
                    "{nodes} nodes share {} cores: the system moves them as they wait",
                    cores.len()
                ),
            };
        }
        let mut bind = CoreBinding::default();
        let per_node = cores.len() / nodes;
        let firsts = |cores: &[&Vec<CpuId>]| -> Vec<CpuId> {
            cores.iter().flat_map(|core| core.first()).copied().collect()
        };
        for share in cores.chunks(per_node).take(nodes) {
            match share.split_last() {
                Some((engine, app)) if !app.is_empty() => {
                    bind.app.extend(firsts(app));
                    bind.engine.extend(engine.first());
                }
                _ => {
                    bind.app.extend(firsts(share));
                    bind.engine.extend(share.iter().filter_map(|core| core.get(1)));
                }
            }
        }
        if bind.engine.len() < nodes {
            // Some cores have no sibling. All nodes get the same.
            bind.engine.clear();
        }
        let why = if per_node > 1 {
            "communication has a core of its own".to_owned()
        } else if bind.engine.is_empty() {
            "each node has one core: communication stays with the thread that waits".to_owned()
        } else {
            "communication has the SMT sibling of the application's core".to_owned()
        };
        Advice { bind: Some(bind), why }
    }

    /// Returns the interrupts of network interfaces that go to the application's cores of `bind`,
    /// though the engine, or else nobody, has cores that could serve them.
    #[must_use]
    pub fn misplaced_interrupts(&self, bind: &CoreBinding) -> Vec<MisplacedInterrupts> {
        let mut better = bind.engine.clone();
        if better.is_empty() {
            better = self.cpus();
        }
        better.retain(|cpu| !bind.app.contains(cpu));
        if better.is_empty() {
            return Vec::new();
        }
        let of_nic = |nic: &Nic| {
            let its = nic.targets.iter().filter_map(|(number, cpus)| {
                let taken: Vec<CpuId> =
                    cpus.iter().copied().filter(|cpu| bind.app.contains(cpu)).collect();
                (!taken.is_empty()).then_some((*number, taken))
            });
            let (interrupts, cores): (Vec<u32>, Vec<Vec<CpuId>>) = its.unzip();
            let cores = ordered(cores.into_iter().flatten().collect());
            let (nic, better) = (nic.name.clone(), better.clone());
            (!interrupts.is_empty()).then_some(MisplacedInterrupts {
                nic,
                interrupts,
                cores,
                better,
            })
        };
        self.nics.iter().filter_map(of_nic).collect()
    }

    /// Returns the physical cores, those farthest from the network cards first. The last core of
    /// each share is the engine's, so the core nearest to the card is the engine's.
    fn cores_by_distance(&self) -> Vec<&Vec<CpuId>> {
        let near: Vec<u32> = self.nics.iter().filter_map(|nic| nic.numa_node).collect();
        let is_near = |core: &Vec<CpuId>| {
            self.numa_nodes.iter().any(|(node, cpus)| {
                near.contains(node) && core.iter().any(|cpu| cpus.contains(cpu))
            })
        };
        // The sort is stable, so adjacent cores stay together.
        let mut cores: Vec<&Vec<CpuId>> = self.cores.iter().collect();
        cores.sort_by_key(|core| is_near(core));
        cores
    }
}

/// Recommended placement of the nodes of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Cores of applications and engines; `None` if nothing should be bound.
    pub bind: Option<CoreBinding>,
    /// Reason, for the user.
    pub why: String,
}

/// Returns the processors in order, each once.
fn ordered(mut cpus: Vec<CpuId>) -> Vec<CpuId> {
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn read_list(path: &Path) -> Option<Vec<CpuId>> {
    parse_cpulist(&read(path)?)
}

/// Returns the names in a directory, in order.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns the caches of a processor that hold data.
fn caches_of(cpu: &Path) -> Vec<Cache> {
    let caches = cpu.join("cache");
    let of_index = |index: String| {
        let at = caches.join(index);
        let holds_data = read(&at.join("type"))? != "Instruction";
        let level = read(&at.join("level"))?.parse().ok()?;
        let cpus = read_list(&at.join("shared_cpu_list"))?;
        let size = read(&at.join("size")).unwrap_or_else(|| "unknown".into());
        holds_data.then_some(Cache { level, size, cpus })
    };
    let indexes = names(&caches).into_iter().filter(|name| name.starts_with("index"));
    indexes.filter_map(of_index).collect()
}

fn numa_nodes(nodes: &Path) -> BTreeMap<u32, Vec<CpuId>> {
    let of_node = |name: String| {
        let number = name.strip_prefix("node")?.parse().ok()?;
        // A node with memory alone has an empty list.
        Some((number, read_list(&nodes.join(name).join("cpulist"))?))
    };
    names(nodes).into_iter().filter_map(of_node).collect()
}

/// Interrupts of the machine, by number.
#[derive(Debug, Default)]
struct Interrupts(BTreeMap<u32, Interrupt>);

#[derive(Debug)]
struct Interrupt {
    /// Words that follow the counts: the controller, and the names of the devices.
    devices: String,
    /// Processors that have served it.
    served_by: Vec<CpuId>,
    /// Processors that may serve it.
    affinity: Vec<CpuId>,
    /// Processors that the kernel has chosen among those that may serve it, if it says so.
    effective: Vec<CpuId>,
}

impl Interrupt {
    /// Returns the processors that serve it now. Those that served it before its affinity was
    /// changed are left out.
    fn targets(&self) -> Vec<CpuId> {
        if !self.effective.is_empty() {
            return self.effective.clone();
        }
        let may_serve = |cpu: &CpuId| self.affinity.is_empty() || self.affinity.contains(cpu);
        let served: Vec<CpuId> = self.served_by.iter().copied().filter(may_serve).collect();
        if served.is_empty() { self.affinity.clone() } else { served }
    }
}

impl Interrupts {
    fn read(proc: &Path) -> Interrupts {
        let text = fs::read_to_string(proc.join("interrupts")).unwrap_or_default();
        let mut lines = text.lines();
        let column = |word: &str| word.strip_prefix("CPU")?.parse::<CpuId>().ok();
        let columns: Vec<CpuId> =
            lines.next().unwrap_or_default().split_whitespace().filter_map(column).collect();
        let of_line = |line: &str| {
            let (number, rest) = line.split_once(':')?;
            let number: u32 = number.trim().parse().ok()?;
            let counts = rest.split_whitespace().take(columns.len());
            let served = columns.iter().zip(counts).filter(|(_, count)| *count != "0");
            let served_by = served.map(|(cpu, _)| *cpu).collect();
            let words: Vec<&str> = rest.split_whitespace().skip(columns.len()).collect();
            let list = |file: &str| {
                read_list(&proc.join(format!("irq/{number}/{file}"))).unwrap_or_default()
            };
            let interrupt = Interrupt {
                devices: words.join(" "),
                served_by,
                affinity: list("smp_affinity_list"),
                effective: list("effective_affinity_list"),
            };
            Some((number, interrupt))
        };
        Interrupts(lines.filter_map(of_line).collect())
    }

    /// Returns the interrupts of a network interface: those that its device lists, and those that
    /// carry its name, or the name of its device (such as `virtio0`).
    fn of(&self, name: &str, device: &str, listed: &[u32]) -> BTreeMap<u32, &Interrupt> {
        let has_name = |devices: &str, name: &str| {
            !name.is_empty()
                && devices
                    .split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.')
                    .any(|word| word == name)
        };
        let is_its = |(number, interrupt): &(&u32, &Interrupt)| {
            listed.contains(number)
                || has_name(&interrupt.devices, name)
                || has_name(&interrupt.devices, device)
        };
        self.0.iter().filter(is_its).map(|(number, interrupt)| (*number, interrupt)).collect()
    }
}

fn nics(interfaces: &Path, interrupts: &Interrupts) -> Vec<Nic> {
    let of_interface = |name: String| {
        let device = interfaces.join(&name).join("device");
        let directory = fs::canonicalize(&device).ok()?;
        let device_name = directory.file_name()?.to_str()?.to_owned();
        // -1 where there is but one NUMA node.
        let numa_node = read(&device.join("numa_node")).and_then(|text| text.parse().ok());
        let listed: Vec<u32> =
            names(&device.join("msi_irqs")).iter().filter_map(|name| name.parse().ok()).collect();
        let its = interrupts.of(&name, &device_name, &listed);
        let has_served = |interrupt: &&Interrupt| !interrupt.served_by.is_empty();
        let is_used = its.values().any(has_served);
        let cpus = its
            .values()
            .flat_map(|interrupt| if is_used { &interrupt.served_by } else { &interrupt.affinity });
        let cpus = ordered(cpus.copied().collect());
        let in_use = its.iter().filter(|(_, interrupt)| !is_used || has_served(interrupt));
        let targets = in_use.map(|(number, interrupt)| (*number, interrupt.targets())).collect();
        let interrupts = its.len();
        (interrupts > 0).then_some(Nic { name, numa_node, interrupts, cpus, targets })
    };
    names(interfaces).into_iter().filter_map(of_interface).collect()
}

impl std::fmt::Display for Nic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {} interrupts on cores {}",
            self.name,
            self.interrupts,
            cpulist(&self.cpus)
        )?;
        match self.numa_node {
            Some(node) => write!(f, ", NUMA node {node}"),
            None => Ok(()),
        }
    }
}
