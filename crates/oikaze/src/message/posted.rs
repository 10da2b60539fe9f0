//! Posted receives: memory that a program offers for a message (MEM-26).

use crate::completion::operation::Begun;
use crate::completion::operation::{Operation, Outcome};
use crate::job::handle::Job;
use crate::memory::region::RegionSlice;
use oikaze_engine::{ANY_PEER, Completion, OperationKind, OperationLabel, Value};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::Pattern;
use oikaze_protocol::rma::Rights;
use oikaze_runtime::node::PostedReceive;
pub use oikaze_runtime::received::Received;
use std::borrow::Borrow;
use std::sync::Arc;

impl Outcome for Received {
    fn from_value(value: Value) -> Option<Received> {
        match value {
            Value::Received { from, tag, len } => Some(Received { from, tag, len }),
            _ => None,
        }
    }
    fn to_bits(self) -> u64 {
        self.len
    }
}

impl Job {
    /// Offers memory for one message: of this sender, or of any if `from` is `None`, and with this
    /// tag in the bits of `mask`. The call returns at once. A mask of `u64::MAX` wants exactly the
    /// tag, and 0 wants any tag.
    ///
    /// Receives match in the order in which they were posted, and the messages of a sender in the
    /// order in which they arrive, which is the order of sending for [`Class::Ordered`]. The oldest
    /// unread message that matches fills a receive at once. [`Job::receive`] and the like get the
    /// messages that no posted receive matches.
    ///
    /// [`Operation::cancel`] ends a receive that no message has filled. Dropping the handle does
    /// not, and deregistering the memory does. [`Job::flush`] does not wait for posted receives.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let (me, n) = (job.rank(), job.size());
    /// let page = job.register(Region::zeroed(4096)?)?;
    /// let receive = job.post_receive(Some((me + n - 1) % n), 7, u64::MAX, page.all());
    /// job.peer((me + 1) % n)?.send(Class::Ordered, 7, b"into place").wait()?;
    /// let message = receive.wait()?; // or receive.await?
    /// assert_eq!((message.tag, message.len), (7, 10));
    /// let mut bytes = [0; 10];
    /// page.read(0, &mut bytes)?;
    /// assert_eq!(&bytes, b"into place");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Operation::wait`] returns the error. The message is longer than the memory, and stays to
    /// be received otherwise ([`Error::kept_message`](crate::Error::kept_message)); the memory is
    /// not registered any more, or cannot be written; the job has no such node; the sender (or
    /// every other node) is lost, and none of its messages matches; or the receive was cancelled.
    ///
    /// [`Class::Ordered`]: crate::message::Class::Ordered
    pub fn post_receive(
        &self,
        from: Option<Rank>,
        tag: u64,
        mask: u64,
        into: impl Borrow<RegionSlice>,
    ) -> Operation<Received> {
        let into = into.borrow().clone();
        // The turn that fills the memory waits for no page (MEM-1.12).
        let len = into.segment(Rights::WRITE).len;
        let peer = from.unwrap_or(ANY_PEER);
        let what = OperationLabel { verb: OperationKind::Receive, len, peer, at: None };
        let completion = Completion::begun(what, &self.node.requests.untaken);
        let receive =
            PostedReceive { into: into.receive_memory(), completion: Arc::clone(&completion) };
        self.node.mail.post_receive(&self.node, Pattern { from, tag, mask }, receive);
        Operation::begun(Begun::new(&self.node, completion, self.limit))
    }
}
