//! Placement of the nodes on hosts.

use super::error::LaunchError;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::NODES_MAX;
use std::ops::Range;
use std::str::FromStr;

/// A host as the user names it: `name` or `user@name`, with `:K` for its number of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name of the host, as ssh takes it.
    pub name: String,
    /// Number of nodes, if given.
    pub nodes: Option<u32>,
}

impl FromStr for Host {
    type Err = String;
    fn from_str(text: &str) -> Result<Host, String> {
        // An IPv6 address has more than one colon and no count unless it stands in brackets.
        let (name, count) = match text.rsplit_once(':') {
            Some((name, count)) if !name.contains(':') || name.ends_with(']') => {
                (name, Some(count))
            }
            _ => (text, None),
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        if name.is_empty()
            || name.starts_with('-')
            || name.contains(|c: char| c.is_whitespace() || c.is_control())
        {
            return Err(format!("{text:?} is not a host: give NAME, USER@NAME or NAME:NODES"));
        }
        let nodes = match count.map(str::parse) {
            None => None,
            Some(Ok(nodes)) if (1..=NODES_MAX).contains(&nodes) => Some(nodes),
            Some(_) => {
                return Err(format!(
                    "{text:?}: after the colon stands how many nodes, 1 to {NODES_MAX}"
                ));
            }
        };
        Ok(Host { name: name.to_owned(), nodes })
    }
}

/// Returns the ranks of each host, in blocks.
///
/// # Errors
/// The counts do not fit each other.
pub fn place(nodes: Option<u32>, hosts: &[Host]) -> Result<Vec<Range<Rank>>, LaunchError> {
    // A host without a number has one node, if other hosts have a number.
    let said = hosts.iter().any(|host| host.nodes.is_some());
    let said = said.then(|| hosts.iter().map(|host| host.nodes.unwrap_or(1)).collect::<Vec<u32>>());
    let hosts = u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
    let total = nodes.or_else(|| Some(said.as_ref()?.iter().sum())).unwrap_or(hosts);
    if !(1..=NODES_MAX).contains(&total) {
        return Err(LaunchError::Usage(format!("a job has 1 to {NODES_MAX} nodes, not {total}")));
    }
    let counts = said.unwrap_or_else(|| {
        (0..hosts).map(|host| total / hosts + u32::from(host < total % hosts)).collect()
    });
    let sum: u32 = counts.iter().sum();
    if sum != total {
        return Err(LaunchError::Usage(format!(
            "-n says {total} nodes, but --hosts has room for {sum}: leave one of them out"
        )));
    }
    let mut next = 0;
    Ok(counts
        .into_iter()
        .map(|count| {
            let block = next..next + count;
            next = block.end;
            block
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Vec<Host> {
        text.split(',').filter(|text| !text.is_empty()).map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn blocks() {
        let here = |nodes| place(nodes, &[]).unwrap().pop();
        assert_eq!((here(Some(4)), here(None)), (Some(0..4), Some(0..1)));
        assert_eq!(place(None, &hosts("a,b")).unwrap(), [0..1, 1..2]);
        assert_eq!(place(Some(5), &hosts("a,b")).unwrap(), [0..3, 3..5]);
        assert_eq!(place(Some(1), &hosts("a,b")).unwrap(), [0..1, 1..1]);
        assert_eq!(place(None, &hosts("a:3,b:1")).unwrap(), [0..3, 3..4]);
        assert_eq!(place(None, &hosts("a:3,b")).unwrap(), [0..3, 3..4]);
        assert!(place(Some(5), &hosts("a:3,b:1")).is_err());
        assert!(place(Some(0), &[]).is_err() && place(Some(NODES_MAX + 1), &[]).is_err());
    }

    #[test]
    fn names_of_hosts() {
        let host = |name: &str, nodes| Ok(Host { name: name.into(), nodes });
        assert_eq!("me@a:2".parse(), host("me@a", Some(2)));
        assert_eq!("fd00::1".parse(), host("fd00::1", None));
        assert_eq!("[fd00::1]:3".parse(), host("fd00::1", Some(3)));
        for bad in ["", "-oProxyCommand=x", "a b", "a:0", "a:x", ":1"] {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }
}
