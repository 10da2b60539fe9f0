//! Model of collectives among many nodes: the real plans of all nodes, in a network with a clock of
//! its own. It is not a simulation of the engine: nothing is lost, and no node ever waits for a
//! core.
//!
//! A message costs its sender and its receiver [`OVERHEAD_US`] each. Its first byte is under way
//! for [`LATENCY_US`]. The link of a node carries one message at a time in each direction, at
//! [`BYTES_A_US`]. Nodes copy and combine at [`LOCAL_BYTES_A_US`]. The paths between different
//! nodes have nothing in common. These are the parameters of the LogGP model (Alexandrov et al.,
//! 1995).

use std::collections::HashMap;

use oikaze_protocol::coherence::BarrierLinks;
use oikaze_protocol::collective::{
    Arrival, CollectiveAlgorithm, CollectiveKind, Facts, Lengths, PlanRequest, PlanStep, choose,
    plan,
};

use super::case::Case;
use crate::error::Error;

/// Time of the first byte from node to node, in µs.
const LATENCY_US: f64 = 5.0;
/// Time that a message costs the processor of each of its ends, in µs.
const OVERHEAD_US: f64 = 0.5;
/// Bandwidth of a link, in bytes per µs.
const BYTES_A_US: f64 = 3000.0;
/// Rate at which a node copies or combines, in bytes per µs.
const LOCAL_BYTES_A_US: f64 = 8000.0;
/// Bytes of a message beside its body.
const HEAD: usize = 64;

/// Step of a node, as far as it takes time.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send { to: u32, round: u32, bytes: u32 },
    Receive { from: u32, round: u32, bytes: u32 },
    Local { bytes: u32 },
}

/// Returns the time in µs from the common begin until the last node has its result.
///
/// # Errors
/// There is no plan, or the plans of the nodes do not fit together.
pub fn time(case: Case, size: usize, nodes: u32) -> Result<f64, Error> {
    let Some(kind) = kind_of(case) else {
        return run((0..nodes).map(|rank| barrier(rank, nodes)).collect());
    };
    let all = if case == Case::AllGather { nodes as usize } else { 1 };
    let bytes = size.saturating_mul(all);
    let ranks = nodes as usize;
    let facts =
        Facts { kind, bytes, ranks, commutes: true, several_machines: false, has_group: false };
    time_by(kind, choose(&facts), size, nodes)
}

/// Returns the time as [`time`] does, of a collective by one algorithm.
fn time_by(
    kind: CollectiveKind,
    algorithm: CollectiveAlgorithm,
    size: usize,
    nodes: u32,
) -> Result<f64, Error> {
    let steps = |rank| steps_of_plan(kind, algorithm, size, (rank, nodes));
    run((0..nodes).map(steps).collect::<Result<_, _>>()?)
}

/// Returns the kind of the plans of a case. A barrier has no plan.
fn kind_of(case: Case) -> Option<CollectiveKind> {
    match case {
        Case::Barrier => None,
        Case::Broadcast => Some(CollectiveKind::Broadcast),
        Case::AllReduce => Some(CollectiveKind::AllReduce),
        Case::AllGather => Some(CollectiveKind::AllGather),
        Case::AllToAll => Some(CollectiveKind::AllToAll),
    }
}

/// Returns the steps of a barrier. Arrivals go up the tree, and the departure comes down.
fn barrier(rank: u32, nodes: u32) -> Vec<Step> {
    let BarrierLinks { parent, children } = BarrierLinks::new(rank, nodes);
    let bytes = HEAD as u32;
    let send = |round| move |to| Step::Send { to, round, bytes };
    let receive = |round| move |from| Step::Receive { from, round, bytes };
    if nodes == 2 {
        let others = children.iter().copied();
        return others.clone().map(send(0)).chain(others.map(receive(0))).collect();
    }
    let arrivals = children.iter().copied().map(receive(0)).chain(parent.into_iter().map(send(0)));
    let departure = parent.into_iter().map(receive(1)).chain(children.iter().copied().map(send(1)));
    arrivals.chain(departure).collect()
}

