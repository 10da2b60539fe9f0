//! `OIKAZE_WITHOUT=uffd,gso,…`: mechanisms the kernel offers that are not to be used.
//!
//! Every mechanism of the runtime has a fallback; this is how a fallback is chosen by hand, in
//! tests and in the field.

/// What is switched off. All `false`: use whatever works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Without {
    /// userfaultfd altogether: shared arrays fall back to `mprotect` and SIGSEGV.
    pub uffd: bool,
    /// userfaultfd for faults from inside system calls; what remains is the user-mode-only
    /// descriptor.
    pub uffd_full: bool,
    /// `mprotect` and SIGSEGV as a way to track pages.
    pub mprotect: bool,
    /// Several datagrams sent by one call (`UDP_SEGMENT`).
    pub gso: bool,
    /// Several datagrams received as one buffer (`UDP_GRO`).
    pub gro: bool,
    /// Receiving bulk directly into its place.
    pub predict: bool,
    /// A socket of its own for bulk.
    pub lanes: bool,
    /// Sockets of their own for the peers that are talked to most.
    pub connect: bool,
    /// Receiving small datagrams before the kernel's IP does (a tcx program).
    pub early: bool,
    /// Sending small datagrams past the kernel's IP, as frames.
    pub frames: bool,
    /// Sending bulk without a copy (`vmsplice`, `splice`).
    pub splice: bool,
    /// IPv6.
    pub ipv6: bool,
    /// Memory shared with nodes of the same machine; they are talked to over UDP.
    pub shm: bool,
    /// Fences that the kernel makes for who goes in, when something ends (`membarrier`).
    pub membarrier: bool,
    /// Placing pages by moving them (`UFFDIO_MOVE`); they are copied instead.
    pub page_move: bool,
    /// Exchanging pages with a local peer by mapping each other's; their bytes are copied instead.
    pub remap: bool,
    /// Huge pages for regions.
    pub huge: bool,
}

/// The environment variable.
pub const VARIABLE: &str = "OIKAZE_WITHOUT";

/// A word in `OIKAZE_WITHOUT` that names nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE}: unknown mechanism \"{word}\"; known are {}, separated by commas", known())]
pub struct UnknownMechanism {
    /// The word.
    pub word: String,
}

type Switch = fn(&mut Without) -> &mut bool;

const SWITCHES: [(&str, Switch); 17] = [
    ("uffd", |w| &mut w.uffd),
    ("uffd-full", |w| &mut w.uffd_full),
    ("mprotect", |w| &mut w.mprotect),
    ("gso", |w| &mut w.gso),
    ("gro", |w| &mut w.gro),
    ("foresee", |w| &mut w.predict),
    ("lanes", |w| &mut w.lanes),
    ("connect", |w| &mut w.connect),
    ("early", |w| &mut w.early),
    ("frames", |w| &mut w.frames),
    ("splice", |w| &mut w.splice),
    ("ipv6", |w| &mut w.ipv6),
    ("shm", |w| &mut w.shm),
    ("membarrier", |w| &mut w.membarrier),
    ("move", |w| &mut w.page_move),
    ("remap", |w| &mut w.remap),
    ("huge", |w| &mut w.huge),
];

fn known() -> String {
    SWITCHES.map(|(name, _)| name).join(", ")
}

impl Without {
    /// What `OIKAZE_WITHOUT` says; nothing if it is not set.
    ///
    /// # Errors
    /// A word that names no mechanism: a misspelt switch must not pass for a test of the fallback.
    pub fn from_env() -> Result<Without, UnknownMechanism> {
        std::env::var_os(VARIABLE)
            .map_or(Ok(Without::default()), |text| Without::parse(&text.to_string_lossy()))
    }

    /// From a list such as `gso,gro`.
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

    /// Is the mechanism of this name switched off? (`false` for a name there is not.)
    #[must_use]
    pub fn is_off(mut self, name: &str) -> bool {
        SWITCHES.iter().any(|(known, switch)| *known == name && *switch(&mut self))
    }

    /// The names of what is switched off, as they would be written.
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
        let without = Without::parse("uffd").unwrap();
        assert!(without.is_off("uffd") && !without.is_off("gso") && !without.is_off("nothing"));
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
