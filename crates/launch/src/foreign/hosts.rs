//! Finds the nodes of one host, where the launcher does not say which they are (LAUNCH-9.5).

use crate::JobError;
use crate::addresses::HostIdentity;
use crate::bootstrap::Bootstrap;
use crate::clock::Clock;
use crate::store::Client;
use std::collections::HashMap;
use std::time::Duration;

/// Key of the table that rank 0 publishes.
const TABLE: &str = "hosts";

/// Time beyond the limit that the other nodes have to hear of rank 0 what has happened.
const TELL_TIME: Duration = Duration::from_secs(10);

/// Returns this node's place among those on its host, and their number. All nodes call it.
pub(super) fn find(client: &Client, limit: Duration) -> Result<(u32, u32), JobError> {
    let host = HostIdentity::here()?;
    let name = format!("{} {}", host.boot_id, host.network);
    client.put(&key(client.rank()), name.as_bytes())?;
    if client.rank() == 0 {
        let table = gathered(client, limit).inspect_err(|why| {
            // The others wait for the table, and shall hear why it does not come.
            client.abort(&why.to_string());
        })?;
        client.put(TABLE, table.as_bytes())?;
    }
    // Rank 0 says within the limit who is missing.
    let table = client.get(TABLE, limit + TELL_TIME)?;
    let table = String::from_utf8_lossy(&table);
    place_of(client.rank(), &table).ok_or_else(|| JobError::Malformed {
        rank: 0,
        what: "the nodes of each host",
        why: format!("it has no place of node {}", client.rank()),
    })
}

fn key(rank: u32) -> String {
    format!("host/{rank}")
}

/// Waits for the hosts of all nodes, and returns the table: each rank's place
/// on its host, a slash, and the number of nodes there.
fn gathered(client: &Client, limit: Duration) -> Result<String, JobError> {
    let mut clock = Clock::new();
    let host = |rank| match client.get(&key(rank), limit.saturating_sub(clock.now())) {
        Err(JobError::TimedOut { .. }) => Err(JobError::NotJoined { rank, limit }),
        other => other,
    };
    let hosts: Vec<Vec<u8>> = (0..client.size()).map(host).collect::<Result<_, _>>()?;
    Ok(table_of(&hosts))
}

fn table_of(hosts: &[Vec<u8>]) -> String {
    let mut counts: HashMap<&[u8], u32> = HashMap::new();
    let mut places = Vec::with_capacity(hosts.len());
    for host in hosts {
        let count = counts.entry(host).or_default();
        places.push(*count);
        *count += 1;
    }
    let number = |host: &Vec<u8>| counts.get(host.as_slice()).copied().unwrap_or(1);
    let rows = places.iter().zip(hosts).map(|(place, host)| format!("{place}/{}", number(host)));
    rows.collect::<Vec<_>>().join(" ")
}

fn place_of(rank: u32, table: &str) -> Option<(u32, u32)> {
    let (place, number) = table.split(' ').nth(rank as usize)?.split_once('/')?;
    let (place, number) = (place.parse().ok()?, number.parse().ok()?);
    (place < number).then_some((place, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_host_are_numbered_in_the_order_of_their_ranks() {
        let hosts = [&b"a"[..], b"b", b"a", b"c", b"a"].map(<[u8]>::to_vec);
        let table = table_of(&hosts);
        let places: Vec<_> = (0..5).map(|rank| place_of(rank, &table)).collect();
        assert_eq!(places, [(0, 3), (0, 1), (1, 3), (0, 1), (2, 3)].map(Some));
        assert_eq!(place_of(5, &table), None);
        assert_eq!(place_of(0, "3/2"), None);
        assert_eq!(place_of(0, "x"), None);
    }
}
