//! Report of all waits of a node's threads on SIGQUIT (MEM-21.6): what each waits for, where, and
//! since when. The program goes on.

use super::{Wait, Waits};
use crate::sync::lock;
use oikaze_os::signals;
use std::sync::{Arc, Mutex, Weak};

/// Maximum number of waits, and of locks, that a report contains.
const SHOWN_MAX: usize = 64;

/// The nodes of this process that have not left.
static NODES: Mutex<Vec<Weak<Waits>>> = Mutex::new(Vec::new());

/// Makes SIGQUIT report this node's waits from now on.
pub(super) fn begin(waits: &Arc<Waits>) {
    lock(&NODES).push(Arc::downgrade(waits));
    // Without a thread or a descriptor, SIGQUIT keeps its default action, and all else goes on.
    let _ = signals::report_on_quit(report);
}

/// Called when a node has closed its registry. SIGQUIT gets its default action back with the last
/// one.
pub(super) fn end() {
    let mut nodes = lock(&NODES);
    nodes.retain(|waits| waits.upgrade().is_some_and(|waits| !waits.is_closed()));
    if nodes.is_empty() {
        signals::end_on_quit();
    }
}

fn report() {
    let nodes: Vec<Arc<Waits>> = lock(&NODES).iter().filter_map(Weak::upgrade).collect();
    nodes.iter().flat_map(|waits| waits.report()).for_each(|line| signals::print_line(&line));
}

impl Waits {
    fn report(&self) -> Vec<String> {
        let text = |wait: &Wait| {
            let (thread, since) = (&wait.thread.name, wait.begun.elapsed().as_secs_f64());
            let why = lock(&wait.state).cause.clone();
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            format!("thread {thread} waits for {} ({since:.1} s){why}", wait.text())
        };
        let line = |state| format!("oikaze: node {}: {state}", self.bootstrap.rank());
        self.states(SHOWN_MAX, text).into_iter().map(line).collect()
    }

    /// Passes SIGQUIT on to a handler of the program's own, for a launcher that was sent the
    /// signal.
    pub(super) fn pass_quit_on(&self) {
        signals::quit_from_launcher();
    }
}
