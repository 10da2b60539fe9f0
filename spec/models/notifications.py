"""Model of notifications that bring updates with them (spec/coherence.md, COH-15).

Usage: notifications.py FIRST_SEED LAST_SEED [WALKS [RULES, ...]]
       notifications.py 0 500
       notifications.py 0 100 200 'all,without counted'

Each seed is one random program without data races, for 3 nodes, 2 pages of 2 cells, and 1 lock. The
program writes under guards, notifies, waits for notifications, locks, and calls barriers. A
sequential machine says what each read returns. The model runs each program WALKS times (200), each
time in another random order of messages. It is no exhaustive search: one walk takes one order, and
the weights of the order differ from walk to walk, so that single messages are late. Updates
and answers are read again at any time before they are delivered. Some updates find no room, and
some notifications tell joined intervals. Nodes have one thread, and none dies.

The rules of updates and barriers (COH-10) are always in force. The rules of notifications can be
dropped one by one, and each dropped rule is to make programs wrong:

  counted       A receiver learns a notification when as many updates of the sender are applied or
                dropped as the notification says (N1, N2).
  by interval   Only updates of intervals that the notification tells count for it (N2). Later ones
                may have overtaken them.
  vector        A notification carries the sender's vector clock, also of other nodes (N1).
  epoch         A notification of an earlier epoch waits for no updates, because a barrier has
                counted them (N1).
  notifier      A page is invalid if a new interval of a node other than the notifier names it (N3).
  whole         A page is invalid if an interval that names it was not sent whole (N3).
  doubt         A page is invalid if an update of it was dropped, or if it was fetched after an
                update of it had come (N3).
  same numbers  A barrier counts all updates of the epoch, also those that notifications counted
                (N4).
  order         Updates of the same bytes by one writer stay in order, unless the sender has heard
                that the receiver knows the earlier interval (N5).
  homes first   A notification is sent when the homes have acknowledged all diffs (N6, COH-10.2).
  writers       Updates of the same bytes by two writers, of which the receiver knows neither
                interval, put the page in doubt (N7).
"""

import random
from dataclasses import dataclass, field

from programs import Schedule, Violation, covers, join, main, run_walks

NODES = 3
PAGES = 2
CELLS = 2
RULES = ("counted", "by interval", "vector", "epoch", "notifier", "whole", "doubt", "same numbers",
         "order", "homes first", "writers")


# Programs. A cell is a pair (page, cell).


@dataclass
class Op:
    """Operation of a program."""

    kind: str
    cell: tuple = (0, 0)
    value: int = 0
    other: int = 0
    joined: bool = False


