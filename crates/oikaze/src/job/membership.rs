//! Claim of a process on the job of its launcher, which it joins once. `join` makes the claim, and
//! the process keeps it for life.

use crate::error::{Error, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Clone, Copy)]
struct Membership {
    /// The process that joined; a forked child inherits this table.
    process: u32,
    is_joined: bool,
}

static MEMBERSHIP: Mutex<Option<Membership>> = Mutex::new(None);

/// Right of this process to join. Dropped without [`Claim::keep`], another attempt is allowed.
#[must_use]
pub(crate) struct Claim(());

impl Claim {
    /// Claims the membership for this process.
    ///
    /// # Errors
    /// The process, or its parent, has joined before or is joining.
    pub fn make() -> Result<Claim> {
        let process = std::process::id();
        let mut membership = lock();
        let why = match *membership {
            None => None,
            Some(earlier) if earlier.process != process => Some(format!(
                "process {} joined the job, and this one is its child by fork: start another program for it (exec), outside of \
                 the job",
                earlier.process
            )),
            Some(Membership { is_joined: true, .. }) => Some(
                "this process has joined its job before, and a process joins its job once: keep the `Job` that the first call \
                 returned, and leave when all is done"
                    .to_owned(),
            ),
            Some(_) => Some(
                "another thread of this process is joining it: join in one thread, and share the `Job` by reference".to_owned(),
            ),
        };
        if let Some(why) = why {
            return Err(Error::invalid("joining the job", why));
        }
        *membership = Some(Membership { process, is_joined: false });
        Ok(Claim(()))
    }

    /// Keeps the membership for the life of the process.
    pub fn keep(self) {
        if let Some(membership) = lock().as_mut() {
            membership.is_joined = true;
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut membership = lock();
        if membership.is_some_and(|membership| !membership.is_joined) {
            *membership = None;
        }
    }
}

fn lock() -> MutexGuard<'static, Option<Membership>> {
    MEMBERSHIP.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the table is the process's.
    #[test]
    fn membership_is_claimed_once_unless_the_attempt_failed() {
        let first = Claim::make().unwrap();
        assert!(Claim::make().err().unwrap().to_string().contains("another thread"));
        drop(first);
        Claim::make().unwrap().keep();
        let said = Claim::make().err().unwrap().to_string();
        assert!(said.contains("a process joins its job once"), "{said}");
        lock().as_mut().unwrap().process = u32::MAX;
        assert!(Claim::make().err().unwrap().to_string().contains("child by fork"));
        *lock() = None;
    }
}
