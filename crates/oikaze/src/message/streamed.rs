//! Long messages to local peers, sent from the caller's memory without a copy in between.
//!
//! Bench case: `message_bw` of 16 MiB (`bench shm`).

use crate::completion::operation::Begun;
use crate::job::peer::Peer;
use crate::memory::region::LocalRegion;
use oikaze_engine::{Completion, OperationLabel, Request, tracked_by};
use oikaze_os::memory::scope;
use oikaze_protocol::limits::RING_BYTES;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::wind::{Body, Class};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time without progress after which the rest of a message is copied. A receiver that has
/// lost its core to another process most often has it back by then.
const STALL_MAX: Duration = Duration::from_millis(10);

impl Peer {
    /// Sends a message that is longer than a ring to a local peer. Returns when the ring has taken
    /// all of it, or when the rest was copied because the peer takes nothing. Returns `None` if
    /// something is in the way, and the message has to be copied at once (MEM-8.4).
    pub(super) fn send_streamed(
        &self,
        class: Class,
        tag: u64,
        bytes: &[u8],
        what: &OperationLabel,
    ) -> Option<Box<Begun>> {
        let (node, to) = (&self.node, self.rank);
        if bytes.len() <= RING_BYTES || self.route.is_none() || node.enter().is_none() {
            return None;
        }
        // Waiting takes at most about as long as copying.
        let stall = Duration::from_nanos(bytes.len() as u64).min(STALL_MAX);
        scope(|lender| {
            // Elements of a shared array are refused here, because they may have to be fetched.
            let lent = lender.borrow(bytes);
            let lent = LocalRegion::new(node, lent, Rights::NONE, None, self.limit).ok()?;
            let source = lent.all();
            let segment = source.segment(Rights::READ);
            let region = segment.region;
            let request = Request::Send { to, class, tag, body: Body::Segment(segment) };
            let completion = Completion::begun(what.clone(), &node.requests.untaken);
            let submission = tracked_by(Arc::clone(&completion), request, Some(source.keep()));
            node.begin_what_was_left(|engine| {
                engine.stream(submission, bytes.len() as u64, node.now())
            })
            .ok()?;
            let mut left = u64::MAX;
            loop {
                let deadline = Instant::now().checked_add(stall);
                let _: Option<()> = node.wait(deadline, || completion.is_done().then_some(()));
                let unsent = node.with_engine(|engine| {
                    let unsent = engine.unsent_of(to, region)?;
                    if unsent >= left {
                        engine.detach(to, region, bytes);
                        return None;
                    }
                    Some(unsent)
                });
                match unsent {
                    Some(unsent) => left = unsent,
                    None => return Some(Begun::new(node, completion, self.limit)),
                }
            }
        })
    }
}
