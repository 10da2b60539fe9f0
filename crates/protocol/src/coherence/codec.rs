//! Encodes and decodes coherence's own messages (COH-9). Numbers are LEB128, and every field is
//! checked (COH-9.1).

use crate::wind::{Head, Refusal};
use alloc::vec::Vec;

/// Appends values to a body.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Appends an unsigned LEB128 number: seven bits a byte, lowest first.
    pub fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Appends bytes without their length, which the reader knows.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub fn fixed(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
}

/// Takes values from a received body. A body that is too short gives [`Refusal::Malformed`].
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn byte(&mut self) -> Result<u8, Refusal> {
        let (first, rest) = self.0.split_first().ok_or(Refusal::Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    pub fn number(&mut self) -> Result<u64, Refusal> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Refusal::Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Refusal::Malformed)
    }

    pub fn number_u32(&mut self) -> Result<u32, Refusal> {
        u32::try_from(self.number()?).map_err(|_| Refusal::Malformed)
    }

    /// Reads a count of items of at least `each` bytes that must still be in the body. So a false
    /// count allocates nothing.
    pub fn count(&mut self, each: usize) -> Result<usize, Refusal> {
        let count = usize::try_from(self.number()?).map_err(|_| Refusal::Malformed)?;
        match count.checked_mul(each) {
            Some(bytes) if bytes <= self.0.len() => Ok(count),
            _ => Err(Refusal::Malformed),
        }
    }

    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], Refusal> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Refusal::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Refusal> {
        let len = self.count(1)?;
        self.raw(len)
    }

    pub fn fixed(&mut self) -> Result<u64, Refusal> {
        let bytes = self.raw(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| Refusal::Malformed)?))
    }

    /// Checks that no bytes are left over.
    pub fn end(&self) -> Result<(), Refusal> {
        if self.0.is_empty() { Ok(()) } else { Err(Refusal::Malformed) }
    }
}

/// Type and fields of a message (COH-9.2): second byte of the head, then fixed little-endian
/// fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headline {
    /// Requests pages; `id` is the requester's number.
    Fetch(PageRun),
    /// Answers with the requested pages.
    Pages(PageRun),
    /// Changes to pages homed at the receiver, in the body.
    Diff { array: u32 },
    /// Arrival at a collective. The body holds everything else.
    Arrive { epoch: u64 },
    /// End of a collective.
    Depart { epoch: u64 },
    /// Request for a lock.
    Acquire { lock: u64, request: u64 },
    /// Grant of a lock, as of this epoch.
    Grant { lock: u64, request: u64, epoch: u64 },
    /// Return of a lock.
    Unlock { lock: u64, request: u64, epoch: u64 },
    /// Report that this node is dead.
    Died { rank: u32 },
    /// Question whether the receiver still owes this to the sender (COH-13).
    Question { wait: Wait },
    /// Reply to a question: `owed` is `true` if the answer is owed.
    Reply { wait: Wait, owed: bool },
    /// The sender leaves the job after `epoch` collectives. With `silent` it sends no more messages
    /// either (COH-6.7).
    Leaving { epoch: u64, silent: bool },
}

/// Answer for which a node waits (COH-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wait {
    /// End of the collective that follows `epoch` passed ones, from rank 0.
    Collective { epoch: u64 },
    /// Grant of a lock, from its manager.
    Lock { lock: u64, request: u64 },
    /// Pages, from their home.
    Pages { id: u64 },
    /// Return of a lock, from the node that holds it.
    Holder { lock: u64, request: u64 },
}

impl Wait {
    fn fields(self) -> [u64; 3] {
        match self {
            Wait::Collective { epoch } => [0, epoch, 0],
            Wait::Lock { lock, request } => [1, lock, request],
            Wait::Pages { id } => [2, id, 0],
            Wait::Holder { lock, request } => [3, lock, request],
        }
    }

    fn from_fields([sort, a, b]: [u64; 3]) -> Result<Wait, Refusal> {
        Ok(match (sort, b) {
            (0, 0) => Wait::Collective { epoch: a },
            (1, request) => Wait::Lock { lock: a, request },
            (2, 0) => Wait::Pages { id: a },
            (3, request) => Wait::Holder { lock: a, request },
            _ => return Err(Refusal::Malformed),
        })
    }
}

/// Flag in the first field of a reply whose answer is owed.
const OWED: u64 = 1 << 8;

/// Consecutive pages of one array and one home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRun {
    pub array: u32,
    pub count: u32,
    pub first: u64,
    pub id: u64,
}

impl Headline {
    pub fn write(self) -> Head {
        let (code, fields): (u8, [u64; 3]) = match self {
            Headline::Fetch(r) => (1, r.fields()),
            Headline::Pages(r) => (2, r.fields()),
            Headline::Diff { array } => (3, [u64::from(array), 0, 0]),
            Headline::Arrive { epoch } => (4, [epoch, 0, 0]),
            Headline::Depart { epoch } => (5, [epoch, 0, 0]),
            Headline::Acquire { lock, request } => (6, [lock, request, 0]),
            Headline::Grant { lock, request, epoch } => (7, [lock, request, epoch]),
            Headline::Unlock { lock, request, epoch } => (8, [lock, request, epoch]),
            Headline::Died { rank } => (9, [u64::from(rank), 0, 0]),
            Headline::Leaving { epoch, silent } => (10, [epoch, u64::from(silent), 0]),
            Headline::Question { wait } => (11, wait.fields()),
            Headline::Reply { wait, owed } => {
                let [sort, a, b] = wait.fields();
                (12, [sort | if owed { OWED } else { 0 }, a, b])
            }
        };
        let mut head = Head::new();
        head.push(super::KIND);
        head.push(code);
        head.extend(fields.into_iter().flat_map(u64::to_le_bytes));
        head
    }

    pub fn read(head: &[u8]) -> Result<Headline, Refusal> {
        let mut reader = Reader(head);
        if reader.byte()? != super::KIND {
            return Err(Refusal::Malformed);
        }
        let code = reader.byte()?;
        let [a, b, c] = [reader.fixed()?, reader.fixed()?, reader.fixed()?];
        reader.end()?;
        let small = |value: u64| u32::try_from(value).map_err(|_| Refusal::Malformed);
        Ok(match code {
            1 => Headline::Fetch(PageRun::from_fields([a, b, c])),
            2 => Headline::Pages(PageRun::from_fields([a, b, c])),
            3 => Headline::Diff { array: small(a)? },
            4 => Headline::Arrive { epoch: a },
            5 => Headline::Depart { epoch: a },
            6 => Headline::Acquire { lock: a, request: b },
            7 => Headline::Grant { lock: a, request: b, epoch: c },
            8 => Headline::Unlock { lock: a, request: b, epoch: c },
            9 => Headline::Died { rank: small(a)? },
            10 if b <= 1 => Headline::Leaving { epoch: a, silent: b == 1 },
            11 => Headline::Question { wait: Wait::from_fields([a, b, c])? },
            12 => {
                Headline::Reply { wait: Wait::from_fields([a & !OWED, b, c])?, owed: a & OWED != 0 }
            }
            _ => return Err(Refusal::Malformed),
        })
    }
}

impl PageRun {
    fn fields(self) -> [u64; 3] {
        [u64::from(self.array) | u64::from(self.count) << 32, self.first, self.id]
    }

    fn from_fields([packed, first, id]: [u64; 3]) -> PageRun {
        PageRun { array: packed as u32, count: (packed >> 32) as u32, first, id }
    }
}
