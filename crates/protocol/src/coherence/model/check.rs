//! Runs programs of the model in all orders or in random ones, and shows what went wrong.

use super::program::{Program, Shape};
use super::world::{Settling, State, Step};
use crate::random::Random;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Number of states in which the shortest schedule of a violation is looked for.
const SHORTEST_STATES: usize = 60_000;
/// Number of random schedules among which a shorter one is looked for.
const SHORTER_WALKS: u64 = 500;
/// Number of steps after which a random schedule counts as endless.
const ENDLESS: usize = 20_000;

/// Programs of one shape, and how they are run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name, which a replay needs.
    pub name: &'static str,
    pub shape: Shape,
    pub settling: Settling,
    pub bounds: Bounds,
}

/// How many schedules of each program are run.
#[derive(Clone, Copy, Debug)]
pub enum Bounds {
    /// All, up to this number of states.
    States(usize),
    /// This number of random ones.
    Walks(u64),
}

/// Sums over programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub programs: u64,
    /// Number of programs that have more states than were looked at.
    pub cut: u64,
    pub states: u64,
    pub schedules: u64,
    pub steps: u64,
    /// Number of bodies that random schedules read again.
    pub reread: u64,
    /// Number of messages that overtook earlier ones in random schedules.
    pub overtaking: u64,
    /// Number of pages that random schedules fetched in vain (COH-3.6).
    pub stale: u64,
    /// Number of updates that arrived in random schedules (COH-10).
    pub updates: u64,
    /// Number of pages whose homes moved in random schedules (COH-11).
    pub moves: u64,
}

impl Sums {
    fn add(&mut self, walk: &Walk) {
        self.schedules += 1;
        self.steps += walk.schedule.len() as u64;
        for step in &walk.schedule {
            match step {
                Step::Reread { .. } => self.reread += 1,
                Step::Deliver { message: 1.., .. } => self.overtaking += 1,
                _ => {}
            }
        }
        self.stale += walk.stale;
        self.updates += walk.updates;
        self.moves += walk.moves;
    }
}

/// One random schedule.
#[derive(Default)]
struct Walk {
    schedule: Vec<Step>,
    stale: u64,
    updates: u64,
    moves: u64,
    /// Promise that was broken.
    broken: Option<String>,
}

/// Schedule that breaks a promise.
pub struct Violation {
    case: &'static str,
    pub seed: u64,
    program: Arc<Program>,
    settling: Settling,
    pub schedule: Vec<Step>,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { case, seed, program, settling, schedule, what } = self;
        writeln!(f, "{case}, seed {seed}: {what}\n{program:#?}")?;
        let mut state = State::new(program, *settling);
        let mut places: Vec<String> = Vec::new();
        for (number, step) in schedule.iter().enumerate() {
            let mut steps = Vec::new();
            state.steps(&mut steps);
            places.extend(steps.iter().position(|other| other == step).map(|p| p.to_string()));
            writeln!(f, "{number:4} {}", state.describe(*step))?;
            state.apply(*step);
        }
        let places = places.join(".");
        write!(
            f,
            "again: OIKAZE_MODEL={case}:{seed}:{places} cargo test -p oikaze-protocol --lib -- \
             --ignored --nocapture one_schedule_again"
        )
    }
}

/// All schedules of one program.
struct Space {
    program: Arc<Program>,
    settling: Settling,
}

impl Model for Space {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        Vec::from([State::new(&self.program, self.settling)])
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        state.steps(steps);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        state.apply(step);
        state.seal();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Vec::from([Property::always("all promises are kept", |_, state: &State| {
            flaw(state).is_none()
        })])
    }
}

/// Returns what is wrong with a state.
fn flaw(state: &State) -> Option<String> {
    let stands = !state.can_step() && state.broken.is_none();
    if stands { state.flaw_at_end() } else { state.broken.clone() }
}

impl Case {
    fn program(&self, seed: u64) -> Arc<Program> {
        Arc::new(Program::random(&mut Random::new(seed), self.shape))
    }

    /// Runs the program of one seed.
    pub fn check(&self, seed: u64, sums: &mut Sums) -> Result<(), Violation> {
        let program = self.program(seed);
        let violation = |schedule: Vec<Step>, what: String| Violation {
            case: self.name,
            seed,
            program: program.clone(),
            settling: self.settling,
            schedule,
            what,
        };
        sums.programs += 1;
        let found = catch_unwind(AssertUnwindSafe(|| match self.bounds {
            Bounds::States(cap) => self.all_orders(&program, cap, sums),
            Bounds::Walks(walks) => self.random_orders(&program, seed, walks, sums),
        }));
        match found {
            Ok(None) => Ok(()),
            Ok(Some((schedule, what))) => Err(violation(schedule, what)),
            Err(_) => Err(violation(Vec::new(), "a panic, shown above".to_string())),
        }
    }

    fn space(&self, program: &Arc<Program>) -> Space {
        Space { program: program.clone(), settling: self.settling }
    }

    fn all_orders(
        &self,
        program: &Arc<Program>,
        cap: usize,
        sums: &mut Sums,
    ) -> Option<(Vec<Step>, String)> {
        let checker = self
            .space(program)
            .checker()
            .threads(std::thread::available_parallelism().map_or(1, Into::into))
            .finish_when(HasDiscoveries::AnyFailures)
            .target_state_count(cap)
            .spawn_dfs()
            .join();
        sums.states += checker.unique_state_count() as u64;
        sums.cut += u64::from(checker.state_count() >= cap);
        checker.discoveries().into_iter().next().map(|(_, path)| found(path))
    }

