//! Case `form` (002, figure 5): two applications send, and their communication runs on cores of its
//! own or on theirs.
//!
//! Application 1 is timed for 100 sends and the answer of its receiver. Application 2 sends
//! throughout. Each application has a network card and a receiver of its own. Links carry 100
//! Mbit/s, as in the paper, or what the machine can do.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::loaded::Busy;
use crate::error::Error;
use crate::lab::{Fork, remote_shell};
use crate::peers::oikaze;
use crate::placement::Extent;
use crate::placement::collected::{Collected, Key};
use crate::placement::programs::{Values, options};
use crate::process::{Ready, alone, during, own_program, pair, seal};
use crate::suite::case::KIB;

/// Sizes of a send.
pub const SIZES: [usize; 6] = [KIB, 3 * KIB, 5 * KIB, 8 * KIB, 32 * KIB, 64 * KIB];
pub const QUICK_SIZES: [usize; 3] = [KIB, 5 * KIB, 32 * KIB];
/// Sizes that are measured beside computing threads.
const LOADED_SIZES: [usize; 2] = [5 * KIB, 32 * KIB];
/// Sends of application 1 (the paper's n1).
const SENDS: usize = 100;
/// Core of both receivers.
const RECEIVERS: usize = 1;
/// MTU of the links, that of the paper's cards.
pub const MTU: u16 = 1500;
/// Time limit of one measurement.
const LIMIT: Duration = Duration::from_secs(40);
/// Name of the case.
pub const CASE: &str = "form";
/// Priority of communication over applications, as in the paper. Engines have it, and servers that
/// nodes start.
const PRIORITY: &str = "nice:-10";

/// Owner of the communication of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The application's own thread, over Oikaze.
    Inline,
    /// The engine's thread, on these cores for applications 1 and 2.
    Engine([usize; 2]),
    /// A server, on these cores for applications 1 and 2, which share it if the core is the same.
    Server([usize; 2]),
    /// The kernel, over UDP.
    Kernel,
}

/// Arrangement of two applications and their communication.
pub struct Form {
    /// Name of the records: applications, communication, and the cores.
    pub system: &'static str,
    applications: [usize; 2],
    owner: Owner,
}

/// All forms that fit on two cores. Application 2 and the receivers share these cores, too.
pub static FORMS: [Form; 15] = [
    Form {
        system: "thread c/c app 0,0 eng 0,0",
        applications: [0, 0],
        owner: Owner::Engine([0, 0]),
    },
    Form {
        system: "thread c/c app 0,0 eng 1,1",
        applications: [0, 0],
        owner: Owner::Engine([1, 1]),
    },
    Form {
        system: "thread c/d app 0,0 eng 0,1",
        applications: [0, 0],
        owner: Owner::Engine([0, 1]),
    },
    Form {
        system: "thread d/c app 0,1 eng 1,1",
        applications: [0, 1],
        owner: Owner::Engine([1, 1]),
    },
    Form {
        system: "thread d/d app 0,1 eng 0,1",
        applications: [0, 1],
        owner: Owner::Engine([0, 1]),
    },
    Form {
        system: "thread d/d app 0,1 eng 1,0",
        applications: [0, 1],
        owner: Owner::Engine([1, 0]),
    },
    Form {
        system: "process c/c app 0,0 eng 0,0",
        applications: [0, 0],
        owner: Owner::Server([0, 0]),
    },
    Form {
        system: "process c/c app 0,0 eng 1,1",
        applications: [0, 0],
        owner: Owner::Server([1, 1]),
    },
    Form {
        system: "process c/d app 0,0 eng 0,1",
        applications: [0, 0],
        owner: Owner::Server([0, 1]),
    },
    Form {
        system: "process d/c app 0,1 eng 1,1",
        applications: [0, 1],
        owner: Owner::Server([1, 1]),
    },
    Form {
        system: "process d/d app 0,1 eng 0,1",
        applications: [0, 1],
        owner: Owner::Server([0, 1]),
    },
    Form { system: "inline c/c app 0,0", applications: [0, 0], owner: Owner::Inline },
    Form { system: "inline d/d app 0,1", applications: [0, 1], owner: Owner::Inline },
    Form { system: "udp c/c app 0,0", applications: [0, 0], owner: Owner::Kernel },
    Form { system: "udp d/d app 0,1", applications: [0, 1], owner: Owner::Kernel },
];

