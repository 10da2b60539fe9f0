//! Cores of this machine, what they share, and where applications and communication run best.

use super::{Line, word};
use oikaze_launch::environment::BIND;
use oikaze_os::cpu::{
    CoreBinding, Machine, MisplacedInterrupts, Topology, cpulist, may_be_real_time,
};
use oikaze_os::probe::Suitability;

/// Number of caches, NUMA nodes or interfaces that are listed.
const SHOWN: usize = 16;

/// Returns what is known of the cores, and the recommended placement of nodes.
pub fn lines() -> Vec<Line> {
    let machine = Machine::here();
    let allowed = Topology::detect().map_or_else(|_| machine.cpus(), |topology| topology.cpus);
    let bind = std::env::var(BIND).ok().and_then(|words| words.parse().ok());
    let mut lines = lines_of(&machine, &allowed, bind);
    let autogroup = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").ok();
    lines.push(sharing(autogroup.as_deref(), may_be_real_time()));
    lines
}

/// Returns whether threads that share their core with busy programs are woken at once. `autogroup`
/// is the content of `kernel.sched_autogroup_enabled`, if the kernel has it.
fn sharing(autogroup: Option<&str>, may_be_real_time: bool) -> Line {
    let is_grouped = autogroup.is_some_and(|text| text.trim() != "0");
    let found = format!(
        "kernel.sched_autogroup_enabled is {}; a real-time class is {}",
        autogroup.map_or("not there", str::trim),
        if may_be_real_time { "permitted" } else { "not permitted" }
    );
    let needed = "servers and engines that share a core with other sessions are woken at once";
    let mut line = line("shared cores", found, needed);
    if is_grouped && !may_be_real_time {
        // Each session counts as one thread, so a server that has slept waits for busy sessions.
        line.ok = word(Suitability::Degraded);
        line.fix = "only for engine mode process or thread on shared cores: sysctl -w kernel.sched_autogroup_enabled=0 (as root), or permit a real-time class (ulimit -r 1, or CAP_SYS_NICE)".to_owned();
    }
    line
}

/// Returns the lines. `bind` is what the user has chosen; otherwise it is what is recommended.
fn lines_of(machine: &Machine, allowed: &[usize], bind: Option<CoreBinding>) -> Vec<Line> {
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
    let mut interrupts = line(
        "network interrupts",
        nics,
        "best on the engine's cores (/proc/irq/N/smp_affinity_list), not on the application's",
    );
    let recommended = machine.clone().restricted_to(allowed);
    let bind = bind.or_else(|| recommended.advice(1).bind).unwrap_or_default();
    let fixes: Vec<String> =
        machine.misplaced_interrupts(&bind).iter().map(|found| fix(found, &bind)).collect();
    if !fixes.is_empty() {
        interrupts.ok = word(Suitability::Degraded);
        interrupts.fix = fixes.join("; ");
    }
    vec![
        line("cores", cores, "one for each node, and one more for its communication"),
        line("caches", caches, "a node and its engine are nearest if they share one"),
        line("NUMA nodes", numa, "the engine belongs to the node of the network card"),
        interrupts,
        line(
            "placement",
            placement(&recommended),
            "for programs that communicate much; `--bind auto` chooses the same",
        ),
    ]
}

/// Returns how to move interrupts away from the application's cores of `bind`.
fn fix(found: &MisplacedInterrupts, bind: &CoreBinding) -> String {
    let MisplacedInterrupts { nic, interrupts, cores, better } = found;
    let numbers: Vec<String> = interrupts.iter().map(ToString::to_string).collect();
    format!(
        "interrupts of {nic} go to cores {}, which --bind {bind} gives to the application: \
         for N in {}; do echo {} > /proc/irq/$N/smp_affinity_list; done (as root, without irqbalance), or choose another --bind",
        cpulist(cores),
        numbers.join(" "),
        cpulist(better)
    )
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
    use oikaze_os::cpu::Nic;
    use std::collections::BTreeMap;

    #[test]
    fn machine_that_says_nothing_is_reported_as_that() {
        let lines = lines_of(&Machine::default(), &[], None);
        let found = |what: &str| {
            lines.iter().find(|line| line.what == what).map(|line| line.found.clone()).unwrap()
        };
        assert_eq!(found("caches"), "the system does not say");
        assert!(found("placement").contains("one node: (1 nodes share 0 cores"), "{lines:?}");
    }

    #[test]
    fn sessions_that_are_grouped_are_degraded_without_a_real_time_class() {
        for (autogroup, may_be_real_time, ok) in [
            (Some("1\n"), false, "degraded"),
            (Some("1\n"), true, "good"),
            (Some("0\n"), false, "good"),
            (None, false, "good"),
        ] {
            let line = sharing(autogroup, may_be_real_time);
            assert_eq!(line.ok, ok, "{line:?}");
            assert!(line.found.contains("kernel.sched_autogroup_enabled"), "{line:?}");
            assert_eq!(line.fix.contains("sched_autogroup_enabled=0"), ok != "good", "{line:?}");
        }
    }

    #[test]
    fn cores_and_advice_are_listed() {
        let machine = Machine {
            cores: vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]],
            ..Machine::default()
        };
        let lines = lines_of(&machine, &[0, 1, 2, 4, 5], None);
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

    #[test]
    fn interrupts_on_cores_of_the_application_have_a_fix() {
        let nic = Nic {
            name: "eth0".into(),
            numa_node: None,
            interrupts: 2,
            cpus: vec![0, 1],
            targets: BTreeMap::from([(26, vec![0]), (27, vec![0, 1])]),
        };
        let machine =
            Machine { cores: vec![vec![0], vec![1]], nics: vec![nic], ..Machine::default() };
        let line = |bind: Option<&str>| {
            let bind = bind.map(|words| words.parse().unwrap());
            let mut lines = lines_of(&machine, &[0, 1], bind).into_iter();
            lines.find(|line| line.what == "network interrupts").unwrap()
        };
        let advised = line(None);
        assert_eq!(advised.ok, "degraded");
        assert_eq!(
            advised.fix,
            "interrupts of eth0 go to cores 0, which --bind app=0,engine=1 gives to the application: \
             for N in 26 27; do echo 1 > /proc/irq/$N/smp_affinity_list; done (as root, without irqbalance), or choose another --bind"
        );
        let chosen = line(Some("app=1,engine=0"));
        assert!(chosen.fix.contains("for N in 27; do echo 0 "), "{}", chosen.fix);
        let everywhere = line(Some("app=0-1"));
        assert_eq!((everywhere.ok, everywhere.fix.as_str()), ("good", ""));
    }
}
