//! Lines of the program at which guards of a node were taken, as texts that all nodes can read.

use crate::shm::memory::{Memory, Ordering, Part};
use std::collections::HashMap;
use std::panic::Location;

/// Number of lines that a node names. Guards of further ones name none.
const PLACES: usize = 256;
/// Bytes of a text: its length, and the end of the path with the line.
const PLACE: usize = 64;
const TEXT_MAX: usize = PLACE - 8;

/// Bytes of the table of one node.
pub(super) const PLACES_LEN: usize = PLACES * PLACE;

/// Numbers of the lines that this node has named.
#[derive(Debug, Default)]
pub(super) struct OwnPlaces(HashMap<&'static Location<'static>, u16>);

impl OwnPlaces {
    /// Returns the number of a line, which others can read from now on, or 0 if there is no room.
    #[inline]
    pub fn number(&mut self, taken_at: Option<&'static Location<'static>>, table: &Memory) -> u16 {
        let Some(taken_at) = taken_at else { return 0 };
        match self.0.get(&taken_at) {
            Some(number) => *number,
            None => self.add(taken_at, table),
        }
    }

    #[cold]
    fn add(&mut self, taken_at: &'static Location<'static>, table: &Memory) -> u16 {
        let number = self.0.len() + 1;
        if number >= PLACES {
            return 0;
        }
        let text = taken_at.to_string();
        let from = text.len().saturating_sub(TEXT_MAX);
        let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let text = text.get(from..).unwrap_or_default();
        table.write(number * PLACE + 8, &Part::Bytes(text.as_bytes()));
        table.store(number * PLACE, text.len() as u64, Ordering::Release);
        // Fewer than 65,536.
        let number = number as u16;
        self.0.insert(taken_at, number);
        number
    }
}

/// Returns the text of a line in another node's table, or an empty one.
pub(super) fn place_text(number: u16, table: &Memory) -> String {
    let at = usize::from(number) * PLACE;
    if number == 0 || usize::from(number) >= PLACES {
        return String::new();
    }
    let len = usize::try_from(table.load(at, Ordering::Acquire)).unwrap_or(0).min(TEXT_MAX);
    let mut text = vec![0; len];
    table.read(at + 8, &mut text);
    String::from_utf8_lossy(&text).chars().filter(|letter| !letter.is_control()).collect()
}