class Drawing:
    """Draws a race-free program by running it on a sequential machine.

    The past of an operation is how many operations of each node happened before it.
    """

    def __init__(self, rng):
        self.rng = rng
        self.ops = [[] for _ in range(NODES)]
        self.pasts = [[0] * NODES for _ in range(NODES)]
        self.cells = [(page, cell) for page in range(PAGES) for cell in range(CELLS)]
        self.value = {cell: 0 for cell in self.cells}
        self.written = {cell: [0] * NODES for cell in self.cells}
        self.read = {cell: [0] * NODES for cell in self.cells}
        self.sent = {}
        self.lock_past = [0] * NODES
        self.tickets = 0
        self.fresh = 0

    def access(self, node, writes=None, cell=None):
        """Reads or writes a cell, if no race follows."""
        cell = cell or self.rng.choice(self.cells)
        past = self.pasts[node]
        past[node] += 1
        if not covers(past, self.written[cell]):
            return
        if not (self.rng.random() < 0.55 if writes is None else writes):
            self.ops[node].append(Op("read", cell, self.value[cell]))
            self.read[cell] = join(self.read[cell], past)
        elif all(self.read[cell][of] <= past[of] for of in range(NODES) if of != node):
            self.fresh += 1
            self.value[cell] = self.fresh
            self.written[cell] = self.read[cell] = list(past)
            self.ops[node].append(Op("write", cell, self.fresh))
            if self.rng.random() < 0.5:
                self.ops[node].append(Op("push", cell))

    def notify(self, node, to):
        """Sends a notification, which may tell intervals joined."""
        self.ops[node].append(Op("notify", other=to, joined=self.rng.random() < 0.1))
        self.sent.setdefault((node, to), []).append(list(self.pasts[node]))

    def wait(self, node, of):
        """Waits for the next notification of a node, if there is one."""
        if self.sent.get((of, node)):
            self.ops[node].append(Op("wait", other=of))
            self.pasts[node] = join(self.pasts[node], self.sent[(of, node)].pop(0))

    def locked(self, node):
        """Accesses cells under the lock."""
        self.ops[node].append(Op("lock", value=self.tickets))
        self.tickets += 1
        self.pasts[node] = join(self.pasts[node], self.lock_past)
        for _ in range(self.rng.randrange(3)):
            self.access(node)
        self.ops[node].append(Op("unlock"))
        self.lock_past = list(self.pasts[node])

    def barrier(self):
        """Waits for all nodes."""
        past = [max(past[of] for past in self.pasts) for of in range(NODES)]
        for node in range(NODES):
            self.pasts[node] = list(past)
            self.ops[node].append(Op("barrier"))

    def exchange(self):
        """Lets two nodes notify each other three or four times, which cross each other."""
        a, b = self.rng.sample(range(NODES), 2)
        crosses = self.rng.random() < 0.5
        for _ in range(self.rng.randrange(3, 5)):
            self.access(a, writes=True)
            if crosses:
                self.access(b, writes=True)
            self.notify(a, b)
            if not crosses:
                self.wait(b, a)
                self.access(b)
            self.notify(b, a)
            self.wait(a, b)
            if crosses:
                self.wait(b, a)
            for node in (a, b):
                self.access(node, writes=False)

    def stream(self):
        """Lets one node notify another one several times before that one waits.

        Some notifications may be waited for later, after a barrier.
        """
        a, b = self.rng.sample(range(NODES), 2)
        count = self.rng.randrange(2, 5)
        for _ in range(count):
            self.access(a)
            self.notify(a, b)
        for _ in range(self.rng.randrange(count + 1)):
            self.wait(b, a)
        self.access(b)

    def chain(self):
        """Passes work from node to node."""
        nodes = self.rng.sample(range(NODES), NODES)
        for a, b in zip(nodes, nodes[1:]):
            self.access(a, writes=True)
            self.notify(a, b)
            if self.rng.random() < 0.4:
                self.notify(nodes[0], nodes[-1])
            self.wait(b, a)
            self.access(b)
        self.wait(nodes[-1], nodes[0])
        self.access(nodes[-1], writes=False)

    def handoff(self):
        """Lets two nodes write one cell, one after the other, and a third one learn of both."""
        a, b, c = self.rng.sample(range(NODES), 3)
        cell = self.rng.choice(self.cells)
        self.access(a, True, cell)
        self.notify(a, b)
        self.notify(a, c)
        self.wait(b, a)
        self.access(b, True, cell)
        if self.rng.random() < 0.7:
            self.notify(b, c)
        self.wait(c, a)
        self.wait(c, b)
        self.access(c, False, cell)

    def draw(self):
        """Returns the operations of each node."""
        parts = [self.exchange, self.stream, self.chain, self.handoff, self.barrier]
        parts += [lambda: self.locked(self.rng.randrange(NODES))] * 2
        parts += [lambda: self.access(self.rng.randrange(NODES))] * 4
        for _ in range(self.rng.randrange(5, 10)):
            self.rng.choice(parts)()
        for node in range(NODES):
            for of in range(NODES):
                while self.sent.get((of, node)) and self.rng.random() < 0.8:
                    self.wait(node, of)
                    self.access(node)
        self.barrier()
        for node in range(NODES):
            for cell in self.cells:
                self.ops[node].append(Op("read", cell, self.value[cell]))
        return self.ops


# The protocol.