    /// Returns the shortest schedule that breaks a promise, if there are not too many states.
    fn shortest(&self, program: &Arc<Program>) -> Option<(Vec<Step>, String)> {
        let checker = self
            .space(program)
            .checker()
            .finish_when(HasDiscoveries::AnyFailures)
            .target_state_count(SHORTEST_STATES)
            .spawn_bfs()
            .join();
        checker.discoveries().into_iter().next().map(|(_, path)| found(path))
    }

    fn random_orders(
        &self,
        program: &Arc<Program>,
        seed: u64,
        walks: u64,
        sums: &mut Sums,
    ) -> Option<(Vec<Step>, String)> {
        (0..walks).find_map(|number| {
            let found = self.walk(program, &mut walk_numbers(seed, number), ENDLESS);
            sums.add(&found);
            found.broken.map(|what| (found.schedule, what))
        })
    }

    /// Looks for a shorter schedule that breaks a promise.
    fn shorten(&self, violation: Violation) -> Violation {
        let program = &violation.program;
        if let Some((schedule, what)) = self.shortest(program) {
            return Violation { schedule, what, ..violation };
        }
        let mut best = (violation.schedule.clone(), violation.what.clone());
        for number in 0..SHORTER_WALKS {
            let mut random = walk_numbers(violation.seed, number);
            let found = self.walk(program, &mut random, best.0.len());
            if let Some(what) = found.broken {
                best = (found.schedule, what);
            }
        }
        let (schedule, what) = best;
        Violation { schedule, what, ..violation }
    }

    /// Runs one random schedule of at most `limit` steps. Kinds of steps and pairs of nodes are
    /// fast or slow, differently in each schedule.
    fn walk(&self, program: &Arc<Program>, random: &mut Random, limit: usize) -> Walk {
        let speeds: Vec<usize> = (0..32).map(|_| random.pick(&[1, 4, 16])).collect();
        let speed = |number: usize| speeds.get(number % 32).copied().unwrap_or(1);
        let weigh = |step: &Step| match *step {
            Step::Run(thread) => 4 * speed(thread),
            Step::Deliver { pair, .. } => speed(8 + pair),
            Step::Place { pair, .. } => speed(8 + pair),
            Step::Reread { pair, .. } => speed(17 + pair),
            Step::Settle(_) => speed(7),
        };
        let mut state = State::new(program, self.settling);
        let (mut walk, mut steps) = (Walk::default(), Vec::new());
        loop {
            steps.clear();
            state.steps(&mut steps);
            if steps.is_empty() {
                let (stale, updates) = (state.stale_pages(), state.updates());
                let moves = state.moves();
                return Walk { broken: flaw(&state), stale, updates, moves, ..walk };
            }
            if walk.schedule.len() + 1 >= limit {
                let endless = limit == ENDLESS;
                return Walk {
                    broken: endless.then(|| "the schedule does not end".to_string()),
                    ..walk
                };
            }
            let mut pick = random.below(steps.iter().map(weigh).sum());
            let chosen = steps.iter().find(|step| {
                let weight = weigh(step);
                let is_here = pick < weight;
                pick = pick.saturating_sub(weight);
                is_here
            });
            let Some(step) = chosen.copied() else { continue };
            walk.schedule.push(step);
            state.apply(step);
        }
    }
}

/// Returns the random numbers of one schedule of the program of a seed.
fn walk_numbers(seed: u64, number: u64) -> Random {
    Random::new(seed ^ (number << 40) ^ 0x5eed)
}

fn found(path: stateright::Path<State, Step>) -> (Vec<Step>, String) {
    let what = flaw(path.last_state()).unwrap_or_default();
    (path.into_actions(), what)
}

/// Checks the programs of these seeds. Panics with the first violation.
pub fn check_all(case: &Case, seeds: core::ops::Range<u64>) -> Sums {
    let (began, mut sums) = (std::time::Instant::now(), Sums::default());
    for seed in seeds {
        if let Err(violation) = case.check(seed, &mut sums) {
            panic!("{}", case.shorten(violation));
        }
    }
    std::eprintln!("{}: {sums:?}, {:.1?}", case.name, began.elapsed());
    sums
}

/// Runs `case:seed` again, or one schedule of it, `case:seed:places`, and shows what happens.
///
/// # Errors
/// The text makes no sense, or the schedule breaks a promise.
pub fn replay(text: &str, cases: &[Case]) -> Result<(), String> {
    let mut parts = text.split(':');
    let (name, seed) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let case = cases.iter().find(|case| case.name == name);
    let case = case.ok_or_else(|| format!("no case is called {name}"))?;
    let seed: u64 = seed.parse().map_err(|_| format!("{seed} is not a seed"))?;
    let Some(places) = parts.next() else {
        let found = case.check(seed, &mut Sums::default());
        return found.map_err(|violation| case.shorten(violation).to_string());
    };
    let program = case.program(seed);
    std::eprintln!("{program:#?}");
    let mut state = State::new(&program, case.settling);
    for place in places.split('.').filter(|place| !place.is_empty()) {
        let mut steps = Vec::new();
        state.steps(&mut steps);
        let place: usize = place.parse().map_err(|_| format!("{place} is not a number"))?;
        let step = steps.get(place).copied();
        let step = step.ok_or_else(|| format!("only {} steps are possible", steps.len()))?;
        std::eprintln!("{}", state.describe(step));
        state.apply(step);
    }
    flaw(&state).map_or(Ok(()), Err)
}
