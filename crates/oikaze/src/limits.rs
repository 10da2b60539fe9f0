//! Limits on the requests of programs. Each limit is checked before the first byte is sent, and the
//! error names the limit.
//!
//! `docs/LIMITS.md` lists the limits in a table, which a test compares with these constants.

pub use oikaze_os::memory::REGIONS_MAX;
pub use oikaze_protocol::coherence::{ARRAY_PAGES_MAX, REDUCE_MAX};
pub use oikaze_protocol::limits::{
    BODY_MAX, FIFO_ELEMENT_MAX, FIFO_SLOTS_MAX, LIST_MAX, MESSAGE_MAX, MESSAGES_OF_PROGRAM_MAX,
    NAME_MAX, NAMES_MAX, NODES_MAX, QUEUED_MAX,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::remote::COPY_MAX;
    use oikaze_protocol::coherence::{AXES_MAX, CONTROL_MAX};
    use oikaze_protocol::limits::{
        GRANTS, GROUP_MEMBERS_MAX, GROUP_STREAMS_MAX, LOCAL_PEERS_MAX, PAGE,
    };

    /// The table has each limit once, under its name, and nothing else.
    #[test]
    fn documented_limits_are_the_enforced_ones() {
        let enforced: [(&str, u64); 20] = [
            ("MESSAGE_MAX", MESSAGE_MAX),
            ("BODY_MAX", BODY_MAX),
            ("COPY_MAX", COPY_MAX as u64),
            ("QUEUED_MAX", QUEUED_MAX),
            ("MESSAGES_OF_PROGRAM_MAX", MESSAGES_OF_PROGRAM_MAX as u64),
            ("LIST_MAX", LIST_MAX as u64),
            ("REDUCE_MAX", REDUCE_MAX as u64),
            ("CONTROL_MAX", CONTROL_MAX),
            ("AXES_MAX", AXES_MAX as u64),
            ("ARRAY_PAGES_MAX", ARRAY_PAGES_MAX),
            ("FIFO_ELEMENT_MAX", FIFO_ELEMENT_MAX),
            ("FIFO_SLOTS_MAX", FIFO_SLOTS_MAX),
            ("NAME_MAX", NAME_MAX as u64),
            ("NAMES_MAX", NAMES_MAX as u64),
            ("REGIONS_MAX", REGIONS_MAX as u64),
            ("GRANTS", GRANTS as u64),
            ("GROUP_MEMBERS_MAX", GROUP_MEMBERS_MAX as u64),
            ("GROUP_STREAMS_MAX", GROUP_STREAMS_MAX as u64),
            ("NODES_MAX", NODES_MAX.into()),
            ("LOCAL_PEERS_MAX", LOCAL_PEERS_MAX as u64),
        ];
        let table = include_str!("../../../docs/LIMITS.md");
        let rows = table.lines().filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, _, number, name, ..] = cells.as_slice() else { return None };
            let number: u64 = number.split(' ').next()?.replace(',', "").parse().ok()?;
            Some((name.trim_matches('`').to_owned(), number))
        });
        let documented: std::collections::BTreeMap<String, u64> = rows.collect();
        assert_eq!(
            documented,
            enforced.into_iter().map(|(name, limit)| (name.to_owned(), limit)).collect()
        );
        assert_eq!(PAGE, 4096, "the table says it of ARRAY_PAGES_MAX");
    }
}