@dataclass
class Interval:
    """Interval that is closed, as write notices tell it."""

    writer: int
    number: int
    by_barrier: bool
    # For each page that was written, the nodes that got by updates all that was written.
    whole: dict


@dataclass(eq=False)
class Message:
    """Update, diff or answer to a fetch, on its way. Only updates have an interval."""

    kind: str
    source: int
    target: int
    page: int
    cells: tuple = ()
    values: tuple = ()
    interval: int = 0
    epoch: int = 0
    # Earlier updates of the same bytes, which are delivered first.
    behind: list = field(default_factory=list)
    is_here: bool = False


@dataclass
class Come:
    """Update that has come to a node, in an interval that the node does not know."""

    writer: int
    interval: int
    epoch: int
    cells: tuple
    in_doubt: bool = False


@dataclass
class Page:
    """Page on one node."""

    cells: list
    state: str = "valid"
    stale: bool = False
    dirty: set = field(default_factory=set)
    # Dirty cells that updates have taken to the readers.
    pushed: set = field(default_factory=set)
    # Cells of the open interval whose diff went home early.
    early: set = field(default_factory=set)
    come: list = field(default_factory=list)


@dataclass
class Notification:
    """Notification that was sent, and not waited for."""

    vector: list
    epoch: int
    count: int
    joined: bool


class Node:
    """One node."""

    def __init__(self, me, program):
        self.me = me
        self.program = program
        self.at = 0
        self.phase = 0
        self.pages = [Page([0] * CELLS) for _ in range(PAGES)]
        self.vector = [0] * NODES
        self.epoch = 0
        # Diffs that homes have not acknowledged.
        self.diffs = 0
        # Number of updates of this epoch sent to each node, and the intervals of updates that are
        # here, by (writer, epoch).
        self.sent = [0] * NODES
        self.here = {}
        # Updates sent to each node up to the last notification of it, in this epoch.
        self.notified = [0] * NODES
        # Vector clock of each other node, as its notifications have told it.
        self.heard = [[0] * NODES for _ in range(NODES)]
        # All updates that this node sent to each node in this epoch.
        self.ledger = [[] for _ in range(NODES)]

    def op(self):
        """Returns the next operation."""
        return self.program[self.at] if self.at < len(self.program) else None

    def next(self):
        """Ends the operation."""
        self.at += 1
        self.phase = 0
        return True


