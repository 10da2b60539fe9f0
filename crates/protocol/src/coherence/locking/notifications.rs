//! Notifications (COH-15.4 to 15.11): a release by one node, and an acquire by one other node.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::clock::notices::Interval;
use crate::coherence::clock::rise::Rise;
use crate::coherence::clock::stable::Stable;
use crate::coherence::clock::vector::Vector;
use crate::coherence::codec::Headline;
use crate::coherence::failing::doing::Doing;
use crate::coherence::locking::grant::{Brought, acquire};
use crate::coherence::mailbox::Purpose;
use crate::coherence::pages::machine::Pages;
use crate::coherence::releasing::release::AfterRelease;
use crate::coherence::types::{CoherenceError, Value};
use crate::coherence::updating::head::CountedUpdates;
use crate::coherence::updating::receive::UpdateReceiver;
use crate::coherence::writes::Writes;
use crate::planted::{Bug, planted};
use crate::wind::{Class, Refusal, Token};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Maximum number of notifications of one node that are kept apart (COH-15.11).
const QUEUED_MAX: usize = 64;

/// Number of notifications to one node of which one carries what all nodes know (COH-4.6). It is as
/// long as two vector clocks, and only says what may be forgotten.
const STABLE_EVERY: u64 = 8;

/// Maximum number of unsettled notifications to one node with which a call ends, its own included
/// (COH-15.11).
const UNSETTLED_MAX: usize = 64;

/// Notifications from this node to others, and from others to this node.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Notifications {
    /// Number of times that this node was brought in step with others (COLL-3.7).
    step: u64,
    /// Knowledge that notifications have told each other node.
    told: BTreeMap<Rank, ToldKnowledge>,
    /// Vector clock of the last notification of each other node.
    heard: BTreeMap<Rank, Vector>,
    /// Nodes that were told that this one cannot release (COH-15.4).
    refused: BTreeSet<Rank>,
    /// Calls that wait because too many notifications to the node are not settled.
    sending: Vec<(Rank, Token)>,
    came: BTreeMap<Rank, Queue>,
    /// Waits in the order of the calls.
    waits: Vec<NotificationWait>,
}

/// Knowledge that notifications have told one other node (COH-15.5).
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct ToldKnowledge {
    /// Number of notifications.
    count: u64,
    /// Vector clock of the last one, which the receiver has, too.
    vector: Vector,
    /// Intervals that the receiver knows, or keeps.
    intervals: Vector,
}

impl ToldKnowledge {
    fn new(nodes: u32) -> ToldKnowledge {
        let zero = Vector::new(nodes);
        ToldKnowledge { count: 0, vector: zero.clone(), intervals: zero }
    }
}

/// Notifications of one node that have come and were not waited for.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
struct Queue {
    /// Number of times that the sender was brought in step with others.
    step: u64,
    entries: VecDeque<Notification>,
    /// `true` once the sender cannot release, so that no more notifications follow.
    is_refused: bool,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct Notification {
    /// Number of waits that it ends.
    waits: u64,
    known: Known,
}

/// Knowledge of a notifier. Its intervals are in the store of [`Knowledge`].
///
/// [`Knowledge`]: crate::coherence::clock::knowledge::Knowledge
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Known {
    /// Number of collectives that the receiver must have passed.
    epoch: u64,
    vector: Vector,
    updates: CountedUpdates,
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct NotificationWait {
    from: Rank,
    token: Token,
    /// `false` if the notification is left to a later wait.
    takes: bool,
}

/// Updates of a notifier, as far as they have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotifiedUpdates {
    /// All are here, applied or dropped.
    Here,
    Missing,
    /// They cannot be counted, or no barrier may have counted them. Notices tell what was written.
    Unknown,
}

impl Known {
    /// Returns whether the updates that the notification counts are here (COH-15.7).
    fn updates(&self, from: Rank, receiving: &UpdateReceiver, base: &Base<'_>) -> NotifiedUpdates {
        let (counted, epoch) = (self.updates, base.clock.epoch);
        let is_over = counted.epoch < epoch && planted(Bug::CountOldEpoch);
        if counted.epoch != epoch && !is_over {
            return NotifiedUpdates::Unknown;
        }
        match receiving.arrived_until(epoch, from, self.vector.get(from)) {
            Some(count) if count >= counted.count => NotifiedUpdates::Here,
            Some(_) if planted(Bug::LearnUncounted) => NotifiedUpdates::Here,
            Some(_) => NotifiedUpdates::Missing,
            None => NotifiedUpdates::Unknown,
        }
    }
}

impl Queue {
    /// Adds a notification. Beyond the limit, the last one takes over what this one tells. It was
    /// sent before, so its receiver learns more than it needs to, never less.
    fn add(&mut self, known: Known) {
        let is_full = self.entries.len() >= QUEUED_MAX;
        match self.entries.back_mut().filter(|_| is_full) {
            Some(last) => {
                last.waits += 1;
                last.known = known;
            }
            None => self.entries.push_back(Notification { waits: 1, known }),
        }
    }

