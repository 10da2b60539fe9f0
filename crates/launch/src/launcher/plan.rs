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
        let wrong = || {
            format!(
                "{text:?} is not a host: give NAME, USER@NAME or NAME:NODES, with an IPv6 address \
                 in brackets ([fd00::1]:NODES)"
            )
        };
        let (name, count) = split_host(text).ok_or_else(wrong)?;
        let nodes = match count.map(str::parse) {
            None => None,
            Some(Ok(nodes)) if (1..=NODES_MAX).contains(&nodes) => Some(nodes),
            Some(_) => {
                return Err(format!(
                    "{text:?}: after the colon stands how many nodes, 1 to {NODES_MAX}"
                ));
            }
        };
        Ok(Host { name, nodes })
    }
}

/// Splits a host into its name, as ssh takes it, and its number of nodes. Brackets around an
/// address only set it apart from the number: ssh takes none. Returns `None` if it is not a host.
fn split_host(text: &str) -> Option<(String, Option<&str>)> {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, text),
    };
    // `[user@address]:4` has the bracket in front of the user.
    let (user, host, is_open) = match (user, host.strip_prefix('[')) {
        (_, Some(host)) => (user, host, true),
        (Some(user), None) => match user.strip_prefix('[') {
            Some(user) => (Some(user), host, true),
            None => (Some(user), host, false),
        },
        (None, None) => (None, host, false),
    };
    let (host, count) = if is_open {
        match host.split_once(']')? {
            (host, "") => (host, None),
            (host, rest) => (host, Some(rest.strip_prefix(':')?)),
        }
    } else {
        // An address without brackets has several colons, and no number of nodes.
        match host.split_once(':') {
            Some((name, count)) if !count.contains(':') => (name, Some(count)),
            _ => (host, None),
        }
    };
    let is_word = |word: &str| {
        let is_bad = |c: char| c.is_whitespace() || c.is_control() || "[]".contains(c);
        !word.is_empty() && !word.starts_with('-') && !word.contains(is_bad)
    };
    let name = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
    (is_word(host) && user.is_none_or(is_word)).then_some((name, count))
}

/// Returns the ranks of each host, in blocks.
///
/// # Errors
/// The counts do not fit each other.
pub fn place(nodes: Option<u32>, hosts: &[Host]) -> Result<Vec<Range<Rank>>, LaunchError> {
    // A host without a number has one node, if other hosts have a number.
    let given = hosts.iter().any(|host| host.nodes.is_some());
    let given =
        given.then(|| hosts.iter().map(|host| host.nodes.unwrap_or(1)).collect::<Vec<u32>>());
    let hosts = u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
    let total = nodes.or_else(|| Some(given.as_ref()?.iter().sum())).unwrap_or(hosts);
    if !(1..=NODES_MAX).contains(&total) {
        return Err(LaunchError::Usage(format!("a job has 1 to {NODES_MAX} nodes, not {total}")));
    }
    let counts = given.unwrap_or_else(|| {
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
        for (text, name, nodes) in [
            ("me@a:2", "me@a", Some(2)),
            ("me@a", "me@a", None),
            ("a@b@c:2", "a@b@c", Some(2)),
            ("[a]:2", "a", Some(2)),
            ("fd00::1", "fd00::1", None),
            ("me@fd00::1", "me@fd00::1", None),
            ("[fd00::1]", "fd00::1", None),
            ("[fd00::1]:3", "fd00::1", Some(3)),
            ("me@[fd00::1]", "me@fd00::1", None),
            ("me@[fd00::1]:2", "me@fd00::1", Some(2)),
            ("[me@fd00::1]:2", "me@fd00::1", Some(2)),
            ("fe80::1%eth0", "fe80::1%eth0", None),
            ("[fe80::1%eth0]:4", "fe80::1%eth0", Some(4)),
            ("me@[fe80::1%eth0]:4", "me@fe80::1%eth0", Some(4)),
        ] {
            assert_eq!(text.parse(), host(name, nodes), "{text}");
        }
        for bad in [
            "",
            "-oProxyCommand=x",
            "me@-oProxyCommand=x",
            "a b",
            "a:0",
            "a:x",
            "a:",
            ":1",
            "@a",
            "me@",
            "me@:2",
            "[]",
            "me@[]:2",
            "[fd00::1",
            "fd00::1]",
            "fd00::1]:2",
            "[fd00::1]2",
            "[fd00::1]:",
            "[fd00::1]:0",
            "[[fd00::1]]",
            "a]b",
        ] {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }
}
