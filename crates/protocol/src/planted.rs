//! Deliberately planted bugs (feature `planted-bugs`, never in a release), which prove that the
//! tests detect such bugs.
//!
//! A critical place in the protocol asks [`planted`]`(Bug::X)` and, if it is `true`, does the wrong
//! thing. Without the feature the answer is the constant `false`.

macro_rules! bugs {
    ($($bug:ident = $number:literal,)*) => {
        /// Bug that can be planted on purpose. The simulator must catch each within the seeds that
        /// CI runs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Bug {
            $($bug = $number,)*
        }

        impl Bug {
            /// All bugs, for the test that plants each in turn.
            pub const ALL: [Bug; [$($number),*].len()] = [$(Bug::$bug),*];
        }
    };
}

bugs! {
    AcceptDuplicateDatagram = 1,
    AcceptDuplicateMessage = 2,
    DeliverOrderedEarly = 3,
    IgnoreClassRule = 4,
    ForgetRetransmission = 5,
    AcknowledgeUnreceived = 6,
    CompleteBeforePlaced = 7,
    SkipIntegrityCheck = 8,
    RepeatAtomic = 9,
    MisplaceFragment = 10,
    SkipInvalidation = 11,
    LoseDiff = 12,
    GrantLockTwice = 13,
    ReleaseBarrierEarly = 14,
    ForgetStaleFetch = 15,
    SignalBeforeData = 16,
    ForgetProbed = 17,
    RepeatTooLittle = 18,
    TellRefusalsOnce = 19,
    ForgetWithdrawal = 20,
    ForgetOpening = 21,
    SettleOutOfTurn = 22,
    AcknowledgeDropped = 23,
    ForgetCredit = 24,
    TrustDoubts = 25,
    KeepNumbersOfDead = 26,
    ForgetKeepalive = 27,
    NoticeDeathLate = 28,
    RepeatElement = 29,
    RepeatPush = 30,
    ForgetRights = 31,
    IgnoreFence = 32,
    EndFlushEarly = 33,
    HoldForFailed = 34,
    KeepRegion = 35,
    ForgetKept = 36,
    KeepAnswering = 37,
    IgnorePages = 38,
    CheckFirstByte = 39,
    MisplaceRow = 40,
    ForgetPending = 41,
    RefuseBegun = 42,
    ReorderUpdates = 43,
    MiscountUpdates = 44,
    SendUnowned = 45,
    ShareParts = 46,
    ForgetRenew = 47,
    ForgetSeen = 48,
    ApplyKnownUpdate = 49,
    UpdateFetching = 50,
    OmitUnshared = 51,
    LeaveUncounted = 52,
    SkipDiffOfGuard = 53,
    ForgetLiveGuard = 54,
    ForgetSubtree = 55,
    LoseLateInterval = 56,
    ForgetEarlyArrival = 57,
    CombineOutOfOrder = 58,
    ForgetPagesToTell = 59,
    ForgetDropsToTell = 60,
    LearnUncounted = 61,
    CountLaterIntervals = 62,
    CountOldEpoch = 63,
    TrustOtherWriters = 64,
    IgnoreCrossedUpdates = 65,
    ForgetSentBytes = 66,
    TrustTwinOfRead = 67,
    EndRoundEarly = 68,
    TellOneForAll = 69,
    BreakPassedLock = 70,
    TrustDeadGiver = 71,
    ExpectOrderedPasses = 72,
    ForgetHeld = 73,
    TellArrivedCopies = 74,
    KeepLateCopies = 75,
    HideSubtree = 76,
    OmitIfAnyListed = 77,
    IgnoreCrossedWriters = 78,
    TrustUnconfirmed = 79,
    ForgetRegained = 80,
    GrantBeforeHomes = 81,
    GrantAheadOfDiffs = 82,
    TrustPartOfWritten = 83,
    ApplyKnownWritten = 84,
    ApplyBesideUpdates = 85,
    ReorderWritten = 86,
    TellEarlyPages = 87,
    ForgetListedCopies = 88,
    KeepLatePagesPrivate = 89,
    QueueTries = 90,
    GrantBesideReaders = 91,
    AskTwice = 92,
    AwaitAbandoned = 93,
    ShortenPartly = 94,
    MoveInvalidPages = 100,
    MoveHomesAtOnce = 102,
    ConfirmWrittenPages = 103,
    ReleaseWhileHomesMove = 104,
    ServeMovedPagesLate = 105,
    RefuseMovedPages = 106,
    ForgetStoresOfOldHome = 107,
    CountForAllMembers = 110,
    ForgetGroupRepair = 111,
    TakeNumberOfOther = 112,
    ForgetLeftOut = 113,
    ForgetGroupFlight = 114,
    TakeAnyByGroup = 115,
    KeepForgedInPlace = 116,
    RefuseForged = 117,
    GiveForgedAllRoom = 118,
    TellSettledByChance = 119,
    TrustFarNumbers = 120,
    KeepOldestShared = 121,
}

