//! Checks that the memory which a request names as source or destination is still registered
//! (MEM-1.5, MEM-1.8).

use super::submission::{Keep, Request};
use crate::{Engine, Failure};
use oikaze_os::net::Link;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::wind::Body;

impl<L: Link, P: Pages> Engine<L, P> {
    /// Returns an error if a new request uses a region that is being deregistered. Deregistration
    /// would not wait for the request, or would never end. (Earlier requests may use the region,
    /// also if a fence has held them back since.) A region that has taken over another region's
    /// slot is refused, too: `keep` holds the region that the request meant.
    pub(crate) fn is_over(&self, request: &Request, keep: &Keep) -> Option<RmaError> {
        let (region, error) = match request {
            Request::Put { body, .. }
            | Request::PutBlock { body, .. }
            | Request::Accumulate { body, .. }
            | Request::Push { body, .. }
            | Request::Send { body, .. } => (body.region()?, RmaError::SourceGone),
            Request::Get { into, .. } => (into.region, RmaError::DestinationGone),
            Request::GetBlock { into, .. } => (into.place().0, RmaError::DestinationGone),
            _ => return None,
        };
        (!self.memory.may_begin(region, keep.as_ref())).then_some(error)
    }

    /// The destination of a get that begins cannot be written.
    pub(crate) fn is_lost(&self, request: &Request) -> Option<RmaError> {
        let (region, range) = match request {
            Request::Get { into, .. } => (into.region, Some((into.offset, into.len))),
            Request::GetBlock { into, .. } => into.place(),
            _ => return None,
        };
        let usable = range.is_some_and(|(offset, len)| self.memory.is_usable(region, offset, len));
        let error = if self.memory.region(region).is_none() {
            RmaError::DestinationGone
        } else {
            RmaError::Absent
        };
        (!usable).then_some(error)
    }

    /// A body in this region could not be read.
    pub(crate) fn why_unreadable(&self, region: Option<u32>) -> Failure {
        let gone = region.is_none_or(|region| self.memory.region(region).is_none());
        Failure::Remote(if gone { RmaError::SourceGone } else { RmaError::Absent })
    }

    /// Is what the body names still registered? (Where it cannot be had any more, that is found
    /// when it is sent.)
    pub(crate) fn is_readable(&self, body: &Body) -> bool {
        match body {
            Body::Segment(segment) => {
                self.memory.is_inside(segment.region, segment.offset, segment.len)
            }
            Body::Rows(rows) => self.memory.is_inside(
                rows.region,
                rows.block.offset,
                rows.block.hull().unwrap_or(u64::MAX),
            ),
            Body::Empty | Body::Short(_) | Body::Inline(_) => true,
        }
    }
}
