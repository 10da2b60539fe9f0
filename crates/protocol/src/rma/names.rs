//! Regions published by name (MEM-6).

use crate::limits::{NAME_MAX, NAMES_LISTED, NAMES_MAX, WITHDRAWN_KEPT};
use crate::rma::event::RmaError;
use crate::rma::head::Published;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Names that this node has published, and the latest names that it has withdrawn.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, Published>, Withdrawn);

/// The latest [`WITHDRAWN_KEPT`] names that were withdrawn and not published again (MEM-6.6).
#[derive(Debug, Default)]
struct Withdrawn {
    serials: BTreeMap<String, u64>,
    names: BTreeMap<u64, String>,
    latest: u64,
}

impl Withdrawn {
    fn insert(&mut self, name: &str) {
        self.latest += 1;
        self.serials.insert(name.to_owned(), self.latest);
        self.names.insert(self.latest, name.to_owned());
        if self.names.len() > WITHDRAWN_KEPT
            && let Some((_, oldest)) = self.names.pop_first()
        {
            self.serials.remove(&oldest);
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(serial) = self.serials.remove(name) {
            self.names.remove(&serial);
        }
    }
}

impl Names {
    pub fn publish(&mut self, name: &str, published: Published) -> Result<(), RmaError> {
        check(name)?;
        if self.0.contains_key(name) {
            return Err(RmaError::NameTaken(name.to_owned()));
        }
        if self.0.len() >= NAMES_MAX {
            return Err(RmaError::TooManyNames);
        }
        self.0.insert(name.to_owned(), published);
        self.1.remove(name);
        Ok(())
    }

    pub fn withdraw(&mut self, name: &str) -> Option<Published> {
        let published = self.0.remove(name)?;
        self.1.insert(name);
        Some(published)
    }

    /// Returns `true` if the name, by the bytes that a peer sent, was withdrawn and not published
    /// again.
    pub fn is_withdrawn(&self, name: &[u8]) -> bool {
        core::str::from_utf8(name).is_ok_and(|name| self.1.serials.contains_key(name))
    }

    /// Changes the region that a published name stands for.
    pub fn change(&mut self, name: &str, published: Published) {
        if let Some(known) = self.0.get_mut(name) {
            *known = published;
        }
    }

    /// Returns the name of a region. It searches every name, because it is rarely called.
    pub fn name_of(&self, key: u64) -> Option<&str> {
        self.0.iter().find(|(_, published)| published.key == key).map(|(name, _)| name.as_str())
    }

    /// Returns the region of a name, by the bytes that a peer sent.
    pub fn find(&self, name: &[u8]) -> Option<Published> {
        self.0.get(core::str::from_utf8(name).ok()?).copied()
    }

    pub fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Returns names in order, each `length u8 | bytes`, as many as fit (MEM-6.4).
    pub fn list(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for name in self.0.keys() {
            let Ok(len) = u8::try_from(name.len()) else { continue };
            if out.len() + 1 + name.len() > NAMES_LISTED {
                break;
            }
            out.push(len);
            out.extend_from_slice(name.as_bytes());
        }
        out
    }
}

/// Checks that a name has 1 to [`NAME_MAX`] bytes.
pub(super) fn check(name: &str) -> Result<(), RmaError> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(RmaError::BadName(name.to_owned()));
    }
    Ok(())
}

/// Decodes [`Names::list`] from bytes that a peer sent. The list ends at the first malformed name.
pub(super) fn listed(mut bytes: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while let Some((len, rest)) = bytes.split_first() {
        let Some((name, rest)) = rest.split_at_checked(usize::from(*len)) else { break };
        let Ok(name) = core::str::from_utf8(name) else { break };
        if check(name).is_err() {
            break;
        }
        names.push(name.to_owned());
        bytes = rest;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rma::Rights;
    use alloc::format;

    /// MEM-6.6: a name that is published again is withdrawn no more, and only the latest are
    /// remembered.
    #[test]
    fn withdrawn_names_are_remembered_up_to_the_bound() {
        let mut names = Names::default();
        let published = Published { key: 1, len: 1, rights: Rights::READ };
        let again = |names: &mut Names, name: &str| {
            names.publish(name, published).unwrap();
            assert!(!names.is_withdrawn(name.as_bytes()));
            names.withdraw(name);
            assert!(names.is_withdrawn(name.as_bytes()));
        };
        again(&mut names, "first");
        again(&mut names, "second");
        again(&mut names, "first");
        (0..WITHDRAWN_KEPT - 1).for_each(|n| again(&mut names, &format!("{n}")));
        assert!(names.is_withdrawn(b"first") && !names.is_withdrawn(b"second"));
        again(&mut names, "one more");
        assert!(!names.is_withdrawn(b"first") && !names.is_withdrawn(b"never"));
        assert_eq!((names.1.names.len(), names.1.serials.len()), (WITHDRAWN_KEPT, WITHDRAWN_KEPT));
        assert!(names.withdraw("never").is_none() && !names.is_withdrawn(b"never"));
    }
}
