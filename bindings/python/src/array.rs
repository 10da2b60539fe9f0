//! Shared arrays, as memory that NumPy can view.
//!
//! The classes here know shapes, bytes and addresses. The package makes `numpy.ndarray`s of them.

use crate::interpreter::buffer::{View, show, with_bytes_of};
use crate::interpreter::error::{OrRaise, exception};
use crate::interpreter::finalization::detached;
use crate::interpreter::number::{Object, number, numbers, optional};
use crate::job::Job;
use crate::job::cell::{JobCell, lock};
use crate::memory::remote::combine_of;
use crate::wait::wait;
use oikaze::Error;
use oikaze::ffi::{
    ElementKind, ElementType, PlainMemory, UntypedArray, UntypedReadGuard, UntypedWriteGuard,
};
use oikaze::message::Class;
use oikaze::shared::ElementField;
use oikaze::shared::builder::{Delivery, Homes};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};
use std::ffi::c_int;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Part of an array: first index and end along each axis.
type Part = Vec<(usize, usize)>;

fn ranges(part: Part) -> Vec<Range<usize>> {
    part.into_iter().map(|(start, end)| start..end).collect()
}

fn part(ranges: Vec<Range<usize>>) -> Part {
    ranges.into_iter().map(|range| (range.start, range.end)).collect()
}

/// How the elements of a shared array are distributed over the nodes.
///
/// Each element has a home, the node that always has its present value. A node writes its own
/// elements without any traffic.
#[pyclass(module = "oikaze", frozen)]
#[derive(Clone)]
pub struct Distribution {
    distribution: oikaze::shared::builder::Distribution,
}

#[pymethods]
impl Distribution {
    /// One block of indices along the axis for each node, of lengths as equal as possible.
    #[staticmethod]
    #[pyo3(signature = (axis = None))]
    fn block(axis: Option<Object>) -> PyResult<Self> {
        let axis: usize = optional(axis, "Distribution.block", "axis")?.unwrap_or(0);
        Ok(Self { distribution: oikaze::shared::builder::Distribution::Block { axis } })
    }

    /// Blocks of `indices` indices along the axis for each node in turn.
    #[staticmethod]
    #[pyo3(signature = (indices = None, axis = None))]
    fn cyclic(indices: Option<Object>, axis: Option<Object>) -> PyResult<Self> {
        let indices: usize = optional(indices, "Distribution.cyclic", "indices")?.unwrap_or(1);
        let axis: usize = optional(axis, "Distribution.cyclic", "axis")?.unwrap_or(0);
        Ok(Self { distribution: oikaze::shared::builder::Distribution::Cyclic { axis, indices } })
    }

    /// One rank for each index along the axis.
    #[staticmethod]
    #[pyo3(signature = (owners, axis = None))]
    fn explicit(owners: Object, axis: Option<Object>) -> PyResult<Self> {
        let owners: Vec<u32> = numbers(owners, "Distribution.explicit", "owners")?;
        let axis: usize = optional(axis, "Distribution.explicit", "axis")?.unwrap_or(0);
        Ok(Self { distribution: oikaze::shared::builder::Distribution::Explicit { axis, owners } })
    }

    /// Homes by pages of 4096 bytes: one run of pages for each node, or, if `pages` is given, runs
    /// of so many pages for each node in turn.
    #[staticmethod]
    #[pyo3(signature = (pages = None))]
    fn by_pages(pages: Option<Object>) -> PyResult<Self> {
        let pages: Option<u64> = optional(pages, "Distribution.by_pages", "pages")?;
        let homes = pages.map_or(Homes::Block, |pages| Homes::Cyclic { pages });
        Ok(Self { distribution: oikaze::shared::builder::Distribution::Pages(homes) })
    }

