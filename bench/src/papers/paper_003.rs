//! Paper 003, figure 5: a header and the data sent at once, compared with the sum of both alone.
//!
//! Distributed shared memories send a header of 32 bytes and data behind it. On Myrinet, that took
//! 4.5 to 6.0 µs less than both one after the other, because the stages of the two transfers
//! overlap. Each transfer alone took 0.016 x + 13 µs for x bytes (table 5, case 1).

use super::Measuring;
use super::plot::{Line, Scale};
use super::report::Figure;
use crate::error::Error;
use crate::lab::{Place, WireMode};
use crate::peers::oikaze::{Oikaze, Seal};
use crate::peers::{Effort, System, only};
use crate::record::Record;
use crate::suite::case::{Case, Test};

/// Sizes of the paper.
const SIZES: [usize; 3] = [256, 1024, 4096];
const HEADER: usize = 32;
const PLACE: Place = Place::Wire { mtu: 9000, mode: WireMode::Wire };
const OIKAZE: Oikaze = Oikaze { seal: Seal::Crc, class: "unordered" };
/// Time in µs that the overlap saves: the mean of the 4.5 and 6.0 µs of the text.
const LESS: f64 = 5.25;

/// Measures the figure and draws it.
///
/// # Errors
/// Something could not be run or written.
pub fn consecutive(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let line = |name, less| Line {
        name,
        points: SIZES.map(|size| (size as f64, sum_then(size) - less)).into(),
    };
    let figure = Figure {
        name: "003-figure-5",
        title: "Paper 003, figure 5, measured again: a header of 32 bytes and the data behind it",
        across: "bytes of data",
        up: "us",
        scale: Scale::Linear,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}; one way, until both have been seen."
        ),
        then: "together 4.5 to 6.0 µs less than the sum (drawn 5.25 less than the sum of its fitted lines)",
        then_machine: "Tender on Myrinet, Pentium machines, about 2000",
        seal: Some(OIKAZE.seal.word().to_owned()),
        then_lines: vec![line("2000, sum", 0.0), line("2000, together", LESS)],
        panels: &[&["sum", "together"]],
        base: "sum",
    };
    OIKAZE.present()?;
    figure.measure_in_lab(run, PLACE, &SIZES, |lab, size| {
        let of = |test, size| only(OIKAZE.measure(lab, Case { test, size }, Effort::QUICK)?);
        let sum = of(Test::PutLatency, HEADER)? + of(Test::PutLatency, size)?;
        Ok(vec![("sum", sum), ("together", of(Test::Consecutive, size)?)])
    })
}

/// Returns the paper's time for two transfers, of the header and of `size` bytes, in µs.
fn sum_then(size: usize) -> f64 {
    [HEADER, size].iter().map(|&bytes| 0.016 * bytes as f64 + 13.0).sum()
}

#[cfg(test)]
mod tests {
    use super::sum_then;

    #[test]
    fn the_fitted_line_of_then() {
        assert!((sum_then(4096) - 92.048).abs() < 1e-9);
    }
}
