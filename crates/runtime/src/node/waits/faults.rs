//! Registers loads and stores that wait for a page. Their threads sleep in the kernel, so the
//! thread that takes page faults registers them.

use super::Registered;
use super::subject::WaitSubject;
use crate::node::parts::Node;
use oikaze_os::memory::tracking::FaultAt;
use std::time::{Duration, Instant};

/// Maximum number of page faults watched at a time. Later ones are served like all others, and not
/// explained.
const WATCHED_MAX: usize = 256;
/// Time between two checks of page faults that have not been served.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Page faults that may not have been served. Owned by the thread that takes them.
#[derive(Default)]
pub struct Faults {
    open: Vec<OpenFault>,
    checked: Option<Instant>,
}

struct OpenFault {
    array: u32,
    page: u64,
    begun: Instant,
    registered: Option<Registered>,
}

impl Faults {
    /// Notes that a thread has touched a page that is not here.
    pub fn add(&mut self, fault: &FaultAt) {
        if self.open.len() < WATCHED_MAX {
            self.open.retain(|open| {
                (open.array, open.page) != (fault.array, fault.page) || open.registered.is_some()
            });
            self.open.push(OpenFault {
                array: fault.array,
                page: fault.page,
                begun: Instant::now(),
                registered: None,
            });
        }
    }

    /// Returns `true` if there are faults that may not have been served.
    pub fn are_any(&self) -> bool {
        !self.open.is_empty()
    }

    /// Forgets faults that have been served, and registers those that last. Costs a comparison
    /// while there is none.
    pub fn check(&mut self, node: &Node) {
        if self.open.is_empty() {
            return;
        }
        let asked = node.waits.is_asked();
        if !asked && self.checked.is_some_and(|checked| checked.elapsed() < RECHECK_INTERVAL) {
            return;
        }
        self.checked = Some(Instant::now());
        let register_after = node.waits.register_after();
        // The engine requests the page in its next turn, so it may not know a fault that has just
        // come.
        node.with_engine(|engine| {
            let mut is_open = |open: &OpenFault| {
                engine.coherence().fetching_from(open.array, open.page).is_some()
            };
            self.open.retain(|open| open.begun.elapsed() < RECHECK_INTERVAL || is_open(open));
        });
        for open in &mut self.open {
            if open.registered.is_none() && (asked || open.begun.elapsed() >= register_after) {
                let (array, page) = (open.array, open.page);
                let known = node.with_engine(|engine| {
                    let coherence = engine.coherence();
                    coherence
                        .array(array)
                        .map(|(name, _)| name.to_owned())
                        .zip(coherence.fetching_from(array, page))
                });
                open.registered = known.map(|(array, home)| {
                    node.waits.register(WaitSubject::Page { array, page, home }, open.begun, None)
                });
            }
        }
    }
}