fn steps_of_plan(
    kind: CollectiveKind,
    algorithm: CollectiveAlgorithm,
    size: usize,
    (rank, nodes): (u32, u32),
) -> Result<Vec<Step>, Error> {
    let element = size_of::<f64>();
    let count = size.div_ceil(element);
    let request = PlanRequest {
        kind,
        algorithm,
        rank,
        ranks: nodes,
        root: 0,
        lengths: Lengths::Even(count),
        element,
        commutes: true,
        machines: &[],
    };
    let plan = plan(&request).map_err(|why| Error::new(format!("planning {kind}: {why}")))?;
    let bytes = |len: usize| u32::try_from(len.saturating_mul(element)).unwrap_or(u32::MAX);
    let message = |len: usize| bytes(len).saturating_add(HEAD as u32);
    let mut steps: Vec<Step> = Vec::new();
    let local = |steps: &mut Vec<Step>, more: u32| match steps.last_mut() {
        // Copies of single blocks would fill the memory.
        Some(Step::Local { bytes }) => *bytes = bytes.saturating_add(more),
        _ => steps.push(Step::Local { bytes: more }),
    };
    for (round, step) in plan.steps {
        match step {
            PlanStep::Send { to, part } => {
                steps.push(Step::Send { to, round, bytes: message(part.len) });
            }
            PlanStep::Receive { from, part, how } => {
                steps.push(Step::Receive { from, round, bytes: message(part.len) });
                if matches!(how, Arrival::Combine(_)) {
                    local(&mut steps, bytes(part.len));
                }
            }
            PlanStep::Combine { new, .. } => local(&mut steps, bytes(new.len)),
            PlanStep::Copy { part, .. } => local(&mut steps, bytes(part.len)),
        }
    }
    Ok(steps)
}

/// Node of the model.
#[derive(Default)]
struct ModelNode {
    steps: Vec<Step>,
    next: usize,
    clock: f64,
    /// Times from which on the link is free.
    out_free: f64,
    in_free: f64,
}

