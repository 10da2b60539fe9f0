//! A node's part as the home of pages: serving fetches and applying diffs (COH-3.5).

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::codec::{Headline, PageRun, RequestedRun};
use crate::coherence::mailbox::Purpose;
use crate::coherence::pages::diff;
use crate::coherence::pages::machine::{ArrayId, Pages};
use crate::coherence::pages::page::{PageId, bytes_of};
use crate::coherence::updating::delivery::Delivery;
use crate::coherence::updating::subscribers::{report_subscribers, take_demands};
use crate::coherence::writes::Writes;
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use crate::wind::{Body, Class, Refusal, Segment};
use alloc::vec::Vec;

/// Serves a fetch, with one answer for each of its runs. All runs are checked before the first
/// one is served (COH-9.1).
pub(crate) fn serve_fetch(
    from: Rank,
    first: RequestedRun,
    body: &[u8],
    w: &mut Writes<'_>,
    pages: &mut dyn Pages,
) -> Result<(), Refusal> {
    let runs = first.read_all(body)?;
    for run in &runs {
        check_run(from, run.pages, &w.base)?;
    }
    w.base.mail.owe(from, runs.len())?;
    runs.into_iter().try_for_each(|run| serve(from, run.pages, run.demanded, w, pages))
}

/// Checks that this node is the home of all pages of a run that a peer requests.
fn check_run(from: Rank, run: PageRun, base: &Base<'_>) -> Result<(), Refusal> {
    let array = base.arrays.get(run.array).ok_or(Refusal::UnknownObject)?;
    let count = u64::from(run.count);
    if from == base.mail.me {
        return Err(Refusal::Malformed);
    }
    if base.arrays.region(run.array).is_none() {
        return Err(Refusal::UnknownObject);
    }
    if !array.contains(run.first, count) {
        return Err(Refusal::OutOfBounds);
    }
    array.check_served(run.first..run.first + count)
}

/// Serves one run, of which the first `demanded` pages are not read ahead. Its pages are
/// write-protected before their bytes are read, so that later writes of this node become a
/// notice. The bytes are gathered when they are sent, and again at each retransmission (COH-3.7
/// says why that is right), unless a twin must know them (COH-10.15).
fn serve(
    from: Rank,
    run: PageRun,
    demanded: u32,
    w: &mut Writes<'_>,
    pages: &mut dyn Pages,
) -> Result<(), Refusal> {
    let region = w.base.arrays.region(run.array).ok_or(Refusal::UnknownObject)?;
    let count = u64::from(run.count);
    let range = run.first..run.first + count;
    w.base.accept_homes(run.array, range.clone());
    let demanded_pages = run.first..run.first + u64::from(demanded);
    take_demands(from, run.array, demanded_pages, w.base.arrays);
    let array = w.base.arrays.get_mut(run.array).ok_or(Refusal::UnknownObject)?;
    array.statistics.served_pages += count;
    w.share(run.array, range.clone(), pages);
    let Writes { base, updates, .. } = w;
    base.statistics.served_pages += count;
    base.statistics.served_demanded_pages += u64::from(demanded);
    let is_fixed = range.clone().any(|page| is_compared((run.array, page), base));
    let body = if is_fixed || pages.has_pending(run.array, range.clone()) {
        // Twins must know what the answer shows, or guards here keep old bytes in memory
        // (COH-3.9). So the answer is a copy with the newest bytes.
        let mut newest = alloc::vec![0; run.count as usize * PAGE];
        range
            .zip(newest.chunks_exact_mut(PAGE))
            .for_each(|(page, into)| pages.read_newest(run.array, page, into));
        for (page, now) in (run.first..).zip(newest.chunks_exact(PAGE)) {
            updates.sending.note_served((run.array, page), now, base);
        }
        Body::Inline(newest)
    } else {
        Body::Segment(Segment { region, offset: run.first * PAGE as u64, len: count * PAGE as u64 })
    };
    let (head, purpose) = (Headline::Pages(run), Purpose::Pages(run.array));
    base.mail.post_body(from, Class::Unordered, head, body, purpose);
    Ok(())
}

/// Returns `true` if a twin of a page tells its readers what this node writes, or may soon do so.
/// The bytes of an answer must be known then (COH-10.15).
fn is_compared((id, page): PageId, base: &Base<'_>) -> bool {
    let Some(array) = base.arrays.get(id) else { return false };
    let may_be = !array.guarded || array.delivery.is_some_and(Delivery::is_diff);
    array.twins.contains_key(&page) || (may_be && !array.subscribers(page).is_empty())
}

/// Applies changes to pages homed here. The diff is checked as a whole before the first byte is
/// written.
pub(crate) fn apply_diff(
    from: Rank,
    id: ArrayId,
    body: &[u8],
    base: &mut Base<'_>,
    pages: &mut dyn Pages,
) -> Result<(), Refusal> {
    let array = base.arrays.get(id).ok_or(Refusal::UnknownObject)?;
    let mut changed = Vec::new();
    diff::decode(body, |page, _, _| {
        array.check_served(page..page + 1)?;
        if changed.last() != Some(&page) {
            changed.push(page);
        }
        Ok(())
    })?;
    if planted(Bug::LoseDiff) && changed.len() % 2 == 1 {
        return Ok(());
    }
    base.accept_homes(id, changed.iter().copied());
    base.statistics.applied_diffs += changed.len() as u64;
    base.count_delivery(Delivery::HeaderThroughDiffDecode);
    diff::decode(body, |page, at, bytes| {
        base.arrays.apply_change(id, bytes_of(page).start + at as u64, bytes, pages);
        Ok(())
    })?;
    changed.into_iter().for_each(|page| base.arrays.note_change((id, page), base.clock.epoch));
    report_subscribers(from, id, base);
    // Changes that could not be placed must not be told to anybody (COH-5.4).
    if pages.failure().is_some() { Err(Refusal::NoRoom) } else { Ok(()) }
}