/// Forms of a quick run: each owner with both applications apart, one server for both, and both
/// over UDP on one core.
pub const QUICK_FORMS: [&str; 6] = [
    "inline d/d app 0,1",
    "thread d/d app 0,1 eng 1,0",
    "process d/c app 0,1 eng 1,1",
    "process d/d app 0,1 eng 0,1",
    "udp c/c app 0,0",
    "udp d/d app 0,1",
];

/// Returns the forms of a quick run, or all.
fn forms(quick: bool) -> impl Iterator<Item = &'static Form> {
    FORMS.iter().filter(move |form| !quick || QUICK_FORMS.contains(&form.system))
}

/// Rate of the links, as the records name it.
pub const RATES: [(&str, Option<&str>); 2] = [("100 Mbit/s", Some("100mbit")), ("unshaped", None)];

/// Measures all rounds.
///
/// # Errors
/// The hosts cannot be made.
pub fn measure(extent: Extent, all: &mut Collected) -> Result<(), Error> {
    for (mode, rate) in RATES {
        let fork = match Fork::up(MTU, rate) {
            Ok(fork) => fork,
            Err(why) if rate.is_some() => {
                all.note(format!("links of {mode} are left out: {why}"));
                continue;
            }
            Err(why) => return Err(why),
        };
        for round in 1..=extent.rounds {
            eprintln!("Form, {mode}, round {round} of {}", extent.rounds);
            round_of(&fork, mode, extent, all);
        }
    }
    Ok(())
}

fn round_of(fork: &Fork, mode: &'static str, extent: Extent, all: &mut Collected) {
    let sizes: &[usize] = if extent.quick { &QUICK_SIZES } else { &SIZES };
    for &size in sizes {
        forms(extent.quick).for_each(|form| measured(fork, form, (size, mode, 0), extent, all));
    }
    // The claim about loaded cores, where no link is the bottleneck.
    if mode != RATES[1].0 {
        return;
    }
    let busy = match Busy::start(1) {
        Ok(busy) => busy,
        Err(why) => return all.add_all("computing threads", Err(why)),
    };
    let sizes = if extent.quick { &LOADED_SIZES[..1] } else { &LOADED_SIZES };
    for &size in sizes {
        forms(extent.quick).for_each(|form| measured(fork, form, (size, mode, 1), extent, all));
    }
    drop(busy);
}

/// Names what one picture of the paper's figure shows, as the notes on it begin.
pub fn series(mode: &str, threads: u32) -> String {
    format!("{CASE}, {mode}, {threads} computing threads")
}

