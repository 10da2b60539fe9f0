//! Memory of other nodes.

use crate::interpreter::buffer::{Loan, Memory};
use crate::interpreter::error::{OrRaise, invalid};
use crate::interpreter::number::{Named, Object, number, numbers, object, optional, text, word};
use crate::job::cell::JobCell;
use crate::memory::block::block_of;
use crate::memory::region::{Region, lend};
use crate::operation::{Operation, Outcome, bytes};
use oikaze::atomic::Combine;
use oikaze::ffi::{
    Accumulation, AtomicOp, Change, ElementKind, NumberKind, UntypedOperator, Width,
};
use oikaze::limits::LIST_MAX;
use oikaze::memory::remote::COPY_MAX;
use oikaze::memory::{Block, RegionSlice};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use std::sync::Arc;

/// A region of a peer; `peer.region(name)` finds one.
///
/// Methods that begin something return an `Operation` at once. Offsets and lengths are in bytes.
#[pyclass(module = "oikaze", frozen)]
pub struct RemoteRegion {
    job: Arc<JobCell>,
    region: oikaze::memory::remote::RemoteRegion,
}

/// A word at a peer that counts arrivals; `region.signal(offset, add)` describes one.
#[pyclass(module = "oikaze", frozen)]
pub struct RemoteSignal {
    signal: oikaze::memory::remote::RemoteSignal,
    /// Offset of the word, and what is added.
    adds: (u64, u64),
    rank: u32,
}

#[pymethods]
impl RemoteSignal {
    fn __repr__(&self) -> String {
        let ((offset, add), rank) = (self.adds, self.rank);
        format!("<oikaze.RemoteSignal of {add} at offset {offset} of node {rank}>")
    }
}

/// Entries of a list: an offset of the peer's region, and memory of this node.
type Entries = Vec<(u64, RegionSlice)>;

/// Type of a word: bits, and whether it is signed.
#[derive(Clone, Copy)]
struct WordType {
    bits: u32,
    signed: bool,
}

impl WordType {
    fn of(name: &str) -> PyResult<Self> {
        let (bits, signed) = match name {
            "u8" | "uint64" => (64, false),
            "i8" | "int64" => (64, true),
            "u4" | "uint32" => (32, false),
            "i4" | "int32" => (32, true),
            _ => {
                let text =
                    format!("{name:?} is not a type of a word; give 'u8', 'i8', 'u4' or 'i4'");
                return Err(PyValueError::new_err(text));
            }
        };
        Ok(Self { bits, signed })
    }

    fn width(self) -> Width {
        if self.bits == 32 { Width::W32 } else { Width::W64 }
    }

    /// Returns the bits of a number, which must be in the range of the type.
    fn bits_of(self, number: i128) -> PyResult<u64> {
        let bits = self.bits;
        let (least, most) = match self.signed {
            true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            false => (0, (1 << bits) - 1),
        };
        if !(least..=most).contains(&number) {
            let text = format!("{number} is out of range; give {least} to {most}");
            return Err(PyValueError::new_err(text));
        }
        // Two's complement; bits above the width are dropped by `AtomicOp::new`.
        Ok(number as u64)
    }

    fn outcome(self) -> Outcome {
        Outcome::Word { bits: self.bits, signed: self.signed }
    }
}

/// Returns the signal that an argument is, or `None`.
fn signal_of<'a>(
    object: Option<&'a Bound<'_, PyAny>>,
    operation: &str,
) -> PyResult<Option<&'a RemoteSignal>> {
    let signal = |given| {
        let signal =
            self::object::<RemoteSignal>(given, operation, "signal", "region.signal(offset)");
        signal.map(Bound::get)
    };
    object.filter(|object| !object.is_none()).map(signal).transpose()
}

/// Returns the signal or the tag that arguments are, of which there may be one.
fn signal_or_tag<'a>(
    (signal, notify): (Option<Object<'a, '_>>, Option<Object>),
    operation: &str,
) -> PyResult<(Option<&'a RemoteSignal>, Option<u64>)> {
    let (signal, given) = (signal_of(signal, operation)?, notify);
    let tag: Option<u64> = optional(notify, operation, "notify")?;
    match given {
        Some(given) if signal.is_some() && tag.is_some() => {
            let remedy = "give one of the two, and put no bytes with the other";
            Err(invalid(given.py(), operation, "it has both a signal and a notice", remedy))
        }
        _ => Ok((signal, tag)),
    }
}

