//! Several flows of the bulk lane (WIND-14): a flow is a source port of the sender. Trains of
//! datagrams are sprayed over the flows. Each flow has its own congestion controller and pace.

use super::{FlowControl, FlowMaker, Sending, Spray};
use crate::limits::{DATAGRAM_MAX, FIRST_PORT_BULK_MAX};
use crate::time::Time;
use crate::wind::congestion::{Controller, Gate, Sample};
use crate::wind::recovery::flow::FlowRecord;
use crate::wind::recovery::in_flight::Acked;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Spray {
    fn get(&self, flow: u8) -> Option<&FlowControl> {
        usize::from(flow).checked_sub(1).and_then(|at| self.more.get(at))
    }
}

impl FlowMaker {
    fn spray(&self) -> Box<Spray> {
        Box::new(Spray {
            more: Vec::new(),
            used: 1,
            most: self.window_max,
            climber: None,
            networks: Vec::new(),
            flow: 0,
            train: (0, 0),
        })
    }

    fn flow(&self) -> FlowControl {
        let controller = self.algorithm.controller(self.datagram, self.window_max);
        FlowControl { controller, gate: Gate::default(), limited: false }
    }
}

impl Sending {
    /// Uses `count` flows from now on. Flows that are no longer in use stay known while they have
    /// something in flight.
    pub fn use_flows(&mut self, count: u8, maker: FlowMaker) {
        if count <= 1 && self.spray.is_none() {
            return;
        }
        let spray = self.spray.get_or_insert_with(|| maker.spray());
        // Unknown when the lane got its networks, before the peer was.
        spray.most = maker.window_max;
        let beyond = usize::from(count).saturating_sub(1);
        if beyond > spray.more.len() {
            self.flight.set_flows(1 + beyond);
            spray.more.resize_with(beyond, || maker.flow());
        }
        spray.used = count;
    }

    /// Lets flows go by different networks from now on.
    pub fn use_networks(&mut self, networks: Vec<Vec<u8>>, maker: FlowMaker) {
        self.spray.get_or_insert_with(|| maker.spray()).networks = networks;
    }

    /// Takes the networks of a connection that begins anew.
    pub fn take_networks(&mut self) -> Vec<Vec<u8>> {
        self.spray.as_mut().map(|spray| core::mem::take(&mut spray.networks)).unwrap_or_default()
    }

    /// Returns the candidate path of a flow, where the first one goes by `first` (WIND-14.8).
    pub fn path_of(&self, flow: u8, first: u8) -> u8 {
        let networks = self.spray.iter().flat_map(|spray| &spray.networks);
        let path = |network: &Vec<u8>| {
            let at = network.iter().position(|path| *path == first)?;
            network.iter().cycle().nth(at + usize::from(flow)).copied()
        };
        networks.filter_map(path).next().unwrap_or(first)
    }

    /// Lets the number of flows follow what was acknowledged (WIND-14.7). `limited` tells whether
    /// content waits that window, pace or grant hold up.
    pub fn weigh_flows(&mut self, now: Time, bytes: u64, limited: bool, maker: FlowMaker) {
        if self.spray.is_none() && !limited {
            return;
        }
        let (round_trip, flows) = (self.flight.slowest().smoothed(), self.flows());
        let is_silent = |flow: u8| self.flight.flow(flow).is_silent();
        let any_silent = (0..flows).any(is_silent);
        let fewer_carry = !(0..flows.div_ceil(2)).all(is_silent);
        let spray = self.spray.get_or_insert_with(|| maker.spray());
        let climber = spray.climber.get_or_insert_default();
        match any_silent {
            true => climber.flow_is_silent(now, fewer_carry),
            false => climber.acknowledged(now, bytes, limited, round_trip.unwrap_or_default()),
        }
        let wanted = climber.flows();
        if wanted != flows {
            self.use_flows(wanted, maker);
        }
    }

    /// Forgets flows that are no longer in use and have nothing in flight. A lane that is back to
    /// one flow then costs what it did before.
    pub fn forget_unused(&mut self) {
        let Sending { flight, spray: Some(spray), .. } = self else { return };
        let known = spray.more.len();
        while spray.more.len() >= usize::from(spray.used) && !flight.carries(spray.more.len() as u8)
        {
            spray.more.pop();
        }
        if spray.more.len() < known {
            spray.more.shrink_to_fit();
            flight.set_flows(1 + spray.more.len());
        }
    }

    /// Gives memory back after a silence. As many flows as the sender chose are made again when
    /// bulk is acknowledged.
    pub fn shrink(&mut self) {
        self.flight.shrink();
        if let Some(spray) = self.spray.as_mut().filter(|spray| spray.climber.is_some()) {
            spray.used = 1;
            self.forget_unused();
        }
    }

