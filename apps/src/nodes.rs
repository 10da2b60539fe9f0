//! Table of each node's activity, collected from all nodes and printed below a result.

use std::fmt;

use oikaze::collective::operator::Sum;
use oikaze::job::NodeStatistics;
use oikaze::{Job, Result};

/// One column: its heading, and the source of its number.
struct Column {
    heading: &'static str,
    of: fn(&NodeStatistics) -> u64,
}

const COLUMNS: [Column; 8] = [
    Column { heading: "read faults", of: |node| node.read_faults },
    Column { heading: "write faults", of: |node| node.write_faults },
    Column { heading: "pages fetched", of: |node| node.pages_fetched },
    Column { heading: "diffs", of: |node| node.diffs },
    Column { heading: "bytes sent", of: |node| node.bytes_sent },
    Column { heading: "datagrams sent", of: |node| node.datagrams_sent },
    Column { heading: "received", of: |node| node.datagrams_received },
    Column { heading: "sent again", of: |node| node.retransmissions },
];

/// Table with one row for each node.
pub struct NodesTable {
    rows: Vec<[u64; COLUMNS.len()]>,
}

/// Collects the activity of every node so far. Collective.
///
/// # Errors
/// The reduction over all nodes fails.
pub fn nodes_table(job: &Job) -> Result<NodesTable> {
    let (statistics, width) = (job.statistics(), COLUMNS.len());
    // Each node fills its own row and leaves the others zero, so that the sum is the table.
    let mut cells = vec![0; job.size() as usize * width];
    for (cell, column) in cells.iter_mut().skip(job.rank() as usize * width).zip(&COLUMNS) {
        *cell = (column.of)(&statistics);
    }
    let cells = job.barrier_reduce_all::<u64>(&cells, Sum)?;
    Ok(NodesTable { rows: cells.as_chunks().0.to_vec() })
}

impl NodesTable {
    /// Returns the table for JSON: an object for each node, with the headings as names.
    #[must_use]
    pub fn rows(&self) -> serde_json::Value {
        let named = |row: &[u64; COLUMNS.len()]| -> serde_json::Value {
            let pairs = COLUMNS.iter().zip(row);
            pairs
                .map(|(column, value)| (column.heading.replace(' ', "_"), (*value).into()))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        self.rows.iter().map(named).collect()
    }
}

impl fmt::Display for NodesTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node")?;
        for column in &COLUMNS {
            write!(f, "  {}", column.heading)?;
        }
        writeln!(f)?;
        for (rank, row) in self.rows.iter().enumerate() {
            write!(f, "{rank:>4}")?;
            for (column, value) in COLUMNS.iter().zip(row) {
                write!(f, "  {value:>width$}", width = column.heading.len())?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_headings() {
        let table =
            NodesTable { rows: vec![[1, 22, 333, 4, 5, 6, 7, 8], [123_456; COLUMNS.len()]] };
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0]
                .find("read faults")
                .is_some_and(|start| lines[1][..start + 11].ends_with(" 1"))
        );
        assert_eq!(lines[0].len(), lines[1].len());
        assert_eq!(table.rows()[0]["pages_fetched"], 333);
    }
}