/// Returns the operation that combines elements, from its name.
pub fn combine_of(name: Object, operation: &str) -> PyResult<Combine> {
    let (py, name) = (name.py(), text(name, operation, "combine")?);
    UntypedOperator::from_name(name).and_then(UntypedOperator::fused).ok_or_else(|| {
        let cause = format!("combine is {name:?}, which is not known here");
        invalid(py, operation, &cause, "give 'sum', 'min' or 'max'")
    })
}

/// Returns the kind of numbers that a buffer has.
fn kind_of(py: Python<'_>, memory: &Memory) -> PyResult<NumberKind> {
    let format = memory.format().to_string_lossy();
    let class = match format.trim_start_matches(['@', '=', '<']) {
        "B" | "H" | "I" | "L" | "Q" => "u",
        "b" | "h" | "i" | "l" | "q" => "i",
        "f" | "d" => "f",
        _ => "",
    };
    let name = format!("{class}{}", memory.item_size());
    let kind = ElementKind::ALL.iter().find(|kind| kind.numpy().get(1..) == Some(&name));
    kind.and_then(|kind| kind.number()).ok_or_else(|| {
        let why = format!("elements of the format {format:?} cannot be combined");
        let remedy = "use uint32, int32, uint64, int64, float32 or float64";
        invalid(py, "accumulate", &why, remedy)
    })
}

impl RemoteRegion {
    /// Makes the object of a peer's region.
    pub fn new(job: &Arc<JobCell>, region: oikaze::memory::remote::RemoteRegion) -> Self {
        Self { job: Arc::clone(job), region }
    }

    /// Returns the block of an array here, from its first byte on, and the one at the peer.
    fn blocks(
        py: Python<'_>,
        operation: &str,
        memory: &Memory,
        offset: u64,
        strides: &[isize],
    ) -> PyResult<(Block, Block)> {
        let (item, shape) = (memory.item_size(), memory.shape());
        let refused = |place: &str, why: String| {
            let (cause, remedy) = why.split_once("; ").unwrap_or((&why, "make a copy"));
            invalid(py, operation, &format!("the array {place}: {cause}"), remedy)
        };
        let here = block_of(0, item, shape, memory.strides()).map_err(|why| refused("here", why));
        let there =
            block_of(offset, item, shape, strides).map_err(|why| refused("at the peer", why));
        Ok((here?, there?))
    }

    /// Returns the entries of a list as the library takes them, and what keeps their memory.
    fn entries(
        &self,
        list: Object,
        writable: bool,
        operation: &str,
    ) -> PyResult<(Entries, Option<Loan>)> {
        let py = list.py();
        let job = self.job.get(py)?;
        let (mut entries, mut loans) = (Vec::new(), Vec::new());
        // The library refuses a list that is too long as a whole.
        for entry in list.try_iter().named(py, operation)?.take(LIST_MAX + 1) {
            let entry = entry?;
            let Ok((offset, data)) = entry.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
                let cause = format!("{} is not an entry of a list", entry.repr()?);
                return Err(invalid(py, operation, &cause, "give pairs of an offset and memory"));
            };
            let (slice, loan) = lend(&self.job, &job, &data, writable, operation)?;
            entries.push((number(&offset, operation, "offset")?, slice));
            loans.extend(loan);
        }
        Ok((entries, Loan::join(loans)))
    }

    fn operation<T: oikaze::completion::Outcome>(
        &self,
        operation: oikaze::completion::Operation<T>,
        outcome: Outcome,
        loan: Option<Loan>,
    ) -> Operation {
        Operation::new(&self.job, operation, outcome, loan)
    }

    /// Returns an operation that has ended already.
    fn ended(&self, outcome: Outcome) -> Operation {
        self.operation(oikaze::completion::Operation::ended(0), outcome, None)
    }

    /// Begins an atomic on a word: its name, and whether it fetches. `dtype` is a text, or `None`
    /// for an unsigned word of 64 bits. `change` makes the change of the operands' bits.
    fn change<const N: usize>(
        &self,
        (name, fetches): (&str, bool),
        offset: Object,
        dtype: Option<Object>,
        operands: [(&str, Object); N],
        change: impl FnOnce([u64; N], bool) -> PyResult<Change>,
    ) -> PyResult<Operation> {
        let py = offset.py();
        let offset: u64 = number(offset, name, "offset")?;
        let mut given = [0_i128; N];
        for (given, (operand, object)) in given.iter_mut().zip(operands) {
            *given = word(object, name, operand)?;
        }
        self.job.get(py)?;
        let dtype = dtype.map(|dtype| text(dtype, name, "dtype")).transpose()?;
        let word = WordType::of(dtype.unwrap_or("u8")).named(py, name)?;
        let mut bits = [0; N];
        for (bits, given) in bits.iter_mut().zip(given) {
            *bits = word.bits_of(given).named(py, name)?;
        }
        let op = AtomicOp::new(word.width(), change(bits, word.signed).named(py, name)?);
        let begun = self.region.change(offset, op, fetches);
        let outcome = if fetches { word.outcome() } else { Outcome::Nothing };
        Ok(self.operation(begun, outcome, None))
    }
}

