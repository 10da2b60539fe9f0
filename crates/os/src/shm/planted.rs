//! Deliberately planted bugs of arenas and segments, which prove that tests detect such bugs: loom
//! models where the order of accesses matters, and ordinary unit tests for the rest. In programs
//! the answer to [`planted`] is the constant `false`.

macro_rules! bugs {
    ($($(#[$text:meta])* $bug:ident,)*) => {
        /// Bug that a test plants on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Bug {
            $($(#[$text])* $bug,)*
        }

        #[cfg(test)]
        impl Bug {
            /// All bugs, for the test that plants each in turn.
            const ALL: &[Bug] = &[$(Bug::$bug),*];
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
    /// A ticket for a lock that was granted is not ended.
    CancelGranted,
    /// A ticket that reads is over before a reader is counted.
    EndTicketUncounted,
    /// A ticket that writes does not wait for readers.
    HoldBesideReaders,
    /// A queue goes on past an abandoned ticket that can be used again.
    PassAbandoned,
    /// A queue goes on, and the next ticket is read without a fence in between.
    PassWithoutFence,
    /// A free lock is granted to a member that died while it waited.
    GrantToDead,
    /// A guard is published, and the guards of others are read without a fence in between.
    PublishWithoutFence,
    /// An array is marked, and the guards of others are read without a fence in between.
    MarkWithoutFence,
    /// An entry that changes while it is read is taken for a guard.
    ReadTornEntry,
    /// A group of elements is entered by a load and a store.
    EnterWithoutExchange,
    /// The bytes from the first one to the last one of a block are taken for the block.
    CompareHulls,
    /// The number of entries in use counts guards, also behind an entry that is free.
    CountGuards,
    /// A guard that is refused stays published.
    KeepRefusedEntry,
    /// A guard of a process that has ended counts.
    CountEnded,
    /// A guard of a process that has ended hides those of the nodes after it.
    StopAtEnded,
    /// A control socket that is closed is taken for the end of the process.
    TrustClosedSocket,
    /// A merge stores bytes that no other node can know of.
    StoreWithoutEntry,
    /// Guards leave no room for merges.
    KeepNoRoom,
    /// A merge stores no run if a guard is in the way of one.
    RefuseWholeMerge,
    /// A merge stores unchanged bytes between changed ones, too.
    StoreUnchanged,
    /// The twin of a copy is read from the memory, and not from the copy.
    ReadCopyTwice,
    /// A mark that is refused stays.
    KeepMark,
    /// A guard lends a reference into a marked array.
    LendMarked,
    /// All collectives use one list of owned bytes.
    KeepOneOwnedList,
    /// Bytes that were owned before an earlier collective count again.
    KeepOwned,
    /// Bytes that were owned under a lock are compared.
    CompareUnderLock,
    /// Owned bytes are joined over a gap.
    JoinOwnedGaps,
    /// A group of elements is taken over from a process that lives.
    TakeOverLiving,
    /// A group of elements stays with a process that has ended.
    LeaveToEnded,
}

/// Returns `true` if this bug is planted.
#[cfg(not(test))]
#[inline]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}

#[cfg(test)]
pub(crate) use of_tests::planted;

#[cfg(test)]
mod of_tests {
    use super::Bug;
    use std::process::Command;
    use std::sync::OnceLock;

    /// Variable that names the bug which this process plants. A test that fails may end its
    /// process.
    const PLANTED: &str = "OIKAZE_PLANTED";

    /// Returns `true` if this bug is planted.
    pub fn planted(bug: Bug) -> bool {
        static BUG: OnceLock<Option<Bug>> = OnceLock::new();
        let named = || {
            let name = std::env::var(PLANTED).ok()?;
            Bug::ALL.iter().copied().find(|bug| format!("{bug:?}") == name)
        };
        *BUG.get_or_init(named) == Some(bug)
    }

    impl Bug {
        /// Returns the test that notices the bug.
        fn noticed_by(self) -> &'static str {
            match self {
                Bug::PassEarly => "shm::arena::models::loom_arena_members_go_one_way",
                Bug::ForgetEarlierCall => "shm::arena::models::loom_arena_members_go_one_way",
                Bug::WakeWithoutFence => {
                    "shm::arena::models::loom_arena_sleeper_is_woken_by_who_comes"
                }
                Bug::FailWithoutWaking => {
                    "shm::arena::models::loom_arena_sleeper_is_woken_by_who_gives_up"
                }
                Bug::SleepForNothing => {
                    "shm::arena::models::loom_arena_word_sleeper_is_woken_by_a_step"
                }
                Bug::LastWakesNobody => {
                    "shm::arena::models::loom_arena_word_sleeper_is_woken_at_the_end_of_a_call"
                }
                Bug::NumberSlotFirst => {
                    "shm::arena::models::loom_slots_keep_what_a_member_gives_until_all_have_read"
                }
                Bug::NumberSlotUnordered => {
                    "shm::arena::models::loom_slots_keep_what_a_member_gives_until_all_have_read"
                }
                Bug::UseSlotEarly => {
                    "shm::arena::models::loom_slots_keep_what_a_member_gives_until_all_have_read"
                }
                Bug::ReadTornHead => "shm::arena::models::loom_slots_have_no_torn_heads",
                Bug::NumberPieceFirst => {
                    "shm::arena::models::loom_pieces_stay_until_all_have_read_them"
                }
                Bug::ReadPieceUnordered => {
                    "shm::arena::models::loom_pieces_stay_until_all_have_read_them"
                }
                Bug::UseBufferEarly => {
                    "shm::arena::models::loom_pieces_stay_until_all_have_read_them"
                }
                Bug::ForgetOwnReads => {
                    "shm::arena::models::loom_pieces_stay_until_all_have_read_them"
                }
                Bug::CancelGranted => "shm::arena::models::loom_a_request_that_ends_keeps_no_lock",
                Bug::EndTicketUncounted => {
                    "shm::arena::models::loom_readers_are_not_beside_a_writer"
                }
                Bug::HoldBesideReaders => {
                    "shm::arena::models::loom_readers_are_not_beside_a_writer"
                }
                Bug::PassAbandoned => "shm::arena::models::loom_an_abandoned_ticket_is_used_again",
                Bug::PassWithoutFence => {
                    "shm::arena::models::loom_a_lock_has_one_holder_and_forgets_nobody"
                }
                Bug::GrantToDead => {
                    "shm::arena::locks::tests::lock_goes_to_the_members_as_a_list_says"
                }
                Bug::PublishWithoutFence => {
                    "shm::segment::models::loom_two_writers_are_never_both_in_place"
                }
                Bug::MarkWithoutFence => {
                    "shm::segment::models::loom_a_mark_and_a_guard_see_each_other"
                }
                Bug::ReadTornEntry => {
                    "shm::segment::models::loom_an_entry_is_read_whole_or_not_at_all"
                }
                Bug::EnterWithoutExchange => {
                    "shm::segment::models::loom_operations_are_alone_in_a_group"
                }
                Bug::CompareHulls => {
                    "shm::segment::extent::tests::extents_meet_if_they_have_an_element_in_common"
                }
                Bug::CountGuards => "shm::segment::tests::guards_end_in_any_order",
                Bug::KeepRefusedEntry => {
                    "shm::segment::tests::guard_that_is_refused_is_in_nobodys_way"
                }
                Bug::CountEnded => {
                    "shm::segment::tests::guard_of_an_ended_process_is_in_nobodys_way"
                }
                Bug::StopAtEnded => {
                    "shm::segment::tests::guard_behind_that_of_an_ended_process_counts"
                }
                Bug::TrustClosedSocket => {
                    "shm::control_socket::tests::a_socket_that_is_closed_is_not_the_end_of_a_process"
                }
                Bug::StoreWithoutEntry => {
                    "shm::segment::tests::bytes_are_merged_while_the_others_know_of_it"
                }
                Bug::KeepNoRoom => {
                    "shm::segment::tests::merge_has_room_beside_as_many_guards_as_there_can_be"
                }
                Bug::RefuseWholeMerge => {
                    "shm::segment::tests::runs_are_merged_beside_one_that_a_guard_is_in_the_way_of"
                }
                Bug::StoreUnchanged => {
                    "memory::tracking::private_copy::tests::changes_are_the_elements_and_bytes_that_have_changed"
                }
                Bug::ReadCopyTwice => {
                    "memory::tracking::private_copy::tests::changes_of_the_memory_are_no_changes_of_the_copy"
                }
                Bug::KeepMark => "shm::segment::tests::mark_that_is_refused_is_taken_back",
                Bug::LendMarked => "shm::segment::tests::guard_of_a_marked_array_lends_a_copy",
                Bug::KeepOneOwnedList => {
                    "shm::segment::owned::tests::a_list_belongs_to_one_collective"
                }
                Bug::KeepOwned => {
                    "shm::segment::tests::bytes_that_two_nodes_owned_are_found_by_all"
                }
                Bug::CompareUnderLock => {
                    "shm::segment::tests::bytes_that_were_owned_under_a_lock_are_not_compared"
                }
                Bug::JoinOwnedGaps => {
                    "shm::segment::owned::tests::lists_overlap_if_a_byte_is_in_both"
                }
                Bug::TakeOverLiving => {
                    "shm::segment::groups::tests::group_of_a_living_holder_is_left_to_it"
                }
                Bug::LeaveToEnded => {
                    "shm::segment::groups::tests::group_of_an_ended_holder_is_taken_over"
                }
            }
        }

        /// Returns `true` if a loom model notices the bug.
        fn is_of_models(self) -> bool {
            self.noticed_by().contains("::loom_")
        }
    }

    /// Runs a test in a process of its own. Returns `true` if it fails.
    fn fails(test: &str, bug: &str) -> bool {
        let mut tests = Command::new(std::env::current_exe().unwrap());
        // A test that finds a bug leaves no seed of it in the sources.
        tests.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        let ended = tests.args(["--exact", test]).env(PLANTED, bug).output().unwrap();
        let shown = String::from_utf8_lossy(&ended.stdout);
        assert!(shown.contains("running 1 test"), "{test} did not run: {shown}");
        !ended.status.success()
    }

    fn are_caught(is_meant: impl Fn(Bug) -> bool) {
        let bugs = || Bug::ALL.iter().copied().filter(|bug| is_meant(*bug));
        let mut tests: Vec<_> = bugs().map(Bug::noticed_by).collect();
        tests.sort_unstable();
        tests.dedup();
        for test in tests {
            assert!(!fails(test, ""), "{test} fails without a bug");
        }
        for bug in bugs() {
            let test = bug.noticed_by();
            assert!(fails(test, &format!("{bug:?}")), "{bug:?} is not caught by {test}");
        }
    }

    #[cfg(loom)]
    #[test]
    fn loom_planted_bugs_of_shared_memory_are_caught() {
        are_caught(Bug::is_of_models);
    }

    #[cfg(not(loom))]
    #[test]
    fn planted_bugs_of_shared_memory_are_caught() {
        are_caught(|bug| !bug.is_of_models());
    }
}
