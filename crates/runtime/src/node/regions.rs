//! Changes and ends of regions, from any thread.

use super::parts::access::Access;
use super::{Node, RealEngine};
use oikaze_engine::{Failure, Request, Submission};
use oikaze_os::memory::RegionId;
use oikaze_protocol::rma::Published;

impl Node {
    /// Runs `change` as [`Node::with_engine`] does, for changes that peers must learn of.
    pub fn change_engine<T>(&self, change: impl FnOnce(&mut RealEngine) -> T) -> T {
        let (value, more) = self.with_engine(|engine| (change(engine), engine.has_more()));
        if more {
            self.try_turn(self.now());
        }
        value
    }

    /// Gives a region a name. A name that was given up before is free.
    pub fn publish(&self, name: &str, published: Published) -> Result<(), Failure> {
        if self.enter().is_none() {
            return Err(self.forked());
        }
        // Giving the name up may have been left to another thread's turn.
        self.begin_what_was_left(|engine| {
            engine.rma().publish(name, published).map_err(Failure::from)
        })
    }

    /// Called when the last user of a region has dropped it. If that happens in the middle of a
    /// turn, the end of the turn removes the region.
    pub fn forget_region(&self, region: RegionId, name: Option<String>) {
        let access = self.access();
        if access == Access::Refused {
            return;
        }
        let _masked = self.engine.mask_for_entry();
        let engine = if access.runs_turns() { self.engine.try_enter() } else { None };
        let Some(mut engine) = engine else {
            if let Some(name) = name {
                self.requests.submissions.push(Submission {
                    request: Request::Withdraw { name },
                    completion: None,
                    keep: None,
                });
            }
            self.leave_to_holder(Submission {
                request: Request::Remove { region },
                completion: None,
                keep: None,
            });
            return if access.runs_turns() { self.after_leaving() } else { self.ring_engine() };
        };
        if let Some(name) = &name {
            engine.rma().withdraw(name);
        }
        if let Some(slot) = engine.memory().slot(region) {
            engine.remove_region(slot);
        }
        let more = engine.has_more();
        drop(engine);
        if more {
            self.try_turn(self.now());
        } else {
            self.after_leaving();
        }
    }
}
