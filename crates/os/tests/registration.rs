//! Registration, its changes and its end against a put in flight: every order of what both sides
//! do, on the real table and the real remote memory (MEM-1.7, MEM-1.8, MEM-3.4, MEM-3.8).
//!
//! A state is what has happened so far. Neither the table nor remote memory can be compared with
//! another, so that each state is made by doing it all again; the property is looked at after each
//! step.

use oikaze_os::memory::{Region, RegionTable, Registered};
use oikaze_protocol::rma::{Operation, Rights, Rma};
use oikaze_protocol::wind::{Admission, Class, Delivered, Refusal};
use stateright::{Checker, Model, Property};

const LEN: usize = 4096 + 600;
const CANARY: u8 = 0xC4;
const WRITTEN: u8 = 0x11;
/// The first two are of the first page, the second of both.
const FRAGMENTS: [std::ops::Range<usize>; 3] = [0..2000, 2000..4500, 4500..LEN];
/// Steps of the owner in one run.
const CHANGES: usize = 4;
const NUMBER: u64 = 7;
const PEER: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// The put begins.
    Begin,
    /// One of its fragments comes.
    Fragment(usize),
    /// It is whole.
    Deliver,
    /// The registration ends, and its memory is somebody's again.
    End,
    /// It ends, and the memory has another one in its place.
    Renew,
    /// It ends, another region takes the memory, which nobody may write.
    Lend,
    /// The first page may not be written any more.
    Shut,
    /// All may be written again.
    Open,
}

/// State of both sides.
struct World {
    table: RegionTable,
    rma: Rma,
    memory: Region,
    now: Option<Registered>,
    head: oikaze_protocol::wind::Head,
    first: Registered,
    /// By a dumb oracle: a fragment came when it was not permitted.
    missed: bool,
    /// Bytes that nobody may change.
    shut: std::ops::Range<usize>,
    outcome: Option<Result<(), Refusal>>,
    wrong: Option<&'static str>,
}

impl World {
    fn new() -> World {
        let mut table = RegionTable::new();
        let memory = Region::private(LEN).unwrap();
        memory.fill(0, LEN as u64, CANARY).unwrap();
        let registered = table.insert(memory.clone(), Rights::ALL).unwrap();
        let head = Operation::Put { key: registered.key, offset: 0, signal: None }.encode();
        World {
            table,
            rma: Rma::new(),
            memory,
            now: Some(registered),
            first: registered,
            missed: false,
            head,
            shut: 0..0,
            outcome: None,
            wrong: None,
        }
    }

    #[allow(clippy::ptr_arg)] // of a state of the model
    fn after(history: &Vec<Step>) -> World {
        let mut world = World::new();
        history.iter().for_each(|step| world.step(*step));
        world
    }

    /// May the put write there now?
    fn permits(&self, range: &std::ops::Range<usize>) -> bool {
        self.now == Some(self.first)
            && (self.shut.start >= range.end || range.start >= self.shut.end)
    }

    /// The memory is somebody's again, who writes to it.
    fn shut(&mut self, range: std::ops::Range<usize>) {
        self.memory.fill(range.start as u64, range.len() as u64, CANARY).unwrap();
        self.shut = range;
    }

