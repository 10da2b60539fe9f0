//! Short collectives of a number or of a small array, which one call of the package runs.
//!
//! Each function returns `None`, and does nothing, if the arguments are others. The package then
//! goes the way of all values. Ranks that go different ways call the same.

use crate::collective::Members;
use crate::interpreter::buffer::Memory;
use crate::interpreter::error::exception_of_call;
use crate::wait::wait_for;
use oikaze::ffi::{CollectiveKind, ElementKind, Untyped, UntypedOperator};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyFloat, PyInt, PyString, PyType};

/// Maximum length of an array in bytes. Longer ones are copied less often by the other way.
const BYTES_MAX: usize = 4096;
/// Bytes of a whole number of Python, as the package sends it.
const WIDTH: usize = 16;
/// Meaning of a number of Python, as the package says it.
const FLOAT: &str = "an array of dtype('float64') and of shape ()";
/// Meaning of a whole number of Python, as the package says it.
const INTEGER: &str = "whole numbers of Python (one)";

/// Returns the class of NumPy's arrays.
fn array_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "numpy", "ndarray")
}

/// A small array of numbers along one axis, in one piece.
struct ShortArray {
    kind: ElementKind,
    memory: Memory,
}

impl ShortArray {
    fn of(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Option<ShortArray>> {
        if !object.get_type().is(array_class(object.py())?) {
            return Ok(None);
        }
        // The memory of an array without axes shows one, and that of times shows numbers.
        let py = object.py();
        if object.getattr(pyo3::intern!(py, "ndim"))?.extract::<usize>()? != 1 {
            return Ok(None);
        }
        let dtype = object.getattr(pyo3::intern!(py, "dtype"))?;
        let char = dtype.getattr(pyo3::intern!(py, "char"))?;
        // Objects without a plain buffer go the other way, which says why.
        let Ok(memory) = Memory::strided(object, writable, "") else { return Ok(None) };
        if char.cast::<PyString>()?.to_str()?.as_bytes() != memory.format().to_bytes() {
            return Ok(None);
        }
        let kind = match memory.format().to_bytes() {
            b"d" => ElementKind::F64,
            b"f" => ElementKind::F32,
            b"l" | b"q" if memory.item_size() == 8 => ElementKind::I64,
            b"L" | b"Q" if memory.item_size() == 8 => ElementKind::U64,
            b"i" => ElementKind::I32,
            b"I" => ElementKind::U32,
            b"h" => ElementKind::I16,
            b"H" => ElementKind::U16,
            b"b" => ElementKind::I8,
            b"B" => ElementKind::U8,
            _ => return Ok(None),
        };
        let is_short = memory.shape().len() == 1 && memory.len() <= BYTES_MAX;
        let is_plain = is_short && memory.is_in_one_piece();
        Ok(is_plain.then_some(ShortArray { kind, memory }))
    }

    fn bytes(&self, py: Python<'_>) -> Vec<u8> {
        self.memory.with_bytes(py, <[u8]>::to_vec)
    }
}

/// Returns the operator, if numbers are combined by its name.
fn operator_of(operator: &Bound<'_, PyAny>) -> Option<UntypedOperator> {
    let name = operator.cast::<PyString>().ok()?;
    UntypedOperator::from_name(name.to_str().ok()?).filter(|operator| !operator.takes_pairs())
}

/// Runs a collective without the interpreter's lock.
fn run(
    py: Python<'_>,
    meaning: &str,
    work: impl FnOnce() -> oikaze::Result<()> + Send,
) -> PyResult<()> {
    wait_for(py, work)?.map_err(|error| exception_of_call(py, &error, meaning))
}

/// Combines a number or an array of all ranks on all ranks.
#[pyfunction]
pub fn short_all_reduce(
    py: Python<'_>,
    members: Members<'_>,
    value: &Bound<'_, PyAny>,
    operator: &Bound<'_, PyAny>,
    out: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Py<PyAny>>> {
    let Some(operator) = operator_of(operator) else { return Ok(None) };
    let Ok(job) = members.cell().get(py) else { return Ok(None) };
    let all_reduce = CollectiveKind::AllReduce;
    let team = members.team(&job);
    if let Ok(value) = value.cast_exact::<PyFloat>() {
        if out.is_some() || operator.fits(ElementKind::F64).is_err() {
            return Ok(None);
        }
        let mut bytes = value.value().to_ne_bytes();
        let untyped = Untyped::of(team, ElementKind::F64).meaning(FLOAT);
        run(py, FLOAT, || untyped.even_into(all_reduce, 0, None, &mut bytes, Some(operator)))?;
        return Ok(Some(PyFloat::new(py, f64::from_ne_bytes(bytes)).into_any().unbind()));
    }
    if let Ok(value) = value.cast_exact::<PyInt>() {
        let Some(fold) = fold_of(operator).filter(|_| out.is_none()) else { return Ok(None) };
        let Ok(value) = value.extract::<i64>() else { return Ok(None) };
        let (bytes, mut all) = (i128::from(value).to_le_bytes(), vec![0; WIDTH * size_of(team)]);
        let called = Some((all_reduce, Some(operator)));
        let untyped = Untyped::of(team, ElementKind::U8).meaning(INTEGER).values(called);
        let gather = CollectiveKind::AllGather;
        run(py, INTEGER, || untyped.even_into(gather, 0, Some(&bytes), &mut all, None))?;
        return fold_all(py, &all, fold, operator).map(Some);
    }
    let Some(array) = ShortArray::of(value, false)? else { return Ok(None) };
    if operator.fits(array.kind).is_err() {
        return Ok(None);
    }
    let into = match out {
        Some(out) => match ShortArray::of(out, true)? {
            Some(into) if into.kind == array.kind && into.memory.len() == array.memory.len() => {
                Some(into)
            }
            _ => return Ok(None),
        },
        None => None,
    };
    let mut bytes = array.bytes(py);
    let untyped = Untyped::of(team, array.kind);
    run(py, "", || untyped.even_into(all_reduce, 0, None, &mut bytes, Some(operator)))?;
    match (into, out) {
        (Some(into), Some(out)) => {
            into.memory.fill(py, &bytes);
            Ok(Some(out.clone().unbind()))
        }
        _ => array_like(value, (array.memory.shape()[0],), &bytes).map(Some),
    }
}

/// Copies the root's array into the array of each rank.
#[pyfunction]
pub fn short_broadcast_into(
    py: Python<'_>,
    members: Members<'_>,
    array: &Bound<'_, PyAny>,
    root: &Bound<'_, PyAny>,
) -> PyResult<Option<Py<PyAny>>> {
    let Ok(root) = root.cast_exact::<PyInt>() else { return Ok(None) };
    let Ok(root) = root.extract::<u32>() else { return Ok(None) };
    let Some(short) = ShortArray::of(array, true)? else { return Ok(None) };
    let Ok(job) = members.cell().get(py) else { return Ok(None) };
    let team = members.team(&job);
    let mut bytes = short.bytes(py);
    let (broadcast, untyped) = (CollectiveKind::Broadcast, Untyped::of(team, short.kind));
    run(py, "", || untyped.even_into(broadcast, root, None, &mut bytes, None))?;
    if team.rank() != root {
        short.memory.fill(py, &bytes);
    }
    Ok(Some(array.clone().unbind()))
}

/// Collects an array of each rank on all ranks, in an array with one more axis.
#[pyfunction]
pub fn short_all_gather(
    py: Python<'_>,
    members: Members<'_>,
    value: &Bound<'_, PyAny>,
) -> PyResult<Option<Py<PyAny>>> {
    let Some(array) = ShortArray::of(value, false)? else { return Ok(None) };
    let Ok(job) = members.cell().get(py) else { return Ok(None) };
    let team = members.team(&job);
    let bytes = array.bytes(py);
    let mut all = vec![0; bytes.len() * size_of(team)];
    let (gather, untyped) = (CollectiveKind::AllGather, Untyped::of(team, array.kind));
    run(py, "", || untyped.even_into(gather, 0, Some(&bytes), &mut all, None))?;
    array_like(value, (size_of(team), array.memory.shape()[0]), &all).map(Some)
}

fn size_of(team: &oikaze::collective::Team) -> usize {
    team.size() as usize
}

/// Makes an array of these bytes, with the element type of another one.
fn array_like<'py, S: IntoPyObject<'py>>(
    like: &Bound<'py, PyAny>,
    shape: S,
    bytes: &[u8],
) -> PyResult<Py<PyAny>> {
    let py = like.py();
    let dtype = like.getattr(pyo3::intern!(py, "dtype"))?;
    let made = array_class(py)?.call1((shape, dtype, PyByteArray::new(py, bytes)))?;
    Ok(made.unbind())
}

/// Function that combines two whole numbers; `None` if the result does not fit.
type Fold = fn(i128, i128) -> Option<i128>;

fn fold_of(operator: UntypedOperator) -> Option<Fold> {
    Some(match operator {
        UntypedOperator::Sum => i128::checked_add,
        UntypedOperator::Product => i128::checked_mul,
        UntypedOperator::Min => |one, other| Some(one.min(other)),
        UntypedOperator::Max => |one, other| Some(one.max(other)),
        UntypedOperator::And => |one, other| Some(one & other),
        UntypedOperator::Or => |one, other| Some(one | other),
        UntypedOperator::Xor => |one, other| Some(one ^ other),
        _ => return None,
    })
}

/// Combines the whole numbers of all ranks, of any size.
fn fold_all(
    py: Python<'_>,
    all: &[u8],
    fold: Fold,
    operator: UntypedOperator,
) -> PyResult<Py<PyAny>> {
    let numbers = || all.as_chunks::<WIDTH>().0.iter().map(|bytes| i128::from_le_bytes(*bytes));
    let combined = numbers().map(Some).reduce(|one, other| fold(one?, other?)).flatten();
    if let Some(combined) = combined {
        return Ok(combined.into_pyobject(py)?.into_any().unbind());
    }
    // A sum or a product that needs more than 128 bits.
    let name = if operator == UntypedOperator::Product { "mul" } else { "add" };
    let function = py.import("operator")?.getattr(name)?;
    let mut combined = None;
    for number in numbers() {
        let number = number.into_pyobject(py)?.into_any();
        combined = Some(match combined {
            Some(before) => function.call1((before, number))?,
            None => number,
        });
    }
    Ok(combined.map_or_else(|| py.None(), Bound::unbind))
}
