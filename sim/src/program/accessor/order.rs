//! Flushes of one node and of all nodes, which wait for earlier operations (MEM-15.3).

use super::{Accessor, Asked};
use crate::program::doing::{Doing, UnderWay};
use oikaze_engine::{Completion, Request};
use oikaze_protocol::Rank;
use std::sync::Arc;

impl Accessor {
    /// Waits for all operations in flight to this node, or to all nodes.
    pub(super) fn flush(&mut self, target: Rank) -> Asked {
        let peer = self.random.chance(0.6).then_some(target);
        let before = self
            .under_way
            .iter()
            .filter(|one| peer.is_none_or(|peer| peer == one.target))
            .flat_map(awaited)
            .collect();
        let kind = if peer.is_some() { "flush" } else { "quiet" };
        Asked { kind, ..(Doing::Flush { before }, Request::Flush { peer }).into() }
    }
}

/// Returns the completions of an operation for which a flush waits. A flush does not wait for other
/// flushes.
fn awaited(one: &UnderWay) -> impl Iterator<Item = Arc<Completion>> {
    let operation = (!matches!(one.doing, Doing::Flush { .. })).then_some(&one.completion);
    operation
        .into_iter()
        .chain(&one.earlier)
        .chain(&one.told)
        .cloned()
        .collect::<Vec<_>>()
        .into_iter()
}
