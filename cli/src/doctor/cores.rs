//! Cores of this machine, what they share, and where applications and communication run best.

use super::{Line, word};
use oikaze_os::cpu::{Machine, Topology, cpulist};
use oikaze_os::probe::Suitability;

/// Number of caches, NUMA nodes or interfaces that are listed.
const SHOWN: usize = 16;

/// Returns what is known of the cores, and the recommended placement of nodes.
pub fn lines() -> Vec<Line> {
    let machine = Machine::here();
    let allowed = Topology::detect().map_or_else(|_| machine.cpus(), |topology| topology.cpus);
    lines_of(&machine, &allowed)
}

fn lines_of(machine: &Machine, allowed: &[usize]) -> Vec<Line> {
    let smt = machine.cores.iter().filter(|core| core.len() > 1).map(|core| cpulist(core));
    let siblings = some_of(smt);
    let cores = format!(
        "{} cores, {} processors{}; this process may use {}",
        machine.cores.len(),
        machine.cpus().len(),
        if siblings.is_empty() { String::new() } else { format!(", SMT siblings {siblings}") },
        cpulist(allowed)
    );
    let caches = some_of(
        machine
            .caches
            .iter()
            .map(|cache| format!("L{} {} of {}", cache.level, cache.size, cpulist(&cache.cpus))),
    );
    let numa = some_of(
        machine.numa_nodes.iter().map(|(node, cpus)| format!("node {node}: {}", cpulist(cpus))),
    );
    let nics = some_of(machine.nics.iter().map(ToString::to_string));
    vec![
        line("cores", cores, "one for each node, and one more for its communication"),
        line("caches", caches, "a node and its engine are nearest if they share one"),
        line("NUMA nodes", numa, "the engine belongs to the node of the network card"),
        line(
            "network interrupts",
            nics,
            "best on the engine's cores (/proc/irq/N/smp_affinity_list), not on the application's",
        ),
        line(
            "placement",
            placement(&machine.clone().restricted_to(allowed)),
            "for programs that communicate much; `--bind auto` chooses the same",
        ),
    ]
}

/// Returns the recommended options of `oikaze run` for one node and for two.
fn placement(machine: &Machine) -> String {
    let advice = [1, 2].map(|nodes| {
        let advice = machine.advice(nodes);
        let options = advice.bind.map(|bind| format!("--bind {bind} "));
        let nodes = if nodes == 1 { "one node".to_owned() } else { format!("{nodes} nodes") };
        format!("{nodes}: {}({})", options.unwrap_or_default(), advice.why)
    });
    advice.join("; ")
}

fn some_of(texts: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = texts.collect();
    let more = all.len().saturating_sub(SHOWN);
    let mut text = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 {
        text += &format!(", and {more} more");
    }
    text
}

fn line(what: &str, found: String, needed: &str) -> Line {
    let found = if found.is_empty() { "the system does not say".to_owned() } else { found };
    Line {
        what: what.to_owned(),
        found,
        needed: needed.to_owned(),
        ok: word(Suitability::Good),
        fix: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_that_says_nothing_is_reported_as_that() {
        let lines = lines_of(&Machine::default(), &[]);
        let found = |what: &str| {
            lines.iter().find(|line| line.what == what).map(|line| line.found.clone()).unwrap()
        };
        assert_eq!(found("caches"), "the system does not say");
        assert!(found("placement").contains("one node: (1 nodes share 0 cores"), "{lines:?}");
    }

    #[test]
    fn cores_and_advice_are_listed() {
        let machine = Machine {
            cores: vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]],
            ..Machine::default()
        };
        let lines = lines_of(&machine, &[0, 1, 2, 4, 5]);
        let found: Vec<&str> = lines.iter().map(|line| line.found.as_str()).collect();
        assert_eq!(
            found[0],
            "4 cores, 8 processors, SMT siblings 0,4, 1,5, 2,6, 3,7; this process may use 0-2,4-5"
        );
        assert_eq!(
            found[4],
            "one node: --bind app=0-1,engine=2 (communication has a core of its own); \
             2 nodes: --bind app=0-1,engine=4-5 (communication has the SMT sibling of the \
             application's core)"
        );
    }
}