class Walk(Schedule):
    """One run of a program."""

    STEPS_MAX = 5000

    def __init__(self, rng, program, homes, readers, rules):
        self.rng = rng
        self.rules = rules
        self.homes = homes
        # Nodes that get updates of what a node writes to a page, by (writer, page).
        self.readers = readers
        self.nodes = [Node(me, program[me]) for me in range(NODES)]
        self.messages = []
        self.intervals = {}
        self.channels = {}
        self.lock_turn, self.lock_vector, self.lock_epoch = 0, [0] * NODES, 0
        self.arrived, self.departed = {}, {}
        # Some walks have slow nodes, slow kinds of messages, and little room.
        self.speed = {key: rng.choice((1.0, 1.0, 0.1, 0.02)) for key in
                      [0, 1, 2, "update", "diff", "fetch"]}
        self.room = rng.choice((1.0, 1.0, 0.8))
        self.rereads = rng.choice((0.0, 0.2))

    # Order.

    def agents(self):
        """Returns the numbers of the nodes, which are the keys of their speeds."""
        return [(me, me) for me in range(NODES)]

    def is_over(self):
        """Returns whether all nodes have ended."""
        return not any(node.op() for node in self.nodes)

    def step(self, me):
        """Takes the next operation of a node, or a part of it. Returns whether it could."""
        node = self.nodes[me]
        op = node.op()
        return op is not None and getattr(self, op.kind)(node, op)

    # Memory.

    def touch(self, node, number):
        """Returns whether a page is valid, and requests it if nothing is on its way."""
        page = node.pages[number]
        if page.state == "invalid":
            page.state, page.stale = "fetching", False
            # COH-10.6: the answer may be from before the updates that have come.
            for come in page.come:
                come.in_doubt = True
            self.messages.append(Message("fetch", self.homes[number], node.me, number))
            return None
        return page.state == "valid"

    def read(self, node, op):
        """Reads a cell."""
        valid = self.touch(node, op.cell[0])
        if not valid:
            return valid is None
        value = node.pages[op.cell[0]].cells[op.cell[1]]
        if value != op.value:
            raise Violation(f"node {node.me} reads {value} in {op.cell} in place of {op.value}")
        return node.next()

    def write(self, node, op):
        """Writes a cell."""
        valid = self.touch(node, op.cell[0])
        if not valid:
            return valid is None
        page = node.pages[op.cell[0]]
        page.cells[op.cell[1]] = op.value
        page.dirty.add(op.cell[1])
        page.pushed.discard(op.cell[1])
        return node.next()

    def push(self, node, op):
        """Ends a guard, and sends its cell to the readers."""
        page = node.pages[op.cell[0]]
        if page.state == "valid" and op.cell[1] in page.dirty - page.pushed:
            self.send_updates(node, op.cell[0], (op.cell[1],))
            page.pushed.add(op.cell[1])
        return node.next()

    def send_updates(self, node, number, cells):
        """Sends cells to the readers of a page."""
        values = tuple(node.pages[number].cells[cell] for cell in cells)
        open_interval = node.vector[node.me] + 1
        for reader in self.readers[(node.me, number)]:
            behind = []
            for earlier in node.ledger[reader]:
                same = earlier.page == number and set(earlier.cells) & set(cells)
                if "order" in self.rules:
                    ordered = earlier.interval > node.heard[reader][node.me]
                else:
                    ordered = earlier.interval == open_interval
                if same and ordered and not earlier.is_here:
                    behind.append(earlier)
            update = Message("update", node.me, reader, number, cells, values, open_interval,
                            node.epoch, behind)
            node.ledger[reader].append(update)
            node.sent[reader] += 1
            self.messages.append(update)

    def send_diff(self, node, number, cells):
        """Sends cells to the home of their page."""
        if self.homes[number] != node.me and cells:
            cells = tuple(sorted(cells))
            values = tuple(node.pages[number].cells[cell] for cell in cells)
            self.messages.append(
                Message("diff", node.me, self.homes[number], number, cells, values))
            node.diffs += 1

    def close(self, node, by):
        """Closes the interval. A barrier and a notification send the rest to the readers."""
        whole = {}
        for number, page in enumerate(node.pages):
            if not page.dirty and not page.early:
                continue
            rest = tuple(sorted(page.dirty - page.pushed))
            if rest and by != "unlock":
                self.send_updates(node, number, rest)
                rest = ()
            readers = self.readers[(node.me, number)]
            whole[number] = set() if rest or page.early else set(readers)
            self.send_diff(node, number, page.dirty)
            page.dirty, page.pushed, page.early = set(), set(), set()
        if whole:
            node.vector[node.me] += 1
            number = node.vector[node.me]
            self.intervals[(node.me, number)] = Interval(node.me, number, by == "barrier", whole)
        node.phase = 1
        # The epoch of updates grows when the interval of an arrival is closed, but a node with one
        # thread sends none before it leaves the barrier.
        return True

    def invalidate(self, node, number):
        """Makes the copy of a page invalid, after its changes were sent home (COH-4.4)."""
        page = node.pages[number]
        if page.state == "fetching":
            page.stale = True
        elif page.state == "valid":
            self.send_diff(node, number, page.dirty)
            page.early |= page.dirty
            page.dirty, page.pushed = set(), set()
            page.state = "invalid"

    # Messages.

    def deliver(self, message):
        """Delivers a message, or reads its bytes again. Returns whether anything happened."""
        if message.kind == "update":
            return self.deliver_update(message)
        if message.kind == "diff":
            home = self.nodes[message.target].pages[message.page]
            for cell, value in zip(message.cells, message.values):
                home.cells[cell] = value
            self.nodes[message.source].diffs -= 1
            self.messages.remove(message)
            return True
        return self.deliver_answer(message)

    def deliver_answer(self, message):
        """Reads the bytes of an answer at the home, or delivers them."""
        home = self.nodes[message.source].pages[message.page]
        node = self.nodes[message.target]
        if not message.values or self.rng.random() < self.rereads:
            # COH-5.4: a fetch follows this node's own diffs.
            if not message.values and any(
                    other.kind == "diff" and other.source == node.me
                    and other.target == message.source for other in self.messages):
                return False
            message.values = tuple(home.cells)
            return True
        page = node.pages[message.page]
        if page.stale:
            page.state = "invalid"
        else:
            page.state, page.cells = "valid", list(message.values)
        page.stale = False
        self.messages.remove(message)
        return True

    def deliver_update(self, update):
        """Delivers an update, drops it, or holds it (COH-10.4, 10.5)."""
        node = self.nodes[update.target]
        writer = self.nodes[update.source].pages[update.page]
        if self.rng.random() < self.rereads:
            update.values = tuple(writer.cells[cell] for cell in update.cells)
            return True
        has_room = self.rng.random() < self.room
        if any(not earlier.is_here for earlier in update.behind):
            return False
        if update.epoch > node.epoch and has_room:
            return False
        page = node.pages[update.page]
        update.is_here = True
        self.messages.remove(update)
        node.here.setdefault((update.source, update.epoch), []).append(update.interval)
        if update.interval <= node.vector[update.source]:
            return True
        come = Come(update.source, update.interval, update.epoch, update.cells)
        if "writers" in self.rules:
            for other in page.come:
                if other.writer != come.writer and set(other.cells) & set(come.cells):
                    other.in_doubt = come.in_doubt = True
        if page.state == "valid" and has_room:
            for cell, value in zip(update.cells, update.values):
                page.cells[cell] = value
        else:
            come.in_doubt = True
            if page.state == "fetching":
                page.stale = True
        page.come.append(come)
        return True

    # Synchronisation.

    def news(self, node, vector):
        """Returns the intervals of a vector clock that are new to a node."""
        numbers = [(writer, number) for writer in range(NODES) if writer != node.me
                   for number in range(node.vector[writer] + 1, vector[writer] + 1)]
        return [self.intervals[number] for number in numbers]

    def learn(self, node, vector, news, is_valid):
        """Invalidates the pages that new intervals name, except valid ones."""
        for number, page in enumerate(node.pages):
            naming = [interval for interval in news if number in interval.whole]
            if naming and self.homes[number] != node.me and not is_valid(number, page, naming):
                self.invalidate(node, number)
        for writer in range(NODES):
            if writer != node.me:
                node.vector[writer] = max(node.vector[writer], vector[writer])
        # Known bytes were at their home when they became known. A later fetch brings them.
        for page in node.pages:
            page.come = [come for come in page.come
                         if come.interval > node.vector[come.writer]]

    def notify(self, node, op):
        """Releases, and notifies a node."""
        if node.phase == 0:
            return self.close(node, "notify")
        if node.diffs and "homes first" in self.rules:
            return False
        notification = Notification(list(node.vector), node.epoch, node.sent[op.other], op.joined)
        self.channels.setdefault((node.me, op.other), []).append(notification)
        node.notified[op.other] = node.sent[op.other]
        return node.next()

    def wait(self, node, op):
        """Learns the next notification of a node."""
        channel = self.channels.get((op.other, node.me))
        if not channel:
            return False
        told = channel[0]
        here = node.here.get((op.other, node.epoch), [])
        if "by interval" in self.rules:
            here = [interval for interval in here if interval <= told.vector[op.other]]
        is_of_epoch = told.epoch == node.epoch or "epoch" not in self.rules
        is_short = is_of_epoch and len(here) < told.count
        if is_short and "counted" in self.rules:
            return False
        channel.pop(0)
        vector = list(told.vector)
        if "vector" not in self.rules:
            vector = [vector[of] if of == op.other else 0 for of in range(NODES)]

        def is_valid(number, page, naming):
            is_whole = all(node.me in interval.whole[number] for interval in naming)
            is_own = all(interval.writer == op.other for interval in naming)
            in_doubt = any(come.in_doubt and come.interval <= vector[come.writer]
                           for come in page.come)
            if told.joined:
                return False
            return ((is_whole or "whole" not in self.rules)
                    and (is_own or "notifier" not in self.rules)
                    and (not in_doubt or "doubt" not in self.rules))

        self.learn(node, vector, self.news(node, vector), is_valid)
        node.heard[op.other] = join(node.heard[op.other], told.vector)
        return node.next()

    def lock(self, node, op):
        """Takes the lock when it is the turn of this ticket."""
        if self.lock_turn != 2 * op.value or node.epoch < self.lock_epoch:
            return False
        self.lock_turn += 1
        vector = list(self.lock_vector)
        self.learn(node, vector, self.news(node, vector), lambda *_: False)
        return node.next()

    def unlock(self, node, _):
        """Releases, and gives the lock back."""
        if node.phase == 0:
            return self.close(node, "unlock")
        if node.diffs:
            return False
        self.lock_turn += 1
        self.lock_vector = join(self.lock_vector, node.vector)
        self.lock_epoch = max(self.lock_epoch, node.epoch)
        return node.next()

    def barrier(self, node, _):
        """Arrives at the barrier, and leaves it when the counted updates are here."""
        if node.phase == 0:
            return self.close(node, "barrier")
        if node.phase == 1:
            return not node.diffs and self.arrive(node)
        if node.me not in self.departed:
            return False
        base, counts = self.departed[node.me]
        if any(len(node.here.get((writer, node.epoch), [])) < counts[writer]
               for writer in range(NODES)):
            return False
        del self.departed[node.me]
        epoch = node.epoch

        def is_valid(number, _, naming):
            is_whole = all(node.me in interval.whole[number] for interval in naming)
            is_released = any(not interval.by_barrier for interval in naming)
            writers = {interval.writer for interval in naming}
            return is_whole and not (is_released and len(writers) > 1)

        for number, page in enumerate(node.pages):
            if any(come.in_doubt and come.epoch <= epoch for come in page.come):
                if self.homes[number] != node.me:
                    self.invalidate(node, number)
        self.learn(node, base, self.news(node, base), is_valid)
        node.epoch += 1
        node.sent, node.notified = [0] * NODES, [0] * NODES
        node.ledger = [[] for _ in range(NODES)]
        return node.next()

    def arrive(self, node):
        """Arrives at the barrier. The last node computes the departure of each."""
        counts = list(node.sent)
        if "same numbers" not in self.rules:
            counts = [sent - told for sent, told in zip(node.sent, node.notified)]
        self.arrived[node.me] = (list(node.vector), counts)
        node.phase = 2
        if len(self.arrived) == NODES:
            base = [max(vector[of] for vector, _ in self.arrived.values())
                    for of in range(NODES)]
            for receiver in range(NODES):
                here = [self.arrived[writer][1][receiver] for writer in range(NODES)]
                self.departed[receiver] = (base, here)
            self.arrived = {}
        return True


# Runs.


def program_of(seed):
    """Returns the program of a seed, the homes of the pages, and the readers."""
    rng = random.Random(seed)
    program = Drawing(rng).draw()
    homes = [rng.randrange(NODES) for _ in range(PAGES)]
    readers = {}
    for writer in range(NODES):
        for page in range(PAGES):
            readers[(writer, page)] = [node for node in range(NODES)
                                       if node not in (writer, homes[page])
                                       and rng.random() < 0.8]
    return program, homes, readers


def first_violation(seed, walks, rules):
    """Runs a program, and returns what went wrong first."""
    program, homes, readers = program_of(seed)
    def make(walk):
        return Walk(random.Random(walk), program, homes, readers, rules)
    return run_walks(seed, walks, make, ())


if __name__ == "__main__":
    main(RULES, first_violation, 200)
