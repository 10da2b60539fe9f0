//! Rules that the types enforce. Each example must not compile, for the reason that its error code
//! names.
//!
//! A guard cannot outlive its array:
//!
//! ```compile_fail,E0505
//! fn outlives(job: &oikaze::Job) -> oikaze::Result<()> {
//!     let array = job.array::<u64>("a", 8)?;
//!     let guard = array.read(0..8)?;
//!     drop(array);
//!     println!("{}", guard[0]);
//!     Ok(())
//! }
//! ```
//!
//! A read guard cannot be written through:
//!
//! ```compile_fail,E0594
//! fn writes(array: &oikaze::shared::SharedArray<u64>) -> oikaze::Result<()> {
//!     let mut guard = array.read(0..8)?;
//!     guard[0] = 1;
//!     Ok(())
//! }
//! ```
//!
//! A slice of a guard cannot outlive the guard:
//!
//! ```compile_fail,E0515
//! fn escapes(array: &oikaze::shared::SharedArray<u64>) -> &[u64] {
//!     let guard = array.read(0..8).unwrap();
//!     &guard[..]
//! }
//! ```
//!
//! A guard that was released shows nothing any more:
//!
//! ```compile_fail,E0505
//! fn released(array: &oikaze::shared::SharedArray<u64>) -> oikaze::Result<u64> {
//!     let guard = array.read(0..8)?;
//!     let first = &guard[0];
//!     guard.release()?;
//!     Ok(*first)
//! }
//! ```
//!
//! An array holds plain data alone:
//!
//! ```compile_fail,E0277
//! fn holds(job: &oikaze::Job) -> oikaze::Result<()> {
//!     job.array::<&u8>("a", 8).map(drop)
//! }
//! ```
//!
//! The elements of a guard have the type of its array:
//!
//! ```compile_fail,E0308
//! fn other_type(array: &oikaze::shared::SharedArray<u64>) -> oikaze::Result<f64> {
//!     Ok(array.read(0..8)?[0])
//! }
//! ```
//!
//! A guard of a block cannot outlive its array, either:
//!
//! ```compile_fail,E0505
//! fn block_outlives(job: &oikaze::Job) -> oikaze::Result<()> {
//!     let grid = job.array::<u64>("g", [8, 8])?;
//!     let guard = grid.read([0..2, 0..2])?;
//!     drop(grid);
//!     println!("{}", guard[[0, 0]]);
//!     Ok(())
//! }
//! ```
//!
//! A collective moves plain data alone, and its operator combines the type of its elements:
//!
//! ```compile_fail,E0277
//! fn moves(job: &oikaze::Job) -> oikaze::Result<()> {
//!     use oikaze::prelude::*;
//!     job.all_gather(&[&7_u8]).map(drop)
//! }
//! ```
//!
//! ```compile_fail,E0277
//! fn combines(job: &oikaze::Job) -> oikaze::Result<f64> {
//!     use oikaze::prelude::*;
//!     job.all_reduce(1.5, And)
//! }
//! ```
//!
//! The result of a collective has the type of its elements:
//!
//! ```compile_fail,E0308
//! fn result(job: &oikaze::Job) -> oikaze::Result<Vec<f64>> {
//!     use oikaze::prelude::*;
//!     job.all_gather(&[7_u64])
//! }
//! ```
//!
//! Memory that is lent to a scope must outlive it, and cannot be touched before the scope ends:
//!
//! ```compile_fail,E0597
//! fn too_short(job: &oikaze::Job, there: &oikaze::prelude::RemoteRegion) -> oikaze::Result<()> {
//!     job.scope(|scope| {
//!         let inside = vec![7_u8; 100];
//!         scope.put(there, 0, &inside).map(drop)
//!     })
//! }
//! ```
//!
//! ```compile_fail,E0506
//! fn touched(job: &oikaze::Job, there: &oikaze::prelude::RemoteRegion) -> oikaze::Result<()> {
//!     let mut into = [0_u8; 8];
//!     job.scope(|scope| {
//!         scope.get(there, 0, &mut into)?;
//!         into[0] = 1;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! A region's bytes are copied, never borrowed (MEM-1.14):
//!
//! ```compile_fail,E0624
//! fn borrows(region: &oikaze::memory::Region) {
//!     let _ = region.with_bytes(0, 8, |bytes| bytes[0]);
//! }
//! ```
//!
//! A job that was left is used no more:
//!
//! ```compile_fail,E0382
//! fn left(job: oikaze::Job) -> oikaze::Result<()> {
//!     job.leave()?;
//!     job.barrier()
//! }
//! ```