    fn __repr__(&self) -> String {
        use oikaze::shared::builder::Distribution as D;
        let how = match &self.distribution {
            D::Block { axis } => format!("block(axis={axis})"),
            D::Cyclic { axis, indices } => format!("cyclic(indices={indices}, axis={axis})"),
            D::Explicit { axis, owners } => {
                format!("explicit({} ranks, axis={axis})", owners.len())
            }
            D::Pages(Homes::Cyclic { pages }) => format!("by_pages(pages={pages})"),
            _ => "by_pages()".to_owned(),
        };
        format!("<oikaze.Distribution.{how}>")
    }
}

/// Returns a way in which updates of an array end at their receiver.
fn delivery_of(name: &str) -> PyResult<Delivery> {
    Ok(match name {
        "direct_map" => Delivery::DirectMap,
        "header_through" => Delivery::HeaderThrough,
        "message_through" => Delivery::MessageThrough,
        "direct_diff_decode" => Delivery::DirectDiffDecode,
        "header_through_diff_decode" => Delivery::HeaderThroughDiffDecode,
        _ => {
            let known = "direct_map, header_through, message_through, direct_diff_decode or \
                         header_through_diff_decode";
            let text = format!("delivery={name:?} is not known; give {known}");
            return Err(PyValueError::new_err(text));
        }
    })
}

/// Type of the elements of an array: the name of a kind of numbers, or the fields of a structure.
#[derive(FromPyObject)]
enum Elements {
    Kind(String),
    Fields(Vec<(String, String)>),
}

/// Arguments of a call that makes a shared array, of which nothing is refused any more but by the
/// job.
#[pyclass(module = "oikaze._native", frozen)]
pub struct ArrayPlan {
    name: String,
    shape: Vec<usize>,
    element: ElementType,
    distribution: Option<oikaze::shared::builder::Distribution>,
    delivery: Option<Delivery>,
    unordered_updates: bool,
}

#[pymethods]
impl ArrayPlan {
    #[new]
    #[allow(clippy::too_many_arguments)] // Called by the package alone.
    fn new(
        py: Python<'_>,
        name: String,
        shape: Object,
        elements: Elements,
        size: usize,
        distribution: Option<&Distribution>,
        delivery: Option<&str>,
        unordered_updates: bool,
    ) -> PyResult<Self> {
        let shape: Vec<usize> = numbers(shape, "array", "shape")?;
        let element = match elements {
            Elements::Kind(name) => ElementKind::from_name(&name)
                .map(ElementType::from)
                .ok_or_else(|| PyValueError::new_err(format!("{name} is not a kind of numbers")))?,
            Elements::Fields(fields) => {
                let field = |(name, kind)| ElementField { name, kind };
                let fields = fields.into_iter().map(field).collect();
                ElementType::structure(size, fields).or_raise(py)?
            }
        };
        let distribution = distribution.map(|chosen| chosen.distribution.clone());
        let delivery = delivery.map(delivery_of).transpose()?;
        Ok(Self { name, shape, element, distribution, delivery, unordered_updates })
    }
}

/// A shared array of the job, whose elements NumPy knows.
#[pyclass(module = "oikaze._native", name = "SharedMemory", frozen, weakref)]
pub struct Array {
    job: Arc<JobCell>,
    array: RwLock<UntypedArray>,
    /// Present once the program has asked for plain loads and stores.
    plain: Mutex<Option<PlainMemory>>,
}