/// Runs the steps of all nodes. Returns the time of the last one.
fn run(all: Vec<Vec<Step>>) -> Result<f64, Error> {
    let mut nodes: Vec<ModelNode> =
        all.into_iter().map(|steps| ModelNode { steps, ..ModelNode::default() }).collect();
    // Times at which the first bytes arrive, by sender, receiver and round.
    let mut under_way: HashMap<(u32, u32, u32), f64> = HashMap::new();
    let mut ready: Vec<u32> = (0..).take(nodes.len()).collect();
    while let Some(me) = ready.pop() {
        let Some(node) = nodes.get_mut(me as usize) else { continue };
        while let Some(&step) = node.steps.get(node.next) {
            match step {
                Step::Local { bytes } => node.clock += f64::from(bytes) / LOCAL_BYTES_A_US,
                Step::Send { to, round, bytes } => {
                    node.clock += OVERHEAD_US;
                    let start = node.clock.max(node.out_free);
                    node.out_free = start + f64::from(bytes) / BYTES_A_US;
                    under_way.insert((me, to, round), start + LATENCY_US);
                    ready.push(to);
                }
                Step::Receive { from, round, bytes } => {
                    let Some(arrival) = under_way.remove(&(from, me, round)) else { break };
                    let end = arrival.max(node.in_free) + f64::from(bytes) / BYTES_A_US;
                    node.in_free = end;
                    node.clock = node.clock.max(end) + OVERHEAD_US;
                }
            }
            node.next += 1;
        }
    }
    if !under_way.is_empty() || nodes.iter().any(|node| node.next < node.steps.len()) {
        return Err(Error::new("the plans of the nodes do not fit together (a defect)"));
    }
    Ok(nodes.iter().map(|node| node.clock).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::super::goals::GROWTH;
    use super::*;
    use crate::suite::case::{KIB, MIB};

    fn us(case: Case, size: usize, nodes: u32) -> f64 {
        time(case, size, nodes).expect("plans fit together")
    }

    /// Growth from two nodes, for each doubling of the nodes.
    fn growth(case: Case, size: usize, nodes: u32) -> f64 {
        us(case, size, nodes) / us(case, size, 2) / f64::from(nodes).log2().ceil()
    }

    /// COLL-2.3: the algorithms for short vectors take `log2(ranks)` rounds.
    #[test]
    fn time_of_short_vectors_grows_with_the_logarithm() {
        let cases = [Case::Broadcast, Case::AllReduce, Case::AllGather, Case::AllToAll];
        for (case, size) in cases.map(|case| (case, 8)).into_iter().chain([(Case::Barrier, 0)]) {
            for nodes in [2_u32, 3, 4, 5, 8, 12, 16, 33, 64, 100, 128, 256, 512, 1000, 1024] {
                // Nodes beyond a power of two take two rounds more.
                let rounds = f64::from(nodes).log2().ceil();
                let more = if nodes.is_power_of_two() { 0.0 } else { 2.0 / rounds };
                let grown = growth(case, size, nodes);
                assert!(grown <= GROWTH + more, "{case:?}, {nodes} nodes: {grown}");
            }
        }
    }

    #[test]
    fn time_of_exchanged_megabytes_grows_with_the_nodes() {
        for case in [Case::AllGather, Case::AllToAll] {
            let grown = us(case, MIB, 256) / us(case, MIB, 2);
            assert!((128.0..512.0).contains(&grown), "{case:?}: {grown}");
            assert!(growth(case, MIB, 256) > GROWTH, "{case:?} would pass the test above");
        }
    }

    /// COLL-2.4: a long vector is moved about twice, among any number of nodes.
    #[test]
    fn time_of_a_long_reduction_hardly_depends_on_the_nodes() {
        let once = 16.0 * MIB as f64 / BYTES_A_US;
        for nodes in [16, 64, 256] {
            let took = us(Case::AllReduce, 16 * MIB, nodes);
            assert!(took < 4.0 * once, "{nodes} nodes: {took} µs, and {once} µs once over a link");
        }
    }

    /// The table of choices is near the best algorithm of the model.
    #[test]
    fn chosen_algorithm_is_near_the_best_of_the_model() {
        const NEAR: f64 = 1.5;
        let cases = [Case::Broadcast, Case::AllReduce, Case::AllGather, Case::AllToAll];
        let mut far = String::new();
        for case in cases {
            let kind = kind_of(case).expect("it has plans");
            for nodes in [2_u32, 4, 8, 12, 32, 100] {
                for size in [8, 256, 4 * KIB, 32 * KIB, 256 * KIB, MIB, 4 * MIB] {
                    let by =
                        |algorithm| Some((time_by(kind, algorithm, size, nodes).ok()?, algorithm));
                    // No choice before the call: the root decides by whether a group is open.
                    let chosen_by_size =
                        |it: &CollectiveAlgorithm| *it != CollectiveAlgorithm::Multicast;
                    let all = CollectiveAlgorithm::ALL.into_iter().filter(chosen_by_size);
                    let all = all.filter_map(by);
                    let best = all.min_by(|one, other| one.0.total_cmp(&other.0));
                    let (best, name) = best.expect("some algorithm fits");
                    let chosen = us(case, size, nodes);
                    if chosen > NEAR * best {
                        let name = name.name();
                        far += &format!(
                            "{kind}, {nodes} nodes, {size} B: {chosen:.1} µs, {best:.1} by {name}\n"
                        );
                    }
                }
            }
        }
        assert!(far.is_empty(), "\n{far}");
    }

    #[test]
    fn one_message_takes_what_the_model_says() {
        let bytes = 64 * KIB;
        let expected = 2.0 * OVERHEAD_US + LATENCY_US + (bytes + HEAD) as f64 / BYTES_A_US;
        let found = us(Case::Broadcast, bytes, 2);
        assert!((found - expected).abs() < 1e-9, "{found} and {expected}");
    }

    #[test]
    fn plans_that_do_not_fit_are_an_error() {
        let lonely = vec![vec![Step::Receive { from: 1, round: 0, bytes: 1 }], Vec::new()];
        assert!(run(lonely).is_err());
        let unread = vec![Vec::new(), vec![Step::Send { to: 0, round: 0, bytes: 1 }]];
        assert!(run(unread).is_err());
    }
}
