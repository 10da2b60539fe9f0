//! Goals for two processes of one machine.

use crate::suite::case::{KIB, MIB};
use crate::suite::goals::{Bound, Figures, Found, Goal};

/// Returns all goals.
pub fn goals(figures: &Figures<'_>) -> Vec<Goal> {
    let beside_ucx = |case: &str, size| {
        Found::ratio((figures.of(case, size, 0, "oikaze"), figures.of(case, size, 0, "ucx-shm")))
    };
    vec![
        ("put_lat 8 B / ucx-shm".into(), beside_ucx("put_lat", 8), Bound::AtMost(1.0)),
        ("put_bw 8 KiB / ucx-shm".into(), beside_ucx("put_bw", 8 * KIB), Bound::AtLeast(0.95)),
        ("put_bw 1 MiB / ucx-shm".into(), beside_ucx("put_bw", MIB), Bound::AtLeast(0.95)),
        (
            "message_lat 8 B / ucx-shm tagged".into(),
            beside_ucx("message_lat", 8),
            Bound::AtMost(1.0),
        ),
        (
            "message_rate 8 B / ucx-shm tagged".into(),
            beside_ucx("message_rate", 8),
            Bound::AtLeast(1.0),
        ),
    ]
}