/// Measures one form, and once more if that fails: UDP may lose a datagram.
fn measured(
    fork: &Fork,
    form: &Form,
    (size, mode, threads): (usize, &'static str, u32),
    extent: Extent,
    all: &mut Collected,
) {
    // A turn of a large size takes half a second at 100 Mbit/s.
    let turns = if extent.quick || size > 8 * KIB { 3 } else { 10 };
    let found = one(fork, form, size, turns).or_else(|_| one(fork, form, size, turns));
    let key = Key {
        mtu: Some(MTU),
        mode: Some(mode),
        threads: (threads > 0).then_some(threads),
        ..Key::new(CASE, size, form.system, "ms")
    };
    let found = found.and_then(|values| Ok(vec![(key, values.get("turn")?)]));
    let what = format!("{}, {size} bytes, {}", series(mode, threads), form.system);
    all.add_all(&what, found);
}

/// Runs application 2 without end, and application 1 meanwhile.
fn one(fork: &Fork, form: &Form, size: usize, turns: usize) -> Result<Values, Error> {
    let settings = options(&[("size", size), ("sends", SENDS), ("turns", turns)]);
    if form.owner == Owner::Kernel {
        let [mut other, mut receiver] = sockets(fork, form, 1, &settings)?;
        other.arg("--endless");
        receiver.arg("--endless");
        let (_, run) = during(receiver, || {
            during(other, || {
                let [application, receiver] = sockets(fork, form, 0, &settings)?;
                pair(receiver, Ready::Says("ready"), application)
            })
        })?;
        return Values::of(&run.1);
    }
    let mut other = job(fork, form, 1, &settings)?;
    // Its launcher reports that the bench has ended it.
    other.arg("--endless").stderr(Stdio::null());
    let (_, printed) = during(other, || alone(job(fork, form, 0, &settings)?))?;
    Values::of(&printed)
}

/// Returns the commands of an application over UDP, and of its receiver.
fn sockets(
    fork: &Fork,
    form: &Form,
    number: usize,
    settings: &[String],
) -> Result<[Command; 2], Error> {
    let me = own_program()?;
    let [from, to] = Fork::addresses(number);
    let of = |host, role: &str, core: usize| {
        let mut command = fork.on(host, LIMIT, &me);
        command.args(["sockets", role, "--from", from, "--to", to]);
        command.args(["--core", &core.to_string()]).args(settings);
        command
    };
    Ok([
        of(Fork::SENDER, "form", form.applications[number]),
        of(Fork::receiver(number), "form-server", RECEIVERS),
    ])
}

/// Returns the command of a job: an application and its receiver.
fn job(fork: &Fork, form: &Form, number: usize, settings: &[String]) -> Result<Command, Error> {
    let me = own_program()?;
    let core = form.applications[number];
    let (bind, engines) = match form.owner {
        Owner::Engine(engines) => {
            (format!("app={core},engine={}", engines[number]), "launcher,inline".to_owned())
        }
        Owner::Server(cores) => {
            let server = cores[number];
            (format!("app={core}"), format!("process:bench-form-{server}@{server},inline"))
        }
        Owner::Inline | Owner::Kernel => (format!("app={core}"), "inline,inline".to_owned()),
    };
    let mut command = fork.on(Fork::SENDER, LIMIT, oikaze::program()?);
    command.env("OIKAZE_RSH", remote_shell()?);
    command.args(["run", "--no-prefix", "--seal", &seal(), "--bind", &bind]);
    command.args(["--priority", PRIORITY, "--hosts", &Fork::addresses(number).join(",")]);
    command.arg("--").arg(me).args(["node", "--engines", &engines, "--waits", "adaptive,block"]);
    command.args(["--cores", &format!("{core},{RECEIVERS}"), "form"]).args(settings);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_cores() {
        for form in &FORMS {
            let [one, two] = form.applications;
            assert!(form.system.contains(&format!("app {one},{two}")), "{}", form.system);
            let apart = if one == two { "c/" } else { "d/" };
            assert!(form.system.contains(&format!(" {apart}")), "{}", form.system);
            if let Owner::Engine([one, two]) | Owner::Server([one, two]) = form.owner {
                assert!(form.system.ends_with(&format!("eng {one},{two}")), "{}", form.system);
                let apart = if one == two { "/c" } else { "/d" };
                assert!(form.system.contains(&format!("{apart} ")), "{}", form.system);
            }
        }
    }

    #[test]
    fn a_quick_run_has_some_of_the_sizes_and_forms() {
        assert_eq!(forms(true).count(), QUICK_FORMS.len());
        assert_eq!(forms(false).count(), FORMS.len());
        assert!(QUICK_SIZES.iter().chain(&LOADED_SIZES).all(|size| SIZES.contains(size)));
    }
}
