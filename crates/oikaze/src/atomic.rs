//! Words and numbers that several nodes change at once. Each change takes place at most once,
//! whatever the network does.
//!
//! A word has 32 or 64 bits. [`RemoteRegion::word`] names a word of a peer, and
//! [`Region::word`](crate::memory::Region::word) a word of this node. [`RemoteRegion::accumulate`]
//! combines many numbers.
//!
//! [`RemoteRegion::word`]: crate::memory::remote::RemoteRegion::word
//! [`RemoteRegion::accumulate`]: crate::memory::remote::RemoteRegion::accumulate

pub use crate::memory::remote::words::RemoteWord;
/// A word of a region of this node, for atomic changes.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let words = job.publish("words", Region::shared(64)?, Rights::ATOMIC)?;
/// let count = words.word::<i32>(4); // peers may change it at the same time
/// count.fetch_add(3)?;
/// assert_eq!(count.compare_exchange(3, -1)?, 3);
/// assert_eq!(count.load()?, -1);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_os::memory::LocalWord;
/// Operator that combines two numbers, chosen at run time. The operators
/// [`Sum`](crate::collective::operator::Sum), [`Min`](crate::collective::operator::Min) and
/// [`Max`](crate::collective::operator::Max) stand for it wherever a call takes one.
///
/// ```
/// use oikaze::atomic::Combine;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let sums = job.publish("sums", Region::shared(64)?, Rights::ATOMIC)?;
/// let there = job.peer(0)?.region("sums")?;
/// there.accumulate_copy(0, Max, &[f64::from(job.rank())])?.wait()?; // or as chosen at run time:
/// let operator = if job.size() > 1 { Combine::Sum } else { Combine::Max };
/// there.accumulate_copy(8, operator, &[f64::from(job.rank())])?.wait()?;
/// # job.barrier()?;
/// # drop(sums);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::rma::Combine;
/// Type of number that an accumulate or a barrier can combine.
///
/// ```
/// use oikaze::atomic::Number;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// fn add<T: Number>(there: &RemoteRegion, numbers: &[T]) -> oikaze::Result<()> {
///     there.accumulate_copy(0, Sum, numbers)?.wait()
/// }
/// let sums = job.publish("sums", Region::shared(64)?, Rights::ATOMIC)?;
/// add(&job.peer(0)?.region("sums")?, &[1.5_f32, 2.5])?;
/// # job.barrier()?;
/// # drop(sums);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::rma::Number;
/// Type of word that peers change.
///
/// ```
/// use oikaze::atomic::Word;
/// use oikaze::completion::Outcome;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// fn ticket<T: Word + Outcome>(there: &RemoteRegion, one: T) -> oikaze::Result<T> {
///     there.word::<T>(0).fetch_add(one).wait()
/// }
/// let words = job.publish("words", Region::shared(64)?, Rights::ATOMIC)?;
/// assert!(ticket(&job.peer(0)?.region("words")?, 1_u32)? < job.size());
/// # job.barrier()?;
/// # drop(words);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::rma::Word;
