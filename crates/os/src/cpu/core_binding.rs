//! Cores that the nodes of a job are bound to: those of applications, and those of engines.

use super::topology::{CpuId, NoCore, cpulist, parse_cpulist};
use std::fmt;
use std::str::FromStr;

/// Cores of applications and of engines on one machine, in the words `app=0-1,engine=2`.
///
/// The nodes of the machine divide each set among themselves in blocks. Where a set has fewer cores
/// than there are nodes, nodes share cores. So the four arrangements of paper 002 are, with two
/// nodes: `app=0,engine=1` (both concentrated), `app=0-1,engine=2` (communication concentrated),
/// `app=0,engine=1-2` (applications concentrated) and `app=0-1,engine=2-3` (both distributed).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreBinding {
    /// Cores of the applications. Not bound if empty.
    pub app: Vec<CpuId>,
    /// Cores of the engines' own threads. The engines stay inline if empty.
    pub engine: Vec<CpuId>,
}

impl CoreBinding {
    /// Returns the cores of node `node` among `nodes` nodes of one machine.
    #[must_use]
    pub fn share(&self, node: usize, nodes: usize) -> CoreBinding {
        CoreBinding { app: share(&self.app, node, nodes), engine: share(&self.engine, node, nodes) }
    }

    /// Returns a core that is not among the `cores` of the machine.
    #[must_use]
    pub fn outside(&self, cores: &[CpuId]) -> Option<NoCore> {
        NoCore::among(&self.app, cores).or_else(|| NoCore::among(&self.engine, cores))
    }
}

fn share(cores: &[CpuId], node: usize, nodes: usize) -> Vec<CpuId> {
    let nodes = nodes.max(1);
    if cores.len() < nodes {
        return cores.iter().cycle().skip(node).take(cores.len().min(1)).copied().collect();
    }
    let (begin, end) = (cores.len() * node / nodes, cores.len() * (node + 1) / nodes);
    cores.get(begin..end).unwrap_or_default().to_vec()
}

impl FromStr for CoreBinding {
    type Err = String;

    fn from_str(text: &str) -> Result<CoreBinding, String> {
        let wrong = || {
            format!("{text:?}: expected app=CORES,engine=CORES (such as app=0-2,engine=3), or auto")
        };
        let mut bind = CoreBinding::default();
        let mut current: Option<&mut Vec<CpuId>> = None;
        for part in text.split(',') {
            let cores = match part.split_once('=') {
                Some((name, cores)) => {
                    let set = match name {
                        "app" => &mut bind.app,
                        "engine" => &mut bind.engine,
                        _ => return Err(wrong()),
                    };
                    if !set.is_empty() {
                        return Err(wrong());
                    }
                    current = Some(set);
                    cores
                }
                None => part,
            };
            let set = current.as_mut().ok_or_else(wrong)?;
            set.extend(parse_cpulist(cores).ok_or_else(wrong)?);
        }
        Ok(bind)
    }
}

impl fmt::Display for CoreBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sets = [("app", &self.app), ("engine", &self.engine)];
        let sets = sets.iter().filter(|(_, cores)| !cores.is_empty());
        let texts: Vec<String> =
            sets.map(|(name, cores)| format!("{name}={}", cpulist(cores))).collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(text: &str) -> CoreBinding {
        text.parse().unwrap()
    }

    #[test]
    fn words_are_read_and_written() {
        assert_eq!(bind("app=0,2,engine=1"), CoreBinding { app: vec![0, 2], engine: vec![1] });
        assert_eq!(bind("engine=2-3,6"), CoreBinding { app: vec![], engine: vec![2, 3, 6] });
        for text in ["app=0,engine=1", "app=0-3,8,engine=4-5", "app=7", "engine=1"] {
            assert_eq!(bind(text).to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "0",
            "app",
            "app=",
            "app=x",
            "cpu=0",
            "app=0,app=1",
            "app=1-0x",
            "app=0,,1",
            "app=3-1",
        ] {
            let why = text.parse::<CoreBinding>().unwrap_err();
            assert!(why.contains("expected app=CORES"), "{text}: {why}");
        }
    }

    /// Paper 002: applications concentrated or distributed × communication concentrated or
    /// distributed.
    #[test]
    fn four_arrangements_of_two_nodes() {
        let shares = |text| [0, 1].map(|node| bind(text).share(node, 2).to_string());
        assert_eq!(shares("app=0,engine=1"), ["app=0,engine=1", "app=0,engine=1"]);
        assert_eq!(shares("app=0-1,engine=2"), ["app=0,engine=2", "app=1,engine=2"]);
        assert_eq!(shares("app=0,engine=1-2"), ["app=0,engine=1", "app=0,engine=2"]);
        assert_eq!(shares("app=0-1,engine=2-3"), ["app=0,engine=2", "app=1,engine=3"]);
    }

    #[test]
    fn sets_are_divided_in_blocks_and_shared_where_short() {
        let shares = |nodes| (0..nodes).map(move |node| bind("app=0-6").share(node, nodes).app);
        assert_eq!(shares(1).collect::<Vec<_>>(), [[0, 1, 2, 3, 4, 5, 6]]);
        assert_eq!(shares(2).collect::<Vec<_>>(), [vec![0, 1, 2], vec![3, 4, 5, 6]]);
        let many: Vec<_> = shares(9).flatten().collect();
        assert_eq!(many, [0, 1, 2, 3, 4, 5, 6, 0, 1]);
        assert!(shares(3).all(|share| !share.is_empty()));
        let outside = |text| bind(text).outside(&[0, 1, 2, 3, 4, 6]).map(|no| no.core);
        assert_eq!((outside("app=0-6"), outside("app=0,engine=7,5")), (Some(5), Some(7)));
        assert_eq!(outside("app=0-4,engine=6"), None);
    }
}
