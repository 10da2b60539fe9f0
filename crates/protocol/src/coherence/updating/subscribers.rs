//! Subscribers of pages: the home of a page keeps them, and tells remote writers (COH-10.18).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::codec::{Headline, SubscriptionChange};
use crate::coherence::failing::doing::Doing;
use crate::coherence::mailbox::Purpose;
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::table::Arrays;
use crate::wind::{Class, Refusal};
use alloc::vec::Vec;
use core::ops::Range;

/// A node wants updates of pages homed here, or does not.
pub(crate) fn take_subscription(
    from: Rank,
    id: ArrayId,
    change: SubscriptionChange,
    range: Range<u64>,
    base: &mut Base<'_>,
) -> Result<(), Refusal> {
    if base.arrays.is_over(id) {
        return Ok(()); // sent before its sender dropped the array (COH-14.4)
    }
    let array = base.arrays.get_mut(id).ok_or(Refusal::UnknownObject)?;
    if !array.contains(range.start, range.end - range.start) || from == base.mail.me {
        return Err(Refusal::OutOfBounds);
    }
    // A page that has moved has a home that hears of the subscription, too (COH-11.6).
    let is_strange = |page: u64| !array.serves(page) && array.moving.home(page).is_none();
    if range.clone().any(is_strange) {
        return Err(Refusal::NotPermitted);
    }
    let pages: Vec<u64> = range.filter(|page| array.serves(*page)).collect();
    base.accept_homes(id, pages.iter().copied());
    let Some(array) = base.arrays.get_mut(id) else { return Ok(()) };
    for page in pages {
        match change {
            SubscriptionChange::Begin => {
                let subscribers = &mut array.readers.entry(page).or_default().subscribers;
                if !subscribers.contains(&from) {
                    subscribers.push(from);
                }
            }
            SubscriptionChange::End => {
                if let Some(readers) = array.readers.get_mut(&page) {
                    readers.subscribers.retain(|rank| *rank != from);
                    readers.demands.retain(|(rank, _)| *rank != from);
                }
            }
        }
    }
    array.subscription += 1;
    Ok(())
}

/// Records which pages a node demanded from this home.
pub(crate) fn take_demands(from: Rank, id: ArrayId, demanded: Range<u64>, arrays: &mut Arrays) {
    let Some(array) = arrays.get_mut(id) else { return };
    for page in demanded {
        if array.readers.entry(page).or_default().demand(from) {
            array.subscription += 1;
        }
    }
}

/// Reports the readers of pages homed here to a node that has sent changes of these pages, unless
/// it knows them.
pub(crate) fn report_subscribers(writer: Rank, id: ArrayId, base: &mut Base<'_>) {
    let Some(array) = base.arrays.get_mut(id) else { return };
    let latest = array.reported_subscription.entry(writer).or_default();
    if core::mem::replace(latest, array.subscription) == array.subscription {
        return;
    }
    let mut groups: Vec<(Range<u64>, &[Rank])> = Vec::new();
    for (page, readers) in &array.readers {
        match groups.last_mut() {
            Some((run, ranks)) if run.end == *page && *ranks == readers.subscribers => {
                run.end += 1;
            }
            _ if readers.subscribers.is_empty() => {}
            _ => groups.push((*page..*page + 1, &readers.subscribers)),
        }
    }
    let mut body = Vec::new();
    body.put_leb128(groups.len() as u64);
    for (run, ranks) in groups {
        body.put_leb128(run.start).put_leb128(run.end - run.start);
        body.put_leb128(ranks.len() as u64);
        ranks.iter().for_each(|rank| {
            body.put_leb128(u64::from(*rank));
        });
    }
    let purpose = Purpose::Control(Doing::Subscribe);
    base.mail.post(
        writer,
        Class::Ordered,
        Headline::Subscribers { array: id },
        body.into(),
        purpose,
    );
}

/// A home tells who reads pages of it that this node writes.
pub(crate) fn take_subscribers(
    from: Rank,
    id: ArrayId,
    body: &[u8],
    base: &mut Base<'_>,
) -> Result<(), Refusal> {
    let nodes = base.mail.nodes;
    if base.arrays.is_over(id) {
        return Ok(()); // sent before its sender heard that the array is freed (COH-14.4)
    }
    let array = base.arrays.get_mut(id).ok_or(Refusal::UnknownObject)?;
    let mut reader = ByteReader(body);
    let mut news: Vec<(u64, Vec<Rank>)> = Vec::new();
    let mut last = 0;
    for _ in 0..reader.count(4)? {
        let (first, count) = (reader.leb128()?, reader.leb128()?);
        // In order, so that no page makes more state than one.
        if first < last || !array.contains(first, count) {
            return Err(Refusal::OutOfBounds);
        }
        last = first + count;
        let ranks =
            (0..reader.count(1)?).map(|_| reader.leb128_u32()).collect::<Result<Vec<Rank>, _>>()?;
        if ranks.iter().any(|rank| *rank >= nodes) || ranks.len() > nodes as usize {
            return Err(Refusal::Malformed);
        }
        for page in first..first + count {
            if array.home(page) == from {
                news.push((page, ranks.clone()));
            } else if array.moving.home(page).is_none() {
                return Err(Refusal::NotPermitted);
            }
        }
    }
    reader.end()?;
    let mut known = core::mem::take(&mut array.remote_subscribers);
    known.retain(|page, _| array.home(*page) != from);
    known.extend(news);
    array.remote_subscribers = known;
    Ok(())
}
