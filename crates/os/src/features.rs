//! `OIKAZE_WITHOUT=uffd,gso,…`: features that the user has switched off.
//!
//! Every feature has a fallback. This variable selects fallbacks by hand, in tests and in the
//! field.

use crate::secrets::seal::preferred_cipher;
use oikaze_protocol::seal::CipherKind;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// Makes all lists of features from one table: variant, field, word, and an older word.
macro_rules! features {
    ($($(#[$doc:meta])+ $variant:ident $field:ident $word:literal $($alias:literal)?;)+) => {
        /// Feature of the system or of the runtime that a job can do without.
        ///
        /// In text, as in `OIKAZE_WITHOUT`, each has a word of its own, such as `gso`.
        ///
        /// ```
        /// use oikaze_os::features::Feature;
        ///
        /// assert_eq!("direct-placement".parse(), Ok(Feature::DirectPlacement));
        /// assert_eq!(Feature::DirectPlacement.to_string(), "direct-placement");
        /// assert!("gsso".parse::<Feature>().is_err());
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Feature {
            $($(#[$doc])+ $variant,)+
        }

        impl Feature {
            /// All features, in the order of the table.
            pub const ALL: &[Feature] = &[$(Feature::$variant),+];

            /// Returns the word for it.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Feature::$variant => $word,)+
                }
            }

            /// Returns the feature of a word. Older words count, too.
            fn of(word: &str) -> Option<Feature> {
                match word {
                    $($word $(| $alias)? => Some(Feature::$variant),)+
                    _ => None,
                }
            }
        }

        /// Features that are switched off. If all are `false`, the runtime uses every feature that
        /// works.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct DisabledFeatures {
            $($(#[$doc])+ pub $field: bool,)+
        }

        impl DisabledFeatures {
            /// Returns `true` if this feature is switched off.
            #[must_use]
            pub const fn contains(&self, feature: Feature) -> bool {
                match feature {
                    $(Feature::$variant => self.$field,)+
                }
            }

            fn insert(&mut self, feature: Feature) {
                match feature {
                    $(Feature::$variant => self.$field = true,)+
                }
            }
        }
    };
}

features! {
    /// userfaultfd altogether. Shared arrays fall back to `mprotect` and SIGSEGV.
    Uffd uffd "uffd";
    /// userfaultfd for faults from inside system calls. The user-mode-only descriptor remains.
    UffdFull uffd_full "uffd-full";
    /// `mprotect` and SIGSEGV as a way to track pages.
    Mprotect mprotect "mprotect";
    /// Sending several datagrams by one call (`UDP_SEGMENT`).
    Gso gso "gso";
    /// Receiving several datagrams as one buffer (`UDP_GRO`).
    Gro gro "gro";
    /// Direct placement: receiving bulk data where it belongs, without a copy.
    DirectPlacement direct_placement "direct-placement" "foresee";
    /// A separate socket for bulk data.
    Lanes lanes "lanes";
    /// Separate connected sockets for the most active peers.
    Connect connect "connect";
    /// Receiving small datagrams before the kernel's IP layer does (a tcx program).
    Tcx tcx "tcx" "early";
    /// Sending small datagrams as raw frames, bypassing the kernel's IP layer.
    RawTx raw_tx "raw-tx" "frames";
    /// Sending bulk data without a copy (`vmsplice`, `splice`).
    Splice splice "splice";
    /// Use of IPv6 addresses.
    Ipv6 ipv6 "ipv6";
    /// Shared memory with local peers. They are reached over UDP instead.
    Shm shm "shm";
    /// Barriers through memory that all nodes of a machine map. They go through the engines
    /// instead, on all nodes if one node lacks the feature.
    Arena arena "arena";
    /// Arrays in memory that all nodes of a machine map. Each node keeps pages of its own instead,
    /// on all nodes if one node lacks the feature.
    Segment segment "segment";
    /// Fences that the kernel makes for the threads that enter an object, when the object ends
    /// (`membarrier`).
    Membarrier membarrier "membarrier";
    /// Placing pages by moving them (`UFFDIO_MOVE`). They are copied instead.
    Move page_move "move";
    /// Exchanging pages with a local peer by mapping each other's pages. Their bytes are copied
    /// instead.
    Remap remap "remap";
    /// Huge pages for regions.
    Huge huge "huge";
    /// Multicast: sending bytes that several nodes get alike once. They are sent to each node
    /// instead.
    Multicast multicast "multicast";
    /// AES-128-GCM for datagrams. They are sealed by ChaCha20-Poly1305 instead.
    Aes aes "aes";
}

/// Features that the program has switched off for the whole process, in place of the variable.
static CHOSEN: OnceLock<DisabledFeatures> = OnceLock::new();

/// Name of the environment variable.
pub const VARIABLE: &str = "OIKAZE_WITHOUT";

/// Error: a word in `OIKAZE_WITHOUT` names no feature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE}: unknown feature \"{word}\"; known are {}, separated by commas", known())]
pub struct UnknownFeature {
    /// The unknown word.
    pub word: String,
}

fn known() -> String {
    let words: Vec<_> = Feature::ALL.iter().map(|feature| feature.word()).collect();
    words.join(", ")
}

impl Feature {
    /// Parses a list such as `gso,gro`.
    ///
    /// # Errors
    /// A word names no feature: a misspelt one must not pass for a test of the fallback.
    pub fn list(text: &str) -> Result<Vec<Feature>, UnknownFeature> {
        text.split([',', ' ']).filter(|word| !word.is_empty()).map(str::parse).collect()
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Feature {
    type Err = UnknownFeature;

    fn from_str(word: &str) -> Result<Feature, UnknownFeature> {
        Feature::of(word).ok_or_else(|| UnknownFeature { word: word.to_owned() })
    }
}

impl FromIterator<Feature> for DisabledFeatures {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> DisabledFeatures {
        let mut disabled = DisabledFeatures::default();
        features.into_iter().for_each(|feature| disabled.insert(feature));
        disabled
    }
}

impl DisabledFeatures {
    /// Reads `OIKAZE_WITHOUT`. Nothing is switched off if the variable is not set.
    ///
    /// # Errors
    /// As [`Feature::list`].
    pub fn from_env() -> Result<DisabledFeatures, UnknownFeature> {
        std::env::var_os(VARIABLE).map_or(Ok(DisabledFeatures::default()), |text| {
            DisabledFeatures::parse(&text.to_string_lossy())
        })
    }

    /// Returns what is switched off for the whole process: what was chosen for it, or else what the
    /// variable says. Each job has its own switches for everything else.
    ///
    /// # Errors
    /// As [`DisabledFeatures::from_env`].
    pub fn of_process() -> Result<DisabledFeatures, UnknownFeature> {
        CHOSEN.get().copied().map_or_else(DisabledFeatures::from_env, Ok)
    }

    /// Makes [`DisabledFeatures::of_process`] return these from now on. The first call of a process
    /// decides.
    pub fn choose_for_process(&self) {
        let _ = CHOSEN.set(*self);
    }

    /// Parses a list such as `gso,gro`.
    ///
    /// # Errors
    /// As [`Feature::list`].
    pub fn parse(text: &str) -> Result<DisabledFeatures, UnknownFeature> {
        Ok(Feature::list(text)?.into_iter().collect())
    }

    /// Returns the cipher that this node prefers for datagrams (SEAL-2.6).
    #[must_use]
    pub fn cipher(&self) -> CipherKind {
        if self.aes { CipherKind::ChaCha20Poly1305 } else { preferred_cipher() }
    }

    /// Returns the features that are switched off.
    pub fn features(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.iter().copied().filter(move |feature| self.contains(*feature))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_switch_their_feature_off() {
        assert_eq!(DisabledFeatures::parse("").unwrap(), DisabledFeatures::default());
        assert_eq!(
            DisabledFeatures::parse("gso,gro").unwrap(),
            DisabledFeatures { gso: true, gro: true, ..DisabledFeatures::default() }
        );
        assert_eq!(
            DisabledFeatures::parse(" move, uffd-full,").unwrap().features().collect::<Vec<_>>(),
            [Feature::UffdFull, Feature::Move]
        );
    }

    #[test]
    fn each_word_and_each_older_word_names_its_feature() {
        for feature in Feature::ALL {
            assert_eq!(feature.word().parse(), Ok(*feature));
        }
        assert_eq!(
            Feature::list("foresee,early,frames").unwrap(),
            [Feature::DirectPlacement, Feature::Tcx, Feature::RawTx]
        );
    }

    #[test]
    fn a_misspelt_word_is_an_error_that_lists_the_right_ones() {
        let text = DisabledFeatures::parse("uffd,gsso").unwrap_err().to_string();
        assert!(text.contains("\"gsso\"") && text.contains("uffd-full"), "{text}");
        assert!(text.contains("gso"), "{text}");
    }
}
