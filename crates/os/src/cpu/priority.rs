//! Priority of a thread over the other threads of the machine.

use std::fmt;
use std::io;
use std::str::FromStr;

/// Priority of communication over applications, in the words `fifo`, `fifo:N` or `nice:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Real-time class `SCHED_FIFO` with this priority, 1 to 99: the thread runs before all
    /// ordinary ones, for as long as it wants (`sched(7)`).
    Fifo(u8),
    /// Nice value, −20 to 19. Lower values get more of the processor.
    Nice(i8),
}

impl Priority {
    /// Checks the number.
    ///
    /// # Errors
    /// The system knows no such priority. The text says which it knows.
    pub fn checked(self) -> Result<Priority, String> {
        let is_known = match self {
            Priority::Fifo(priority) => (1..=99).contains(&priority),
            Priority::Nice(nice) => (-20..=19).contains(&nice),
        };
        if is_known { Ok(self) } else { Err(expected(&self.to_string())) }
    }

    /// Gives the calling thread this priority. Threads and processes that the thread starts do not
    /// inherit the real-time class.
    ///
    /// # Errors
    /// The system forbids it. The text says what permits it.
    pub fn apply(self) -> io::Result<()> {
        let set = match self {
            Priority::Fifo(priority) => set_fifo(priority),
            // 0 is the calling thread on Linux, not the process (`setpriority(2)`, "BUGS").
            Priority::Nice(nice) => {
                rustix::process::setpriority_process(None, nice.into()).map_err(io::Error::from)
            }
        };
        set.map_err(|why| {
            let permission = match self {
                Priority::Fifo(_) => "CAP_SYS_NICE, or a limit of real-time priority (ulimit -r)",
                Priority::Nice(_) => "CAP_SYS_NICE, or a limit of niceness (ulimit -e)",
            };
            io::Error::new(why.kind(), format!("{why}; it takes {permission}"))
        })
    }
}

/// Returns the text of a refusal of this priority.
fn expected(text: &str) -> String {
    format!("{text:?}: expected fifo, fifo:N (1 to 99) or nice:N (-20 to 19)")
}

fn set_fifo(priority: u8) -> io::Result<()> {
    set_class(libc::SCHED_FIFO, priority)
}

/// Gives the calling thread the ordinary class. Its nice value stays.
///
/// # Errors
/// The kernel refuses the call.
pub(super) fn leave_real_time() -> io::Result<()> {
    set_class(libc::SCHED_OTHER, 0)
}

/// Returns `true` if a thread of this process may take a real-time class.
#[must_use]
pub fn may_be_real_time() -> bool {
    // The class ends with the thread.
    std::thread::spawn(|| set_fifo(1).is_ok()).join().unwrap_or(false)
}

fn set_class(class: libc::c_int, priority: u8) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority.into() };
    // SAFETY: the call reads one `sched_param`, which lives until it returns.
    let result = unsafe {
        // Only a privileged thread could clear the flag again (`sched(7)`).
        libc::sched_setscheduler(0, class | libc::SCHED_RESET_ON_FORK, &raw const parameter)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Priority, String> {
        let (class, number) = text.split_once(':').map_or((text, None), |(a, b)| (a, Some(b)));
        let priority = match (class, number) {
            ("fifo", None) => Some(Priority::Fifo(1)),
            ("fifo", Some(number)) => number.parse().ok().map(Priority::Fifo),
            ("nice", Some(number)) => number.parse().ok().map(Priority::Nice),
            _ => None,
        };
        priority.and_then(|priority| priority.checked().ok()).ok_or_else(|| expected(text))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Priority::Fifo(priority) => write!(f, "fifo:{priority}"),
            Priority::Nice(nice) => write!(f, "nice:{nice}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        assert_eq!("fifo".parse(), Ok(Priority::Fifo(1)));
        for priority in
            [Priority::Fifo(1), Priority::Fifo(99), Priority::Nice(-20), Priority::Nice(7)]
        {
            assert_eq!(priority.to_string().parse(), Ok(priority));
        }
        for text in ["", "fifo:", "fifo:0", "fifo:100", "nice", "nice:-21", "nice:20", "rr:1", "1"]
        {
            let why = text.parse::<Priority>().unwrap_err();
            assert!(why.contains("expected fifo"), "{text}: {why}");
        }
    }

    /// Any thread may lower its own priority.
    #[test]
    fn nice_value_is_the_thread_s_alone() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        let changed = std::thread::spawn(move || {
            Priority::Nice(19).apply().unwrap();
            nice()
        });
        assert_eq!((changed.join().unwrap(), nice()), (19, before));
    }

    /// With the capability the class changes, and without it the error names the remedy.
    #[test]
    fn real_time_class_is_granted_or_refused_with_a_remedy() {
        let outcome = std::thread::spawn(|| {
            let outcome = Priority::Fifo(1).apply();
            // SAFETY: the call takes a number and has no memory to touch.
            (outcome, unsafe { libc::sched_getscheduler(0) })
        });
        match outcome.join().unwrap() {
            (Ok(()), class) => {
                assert_eq!(class, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK);
            }
            (Err(why), class) => {
                assert_eq!(class, libc::SCHED_OTHER);
                assert!(why.to_string().contains("ulimit -r"), "{why}");
            }
        }
    }
}