impl Array {
    /// Looks at the array. A resize by another thread ends first.
    fn look<T: Send>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&UntypedArray) -> T + Send,
    ) -> PyResult<T> {
        self.job.get(py)?;
        Ok(detached(py, || look(&self.array.read().unwrap_or_else(PoisonError::into_inner))))
    }

    /// Runs a call that may wait.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&UntypedArray) -> oikaze::Result<T> + Send,
    ) -> PyResult<T> {
        self.job.get(py)?;
        wait(py, || work(&self.array.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Replaces the array by one of another shape or distribution.
    fn replace(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut UntypedArray) -> oikaze::Result<()> + Send,
    ) -> PyResult<()> {
        self.job.get(py)?;
        wait(py, || work(&mut self.array.write().unwrap_or_else(PoisonError::into_inner)))?;
        *lock(&self.plain) = None;
        Ok(())
    }
}

#[pymethods]
impl Job {
    /// Makes a shared array. Collective: all nodes make the same arrays in the same order.
    fn _array(&self, py: Python<'_>, plan: &ArrayPlan) -> PyResult<Array> {
        let job = self.get(py)?;
        let mut builder = job.untyped_array(&plan.name, &plan.shape, plan.element.clone());
        if let Some(distribution) = &plan.distribution {
            builder = builder.distribution(distribution.clone());
        }
        if let Some(delivery) = plan.delivery {
            builder = builder.delivery(delivery);
        }
        if plan.unordered_updates {
            builder = builder.update_class(Class::Unordered);
        }
        let array = wait(py, || builder.build_untyped())?;
        let (array, plain) = (RwLock::new(array), Mutex::default());
        Ok(Array { job: Arc::clone(self.cell()), array, plain })
    }

    /// Tells the other nodes, which make an array, that this node refuses its own call.
    fn _refuse_array(&self, py: Python<'_>, what: &str, why: &str) -> PyResult<()> {
        let job = self.get(py)?;
        wait(py, || {
            let _own_error_says_why = job.refuse_array(what, why);
            Ok(())
        })
    }

    /// Tells the other nodes, which come to another call of all nodes, that this node refuses its
    /// own call.
    pub fn _refuse_collective(&self, py: Python<'_>, what: &str, why: &str) -> PyResult<()> {
        let job = self.get(py)?;
        wait(py, || {
            let _own_error_says_why = job.refuse_collective(what, why);
            Ok(())
        })
    }
}

#[pymethods]
impl Array {
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, |array| array.name().to_owned())
    }

    #[getter]
    fn shape(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.look(py, UntypedArray::shape)
    }

    /// Block of elements whose home is the node, of which there may be no more than one.
    fn home_block(&self, py: Python<'_>, rank: Object) -> PyResult<Part> {
        let rank: u32 = number(rank, "home_block", "rank")?;
        self.look(py, |array| part(array.home_block(rank)))
    }

    /// All blocks of elements whose home is the node.
    fn home_blocks(&self, py: Python<'_>, rank: Object) -> PyResult<Vec<Part>> {
        let rank: u32 = number(rank, "home_blocks", "rank")?;
        self.look(py, |array| array.home_blocks(rank).into_iter().map(part).collect())
    }

    /// Rank of the declared home of an element, which never changes, or `None` if there is no such
    /// element.
    fn home_of(&self, py: Python<'_>, index: Object) -> PyResult<Option<u32>> {
        let index: Vec<usize> = numbers(index, "home_of", "index")?;
        self.look(py, |array| array.home_of(&index))
    }

    /// Makes the memory ready for plain loads and stores, which the buffer of this object shows.
    fn make_plain(&self, py: Python<'_>) -> PyResult<()> {
        let memory = self.call(py, UntypedArray::plain)?;
        *lock(&self.plain) = Some(memory);
        Ok(())
    }

    fn read(&self, py: Python<'_>, part: Part) -> PyResult<Guard> {
        let part = ranges(part);
        let (guard, memory) = self.call(py, |array| {
            let guard = array.read(&part)?;
            let memory = guard.memory();
            Ok((guard, memory))
        })?;
        let (shape, strides, held) = (guard.shape(), guard.strides(), HeldGuard::Read(guard));
        Ok(Guard::new(&self.job, held, (shape, strides), (memory, false)))
    }

    fn write(&self, py: Python<'_>, part: Part, merged: bool) -> PyResult<Guard> {
        let part = ranges(part);
        let (guard, memory) = self.call(py, |array| array.write_with_memory(&part, merged))?;
        let (shape, strides, held) = (guard.shape(), guard.strides(), HeldGuard::Write(guard));
        Ok(Guard::new(&self.job, held, (shape, strides), (memory, true)))
    }

    fn prefetch(&self, py: Python<'_>, part: Part) -> PyResult<()> {
        let part = ranges(part);
        self.call(py, |array| array.prefetch(&part))
    }

    fn subscribe(&self, py: Python<'_>, part: Part) -> PyResult<()> {
        let part = ranges(part);
        self.call(py, |array| array.subscribe(&part))
    }

    fn unsubscribe(&self, py: Python<'_>, part: Part) -> PyResult<()> {
        let part = ranges(part);
        self.call(py, |array| array.unsubscribe(&part))
    }

    fn halo(&self, py: Python<'_>, part: Part, n: Object) -> PyResult<()> {
        let n: usize = number(n, "subscribe_halo", "n")?;
        let part = ranges(part);
        self.call(py, |array| array.halo(&part, n))
    }

    fn fill(&self, py: Python<'_>, value: &[u8]) -> PyResult<()> {
        self.call(py, |array| array.fill(value))
    }

    fn free(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, UntypedArray::free)
    }

    fn resize(&self, py: Python<'_>, shape: Object) -> PyResult<()> {
        let shape: Vec<usize> = numbers(shape, "resize", "shape")?;
        self.replace(py, |array| array.resize(&shape))
    }

    fn redistribute(&self, py: Python<'_>, distribution: &Distribution) -> PyResult<()> {
        self.replace(py, |array| array.redistribute(distribution.distribution.clone()))
    }

    fn save(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        self.call(py, |array| array.save(&path))
    }

    fn load(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        self.call(py, |array| array.load(&path))
    }

    fn put(&self, py: Python<'_>, first: Object, elements: Object) -> PyResult<()> {
        let first: usize = number(first, "put_elements", "first")?;
        let bytes = copied(elements, "put")?;
        self.call(py, |array| array.put(first, &bytes))
    }

    fn get(&self, py: Python<'_>, first: Object, end: Object) -> PyResult<Py<PyByteArray>> {
        let first: usize = number(first, "get_elements", "first")?;
        let end: usize = number(end, "get_elements", "end")?;
        let bytes = self.call(py, |array| array.get(first..end))?;
        Ok(PyByteArray::new(py, &bytes).unbind())
    }

    fn fetch_combine(
        &self,
        py: Python<'_>,
        index: Object,
        combine: Object,
        number: &[u8],
    ) -> PyResult<Py<PyByteArray>> {
        let index: Vec<usize> = numbers(index, "fetch_combine", "index")?;
        let combine = combine_of(combine, "fetch_combine")?;
        let before = self.call(py, |array| array.fetch_combine(&index, combine, number))?;
        Ok(PyByteArray::new(py, &before).unbind())
    }

    fn compare_exchange(
        &self,
        py: Python<'_>,
        index: Object,
        expected: &[u8],
        new: &[u8],
    ) -> PyResult<Py<PyByteArray>> {
        let index: Vec<usize> = numbers(index, "compare_exchange", "index")?;
        let before = self.call(py, |array| array.compare_exchange(&index, expected, new))?;
        Ok(PyByteArray::new(py, &before).unbind())
    }

    fn accumulate(&self, first: Object, combine: Object, numbers: Object) -> PyResult<()> {
        let py = first.py();
        let first: usize = number(first, "accumulate", "first")?;
        let (combine, bytes) = (combine_of(combine, "accumulate")?, copied(numbers, "accumulate")?);
        self.call(py, |array| array.accumulate(first, combine, &bytes))
    }

    /// Why each node keeps pages of its own, or `None` if all nodes map the same memory.
    #[getter]
    fn why_not_shared(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.look(py, |array| array.why_not_shared().map(str::to_owned))
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = self.call(py, |array| Ok(array.statistics()))?;
        let counters = PyDict::new(py);
        for (name, value) in [
            ("fetches", statistics.fetches),
            ("fetched_pages", statistics.fetched_pages),
            ("served_pages", statistics.served_pages),
            ("diffs_sent", statistics.diffs_sent),
            ("diff_bytes", statistics.diff_bytes),
            ("updates_sent", statistics.updates_sent),
            ("update_bytes", statistics.update_bytes),
            ("updates_received", statistics.updates_received),
            ("updates_wasted", statistics.updates_wasted),
            ("homes_moved", statistics.homes_moved),
        ] {
            counters.set_item(name, value)?;
        }
        Ok(counters)
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: View, flags: c_int) -> PyResult<()> {
        let py = slf.py();
        let plain = lock(&slf.get().plain).clone();
        let Some(plain) = plain else {
            let why = "it has no plain memory; use guards, or job.array";
            return Err(exception(py, &Error::invalid("viewing a shared array", why)));
        };
        let at = (plain.address(), plain.len());
        // The view belongs to an object of its own: the array may get other memory later.
        let owner = Bound::new(py, Plain { _memory: plain })?.into_any();
        // SAFETY: the owner holds the memory of the array, which stays mapped at its address, and
        // whose pages take loads and stores.
        unsafe { show(view, flags, owner, at, true) }
    }
}