impl Bug {
    /// Bugs of what a node tells others at a barrier in an arena (COH-16.3). A simulated cluster
    /// has no arena.
    pub const OF_ARENAS: [Bug; 2] = [Bug::ForgetPagesToTell, Bug::ForgetDropsToTell];

    /// Bugs of notifications (COH-4.6, COH-15.5 to 15.10). The programs that show them have few
    /// barriers.
    pub const OF_NOTIFICATIONS: [Bug; 8] = [
        Bug::LearnUncounted,
        Bug::CountLaterIntervals,
        Bug::CountOldEpoch,
        Bug::TrustOtherWriters,
        Bug::IgnoreCrossedUpdates,
        Bug::ForgetSentBytes,
        Bug::EndRoundEarly,
        Bug::TellOneForAll,
    ];

    /// Bugs of locks that holders pass on directly (COH-7.9 to 7.11), and of requests.
    pub const OF_LOCKS: [Bug; 7] = [
        Bug::BreakPassedLock,
        Bug::TrustDeadGiver,
        Bug::ExpectOrderedPasses,
        Bug::QueueTries,
        Bug::GrantBesideReaders,
        Bug::AskTwice,
        Bug::AwaitAbandoned,
    ];

    /// Bugs of departures that tell a node only of pages that it may hold (COH-6.19 to 6.21). A
    /// simulated cluster has too few nodes and pages for most of them.
    pub const OF_DEPARTURES: [Bug; 8] = [
        Bug::ForgetHeld,
        Bug::TellArrivedCopies,
        Bug::KeepLateCopies,
        Bug::HideSubtree,
        Bug::OmitIfAnyListed,
        Bug::IgnoreCrossedWriters,
        Bug::TrustUnconfirmed,
        Bug::ForgetRegained,
    ];

    /// Bugs of changes that come with a lock (COH-5.6, COH-10.17).
    pub const OF_GRANTS: [Bug; 10] = [
        Bug::GrantBeforeHomes,
        Bug::GrantAheadOfDiffs,
        Bug::TrustPartOfWritten,
        Bug::ApplyKnownWritten,
        Bug::ApplyBesideUpdates,
        Bug::ReorderWritten,
        Bug::TellEarlyPages,
        Bug::ForgetListedCopies,
        Bug::KeepLatePagesPrivate,
        Bug::ShortenPartly,
    ];

    /// Bugs of homes that move (COH-11). `MoveInvalidPages` leaves out three checks at once,
    /// because each replaces the others: a node asks for valid copies, for pages that no other node
    /// has written, and offers valid copies.
    pub const OF_MOVING_HOMES: [Bug; 7] = [
        Bug::MoveInvalidPages,
        Bug::MoveHomesAtOnce,
        Bug::ConfirmWrittenPages,
        Bug::ReleaseWhileHomesMove,
        Bug::ServeMovedPagesLate,
        Bug::RefuseMovedPages,
        Bug::ForgetStoresOfOldHome,
    ];

    /// Bugs of multicast (WIND-12), which not every simulated cluster uses.
    pub const OF_MULTICAST: [Bug; 6] = [
        Bug::CountForAllMembers,
        Bug::ForgetGroupRepair,
        Bug::TakeNumberOfOther,
        Bug::ForgetLeftOut,
        Bug::ForgetGroupFlight,
        Bug::KeepOldestShared,
    ];

    /// Bugs of what a member does with group datagrams that another one has forged (WIND-12.11 to
    /// 12.14). Only the tests of forgeries show them.
    pub const OF_FORGERIES: [Bug; 6] = [
        Bug::TakeAnyByGroup,
        Bug::KeepForgedInPlace,
        Bug::RefuseForged,
        Bug::GiveForgedAllRoom,
        Bug::TellSettledByChance,
        Bug::TrustFarNumbers,
    ];

    /// Bugs of updates of shared arrays (COH-10). They need schedules that the model of shared
    /// memory chooses.
    pub const OF_UPDATES: [Bug; 12] = [
        Bug::ReorderUpdates,
        Bug::MiscountUpdates,
        Bug::SendUnowned,
        Bug::ShareParts,
        Bug::ForgetRenew,
        Bug::ForgetSeen,
        Bug::ApplyKnownUpdate,
        Bug::UpdateFetching,
        Bug::OmitUnshared,
        Bug::LeaveUncounted,
        Bug::SkipDiffOfGuard,
        Bug::ForgetLiveGuard,
    ];
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use core::sync::atomic::{AtomicU8, Ordering};
    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Plants `bug` in this process, or none. For tests only.
    pub fn plant(bug: Option<super::Bug>) {
        PLANTED.store(bug.map_or(0, |b| b as u8), Ordering::Relaxed);
    }

    /// Returns `true` if this bug is planted.
    #[must_use]
    pub fn planted(bug: super::Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8
    }
}

#[cfg(not(feature = "planted-bugs"))]
mod switch {
    /// Returns `true` if this bug is planted, which is never without the feature.
    #[must_use]
    #[inline(always)]
    pub const fn planted(_: super::Bug) -> bool {
        false
    }
}

pub use switch::*;
