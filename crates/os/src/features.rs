//! `OIKAZE_WITHOUT=uffd,gso,…`: mechanisms of the kernel that the user has switched off.
//!
//! Every mechanism of the runtime has a fallback. This variable selects fallbacks by hand, in tests
//! and in the field.

use crate::secrets::seal::preferred_cipher;
use oikaze_protocol::seal::CipherKind;
use std::sync::OnceLock;

/// Mechanisms that are switched off. If all are `false`, the runtime uses every mechanism that
/// works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Without {
    /// userfaultfd altogether. Shared arrays fall back to `mprotect` and SIGSEGV.
    pub uffd: bool,
    /// userfaultfd for faults from inside system calls. The user-mode-only descriptor remains.
    pub uffd_full: bool,
    /// `mprotect` and SIGSEGV as a way to track pages.
    pub mprotect: bool,
    /// Sending several datagrams by one call (`UDP_SEGMENT`).
    pub gso: bool,
    /// Receiving several datagrams as one buffer (`UDP_GRO`).
    pub gro: bool,
    /// Direct placement: receiving bulk data where it belongs, without a copy.
    pub predict: bool,
    /// A separate socket for bulk data.
    pub lanes: bool,
    /// Separate connected sockets for the most active peers.
    pub connect: bool,
    /// Receiving small datagrams before the kernel's IP layer does (a tcx program).
    pub tcx: bool,
    /// Sending small datagrams as frames, bypassing the kernel's IP layer.
    pub frames: bool,
    /// Sending bulk data without a copy (`vmsplice`, `splice`).
    pub splice: bool,
    /// Use of IPv6 addresses.
    pub ipv6: bool,
    /// Shared memory with local peers. They are reached over UDP instead.
    pub shm: bool,
    /// Fences that the kernel makes for the threads that enter an object, when the object ends
    /// (`membarrier`).
    pub membarrier: bool,
    /// Placing pages by moving them (`UFFDIO_MOVE`). They are copied instead.
    pub page_move: bool,
    /// Exchanging pages with a local peer by mapping each other's pages. Their bytes are copied
    /// instead.
    pub remap: bool,
    /// Huge pages for regions.
    pub huge: bool,
    /// AES-128-GCM for datagrams. They are sealed by ChaCha20-Poly1305 instead.
    pub aes: bool,
}

/// Switches that the program has chosen for the whole process, in place of the variable.
static CHOSEN: OnceLock<Without> = OnceLock::new();

/// Name of the environment variable.
pub const VARIABLE: &str = "OIKAZE_WITHOUT";

/// Error: a word in `OIKAZE_WITHOUT` names no mechanism.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE}: unknown mechanism \"{word}\"; known are {}, separated by commas", known())]
pub struct UnknownMechanism {
    /// The unknown word.
    pub word: String,
}

type Switch = fn(&mut Without) -> &mut bool;

const SWITCHES: [(&str, Switch); 18] = [
    ("uffd", |w| &mut w.uffd),
    ("uffd-full", |w| &mut w.uffd_full),
    ("mprotect", |w| &mut w.mprotect),
    ("gso", |w| &mut w.gso),
    ("gro", |w| &mut w.gro),
    ("foresee", |w| &mut w.predict),
    ("lanes", |w| &mut w.lanes),
    ("connect", |w| &mut w.connect),
    ("early", |w| &mut w.tcx),
    ("frames", |w| &mut w.frames),
    ("splice", |w| &mut w.splice),
    ("ipv6", |w| &mut w.ipv6),
    ("shm", |w| &mut w.shm),
    ("membarrier", |w| &mut w.membarrier),
    ("move", |w| &mut w.page_move),
    ("remap", |w| &mut w.remap),
    ("huge", |w| &mut w.huge),
    ("aes", |w| &mut w.aes),
];

fn known() -> String {
    SWITCHES.map(|(name, _)| name).join(", ")
}

impl Without {
    /// Reads `OIKAZE_WITHOUT`. Nothing is switched off if the variable is not set.
    ///
    /// # Errors
    /// A word that names no mechanism: a misspelt switch must not pass for a test of the fallback.
    pub fn from_env() -> Result<Without, UnknownMechanism> {
        std::env::var_os(VARIABLE)
            .map_or(Ok(Without::default()), |text| Without::parse(&text.to_string_lossy()))
    }

    /// Returns the switches that hold for the whole process: those that were chosen for it, or else
    /// those of the variable. Each job has its own switches for everything else.
    ///
    /// # Errors
    /// As [`Without::from_env`].
    pub fn of_process() -> Result<Without, UnknownMechanism> {
        CHOSEN.get().copied().map_or_else(Without::from_env, Ok)
    }

    /// Makes [`Without::of_process`] return these switches from now on. The first call of a process
    /// decides.
    pub fn choose_for_process(&self) {
        let _ = CHOSEN.set(*self);
    }

    /// Parses a list such as `gso,gro`.
    ///
    /// # Errors
    /// As [`Without::from_env`].
    pub fn parse(text: &str) -> Result<Without, UnknownMechanism> {
        let mut without = Without::default();
        for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
            let (_, switch) = SWITCHES
                .iter()
                .find(|(name, _)| *name == word)
                .ok_or_else(|| UnknownMechanism { word: word.to_owned() })?;
            *switch(&mut without) = true;
        }
        Ok(without)
    }

    /// Returns the cipher that this node prefers for datagrams (SEAL-2.6).
    #[must_use]
    pub fn cipher(&self) -> CipherKind {
        if self.aes { CipherKind::ChaCha20Poly1305 } else { preferred_cipher() }
    }

    /// Returns the names of the mechanisms that are switched off, in the notation of the variable.
    pub fn names(mut self) -> impl Iterator<Item = &'static str> {
        SWITCHES.into_iter().filter_map(move |(name, switch)| switch(&mut self).then_some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_switch_their_mechanism_off() {
        assert_eq!(Without::parse("").unwrap(), Without::default());
        assert_eq!(
            Without::parse("gso,gro").unwrap(),
            Without { gso: true, gro: true, ..Without::default() }
        );
        assert_eq!(
            Without::parse(" move, uffd-full,").unwrap().names().collect::<Vec<_>>(),
            ["uffd-full", "move"]
        );
    }

    #[test]
    fn a_misspelt_word_is_an_error_that_lists_the_right_ones() {
        let text = Without::parse("uffd,gsso").unwrap_err().to_string();
        assert!(
            text.contains("\"gsso\"") && text.contains("uffd-full") && text.contains("gso"),
            "{text}"
        );
    }
}