    fn end(&mut self) -> u32 {
        let slot = self.now.unwrap().slot;
        self.table.close(slot);
        assert!(self.rma.region_removed(slot).is_empty());
        slot
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Begin => {
                let len = LEN as u64;
                match self.rma.admit(
                    PEER,
                    NUMBER,
                    Class::Unordered,
                    &self.head,
                    len,
                    &mut self.table,
                ) {
                    Admission::Place => {}
                    Admission::Assemble => self.wrong = Some("a put is not collected"),
                    Admission::Refuse(refusal) => self.outcome = Some(Err(refusal)),
                }
            }
            Step::Fragment(which) => {
                let range = FRAGMENTS[which].clone();
                self.missed |= !self.permits(&range);
                self.rma.place(
                    PEER,
                    NUMBER,
                    range.start as u64,
                    &vec![WRITTEN; range.len()],
                    &mut self.table,
                );
            }
            Step::Deliver => {
                let body = Delivered::Placed(LEN as u64);
                let outcome = self.rma.deliver(
                    PEER,
                    NUMBER,
                    Class::Unordered,
                    &self.head,
                    body,
                    &mut self.table,
                );
                self.outcome = Some(outcome);
                if outcome.is_ok() != (!self.missed && self.permits(&(0..LEN))) {
                    self.wrong =
                        Some("done, and not all of it was placed, or refused for no reason");
                }
            }
            Step::End => {
                let slot = self.end();
                self.table.remove(slot);
                self.now = None;
                self.shut(0..LEN);
            }
            Step::Renew => {
                let slot = self.end();
                self.now = Some(self.table.renew(slot, Rights::ALL).unwrap());
                // It may be written, but not by who knew the old key: the only put there is.
                self.shut(0..LEN);
            }
            Step::Lend => {
                let slot = self.end();
                self.table.remove(slot);
                self.now = None;
                self.table.insert(self.memory.clone(), Rights::READ).unwrap();
                self.shut(0..LEN);
            }
            Step::Shut => {
                self.table.protect(self.now.unwrap().slot, 0..4096, Rights::READ).unwrap();
                if self.shut.len() < LEN {
                    self.shut(0..4096);
                }
            }
            Step::Open => {
                self.table.set_rights(self.now.unwrap().slot, Rights::ALL).unwrap();
                if self.shut.len() < LEN {
                    self.shut = 0..0;
                }
            }
        }
        if self.bytes()[self.shut.clone()].iter().any(|byte| *byte != CANARY) {
            self.wrong = Some("a byte was written that nobody may write");
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        self.memory.read(0, &mut bytes).unwrap();
        bytes
    }
}

struct Everything;

#[allow(clippy::ptr_arg)] // a function of a model's state
fn ended(history: &Vec<Step>, how: Result<(), Refusal>) -> bool {
    history.len() > FRAGMENTS.len() && World::after(history).outcome == Some(how)
}

impl Model for Everything {
    type State = Vec<Step>;
    type Action = Step;

    fn init_states(&self) -> Vec<Vec<Step>> {
        vec![Vec::new()]
    }

    fn actions(&self, history: &Vec<Step>, actions: &mut Vec<Step>) {
        let has = |step| history.contains(&step);
        let world = World::after(history);
        if !has(Step::Begin) {
            actions.push(Step::Begin);
        } else if world.outcome.is_none() {
            let left = (0..FRAGMENTS.len()).map(Step::Fragment).filter(|fragment| !has(*fragment));
            actions.extend(left);
            if (0..FRAGMENTS.len()).map(Step::Fragment).all(has) {
                actions.push(Step::Deliver);
            }
        }
        let own = |step: &&Step| !matches!(step, Step::Begin | Step::Fragment(_) | Step::Deliver);
        if world.now.is_some() && history.iter().filter(own).count() < CHANGES {
            actions.extend([Step::End, Step::Renew, Step::Lend, Step::Shut, Step::Open]);
        }
    }

    fn next_state(&self, history: &Vec<Step>, step: Step) -> Option<Vec<Step>> {
        Some(history.iter().copied().chain([step]).collect())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nobody writes what they may not", |_, history| {
                World::after(history).wrong.is_none()
            }),
            Property::sometimes("done", |_, history| ended(history, Ok(()))),
            Property::sometimes("its region is gone", |_, history| {
                ended(history, Err(Refusal::UnknownKey))
            }),
            Property::sometimes("its right is gone", |_, history| {
                ended(history, Err(Refusal::NotPermitted))
            }),
        ]
    }
}

#[test]
fn every_order_of_a_put_and_what_its_owner_does() {
    let checker = Everything.checker().threads(2).spawn_dfs().join();
    checker.assert_properties();
    println!("{} states", checker.unique_state_count());
    assert!(checker.unique_state_count() > 30_000, "{} states", checker.unique_state_count());
}