    /// Returns `true` if nothing goes by any flow but the first, or is in flight by another one.
    pub fn is_single(&self) -> bool {
        self.more().is_empty()
    }

    /// Returns the number of flows in use.
    pub fn flows(&self) -> u8 {
        self.spray.as_ref().map_or(1, |spray| spray.used)
    }

    /// Returns the flows beyond the first, even if they are no longer in use.
    fn more(&self) -> &[FlowControl] {
        self.spray.as_ref().map_or(&[], |spray| &spray.more)
    }

    /// Like [`more`](Self::more), but mutable.
    fn more_mut(&mut self) -> &mut [FlowControl] {
        self.spray.as_mut().map_or(&mut [], |spray| &mut spray.more)
    }

    /// Returns the number of probes of a timeout after the first. Two are as likely lost as the
    /// datagrams that they repeat, and more try several flows at once (WIND-14.6).
    pub fn probes_at_once(&self) -> u8 {
        (self.flows() / 4).max(2)
    }

    /// Returns the flow by which the next datagram of bulk may go, if any (WIND-14.2).
    pub fn bulk_flow(&self, now: Time) -> Option<u8> {
        let Some(spray) = self.spray.as_ref().filter(|spray| !spray.more.is_empty()) else {
            let may_go = (self.probes > 0 || self.gate.is_open(now)) && self.has_room(now);
            return may_go.then_some(0);
        };
        let usable = |flow: &u8| self.is_usable(*flow, now);
        let count = self.flows();
        let mut others = (1..=count).map(|by| (spray.flow + by) % count);
        if self.probes > 0 {
            // One of the flows may carry nothing, so successive probes take different ones
            // (WIND-14.6).
            return others.clone().find(usable).or_else(|| others.next());
        }
        if self.in_flight() >= self.most_in_flight(now) {
            return None;
        }
        let may_send = |flow: &u8| usable(flow) && self.flow_has_room(*flow, now);
        // Little bulk goes by the first flow, as if there were no other, unless nothing arrives.
        let is_little = self.in_flight() <= 2 * FIRST_PORT_BULK_MAX;
        let first = (is_little && !self.flight.probe.is_silent()).then_some(0);
        let current = self.train_goes_on(spray).then_some(spray.flow);
        first.filter(may_send).or(current.filter(may_send)).or_else(|| others.find(may_send))
    }

    /// Returns `true` if the train has room for another datagram, also in a later turn. Each change
    /// of flows may be a gap at the receiver, which remembers only so many (WIND-3.2). But all
    /// flows share what may be in flight, and a long train of one leaves too little to the others.
    fn train_goes_on(&self, spray: &Spray) -> bool {
        let (bytes, latest) = spray.train;
        let share = self.gate.share().min(spray.most) / u64::from(self.flows());
        (bytes + latest) as u64 <= share.min(DATAGRAM_MAX as u64)
    }

    fn is_usable(&self, flow: u8, now: Time) -> bool {
        match self.flows() {
            1 => flow == 0,
            count => flow < count && !self.flight.flow(flow).is_cut(now),
        }
    }

    /// Returns the next flow that is in use, whether it has room or not.
    fn next_flow(&self, now: Time) -> u8 {
        let current = self.spray.as_ref().map_or(0, |spray| spray.flow);
        let mut flows = (1..=self.flows()).map(|by| (current + by) % self.flows());
        flows.find(|flow| self.is_usable(*flow, now)).unwrap_or_default()
    }

    /// Returns the number of bytes in flight that use the window of a flow. Group datagrams use
    /// that of the first (WIND-12.6).
    fn in_flight_of(&self, flow: u8) -> u64 {
        if self.is_single() {
            return self.in_flight();
        }
        self.flight.flow(flow).in_flight() + if flow == 0 { self.shared } else { 0 }
    }

    /// Returns the controller and the pace of a flow.
    fn control(&self, flow: u8) -> (&dyn Controller, &Gate) {
        match self.spray.as_ref().and_then(|spray| spray.get(flow)) {
            Some(more) => (&*more.controller, &more.gate),
            None => (&*self.controller, &self.gate),
        }
    }

    /// Returns `true` if the window of a flow permits a datagram.
    fn window_has_room(&self, flow: u8) -> bool {
        self.in_flight_of(flow) < self.window_of(flow)
    }

    /// Returns `true` if window and pace of a flow permit a datagram.
    fn flow_has_room(&self, flow: u8, now: Time) -> bool {
        self.control(flow).1.is_open(now) && self.window_has_room(flow)
    }

