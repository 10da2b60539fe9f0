//! Memory of one node, reduced to the words that programs of the model use: two of each page.

use crate::Rank;
use crate::coherence::{Access, ArrayId, Pages};
use crate::limits::PAGE;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use core::ops::Range;

/// Number of words that programs use in each page.
pub const WORDS: usize = 2;
/// Distance of these words in bytes. Each lies in a fragment of its own, so that a page can be a
/// mixture of several moments (COH-3.7).
pub const FRAGMENT: usize = PAGE / WORDS;

/// Page of an array.
pub type Page = (ArrayId, u64);

/// Memory of one node: the words of its pages, and the access that the view permits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Machine {
    words: BTreeMap<Page, [u64; WORDS]>,
    view: BTreeMap<Page, Access>,
    /// Pages whose sleeping threads have been woken and not been run since.
    pub woken: BTreeSet<Page>,
    /// First call that no correct coherence makes.
    pub misused: Option<String>,
}

/// Spreads words over the fragments of a body, the last of which may be short.
pub fn spread(words: &[u64], into: &mut [u8]) {
    into.fill(0);
    for (word, fragment) in words.iter().zip(into.chunks_mut(FRAGMENT)) {
        fragment[..8].copy_from_slice(&word.to_le_bytes());
    }
}

impl Machine {
    pub fn add(&mut self, array: ArrayId, pages: u64) {
        self.words.extend((0..pages).map(|page| ((array, page), [0; WORDS])));
    }

    pub fn word(&self, page: Page, word: usize) -> u64 {
        self.words[&page][word]
    }

    pub fn mapped(&self, page: Page) -> Option<Access> {
        self.view.get(&page).copied()
    }

    /// Loads a word for a thread. Returns `None` if the page is not mapped.
    pub fn load(&self, page: Page, word: usize) -> Option<u64> {
        self.mapped(page).map(|_| self.word(page, word))
    }

    /// Stores a word for a thread. Returns `false` if the page is not mapped for stores.
    pub fn store(&mut self, page: Page, word: usize, value: u64) -> bool {
        let writable = self.mapped(page) == Some(Access::Write);
        if writable && let Some(words) = self.words.get_mut(&page) {
            words[word] = value;
        }
        writable
    }

    fn misuse(&mut self, what: String) {
        self.misused.get_or_insert(what);
    }
}

impl Pages for Machine {
    fn install(&mut self, array: ArrayId, pages: Range<u64>, access: Access) {
        for page in pages {
            self.view.insert((array, page), access);
            self.woken.insert((array, page));
        }
    }

    fn set_access(&mut self, array: ArrayId, pages: Range<u64>, access: Access) {
        for page in pages {
            if self.view.insert((array, page), access).is_none() {
                self.misuse(format!("set_access of page {page} of array {array}, not mapped"));
            }
            if access == Access::Write {
                self.woken.insert((array, page));
            }
        }
    }

    fn invalidate(&mut self, array: ArrayId, pages: Range<u64>) {
        for page in pages {
            if self.view.remove(&(array, page)).is_none() {
                self.misuse(format!("invalidate of page {page} of array {array}, not mapped"));
            }
            self.woken.insert((array, page));
        }
    }

    fn read(&self, array: ArrayId, page: u64, into: &mut [u8]) {
        spread(&self.words[&(array, page)], into);
    }

    fn write(&mut self, array: ArrayId, offset: u64, bytes: &[u8]) {
        // The bytes may be a few of one word, or those of several pages.
        let end = offset + bytes.len() as u64;
        for page in offset / PAGE as u64..end.div_ceil(PAGE as u64) {
            let Some(words) = self.words.get_mut(&(array, page)) else {
                return self.misuse(format!("write to page {page} of array {array}"));
            };
            let first = page * PAGE as u64;
            for (start, word) in (first..).step_by(FRAGMENT).zip(words) {
                let mut value = word.to_le_bytes();
                let (from, to) = (offset.max(start), end.min(start + value.len() as u64));
                if from < to {
                    let source = &bytes[(from - offset) as usize..(to - offset) as usize];
                    value[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
                    *word = u64::from_le_bytes(value);
                }
            }
        }
    }

    fn lost(&mut self, array: ArrayId, page: u64, home: Rank) {
        self.misuse(format!("page {page} of array {array} lost with node {home}"));
    }
}