/// Holds the memory of an array for a view of it.
#[pyclass(module = "oikaze._native", frozen)]
struct Plain {
    _memory: PlainMemory,
}

/// Copies the bytes of a buffer.
fn copied(object: Object, operation: &str) -> PyResult<Vec<u8>> {
    with_bytes_of(object, operation, <[u8]>::to_vec)
}

enum HeldGuard {
    Read(UntypedReadGuard),
    Write(UntypedWriteGuard),
}

/// A guard of part of an array, whose bytes the buffer of this object shows.
#[pyclass(module = "oikaze._native", frozen)]
pub struct Guard {
    job: Arc<JobCell>,
    held: Mutex<Option<HeldGuard>>,
    shape: Vec<usize>,
    strides: Vec<usize>,
    /// Memory of the guard, which stays mapped for views of it, and whether it may be written.
    memory: (PlainMemory, bool),
}

impl Guard {
    fn new(
        job: &Arc<JobCell>,
        held: HeldGuard,
        (shape, strides): (Vec<usize>, Vec<usize>),
        memory: (PlainMemory, bool),
    ) -> Self {
        Self { job: Arc::clone(job), held: Mutex::new(Some(held)), shape, strides, memory }
    }

    fn take(&self) -> Option<HeldGuard> {
        lock(&self.held).take()
    }
}

