//! Collectives and teams.
//!
//! The package turns Python's values into bytes and back. Here are the calls of the library.

use crate::interpreter::buffer::Memory;
use crate::interpreter::number::{Object, number, optional};
use crate::job::Job;
use crate::job::cell::JobCell;
use crate::operation::{Operation, Outcome, Work};
use crate::wait::wait;
use oikaze::collective::Collectives;
use oikaze::ffi::{CollectiveKind, ElementKind, Untyped, UntypedOperator};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// Base class of `oikaze.Team`, which the package completes in Python.
#[pyclass(module = "oikaze._native", name = "Team", frozen)]
pub struct Team {
    job: Arc<JobCell>,
    team: oikaze::collective::Team,
}

/// A team, or all nodes of the job.
#[derive(FromPyObject)]
pub enum Members<'py> {
    Job(PyRef<'py, Job>),
    Team(PyRef<'py, Team>),
}

impl Members<'_> {
    pub fn cell(&self) -> &Arc<JobCell> {
        match self {
            Self::Job(job) => job.cell(),
            Self::Team(team) => &team.job,
        }
    }

    pub fn team<'t>(&'t self, job: &'t oikaze::Job) -> &'t oikaze::collective::Team {
        match self {
            Self::Job(_) => Collectives::team(job),
            Self::Team(team) => &team.team,
        }
    }
}

/// Returns an operator of the library, from its name.
fn operator_of(name: Option<&str>) -> PyResult<UntypedOperator> {
    let name = name.unwrap_or_default();
    UntypedOperator::from_name(name).ok_or_else(|| {
        let known: Vec<_> =
            UntypedOperator::ALL.iter().map(|operator| format!("'{}'", operator.name())).collect();
        let known = known.join(", ");
        let text =
            format!("operator {name:?} is not known; give {known} or a function of two values");
        PyValueError::new_err(text)
    })
}

/// Returns the names of the kinds of numbers, each with its name in NumPy.
#[pyfunction]
pub fn kinds() -> Vec<(&'static str, &'static str)> {
    ElementKind::ALL.iter().map(|kind| (kind.name(), kind.numpy())).collect()
}

fn kind_of(name: &str) -> PyResult<ElementKind> {
    ElementKind::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("{name} is not a kind of numbers")))
}

/// Returns the collective of this name.
fn collective_of(name: &str) -> PyResult<CollectiveKind> {
    CollectiveKind::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("{name} is not a collective (a defect)")))
}

/// Begins a collective of equal parts, over the bytes of `data`. The result is a `bytearray`, or is
/// copied into `out`. The ranks compare `meaning`, which says what the bytes are. `called` is the
/// collective that the program calls, if each rank combines the values by itself: by the operator,
/// or else by a function. If it is `collective` itself, the bytes are a pickled value.
#[pyfunction]
#[pyo3(signature = (
    members, collective, kind, data, root, operator = None, out = None, meaning = "", called = ""
))]
#[allow(clippy::too_many_arguments)] // Called by the package alone.
pub fn start_even(
    py: Python<'_>,
    members: Members<'_>,
    collective: &str,
    kind: &str,
    data: Object,
    root: Object,
    operator: Option<&str>,
    out: Option<Bound<'_, PyAny>>,
    meaning: &str,
    called: &str,
) -> PyResult<Operation> {
    let root: u32 = number(root, collective, "root")?;
    let (kind, memory) = (kind_of(kind)?, Memory::readable(data, collective)?);
    let outcome = match out {
        Some(out) => {
            let memory = Memory::writable(&out, collective)?;
            Outcome::Copied(out.unbind(), memory)
        }
        None => Outcome::Raw,
    };
    let job = members.cell().get(py)?;
    let team = Untyped::of(members.team(&job), kind).meaning(meaning);
    let team = match called {
        "" => team,
        same if same == collective => team.values(None),
        called => {
            let operator = operator.map(|name| operator_of(Some(name))).transpose()?;
            team.values(Some((collective_of(called)?, operator)))
        }
    };
    let collective = collective_of(collective)?;
    let team = match &outcome {
        Outcome::Copied(_, memory) if collective == CollectiveKind::Broadcast => {
            team.room(memory.len())
        }
        _ => team,
    };
    let operator = collective.combines().then(|| operator_of(operator)).transpose()?;
    let pending = memory.with_bytes(py, |bytes| team.even(collective, root, bytes, operator));
    Ok(Operation::of_work(members.cell(), Work::Collective(pending), outcome, None)
        .meaning(meaning))
}

