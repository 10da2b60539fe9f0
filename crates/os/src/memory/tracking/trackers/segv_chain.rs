//! The process's SIGSEGV action: keeps our handler installed, and passes on faults that are not
//! ours. Does the same for SIGBUS, whose handler names the file that became shorter (MEM-1.15).
//!
//! A program may install its own handler at any time (a crash reporter, Python's faulthandler), and
//! a thread may block the signal. A fault on a shared page would then end the process without a
//! message. So [`ensure`] checks action and mask whenever an array is made, a page is about to
//! trap, or a guard is taken on pages that trap. A handler that was installed over ours becomes the
//! one that is called for faults elsewhere; the handlers before it follow in turn (COH-8.6).
//!
//! Many handlers pass faults that they cannot explain to the handler that they replaced, which may
//! be ours. [`Passed`] marks a `siginfo_t` that they received from here, so that the fault goes to
//! the next older handler instead of round in a circle. A handler without that information may
//! raise the signal again, as Python's faulthandler does. [`Saved::thread`] recognises this.
//!
//! A caller that sees the program change its handlers, as hooks of Python do, calls [`set_aside`]
//! before and [`put_back`] afterwards. The program then finds and replaces its own handler.

use crate::processes::signals::locked_without_signals;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// A handler of the program's. Never freed, because a fault on another thread may be walking the
/// list.
struct Saved {
    action: libc::sigaction,
    older: *const Saved,
    /// Number of the thread that is in this handler, or 0.
    thread: AtomicI32,
}

/// Handlers of one signal.
struct HandlerChain {
    signal: libc::c_int,
    /// The handler of the program's that was found most recently.
    newest: AtomicPtr<Saved>,
    /// Address of our handler, once it has been installed.
    ours: AtomicUsize,
}

static CHAINS: [HandlerChain; 2] =
    [HandlerChain::of(libc::SIGSEGV), HandlerChain::of(libc::SIGBUS)];

impl HandlerChain {
    const fn of(signal: libc::c_int) -> HandlerChain {
        HandlerChain { signal, newest: AtomicPtr::new(ptr::null_mut()), ours: AtomicUsize::new(0) }
    }

    /// Returns our handler, if it has been installed.
    fn ours(&self) -> Option<Handler> {
        let ours = self.ours.load(Ordering::Acquire);
        // SAFETY: only `install` writes it, from a function of this type.
        (ours != 0).then(|| unsafe { std::mem::transmute::<usize, Handler>(ours) })
    }
}

/// Handler that a handler found in our place replaces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replaces {
    /// Our handler, so that the older ones follow it.
    Ours,
    /// The program's newest handler, which was in place when the program replaced it.
    Newest,
}
/// Held while the process's action changes; never taken by a signal handler.
static INSTALLING: Mutex<()> = Mutex::new(());

fn chain(signal: libc::c_int) -> &'static HandlerChain {
    let [segv, bus] = &CHAINS;
    if signal == libc::SIGBUS { bus } else { segv }
}

/// Ensures again what [`ensure`] has ensured for SIGSEGV, if it ever was. Costs two system calls if
/// nothing has to change.
///
/// # Errors
/// The handler or the mask cannot be changed.
pub fn ensure_again() -> io::Result<()> {
    let chain = chain(libc::SIGSEGV);
    chain.ours().map_or(Ok(()), |ours| ensure(chain.signal, ours))
}

/// Puts the program's handlers in the place of ours, which the program is about to change. A page
/// that traps meanwhile ends the process, so call [`put_back`] right after the change.
pub fn set_aside() {
    let _one = locked_without_signals(|| INSTALLING.lock().unwrap_or_else(PoisonError::into_inner));
    for chain in &CHAINS {
        let Some(ours) = chain.ours() else { continue };
        if !current(chain.signal).is_ok_and(|action| is_ours(&action, ours)) {
            continue;
        }
        // SAFETY: null, or a leaked box.
        let newest = unsafe { chain.newest.load(Ordering::Relaxed).as_ref() };
        let action = newest.map_or_else(default_action, |saved| saved.action);
        // SAFETY: an action that the program had installed, or the default one.
        unsafe { libc::sigaction(chain.signal, &action, ptr::null_mut()) };
    }
}

