//! Regions published by name (MEM-6).

use super::{Published, RmaError};
use crate::limits::{NAME_MAX, NAMES_LISTED, NAMES_MAX};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// What this node has published.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, Published>);

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
        Ok(())
    }

    pub fn withdraw(&mut self, name: &str) -> Option<Published> {
        self.0.remove(name)
    }

    /// A published name stands for this from now on.
    pub fn change(&mut self, name: &str, published: Published) {
        if let Some(known) = self.0.get_mut(name) {
            *known = published;
        }
    }

    /// Rarely asked: every name is looked at.
    pub fn name_of(&self, key: u64) -> Option<&str> {
        self.0.iter().find(|(_, published)| published.key == key).map(|(name, _)| name.as_str())
    }

    /// By the bytes that a peer sent.
    pub fn find(&self, name: &[u8]) -> Option<Published> {
        self.0.get(core::str::from_utf8(name).ok()?).copied()
    }

    pub fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Names in order, each `length u8 | bytes`, as many as fit (MEM-6.4).
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

/// 1 to [`NAME_MAX`] bytes.
pub(super) fn check(name: &str) -> Result<(), RmaError> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(RmaError::BadName(name.to_owned()));
    }
    Ok(())
}

/// The other side of [`Names::list`], on bytes that a peer sent: what makes no sense ends the list.
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