#[pymethods]
impl RemoteRegion {
    fn __len__(&self) -> usize {
        usize::try_from(self.region.len()).unwrap_or(usize::MAX)
    }

    /// Rank of the owner.
    #[getter]
    fn rank(&self) -> u32 {
        self.region.peer().rank()
    }

    /// Rights that the owner grants, as bits of `oikaze.Rights`.
    #[getter]
    fn rights(&self) -> u8 {
        self.region.rights().0
    }

    /// Whether operations reach the memory directly, by loads and stores of this process.
    #[getter]
    fn is_mapped(&self) -> bool {
        self.region.is_mapped()
    }

    /// Why the region is not mapped, or `None` if it is.
    #[getter]
    fn why_not_mapped(&self) -> Option<String> {
        self.region.why_not_mapped()
    }

    /// Id of the region as 24 bytes, by which another node finds it: `job.remote(id)`.
    #[getter]
    fn remote_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.region.remote_id().to_bytes())
    }

    /// Writes the bytes of a buffer to `offset`.
    ///
    /// Up to 4096 bytes without a `signal` are copied at once. Other memory is read until the
    /// operation ends, and must not change meanwhile. The operation keeps it alive. A `signal` adds
    /// to a word once all bytes are in place. `notify` is a tag instead: once all bytes are in
    /// place, an entry with it appears in the `arrivals()` of the owner.
    #[pyo3(signature = (offset, data, signal = None, notify = None))]
    fn put(
        &self,
        py: Python<'_>,
        offset: Object,
        data: Object,
        signal: Option<Object>,
        notify: Option<Object>,
    ) -> PyResult<Operation> {
        let offset: u64 = number(offset, "put", "offset")?;
        let (signal, notify) = signal_or_tag((signal, notify), "put")?;
        let job = self.job.get(py)?;
        let copy = |bytes: &[u8]| match notify {
            Some(tag) => self.region.put_notify_copy(offset, bytes, tag),
            None => self.region.put_copy(offset, bytes),
        };
        let small = data.cast_exact::<PyBytes>().ok().map(|bytes| bytes.as_bytes());
        if let Some(bytes) = small.filter(|bytes| bytes.len() <= COPY_MAX && signal.is_none()) {
            let put = copy(bytes).or_raise(py)?;
            return Ok(self.operation(put, Outcome::Nothing, None));
        }
        let (slice, loan) = if let Ok(region) = data.cast::<Region>() {
            (region.get().all(py)?, None)
        } else {
            let memory = Memory::readable(data, "put")?;
            if signal.is_none() && memory.len() <= COPY_MAX {
                let put = memory.with_bytes(py, copy);
                return Ok(self.operation(put.or_raise(py)?, Outcome::Nothing, None));
            }
            self.job.lend(py, &job, memory, false)?
        };
        let begun = match (signal, notify) {
            (Some(signal), _) => self.region.put_signal(offset, slice, &signal.signal),
            (None, Some(tag)) => self.region.put_notify(offset, slice, tag),
            (None, None) => self.region.put(offset, slice),
        };
        Ok(self.operation(begun, Outcome::Nothing, loan))
    }

    /// Writes the bytes of a buffer to `offset`, and adds to a word once all bytes are in place.
    fn put_signal(&self, offset: Object, data: Object, signal: Object) -> PyResult<Operation> {
        self.put(offset.py(), offset, data, Some(signal), None)
    }

    /// Writes the elements of an array to places at equal distances, in one operation.
    ///
    /// Element `[i, j]` goes to `offset + i * strides[0] + j * strides[1]`: `strides` are those of
    /// the array at the peer in bytes, as NumPy's `array.strides`. Here and there the array may
    /// have gaps along two axes, so a column or a face of a grid is one operation. The memory must
    /// not change before the operation has ended. A `signal` adds to a word once all is in place.
    #[pyo3(signature = (offset, data, strides, signal = None))]
    fn put_block(
        &self,
        py: Python<'_>,
        offset: Object,
        data: Object,
        strides: Object,
        signal: Option<Object>,
    ) -> PyResult<Operation> {
        let strides: Vec<isize> = numbers(strides, "put_block", "strides")?;
        let given = (offset, signal);
        let signal = signal_of(signal, "put_block")?;
        let offset: u64 = number(offset, "put_block", "offset")?;
        let job = self.job.get(py)?;
        let memory = Memory::strided(data, false, "put_block")?;
        let (here, there) = Self::blocks(py, "put_block", &memory, offset, &strides)?;
        if here.is_empty() {
            return self.put(py, given.0, PyBytes::new(py, &[]).as_any(), given.1, None);
        }
        let (slice, loan) = self.job.lend(py, &job, memory, false)?;
        let begun = match signal {
            Some(signal) => self.region.put_block_signal(there, slice, here, &signal.signal),
            None => self.region.put_block(there, slice, here),
        };
        Ok(self.operation(begun.or_raise(py)?, Outcome::Nothing, loan))
    }

    /// Reads elements at equal distances into an array, in one operation.
    ///
    /// It is the counterpart of `put_block`. The operation's result is `into`. Do not touch its
    /// memory before the operation has ended.
    fn get_block_into(&self, offset: Object, into: Object, strides: Object) -> PyResult<Operation> {
        let py = offset.py();
        let strides: Vec<isize> = numbers(strides, "get_block_into", "strides")?;
        let offset: u64 = number(offset, "get_block_into", "offset")?;
        let job = self.job.get(py)?;
        let memory = Memory::strided(into, true, "get_block_into")?;
        let (here, there) = Self::blocks(py, "get_block_into", &memory, offset, &strides)?;
        let result = Outcome::Object(into.clone().unbind());
        if here.is_empty() {
            return Ok(self.ended(result));
        }
        let (slice, loan) = self.job.lend(py, &job, memory, true)?;
        let begun = self.region.get_block(there, slice, here).or_raise(py)?;
        Ok(self.operation(begun, result, loan))
    }

    /// Writes a list of pairs of an offset and a buffer, in one operation.
    ///
    /// A list has at most 16,384 entries. It is checked as a whole: if an entry is not inside the
    /// region, none is written. `signal` adds to a word once all entries are in place. `notify` is
    /// a tag instead: once all entries are in place, one entry with it appears in the `arrivals()`
    /// of the owner, with offset and length of the last entry of the list. The memory must not
    /// change before the operation has ended. Many buffers are best views of one region of
    /// `job.register`, because other memory is registered for this call, buffer by buffer.
    #[pyo3(signature = (entries, signal = None, notify = None))]
    fn put_list(
        &self,
        py: Python<'_>,
        entries: Object,
        signal: Option<Object>,
        notify: Option<Object>,
    ) -> PyResult<Operation> {
        let (signal, notify) = signal_or_tag((signal, notify), "put_list")?;
        let (list, loan) = self.entries(entries, false, "put_list")?;
        let (region, signal) = (&self.region, signal.map(|signal| signal.signal));
        // Without the interpreter's lock, because this thread may copy all of the bytes.
        let begun = py.detach(|| match (signal, notify) {
            (Some(signal), _) => region.put_list_signal(&list, &signal),
            (None, Some(tag)) => region.put_list_notify(&list, tag),
            (None, None) => region.put_list(&list),
        });
        Ok(self.operation(begun, Outcome::Nothing, loan))
    }

    /// Reads a list of pairs of an offset and writable memory, in one operation.
    ///
    /// It is the counterpart of `put_list`. Do not touch the memory before the operation has ended.
    fn get_list_into(&self, py: Python<'_>, entries: Object) -> PyResult<Operation> {
        let (list, loan) = self.entries(entries, true, "get_list_into")?;
        let begun = py.detach(|| self.region.get_list(&list));
        Ok(self.operation(begun, Outcome::Nothing, loan))
    }

    /// Describes a signal: add `add` to the 64-bit word at `offset` of this region.
    #[pyo3(signature = (offset, add = None))]
    fn signal(&self, offset: Object, add: Option<Object>) -> PyResult<RemoteSignal> {
        let offset: u64 = number(offset, "signal", "offset")?;
        let add: u64 = optional(add, "signal", "add")?.unwrap_or(1);
        let (signal, rank) = (self.region.signal(offset, add), self.rank());
        Ok(RemoteSignal { signal, adds: (offset, add), rank })
    }

    /// Reads `length` bytes from `offset`. The operation's result is a `bytes` or a `bytearray`.
    fn get(&self, py: Python<'_>, offset: Object, length: Object) -> PyResult<Operation> {
        let offset: u64 = number(offset, "get", "offset")?;
        let length: usize = number(length, "get", "length")?;
        let job = self.job.get(py)?;
        if let Some(copy) = self.region.copy_at_once(offset, length) {
            return Ok(self.ended(Outcome::Object(bytes(py, &copy))));
        }
        // Refused by its owner if it is too long, before this node allocates for it.
        if offset.checked_add(length as u64).is_none_or(|end| end > self.region.len()) {
            let len = self.region.len();
            let why = format!("{length} bytes at offset {offset} lie outside of {len} bytes");
            return Err(invalid(py, "get", &why, "see len(region)"));
        }
        let into = PyByteArray::new(py, &vec![0; length]).into_any();
        let memory = Memory::writable(&into, "get")?;
        let (slice, loan) = self.job.lend(py, &job, memory, true)?;
        let begun = self.region.get(offset, slice);
        Ok(self.operation(begun, Outcome::Object(into.unbind()), loan))
    }

    /// Reads from `offset` into the memory of a writable, contiguous buffer, until it is full.
    ///
    /// The operation's result is `into`. Do not touch its memory before the operation has ended.
    fn get_into(&self, py: Python<'_>, offset: Object, into: Object) -> PyResult<Operation> {
        let offset: u64 = number(offset, "get_into", "offset")?;
        let job = self.job.get(py)?;
        let result = Outcome::Object(into.clone().unbind());
        if let Ok(region) = into.cast::<Region>() {
            return Ok(self.operation(
                self.region.get(offset, region.get().all(py)?),
                result,
                None,
            ));
        }
        let memory = Memory::writable(into, "get_into")?;
        if let Some(copy) = self.region.copy_at_once(offset, memory.len()) {
            memory.fill(py, &copy);
            return Ok(self.ended(result));
        }
        let (slice, loan) = self.job.lend(py, &job, memory, true)?;
        Ok(self.operation(self.region.get(offset, slice), result, loan))
    }

    /// Adds to the word at `offset`, wrapping. The result is the previous value.
    ///
    /// `dtype` is the type of the word: `"u8"`, `"i8"`, `"u4"` or `"i4"`, as NumPy writes it.
    #[pyo3(signature = (offset, add, dtype = None))]
    fn fetch_add(&self, offset: Object, add: Object, dtype: Option<Object>) -> PyResult<Operation> {
        let operands = [("add", add)];
        self.change(("fetch_add", true), offset, dtype, operands, |[add], _| Ok(Change::Add(add)))
    }

    /// Stores `new` if the word at `offset` is `expected`. The result is the previous value.
    #[pyo3(signature = (offset, expected, new, dtype = None))]
    fn compare_exchange(
        &self,
        offset: Object,
        expected: Object,
        new: Object,
        dtype: Option<Object>,
    ) -> PyResult<Operation> {
        let operands = [("expected", expected), ("new", new)];
        let change = |[expected, new]: [u64; 2], _: bool| Ok(Change::CompareSwap { expected, new });
        self.change(("compare_exchange", true), offset, dtype, operands, change)
    }

    /// Stores `new` into the word at `offset`. The result is the previous value.
    #[pyo3(signature = (offset, new, dtype = None))]
    fn swap(&self, offset: Object, new: Object, dtype: Option<Object>) -> PyResult<Operation> {
        let operands = [("new", new)];
        self.change(("swap", true), offset, dtype, operands, |[new], _| Ok(Change::Swap(new)))
    }

    /// Reads the word at `offset` atomically.
    #[pyo3(signature = (offset, dtype = None))]
    fn load(&self, offset: Object, dtype: Option<Object>) -> PyResult<Operation> {
        self.change(("load", true), offset, dtype, [], |[], _| Ok(Change::Or(0)))
    }

    /// Stores `new` into the word at `offset`, without an answer.
    #[pyo3(signature = (offset, new, dtype = None))]
    fn store(&self, offset: Object, new: Object, dtype: Option<Object>) -> PyResult<Operation> {
        let operands = [("new", new)];
        self.change(("store", false), offset, dtype, operands, |[new], _| Ok(Change::Swap(new)))
    }

    /// Adds to the word at `offset`, wrapping, without an answer.
    #[pyo3(signature = (offset, add, dtype = None))]
    fn add(&self, offset: Object, add: Object, dtype: Option<Object>) -> PyResult<Operation> {
        let operands = [("add", add)];
        self.change(("add", false), offset, dtype, operands, |[add], _| Ok(Change::Add(add)))
    }

    /// Combines the word at `offset` with `other`: `"and"`, `"or"`, `"xor"`, `"min"` or `"max"`.
    /// The result is the previous value.
    #[pyo3(signature = (offset, combine, other, dtype = None))]
    fn fetch_combine(
        &self,
        offset: Object,
        combine: Object,
        other: Object,
        dtype: Option<Object>,
    ) -> PyResult<Operation> {
        let combine = text(combine, "fetch_combine", "combine")?;
        let change = |[bits]: [u64; 1], signed: bool| {
            Ok(match (combine, signed) {
                ("sum", _) => Change::Add(bits),
                ("and", _) => Change::And(bits),
                ("or", _) => Change::Or(bits),
                ("xor", _) => Change::Xor(bits),
                ("min", false) => Change::Min(bits),
                ("min", true) => Change::MinSigned(bits),
                ("max", false) => Change::Max(bits),
                ("max", true) => Change::MaxSigned(bits),
                _ => {
                    let known = "'sum', 'and', 'or', 'xor', 'min' or 'max'";
                    let text = format!("{combine:?} is not known; give {known}");
                    return Err(PyValueError::new_err(text));
                }
            })
        };
        self.change(("fetch_combine", true), offset, dtype, [("other", other)], change)
    }

    /// Combines the numbers of an array with those at `offset`, each atomically.
    ///
    /// `numbers` is a buffer of uint32, int32, uint64, int64, float32 or float64. `combine` is
    /// `"sum"`, `"min"` or `"max"`. The memory must not change before the operation has ended.
    #[pyo3(signature = (offset, numbers, combine = None))]
    fn accumulate(
        &self,
        py: Python<'_>,
        offset: Object,
        numbers: Object,
        combine: Option<Object>,
    ) -> PyResult<Operation> {
        let combine =
            combine.map_or(Ok(Combine::Sum), |combine| combine_of(combine, "accumulate"))?;
        let offset: u64 = number(offset, "accumulate", "offset")?;
        let job = self.job.get(py)?;
        let memory = Memory::readable(numbers, "accumulate")?;
        let how = Accumulation { element: kind_of(py, &memory)?, combine };
        let (slice, loan) = self.job.lend(py, &job, memory, false)?;
        let begun = self.region.accumulate_as(offset, how, slice).or_raise(py)?;
        Ok(self.operation(begun, Outcome::Nothing, loan))
    }

    fn __repr__(&self) -> String {
        let (len, rank) = (self.region.len(), self.region.peer().rank());
        format!("<oikaze.RemoteRegion of {len} bytes at node {rank}>")
    }
}