    /// Takes the first notification for one wait, and returns what its sender knew.
    fn take(&mut self) -> Option<Known> {
        let first = self.entries.front_mut()?;
        first.waits -= 1;
        match first.waits {
            0 => self.entries.pop_front().map(|last| last.known),
            _ => Some(first.known.clone()),
        }
    }
}

impl Notifications {
    /// Called when nobody waits for this operation any longer. The notification is left to the next
    /// wait for it.
    pub fn cancel(&mut self, token: Token) {
        self.sending.retain(|(_, of)| *of != token);
        self.waits.retain(|wait| wait.token != token);
    }

    /// Forgets the notifications that nobody has waited for, because the nodes are brought in step.
    /// The intervals that they have told are kept.
    pub fn forget(&mut self) {
        self.step += 1;
        self.refused.clear();
        self.came.retain(|_, queue| queue.step >= self.step);
    }

    /// Brings all writes of this node home, and then notifies the node `to`.
    pub fn begin(&mut self, to: Rank, token: Token, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        match impediment(to, &w.base) {
            Some(error) => self.refuse(to, token, error, &mut w.base),
            None => w.release(AfterRelease::Notify { to, token }, pages),
        }
    }

    /// Sends a notification, now that the writes are at their homes. It leaves out what the
    /// receiver was told before, or has told this node (COH-15.5), and counts the updates to the
    /// receiver (COH-15.7).
    pub fn send(
        &mut self,
        (to, token): (Rank, Token),
        vector: &Vector,
        updates: CountedUpdates,
        base: &mut Base<'_>,
    ) {
        let doing = Doing::Notify(to);
        let lost = base.failing.lost_diff();
        let lost = lost.map(|rank| CoherenceError::NodeDead { doing: doing.to_string(), rank });
        if let Some(error) = impediment(to, base).or(lost) {
            return self.refuse(to, token, error, base);
        }
        let knowledge = &base.clock.knowledge;
        let of = if planted(Bug::TellOneForAll) { 0 } else { to };
        let told = self.told.entry(of).or_insert_with(|| ToldKnowledge::new(base.mail.nodes));
        told.intervals.merge(&knowledge.base);
        self.heard.get(&to).into_iter().for_each(|heard| told.intervals.merge(heard));
        let news = knowledge.between(&told.intervals, vector);
        let news = news.filter(|interval| interval.writer != to);
        let body = base.mail.body(|out| {
            out.put_leb128(self.step);
            Rise::between(&told.vector, vector).write(out);
            Interval::write_all(news, out);
            if told.count.is_multiple_of(STABLE_EVERY) {
                knowledge.stable.write(out);
            }
        });
        told.count += 1;
        told.vector.merge(vector);
        told.intervals.merge(vector);
        base.statistics.knowledge_bytes += body.len();
        let head = Headline::Notify { epoch: base.clock.epoch, updates };
        base.mail.post(to, Class::Ordered, head, body, Purpose::Control(doing));
        self.sending.push((to, token));
    }

    /// Fails a notification, as all later ones will. So will the waits of the other node, which is
    /// told once.
    fn refuse(&mut self, to: Rank, token: Token, error: CoherenceError, base: &mut Base<'_>) {
        let (epoch, updates) = (base.clock.epoch, CountedUpdates::default());
        if !base.mail.is_leaving(to) && self.refused.insert(to) {
            let body = base.mail.body(|out| {
                out.put_leb128(self.step);
            });
            let head = Headline::Notify { epoch, updates };
            base.mail.post(to, Class::Ordered, head, body, Purpose::Control(Doing::Notify(to)));
        }
        base.mail.fail(token, error);
    }

    /// Takes a notification of another node.
    pub fn receive(
        &mut self,
        from: Rank,
        (epoch, updates): (u64, CountedUpdates),
        body: &[u8],
        base: &mut Base<'_>,
    ) -> Result<(), Refusal> {
        // A notifier in a collective counts updates of the epoch after it (COH-10.3). It is ahead
        // by no more than the collective in which this node waits (COH-7.4).
        if epoch > base.epoch_possible() || updates.epoch > epoch.saturating_add(1) {
            return Err(Refusal::Malformed);
        }
        let mut reader = ByteReader(body);
        let step = reader.leb128()?;
        let mut known = None;
        if reader.end().is_err() {
            let knowledge = &mut base.clock.knowledge;
            let rise = Rise::read(&mut reader, base.mail.nodes)?;
            let heard = self.heard.get(&from).cloned();
            let heard = heard.unwrap_or_else(|| Vector::new(base.mail.nodes));
            let vector = rise.above(heard).filter(|vector| knowledge.may_know(vector));
            let vector = vector.ok_or(Refusal::Malformed)?;
            let intervals = knowledge.read_others(&mut reader, base.arrays)?;
            let stable = match reader.end() {
                Ok(()) => None,
                Err(_) => Some(Stable::read(&mut reader, &knowledge.vector)?),
            };
            reader.end()?;
            self.heard.insert(from, vector.clone());
            intervals.into_iter().for_each(|interval| knowledge.insert(interval));
            stable.iter().for_each(|stable| knowledge.hear(stable));
            known = Some(Known { epoch, vector, updates });
        }
        let queue = self.came.entry(from).or_default();
        if step > queue.step {
            *queue = Queue { step, ..Queue::default() };
        }
        if step >= queue.step.max(self.step) {
            match known {
                Some(known) => queue.add(known),
                None => queue.is_refused = true,
            }
        }
        Ok(())
    }

