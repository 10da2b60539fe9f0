//! Deliberately planted bugs of arenas and segments, which prove that the models detect such bugs.
//! In programs the answer to [`planted`] is the constant `false`.

macro_rules! bugs {
    ($($(#[$text:meta])* $bug:ident,)*) => {
        /// Bug that a model plants on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::shm) enum Bug {
            $($(#[$text])* $bug,)*
        }

        #[cfg(all(test, loom))]
        impl Bug {
            /// All bugs, for the test that plants each in turn.
            pub(in crate::shm) const ALL: &[Bug] = &[$(Bug::$bug),*];

            /// Returns `true` if models of segments notice it, and `false` if those of arenas do.
            pub(in crate::shm) fn is_of_segments(self) -> bool {
                use Bug::{
                    EnterWithoutExchange, MarkWithoutFence, PublishWithoutFence, ReadTornEntry,
                };
                matches!(
                    self,
                    PublishWithoutFence | MarkWithoutFence | ReadTornEntry | EnterWithoutExchange
                )
            }
        }
    };
}

bugs! {
    /// A call passes when the first other member has come.
    PassEarly,
    /// A word of a call forgets that the call before was for the engines.
    ForgetEarlierCall,
    /// A member that comes reads the bits of sleepers without a fence.
    WakeWithoutFence,
    /// A member that gives up wakes nobody.
    FailWithoutWaking,
    /// A member that may sleep on its word says so before it notes what it waits for.
    SleepForNothing,
    /// The last member that comes to a call wakes no member that sleeps on its word.
    LastWakesNobody,
    /// The number of a slot is stored in front of its bytes.
    NumberSlotFirst,
    /// The number of a slot is stored without order.
    NumberSlotUnordered,
    /// A slot is written while a member may read it.
    UseSlotEarly,
    /// A head that is written again is read as one.
    ReadTornHead,
    /// The number of a piece is stored in front of its bytes.
    NumberPieceFirst,
    /// A piece is read without order.
    ReadPieceUnordered,
    /// A buffer is written while another member may read it.
    UseBufferEarly,
    /// A buffer is written while its own member has not read it.
    ForgetOwnReads,
    /// A guard is published, and the guards of others are read without a fence in between.
    PublishWithoutFence,
    /// An array is marked, and the guards of others are read without a fence in between.
    MarkWithoutFence,
    /// An entry that changes while it is read is taken for a guard.
    ReadTornEntry,
    /// A group of elements is entered by a load and a store.
    EnterWithoutExchange,
}

/// Returns `true` if this bug is planted.
#[cfg(not(all(test, loom)))]
#[inline]
pub(in crate::shm) const fn planted(_: Bug) -> bool {
    false
}

#[cfg(all(test, loom))]
pub(in crate::shm) use modelled::{PLANTED, planted};

#[cfg(all(test, loom))]
mod modelled {
    use super::Bug;
    use std::sync::OnceLock;

    /// Variable that names the bug which this process plants. A model that fails may end its
    /// process.
    pub const PLANTED: &str = "OIKAZE_PLANTED";

    /// Returns `true` if this bug is planted.
    pub fn planted(bug: Bug) -> bool {
        static BUG: OnceLock<Option<Bug>> = OnceLock::new();
        let named = || {
            let name = std::env::var(PLANTED).ok()?;
            Bug::ALL.iter().copied().find(|bug| format!("{bug:?}") == name)
        };
        *BUG.get_or_init(named) == Some(bug)
    }
}
