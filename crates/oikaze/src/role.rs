//! stub
use std::sync::atomic::{AtomicBool, Ordering};
pub struct Role {
    driven: AtomicBool,
}
pub struct Driving<'a>(&'a Role);
impl Role {
    pub fn new() -> Self {
        Self { driven: AtomicBool::new(false) }
    }
    pub fn try_drive(&self, _now: u64) -> Option<Driving<'_>> {
        (!self.driven.swap(true, Ordering::SeqCst)).then_some(Driving(self))
    }
    pub fn is_driven(&self) -> bool {
        self.driven.load(Ordering::SeqCst)
    }
    pub fn helper_may_watch(&self) -> bool {
        !self.is_driven()
    }
}
impl Driving<'_> {
    pub fn leave(self, _now: u64) -> bool {
        self.0.driven.store(false, Ordering::SeqCst);
        true
    }
}