    /// Waits for the next notification of a node.
    pub fn wait(&mut self, from: Rank, takes: bool, token: Token) {
        self.waits.push(NotificationWait { from, token, takes });
    }

    /// Returns the notifications that may wait for updates.
    fn awaited(&self) -> impl Iterator<Item = (Rank, &Known)> {
        let first = |wait: &NotificationWait| self.came.get(&wait.from)?.entries.front();
        let known = move |wait: NotificationWait| Some((wait.from, &first(&wait)?.known));
        self.waits.iter().copied().filter_map(known)
    }

    /// Returns `true` if a notification may wait for updates.
    pub fn may_wait(&self) -> bool {
        self.awaited().next().is_some()
    }

    /// Returns the notifiers whose updates are missing.
    pub fn writers_waited_for<'a>(
        &'a self,
        receiving: &'a UpdateReceiver,
        base: &'a Base<'_>,
    ) -> impl Iterator<Item = Rank> + 'a {
        let missing = self.awaited().filter(|(from, known)| {
            known.updates(*from, receiving, base) == NotifiedUpdates::Missing
        });
        missing.map(|(from, _)| from)
    }

    /// Ends the calls that have become possible, or impossible. Returns `true` if there were any.
    #[inline]
    pub fn advance(&mut self, w: &mut Writes<'_>, pages: &mut dyn Pages) -> bool {
        let before = self.sending.len() + self.waits.len();
        if before == 0 {
            return false;
        }
        self.sending.retain(|(to, token)| !end_notify(*to, *token, &mut w.base));
        let mut waits = core::mem::take(&mut self.waits);
        waits.retain(|wait| !self.end_wait(*wait, w, pages));
        self.waits = waits;
        self.sending.len() + self.waits.len() < before
    }

    fn end_wait(
        &mut self,
        NotificationWait { from, token, takes }: NotificationWait,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) -> bool {
        let doing = Doing::WaitNotify(from);
        if let Some(error) = w.base.collective_impediment(&doing) {
            w.base.mail.fail(token, error);
            return true;
        }
        let queue = self.came.get(&from);
        let Some(first) = queue.and_then(|queue| queue.entries.front()) else {
            let error = match queue {
                Some(queue) if queue.is_refused => CoherenceError::NotReleased { rank: from },
                _ if !w.base.mail.is_silent(from) => return false,
                _ => CoherenceError::NodeLeaving { doing: doing.to_string(), rank: from },
            };
            w.base.mail.fail(token, error);
            return true;
        };
        if first.known.epoch > w.base.clock.epoch || w.base.clock.moves_homes {
            return false; // (COH-11.3)
        }
        let updates = first.known.updates(from, &w.updates.receiving, &w.base);
        if updates == NotifiedUpdates::Missing {
            return false;
        }
        if !takes {
            w.base.mail.done(token, Value::None);
            return true;
        }
        let Some(Known { vector, .. }) = self.came.get_mut(&from).and_then(Queue::take) else {
            return false;
        };
        let brought = match updates {
            NotifiedUpdates::Here => Brought::Updates(from),
            _ => Brought::Nothing(from),
        };
        acquire(&vector, &brought, w, pages);
        w.base.failing.check_machine(pages);
        let ended = w.base.collective_impediment(&doing).map_or(Ok(Value::None), Err);
        w.base.end(token, ended);
        true
    }
}

/// Ends a call whose notification is posted, unless too many others are not settled. Returns `true`
/// if it did.
fn end_notify(to: Rank, token: Token, base: &mut Base<'_>) -> bool {
    let ended = match impediment(to, base) {
        _ if base.mail.unsettled_notifications(to) <= UNSETTLED_MAX => Ok(Value::None),
        Some(error) => Err(error),
        None => return false,
    };
    base.end(token, ended);
    true
}

/// Returns why this node cannot notify another one.
fn impediment(to: Rank, base: &Base<'_>) -> Option<CoherenceError> {
    let doing = Doing::Notify(to);
    base.collective_impediment(&doing).or_else(|| {
        let is_leaving = base.mail.is_leaving(to);
        is_leaving.then(|| CoherenceError::NodeLeaving { doing: doing.to_string(), rank: to })
    })
}