    /// Returns the number of bytes that all flows together may have in flight.
    fn most_in_flight(&self, now: Time) -> u64 {
        let most = self.spray.as_ref().map_or(u64::MAX, |spray| spray.most);
        self.gate.granted_bytes(now).min(most)
    }

    /// Returns `true` if a group datagram may go, which uses the window and the pace of the first
    /// flow, and the grant of all (WIND-12.6).
    pub fn group_has_room(&self, now: Time) -> bool {
        self.flow_has_room(0, now) && self.in_flight() < self.most_in_flight(now)
    }

    /// Returns when the pace permits a group datagram, if nothing else prevents it.
    pub fn group_pace_time(&self) -> Option<Time> {
        self.flow_pace_time(0)
    }

    /// Returns when the pace of a flow permits a datagram, if its window does.
    fn flow_pace_time(&self, flow: u8) -> Option<Time> {
        self.control(flow).1.opens().filter(|_| self.window_has_room(flow))
    }

    /// Returns `true` if a group datagram of `bytes` bytes leaves no room for another.
    pub fn group_is_full_after(&self, now: Time, bytes: usize) -> bool {
        self.flow_is_full_after(0, now, bytes)
    }

    /// Returns `true` if a datagram of `bytes` bytes leaves no room for another by this flow.
    fn flow_is_full_after(&self, flow: u8, now: Time, bytes: usize) -> bool {
        self.in_flight_of(flow) + bytes as u64 >= self.window_of(flow)
            || self.in_flight() + bytes as u64 >= self.most_in_flight(now)
    }

    /// Returns `true` if its window limits the first flow.
    pub fn first_is_limited(&self) -> bool {
        self.in_flight_of(0) * 2 >= self.controller.window()
    }

    /// Chooses the flow of a size probe or of a PING that is about to be written. All go by one
    /// flow, because only a datagram of the same flow overtakes a lost size probe (WIND-14.4).
    pub fn begin_question(&mut self, now: Time) {
        if self.flight.probe.is_silent() {
            return self.begin_bulk(now);
        }
        let usable = (0..self.flows()).find(|flow| self.is_usable(*flow, now));
        self.flight.flow = usable.unwrap_or_default();
    }

    /// Chooses the flow of the datagram that is about to be written, which [`bulk_flow`] permits,
    /// or of a probe.
    ///
    /// [`bulk_flow`]: Self::bulk_flow
    pub fn begin_bulk(&mut self, now: Time) {
        if self.is_single() {
            self.flight.flow = 0;
            return;
        }
        let flow = self.bulk_flow(now).unwrap_or_else(|| self.next_flow(now));
        let goes_on = self.spray.as_ref().is_some_and(|spray| self.train_goes_on(spray));
        self.flight.flow = flow;
        if let Some(spray) = self.spray.as_mut().filter(|spray| flow != spray.flow || !goes_on) {
            (spray.flow, spray.train.0) = (flow, 0);
        }
    }

    /// Called when a datagram was written.
    pub fn sent(&mut self, now: Time, bytes: usize) {
        let flow = self.flight.flow;
        match usize::from(flow).checked_sub(1).and_then(|at| self.more_mut().get_mut(at)) {
            Some(more) => more.gate.sent(now, bytes),
            None => self.gate.sent(now, bytes),
        }
        if let Some(spray) = self.spray.as_mut().filter(|spray| spray.flow == flow) {
            spray.train.0 += bytes;
            spray.train.1 = bytes;
        }
    }

    /// Returns `true` if a datagram of `bytes` bytes, by the flow that was chosen, leaves no room.
    pub fn is_full_after(&self, now: Time, bytes: usize) -> bool {
        self.flow_is_full_after(self.flight.flow, now, bytes)
    }

    /// Notes which flows their windows limit, before an acknowledgement is processed. Returns
    /// whether the first one's does.
    pub fn note_limits(&mut self) -> bool {
        let first = self.first_is_limited();
        let Sending { flight, spray, .. } = self;
        for (flow, more) in (1..).zip(spray.iter_mut().flat_map(|spray| &mut spray.more)) {
            more.limited = flight.flow(flow).in_flight() * 2 >= more.controller.window();
        }
        first
    }