#[pymethods]
impl Guard {
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.shape.clone()
    }

    #[getter]
    fn strides(&self) -> Vec<usize> {
        self.strides.clone()
    }

    fn push_to(&self, py: Python<'_>, ranks: Object) -> PyResult<()> {
        let ranks: Vec<u32> = numbers(ranks, "push_to", "ranks")?;
        match &mut *lock(&self.held) {
            Some(HeldGuard::Write(guard)) => guard.push_to(&ranks).or_raise(py),
            _ => {
                let why = "only a guard that writes, and is not released, has bytes to push; \
                           take array.writing[...]";
                Err(exception(py, &Error::invalid("push_to", why)))
            }
        }
    }

    /// Ends the guard. A second call does nothing.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        match self.take() {
            Some(HeldGuard::Read(guard)) => wait(py, || guard.release()),
            Some(HeldGuard::Write(guard)) => wait(py, || guard.release()),
            None => Ok(()),
        }
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: View, flags: c_int) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        this.job.get(py)?;
        if lock(&this.held).is_none() {
            let why = "it is released; take another one";
            return Err(exception(py, &Error::invalid("viewing a guard", why)));
        }
        let (memory, writable) = &this.memory;
        let at = (memory.address(), memory.len());
        // SAFETY: this object holds the memory, which stays mapped at its address.
        unsafe { show(view, flags, slf.clone().into_any(), at, *writable) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(held) = self.take() {
            Python::try_attach(|py| detached(py, || drop(held)));
        }
    }
}