/// Installs our handlers again after [`set_aside`], and unblocks their signals in this thread.
///
/// # Errors
/// The handler or the mask cannot be changed.
pub fn put_back() -> io::Result<()> {
    for chain in &CHAINS {
        if let Some(ours) = chain.ours() {
            install(chain.signal, ours, Replaces::Newest)?;
            unblock(chain.signal)?;
        }
    }
    Ok(())
}

fn default_action() -> libc::sigaction {
    // SAFETY: `sigaction` is plain data; zeros are an empty mask, no flags, the default action.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Ensures that `ours` handles this signal, SIGSEGV or SIGBUS, and that this thread does not block
/// it. Costs two system calls if nothing has to change.
pub(in crate::memory) fn ensure(signal: libc::c_int, ours: Handler) -> io::Result<()> {
    if !is_ours(&current(signal)?, ours) {
        install(signal, ours, Replaces::Ours)?;
    }
    unblock(signal)
}

fn is_ours(action: &libc::sigaction, ours: Handler) -> bool {
    action.sa_sigaction == ours as usize && action.sa_flags & libc::SA_SIGINFO != 0
}

fn current(signal: libc::c_int) -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only a query; all zeros is a valid `sigaction` to write over.
    match unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } {
        // SAFETY: filled by the call.
        0 => Ok(unsafe { action.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cold]
fn install(signal: libc::c_int, ours: Handler, replaces: Replaces) -> io::Result<()> {
    let _one = locked_without_signals(|| INSTALLING.lock().unwrap_or_else(PoisonError::into_inner));
    let found = current(signal)?;
    if is_ours(&found, ours) {
        return Ok(());
    }
    let chain = chain(signal);
    let newest = chain.newest.load(Ordering::Relaxed).cast_const();
    // SAFETY: null, or a leaked box.
    let known = unsafe { newest.as_ref() };
    if known.is_none_or(|saved| saved.action.sa_sigaction != found.sa_sigaction) {
        let older = match replaces {
            Replaces::Ours => newest,
            Replaces::Newest => known.map_or(ptr::null(), |saved| saved.older),
        };
        // Publish it before our handler can run.
        let thread = AtomicI32::new(0);
        let saved = Box::leak(Box::new(Saved { action: found, older, thread }));
        chain.newest.store(saved, Ordering::Release);
    }
    chain.ours.store(ours as usize, Ordering::Release);
    let mut action = default_action();
    action.sa_sigaction = ours as usize;
    // SA_NODEFER: a handler of the program's that interrupts our sleep may itself touch an absent
    // page. No SA_ONSTACK: such a handler would share the alternate stack with us, which holds only
    // two or three frames (8 KiB by default; a frame with AVX-512 state is 3.5 KiB). The price is
    // that a stack overflow ends the process without Rust's message.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: the handler has the signature SA_SIGINFO asks for and is async-signal-safe (module
    // docs of `segv`).
    match unsafe { libc::sigaction(signal, &action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Unblocks the signal: a thread that blocks it dies of a fault, whatever the handler.
fn unblock(signal: libc::c_int) -> io::Result<()> {
    let set = only(signal);
    // SAFETY: the set is initialised; the old mask is not wanted.
    match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut()) } {
        0 => Ok(()),
        why => Err(io::Error::from_raw_os_error(why)),
    }
}

fn only(signal: libc::c_int) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set, to which a valid signal is added.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        set.assume_init()
    }
}

/// A copy of the kernel's `siginfo_t` for a handler of the program's.
#[repr(C)]
struct Passed {
    /// Address of this value mixed with a constant, which nothing else on a stack looks like.
    mark: usize,
    /// Handler that follows if this one passes the fault back to us.
    next: *const Saved,
    info: libc::siginfo_t,
}

const MARK: usize = 0x6f69_6b61_7a65_u64 as usize;

impl Passed {
    fn mark(&self) -> usize {
        ptr::from_ref(self).addr() ^ MARK
    }

    /// Returns the next handler, if this information came from here.
    ///
    /// # Safety
    /// `info` is what a SIGSEGV handler was given: it lies on a stack, with at least as many
    /// readable bytes before it as `Passed` has.
    unsafe fn next(info: *const libc::siginfo_t) -> Option<*const Saved> {
        let at = info.wrapping_byte_sub(std::mem::offset_of!(Passed, info)).cast::<usize>();
        let next = at.wrapping_byte_add(std::mem::offset_of!(Passed, next)).cast::<*const Saved>();
        // SAFETY: as the caller says. The kernel puts the structure above other parts of its frame,
        // or above the interrupted stack.
        let (mark, next) = unsafe { (at.read_volatile(), next.read_volatile()) };
        (mark == at.addr() ^ MARK).then_some(next)
    }
}

/// Handles a fault that is not ours as if our handler were not installed. Async-signal-safe.
pub(in crate::memory) fn pass_on(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: called by the handler, with what it was given.
    let next = unsafe { Passed::next(info) }
        .unwrap_or_else(|| chain(signal).newest.load(Ordering::Acquire).cast_const());
    // SAFETY: the kernel passes a valid siginfo. The kernel's own signals, which are faults, have a
    // positive code; sent signals do not.
    let is_fault = unsafe { (*info).si_code > 0 };
    // SAFETY: null, or a leaked box.
    let mut saved = unsafe { next.as_ref() };
    // A handler that raises the signal wants the handler that it has replaced.
    while let Some(within) = saved.filter(|saved| !is_fault && saved.is_in_this_thread()) {
        // SAFETY: null, or a leaked box.
        saved = unsafe { within.older.as_ref() };
    }
    match saved.map_or(libc::SIG_DFL, |saved| saved.action.sa_sigaction) {
        libc::SIG_IGN if !is_fault => {}
        // The kernel does not permit ignoring a fault.
        libc::SIG_DFL | libc::SIG_IGN => end(signal, is_fault),
        _ => saved.into_iter().for_each(|saved| call(saved, signal, info, context)),
    }
}

fn this_thread() -> libc::pid_t {
    // SAFETY: it only asks, and is a bare system call.
    unsafe { libc::gettid() }
}

impl Saved {
    fn is_in_this_thread(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == this_thread()
    }
}

/// Calls a handler of the program's, with the signals blocked that it asked for.
fn call(
    saved: &Saved,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let Saved { action, older, thread } = saved;
    let outer = thread.swap(this_thread(), Ordering::Relaxed);
    let mut blocked = action.sa_mask;
    if action.sa_flags & libc::SA_NODEFER == 0 {
        // A crash in a crash handler ends the process, as without us.
        // SAFETY: the set is initialised, the signal valid.
        unsafe { libc::sigaddset(&mut blocked, signal) };
    }
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are valid for the call.
    let masked =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, before.as_mut_ptr()) } == 0;
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the kernel passes a valid siginfo.
        let mut passed = Passed { mark: 0, next: *older, info: unsafe { *info } };
        // SAFETY: a volatile store to our own variable: only `Passed::next` reads it.
        unsafe { (&raw mut passed.mark).write_volatile(passed.mark()) };
        // SAFETY: the flag says that the address is a function of this type.
        let handler: Handler = unsafe { std::mem::transmute(action.sa_sigaction) };
        handler(signal, &raw mut passed.info, context);
        // SAFETY: as above. Clear the mark, so that what stays on the stack means nothing.
        unsafe { (&raw mut passed.mark).write_volatile(0) };
    } else {
        // SAFETY: neither a special value nor SA_SIGINFO: a function of the plain type.
        let handler: extern "C" fn(libc::c_int) =
            unsafe { std::mem::transmute(action.sa_sigaction) };
        handler(signal);
    }
    thread.store(outer, Ordering::Relaxed);
    if masked {
        // SAFETY: filled by the call that blocked them.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
}

/// Ends the process with the signal, and a core if one is wanted. A fault ends it when the access
/// is retried.
fn end(signal: libc::c_int, is_fault: bool) {
    // SAFETY: zeros are the default action; raising a signal touches nothing else. Both are
    // async-signal-safe.
    unsafe {
        libc::sigaction(signal, &default_action(), ptr::null_mut());
        if !is_fault {
            libc::raise(signal);
        }
    }
}
