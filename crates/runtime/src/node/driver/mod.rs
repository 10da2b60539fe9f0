//! Threads that drive the engine: one state machine of the driver, the waiters and the helper.
//!
//! Threads that wait for something compete for the role of the *driver*, which runs turns and
//! watches the socket. There is one driver, because two threads that poll one socket cost more than
//! ten times what one costs. The other waiters park. While there is no driver, the *helper*, an
//! otherwise idle thread, watches the socket, so that this node answers its peers although no
//! thread waits.
//!
//! A wakeup of the helper costs a system call and a thread switch, which a program that waits again
//! microseconds later pays for nothing. While there is a driver, the helper therefore sleeps with a
//! limit, *away* from the socket. A leaving driver wakes it only if its limit is far, or if the
//! gaps between two drivers have lately been long ([`limits::GAP_SHORT_NS`], or
//! [`limits::GAP_QUIET_NS`] while no peer asks this node for anything). In the worst case nobody
//! watches the socket for two sleeps of the helper of [`limits::HELPER_SLEEP`] each, the second of
//! which begins while the gap is still short. Then the helper polls by itself.
//!
//! A helper that watches makes every datagram come through the sockets, which alone wake threads. A
//! driver that polls therefore takes the link from it (`take_watch_of_helper`), and wakes it when
//! it leaves.
//!
//! # States
//!
//! | part | states |
//! |---|---|
//! | role | free, driven |
//! | driver | spins, sleeps on the socket until a time |
//! | waiter | spins, parked |
//! | helper | awake, watches the socket until a time, away until a time |
//!
//! # Transitions
//!
//! | call | by | condition | transition | wakes |
//! |---|---|---|---|---|
//! | [`Driver::try_drive`], [`Driver::drive_on`] | any thread | role free | role driven | |
//! | [`Driver::park`] | a waiter | role free | role driven, by the waiter | |
//! | | | role driven | waiter parked | |
//! | | | parked, and its value is there or its limit has passed | waiter leaves | |
//! | [`leave`](state::DriverGuard::leave) | the driver | a waiter is parked | role goes to the waiter that has waited longest | that waiter |
//! | | | helper away, and its limit far or the gaps long | role free, helper awake | the helper |
//! | | | otherwise | role free | |
//! | [`leave_to_helper`](state::DriverGuard::leave_to_helper) | a task or an event loop that sleeps | no waiter is parked | role free, helper awake | the helper if it is away |
//! | drop of the guard | a driver that panics | no waiter is parked | role free | the helper, if it is away |
//! | [`Idle::next`] | the driver | idle for the spin time, or its core is shared, or its yields are slow | driver sleeps | |
//! | [`Sleeper::fall_asleep`](sleeper::Sleeper::fall_asleep) | the driver, the helper | no news since the last check | asleep until the next timer | |
//! | [`Driver::send_helper_away`] | the driver, which polls | helper watches | helper away until that time, without its claim on the link | |
//! | [`Driver::helper_sleeps`] | the helper | role driven | away, twice as long each time | |
//! | | | role free for a short time, and the gaps are short | away | |
//! | | | otherwise | watches | |
//! | [`Driver::wake_waiters`] | who made news | | parked waiters check their values | all but [`WakeSource::Direct`] |
//! | [`Driver::notify_sleepers`] | who ran a turn | news, more work, or a timer before the end of the sleep | awake | the driver, the helper if it watches |
//!
//! # Properties
//!
//! loom checks these in every interleaving (`state/tests.rs`, `lock.rs`):
//! 1. There are never two drivers.
//! 2. While a thread waits, there is a driver: a leaving driver hands over under the same lock
//!    under which a waiter parks.
//! 3. While there is no driver, the helper watches, or is being woken, or polls again within
//!    two times [`limits::HELPER_SLEEP`].
//! 4. A waiter whose condition came true before [`Driver::wake_waiters`] sees it and does not sleep
//!    on. ([`WakeSource::Direct`] leaves that to others.)
//! 5. Requests left to the thread in the engine are taken up by a turn that begins afterwards.
//! 6. No thread sleeps past the time at which the next turn is due.

pub mod drive;
pub mod helper;
pub mod limits;
pub mod link_watch;
pub mod lock;
pub mod mode;
pub mod sleeper;
pub mod spin;
pub mod spin_history;
pub mod state;
pub mod task;
pub mod wait_policy;
pub mod waiters;

pub use sleeper::{Descriptors, Wakeup};
pub use spin::{Idle, IdleStep, SpinLimit, WordPolls};
pub use state::{Driver, HelperSleep, WakeSource};