    /// Feeds the controllers with the datagrams that the latest acknowledgement was about.
    /// `acked` is about all of them. Returns how many of the `marked` ones count.
    pub fn flows_acknowledged(
        &mut self,
        now: Time,
        acked: &Acked,
        marked: u32,
        limited: bool,
    ) -> u64 {
        if self.is_single() {
            let smoothed = self.flight.rtt().smoothed();
            return self.acknowledged(now, acked, marked, limited, smoothed);
        }
        let Sending { flight, spray, controller, gate, .. } = self;
        let first = (&mut **controller, gate, limited);
        let more = spray.iter_mut().flat_map(|spray| &mut spray.more);
        let more = more.map(|more| (&mut *more.controller, &mut more.gate, more.limited));
        let (mut left, mut counted) = (marked, 0);
        for ((controller, gate, limited), flow) in
            core::iter::once(first).chain(more).zip(flight.flows_mut())
        {
            let Acked { bytes, datagrams, latest, round_trip, .. } = flow.share_mut().acked;
            if bytes == 0 {
                continue;
            }
            // The peer counts the marks of a lane. Those of one acknowledgement belong to the flows
            // that it is about.
            let marked = left.min(datagrams);
            left -= marked;
            let sample =
                Sample { now, bytes, sent: latest, delay: round_trip, datagrams, marked, limited };
            counted += gate.acknowledged(controller, sample, flow.rtt.smoothed());
        }
        counted
    }

    /// Called when losses for which windows were reduced have all proved spurious.
    pub fn undo_losses(&mut self, now: Time) {
        if self.is_single() {
            return self.controller.spurious(now);
        }
        self.each_flow(|controller, flow| {
            if flow.share_mut().acked.undo {
                controller.spurious(now);
            }
        });
    }

    /// Called when datagrams were found lost, the latest of them sent at `latest`. Returns how many
    /// flows are not used any more for the first time.
    pub fn note_losses(&mut self, now: Time, latest: Time) -> u64 {
        if self.is_single() {
            self.controller.lost(latest, now);
            return 0;
        }
        let mut cut = 0;
        self.each_flow(|controller, flow| {
            let share = flow.share_mut();
            let lost = share.lost.take();
            if share.silence.take_round() {
                // The window returns to what it is now, if the silence proves spurious.
                controller.stalled(now);
            } else if let Some(sent) = lost {
                controller.lost(sent, now);
            }
            cut += u64::from(share.silence.take_cut());
        });
        cut
    }

    /// Called when everything in flight was given up.
    pub fn stalled(&mut self, now: Time) {
        self.each_flow(|controller, _| controller.stalled(now));
    }

    fn each_flow(&mut self, mut each: impl FnMut(&mut dyn Controller, &mut FlowRecord)) {
        let Sending { flight, spray, controller, .. } = self;
        let mut records = flight.flows_mut();
        if let Some(first) = records.next() {
            each(&mut **controller, first);
        }
        for (more, record) in spray.iter_mut().flat_map(|spray| &mut spray.more).zip(records) {
            each(&mut *more.controller, record);
        }
    }

    /// Scales all windows to datagrams of this size.
    pub fn resized(&mut self, datagram: u64) {
        self.each_flow(|controller, _| controller.resized(datagram));
    }

    /// Sets the latest known time.
    pub fn set_now(&mut self, now: Time) {
        self.gate.set_now(now);
        self.more_mut().iter_mut().for_each(|more| more.gate.set_now(now));
    }

    /// Returns the flows beyond the first that are in use.
    fn more_in_use(&self) -> &[FlowControl] {
        let count = usize::from(self.flows()).saturating_sub(1);
        self.more().get(..count).unwrap_or_default()
    }

    /// Returns the window of a flow.
    pub fn window_of(&self, flow: u8) -> u64 {
        self.control(flow).0.window()
    }

    /// Returns the window of all flows together.
    pub fn windows(&self) -> u64 {
        let more = self.more_in_use().iter().map(|more| more.controller.window());
        self.controller.window() + more.sum::<u64>()
    }

    /// Returns the pace of all flows together in bytes per second; 0 means no limit.
    pub fn pace(&self) -> u64 {
        let paces = self.more_in_use().iter().map(|more| more.gate.pace());
        let paces = paces.chain([self.gate.pace()]);
        if paces.clone().any(|pace| pace == 0) { 0 } else { paces.sum() }
    }

    /// Lets nothing more go by the other flows. What is in flight by them stays theirs.
    pub fn use_first_flow(&mut self) {
        if let Some(spray) = &mut self.spray {
            spray.used = 1;
        }
    }

    /// Returns when the pace of a flow permits the next fragment, if nothing else prevents it.
    pub fn pace_time(&self) -> Option<Time> {
        let known = 1 + self.more().len() as u8;
        (0..known).filter_map(|flow| self.flow_pace_time(flow)).min()
    }
}
