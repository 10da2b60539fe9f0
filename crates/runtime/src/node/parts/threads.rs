//! Threads of a node: which of them drives, how they wait, and on what they sleep.

use super::engine_thread::EngineThread;
use crate::error::{Error, Result};
use crate::node::driver::wait_policy::WaitPolicy;
use crate::node::driver::{Descriptors, Driver, SpinLimit};
use crate::sync::lock;
use std::sync::Mutex;
use std::thread::JoinHandle;

/// Threads of a node.
pub struct Threads {
    pub driver: Driver,
    pub engine_thread: EngineThread,
    pub descriptors: Descriptors,
    pub wait_policy: WaitPolicy,
    pub spin_limit: SpinLimit,
    pub helper: Mutex<Option<JoinHandle<()>>>,
}

impl Threads {
    /// Makes the record of threads that wait by this policy, and sleep on these descriptors.
    pub fn new(wait_policy: WaitPolicy, descriptors: Descriptors) -> Result<Threads> {
        let has_own_thread = wait_policy.mode.drive().own_thread().is_some();
        let driver = Driver::new(has_own_thread)
            .map_err(|error| Error::system("making an event descriptor", error))?;
        Ok(Threads {
            driver,
            engine_thread: EngineThread::new(has_own_thread),
            descriptors,
            spin_limit: SpinLimit::new(wait_policy.wait, wait_policy.has_room),
            wait_policy,
            helper: Mutex::new(None),
        })
    }

    /// Wakes every waiting thread at once, so that each registers its wait.
    pub fn wake_for_question(&self) {
        self.driver.wake_waiters();
        self.driver.wake_sleepers();
    }

    /// Wakes the helper and the driver for good, because the node ends. Returns the helper's
    /// thread, unless the caller is the helper or another caller has it.
    pub fn end_helper(&self, is_helper: bool) -> Option<JoinHandle<()>> {
        self.driver.sleep.event.signal();
        self.driver.helper.event.signal();
        lock(&self.helper).take().filter(|_| !is_helper)
    }
}