/// Begins a collective of parts that may differ in length. The result is a list of `bytearray`s, or
/// one for a scatter. The ranks compare `meaning` and `called`, as for `start_even`.
#[pyfunction]
#[pyo3(signature = (members, collective, data, root, meaning = "", called = ""))]
pub fn start_uneven(
    py: Python<'_>,
    members: Members<'_>,
    collective: &str,
    data: Vec<Bound<'_, PyAny>>,
    root: Object,
    meaning: &str,
    called: &str,
) -> PyResult<Operation> {
    let root: u32 = number(root, collective, "root")?;
    let parts: Vec<Vec<u8>> = data
        .iter()
        .map(|part| Ok(Memory::readable(part, collective)?.with_bytes(py, <[u8]>::to_vec)))
        .collect::<PyResult<_>>()?;
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let job = members.cell().get(py)?;
    let combined = if called.is_empty() { None } else { Some((collective_of(called)?, None)) };
    let team = Untyped::of(members.team(&job), ElementKind::U8).meaning(meaning).values(combined);
    let pending = team.uneven(collective_of(collective)?, root, &parts, None);
    let work = Work::Collective(pending);
    Ok(Operation::of_work(members.cell(), work, Outcome::Raw, None).meaning(meaning))
}

/// Takes part in a collective whose arguments this node has refused, so that it fails on all ranks.
/// Without it, this node would be one collective behind the others.
#[pyfunction]
pub fn refuse(py: Python<'_>, members: Members<'_>, collective: &str, why: String) -> PyResult<()> {
    let kind = collective_of(collective)?;
    let job = members.cell().get(py)?;
    let team = Untyped::of(members.team(&job), ElementKind::U8);
    // Not waited for: the caller has an exception already.
    drop(team.refused(kind, why));
    Ok(())
}

/// Returns the sum of all numbers of all ranks, rounded once.
#[pyfunction]
pub fn sum_exact(py: Python<'_>, members: Members<'_>, kind: &str, data: Object) -> PyResult<f64> {
    let kind = kind_of(kind)?;
    let bytes = Memory::readable(data, "sum_exact")?.with_bytes(py, <[u8]>::to_vec);
    let job = members.cell().get(py)?;
    let team = members.team(&job);
    wait(py, || Untyped::of(team, kind).sum_exact(&bytes))
}

/// Splits a team by colours. Returns `None` for a node without a colour.
#[pyfunction]
#[pyo3(signature = (members, color, key))]
pub fn split(
    py: Python<'_>,
    members: Members<'_>,
    color: Option<Object>,
    key: Object,
) -> PyResult<Option<Team>> {
    let color: Option<u32> = optional(color, "split", "color")?;
    let key: i64 = number(key, "split", "key")?;
    let job = members.cell().get(py)?;
    let team = members.team(&job);
    let part = wait(py, || team.split(color, key))?;
    Ok(part.map(|team| Team { job: Arc::clone(members.cell()), team }))
}

/// Makes a team of the nodes of a team that are alive.
#[pyfunction]
pub fn shrink(py: Python<'_>, members: Members<'_>) -> PyResult<Team> {
    let job = members.cell().get(py)?;
    let team = members.team(&job);
    let team = wait(py, || team.shrink())?;
    Ok(Team { job: Arc::clone(members.cell()), team })
}

#[pymethods]
impl Team {
    #[getter]
    fn rank(&self) -> u32 {
        self.team.rank()
    }

    #[getter]
    fn size(&self) -> u32 {
        self.team.size()
    }

    #[getter]
    fn ranks(&self) -> Vec<u32> {
        self.team.ranks().to_vec()
    }

    fn algorithm(&self, collective: &str, length: Object) -> PyResult<&'static str> {
        let length: usize = number(length, "algorithm", "length")?;
        Ok(self.team.algorithm(collective, length))
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.job.get(py)?;
        wait(py, || self.team.barrier())
    }
}
