"""Model of departures that say what the receiver needs (COH-6.18 to 6.21).

Usage: departures.py FIRST_SEED LAST_SEED [WALKS [RULES, ...]]
       departures.py 0 40 12
       departures.py 0 40 12 'all,without late'

Each seed is one random program without data races, for 5 nodes of 2 threads, 2 pages of 2 cells and
1 lock (programs.py). Guards push cells to readers before the interval ends, arrivals send the rest,
and a push of all cells of an invalid page is kept. The second threads of the nodes lock, fetch and
write while the first ones wait in barriers. Barriers go by a tree with two children a node: 0 has 1
and 3, 1 has 2, and 3 has 4. Each walk takes another random order of messages. Some updates find no
room. Deaths are not in this model.

A node tells its parent the pages that its subtree may hold, as changes since it last told them. A
departure raises what every node knows to the base. It has an interval, and a page of it, only for
subtrees in which somebody may have to invalidate the page, or has got all of it by a push. Each rule
can be dropped, and is then to make programs wrong:

  held       A subtree may hold what was told (D1).
  composed   A node tells what it holds when it arrives, and not what it held when it closed its
             interval (D2).
  late       A node makes pages invalid itself that it has got since it arrived and had not told, if
             another node has told an interval (D3).
  subtree    A node tells of its subtree, and not only of itself (D4).
  all listed A page is left out if every node of the subtree is listed, and not if one is (D5).
  order      A page is not left out if intervals of two writers name it and an unlock has closed one
             of them (D6).
  confirmed  A kept push becomes valid only if the departure says that it was whole, or if the node
             had told the page before (D7).
  regained   A page that was told as lost is told again when it is held again (D8).
  joined     A page that nobody of a subtree holds is told if a joined interval of the subtree names
             it, because the subtree knows whom that lists (D9).
"""

import random
from dataclasses import dataclass, field

from programs import Drawing, Schedule, Thread, Violation, join, main, run_walks

NODES, THREADS, PAGES, CELLS = 5, 2, 2, 2
CHILDREN = {0: (1, 3), 1: (2,), 2: (), 3: (4,), 4: ()}
SUBTREE = {0: {0, 1, 2, 3, 4}, 1: {1, 2}, 2: {2}, 3: {3, 4}, 4: {4}}
RULES = ("held", "composed", "late", "subtree", "all listed", "order", "confirmed", "regained",
         "joined")


@dataclass
class Interval:
    """Interval that is closed: for each page, the nodes that got all that was written to it."""

    writer: int
    number: int
    by_barrier: bool
    whole: dict

    def joined(self):
        """Returns the interval without the nodes that it lists (COH-4.5)."""
        return Interval(self.writer, self.number, self.by_barrier,
                        {page: set() for page in self.whole})


@dataclass(eq=False)
class Message:
    """Update, diff, fetch or answer on its way. Only updates have an interval and an epoch."""

    kind: str
    source: int
    target: int
    page: int
    cells: tuple = ()
    values: tuple = ()
    interval: int = 0
    epoch: int = 0
    behind: list = field(default_factory=list)


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
    state: str = "invalid"
    stale: bool = False
    dirty: set = field(default_factory=set)
    pushed: set = field(default_factory=set)
    early: bool = False
    come: list = field(default_factory=list)
    # A push of all cells that came while the page was invalid: its values and its update.
    kept: object = None


class Node:
    """One node."""

    def __init__(self, me, homes):
        self.me = me
        self.pages = [Page([0] * CELLS, "valid" if home == me else "invalid") for home in homes]
        self.vector, self.base, self.epoch = [0] * NODES, [0] * NODES, 0
        self.sent, self.ledger = [0] * NODES, [[] for _ in range(NODES)]
        # Intervals of updates that are here, by writer and epoch.
        self.here = {}
        # Epoch of updates: it grows when the interval of an arrival is closed.
        self.open_epoch = 0
        self.phase = "open"
        # Pages told to the parent, those that each child's subtree may hold, and those that this
        # node held when it closed its interval.
        self.told, self.held, self.at_close = set(), {child: set() for child in CHILDREN[me]}, set()
        # Own pages that the parent knows of, and pages got since the arrival.
        self.reported, self.late = set(), set()
        self.ever_told = set()


class Walk(Schedule):
    """One run of a program."""

    STEPS_MAX = 9000

    def __init__(self, rng, program, homes, readers, rules):
        self.rng, self.rules, self.homes, self.readers = rng, rules, homes, readers
        self.nodes = [Node(me, homes) for me in range(NODES)]
        self.threads = [Thread(self.nodes[node], ops) for (node, _), ops in program.items()]
        self.messages, self.intervals = [], {}
        self.lock_turn, self.lock_vector, self.lock_epoch = 0, [0] * NODES, 0
        self.arrived, self.departed, self.base = {}, {}, [0] * NODES
        # Entries (an interval and a page) that departures had, and those that all would have.
        self.entries, self.all_entries = 0, 0
        self.speed = {key: rng.choice((1.0, 1.0, 0.1, 0.02)) for key in
                      list(range(NODES)) + ["update", "diff", "fetch", "answer"]}
        self.room, self.rereads = rng.choice((1.0, 1.0, 0.8)), rng.choice((0.0, 0.2))
        self.tells_lost, self.joins = rng.choice((0.0, 0.5)), rng.choice((0.0, 0.5))

    # Order.

    # Memory.

    def touch(self, node, number):
        """Returns whether a page is valid, or None if it was requested now."""
        page = node.pages[number]
        if page.state == "invalid":
            page.state, page.stale, page.kept = "fetching", False, None
            for come in page.come:
                come.in_doubt = True
            if node.phase == "arrived" and number not in node.reported:
                node.late.add(number)
            self.messages.append(Message("fetch", node.me, self.homes[number], number))
            return None
        return page.state == "valid"

    def read(self, thread, node, op):
        """Reads a cell."""
        valid = self.touch(node, op.cell[0])
        if not valid:
            return valid is None
        value = node.pages[op.cell[0]].cells[op.cell[1]]
        if value != op.value:
            raise Violation(f"node {node.me} reads {value} in {op.cell} in place of {op.value}")
        return thread.next()

    def write(self, thread, node, op):
        """Writes a cell."""
        valid = self.touch(node, op.cell[0])
        if not valid:
            return valid is None
        page = node.pages[op.cell[0]]
        page.cells[op.cell[1]] = op.value
        page.dirty.add(op.cell[1])
        page.pushed.discard(op.cell[1])
        return thread.next()

    def push(self, thread, node, op):
        """Ends a guard, and sends what it wrote to the readers."""
        page = node.pages[op.cell[0]]
        if page.state == "valid" and op.cell[1] in page.dirty - page.pushed:
            cells = tuple(sorted(page.dirty - page.pushed))
            self.send_updates(node, op.cell[0], cells)
            page.pushed |= set(cells)
        return thread.next()

    def send_updates(self, node, number, cells):
        """Sends cells to the readers of a page."""
        values = tuple(node.pages[number].cells[cell] for cell in cells)
        for reader in self.readers[(node.me, number)]:
            behind = [earlier for earlier in node.ledger[reader]
                      if earlier.page == number and set(earlier.cells) & set(cells)
                      and earlier in self.messages]
            update = Message("update", node.me, reader, number, cells, values,
                             node.vector[node.me] + 1, node.open_epoch, behind)
            node.ledger[reader].append(update)
            node.sent[reader] += 1
            self.messages.append(update)

    def send_diff(self, node, number):
        """Sends the changes of a page to its home."""
        page, home = node.pages[number], self.homes[number]
        if home != node.me and page.dirty:
            cells = tuple(sorted(page.dirty))
            self.messages.append(Message("diff", node.me, home, number, cells,
                                         tuple(page.cells[cell] for cell in cells)))

    def close(self, node, by_barrier):
        """Closes the interval. A barrier sends the rest to the readers."""
        whole = {}
        for number, page in enumerate(node.pages):
            if not page.dirty and not page.early:
                continue
            rest = tuple(sorted(page.dirty - page.pushed))
            if rest and by_barrier:
                self.send_updates(node, number, rest)
                rest = ()
            # Updates of a late interval are of the next epoch (COH-10.9).
            is_short = rest or page.early or node.phase != "open"
            whole[number] = set() if is_short else set(self.readers[(node.me, number)])
            self.send_diff(node, number)
            page.dirty, page.pushed, page.early = set(), set(), False
        if whole:
            node.vector[node.me] += 1
            number = node.vector[node.me]
            self.intervals[(node.me, number)] = Interval(node.me, number, by_barrier, whole)

    def release(self, thread, node, by_barrier):
        """Begins a release. It is over when all changes are at their homes. Returns whether."""
        if thread.waits_for is None:
            self.close(node, by_barrier)
            thread.waits_for = [message for message in self.messages
                                if message.kind == "diff" and message.source == node.me]
            thread.vector = list(node.vector)
        return not any(message in self.messages for message in thread.waits_for)

    def invalidate(self, node, number):
        """Makes the copy of a page invalid, after its changes were sent home."""
        page = node.pages[number]
        page.kept = None
        if self.homes[number] == node.me:
            return
        if page.state == "fetching":
            page.stale = True
        elif page.state == "valid":
            self.send_diff(node, number)
            page.early |= bool(page.dirty)
            page.dirty, page.pushed, page.state = set(), set(), "invalid"

    # Messages.

    def deliver(self, message):
        """Delivers a message, or reads its bytes again. Returns whether anything happened."""
        node, source = self.nodes[message.target], self.nodes[message.source]
        if message.kind == "update":
            return self.deliver_update(message)
        if message.kind == "diff":
            first = next(other for other in self.messages if other.kind == "diff"
                         and (other.source, other.target) == (message.source, message.target))
            if first is not message:
                return False
            for cell, value in zip(message.cells, message.values):
                node.pages[message.page].cells[cell] = value
        elif message.kind == "fetch":
            if any(other.kind == "diff" and other.source == message.source
                   and other.target == node.me for other in self.messages):
                return False
            self.messages.append(Message("answer", node.me, message.source, message.page,
                                         values=tuple(node.pages[message.page].cells)))
        elif self.rng.random() < self.rereads:
            message.values = tuple(source.pages[message.page].cells)
            return True
        else:
            page = node.pages[message.page]
            page.state = "invalid" if page.stale else "valid"
            if not page.stale:
                page.cells = list(message.values)
            page.stale = False
        self.messages.remove(message)
        return True

    def deliver_update(self, update):
        """Delivers an update, drops it, or holds it (COH-10.4, 10.5, 10.15)."""
        node = self.nodes[update.target]
        page = node.pages[update.page]
        if self.rng.random() < self.rereads:
            writer = self.nodes[update.source].pages[update.page]
            update.values = tuple(writer.cells[cell] for cell in update.cells)
            return True
        if any(earlier in self.messages for earlier in update.behind):
            return False
        has_room = self.rng.random() < self.room
        if update.epoch > node.epoch and has_room:
            return False
        self.messages.remove(update)
        node.here.setdefault((update.source, update.epoch), []).append(update.interval)
        if update.interval <= node.vector[update.source]:
            return True
        come = Come(update.source, update.interval, update.epoch, update.cells)
        if page.state == "valid" and has_room:
            for cell, value in zip(update.cells, update.values):
                page.cells[cell] = value
        elif (page.state == "invalid" and has_room and len(update.cells) == CELLS
              and update.epoch == node.epoch):
            page.kept = update
        else:
            come.in_doubt, page.kept = True, None
            page.stale |= page.state == "fetching"
        page.come.append(come)
        return True

    # Synchronisation.

    def lock(self, thread, node, op):
        """Takes the lock when it is the turn of this ticket. A grant tells whole intervals."""
        if self.lock_turn != 2 * op.ticket or node.epoch < self.lock_epoch:
            return False
        self.lock_turn += 1
        for (writer, number), interval in self.intervals.items():
            if writer != node.me and node.vector[writer] < number <= self.lock_vector[writer]:
                for page in interval.whole:
                    self.invalidate(node, page)
        self.raise_vector(node, self.lock_vector)
        return thread.next()

    def raise_vector(self, node, vector):
        """Raises the knowledge of a node."""
        for writer in range(NODES):
            if writer != node.me:
                node.vector[writer] = max(node.vector[writer], vector[writer])
        for page in node.pages:
            page.come = [come for come in page.come
                         if come.interval > node.vector[come.writer]]

    def unlock(self, thread, node, _):
        """Releases, and gives the lock back."""
        begins = thread.waits_for is None
        if not self.release(thread, node, False):
            return begins
        self.lock_turn += 1
        self.lock_vector = join(self.lock_vector, thread.vector)
        self.lock_epoch = max(self.lock_epoch, node.epoch)
        return thread.next()

    # Barriers.

    def holding(self, node):
        """Returns the pages that a node may hold."""
        return {number for number, page in enumerate(node.pages)
                if self.homes[number] != node.me and page.state != "invalid"}

    def barrier(self, thread, node, _):
        """Takes a step of a barrier."""
        if node.phase == "open" or node.phase == "closed":
            begins = thread.waits_for is None
            if begins:
                thread.waits_for = None
                self.release(thread, node, True)
                node.phase, node.at_close = "closed", self.holding(node)
                node.counts = list(node.sent)
                node.open_epoch, node.sent = node.epoch + 1, [0] * NODES
                node.ledger = [[] for _ in range(NODES)]
            if not self.release(thread, node, True) or any(
                    child not in self.arrived for child in CHILDREN[node.me]):
                return begins
            self.arrive(node, thread.vector)
            return True
        if node.me not in self.departed:
            return False
        base, intervals, counts = self.departed[node.me]
        if any(len(node.here.get((writer, node.epoch), [])) < counts[writer]
               for writer in range(NODES)):
            return False
        del self.departed[node.me]
        self.leave(node, thread.vector, base, intervals)
        return thread.next()

    def arrive(self, node, vector):
        """Tells the parent what the subtree may hold, as changes."""
        own = self.holding(node) if "composed" in self.rules else node.at_close
        union = own.union(*node.held.values()) if "subtree" in self.rules else own
        gained = union - node.told
        if "regained" not in self.rules:
            gained -= node.ever_told
        lost = node.told - union if self.rng.random() < self.tells_lost else set()
        node.told = (node.told | gained) - lost
        node.ever_told |= gained
        node.reported, node.late, node.phase = own, set(), "arrived"
        self.arrived[node.me] = (vector, gained, lost)
        for parent, children in CHILDREN.items():
            if node.me in children:
                held = self.nodes[parent].held
                held[node.me] = (held[node.me] | gained) - lost
        if node.me == 0:
            self.depart()

    def depart(self):
        """Computes the departures of all nodes from the top of the tree down."""
        base = [max(vector[of] for vector, _, _ in self.arrived.values()) for of in range(NODES)]
        told = [interval for (writer, number), interval in self.intervals.items()
                if self.base[writer] < number <= base[writer]]
        counts = {to: [self.nodes[of].counts[to] for of in range(NODES)] for to in range(NODES)}
        self.base, self.arrived = base, {}
        self.all_entries += sum(len(interval.whole) for interval in told) * (NODES - 1)
        # Arrivals may have too many runs. Then they tell joined intervals, which list nobody.
        bodies = {0: [interval.joined() if interval.writer and self.rng.random() < self.joins
                      else interval for interval in told]}
        for me in sorted(CHILDREN):
            self.departed[me] = (base, bodies[me], counts[me])
            for child in CHILDREN[me]:
                body = self.filtered(bodies[me], child, self.nodes[me].held[child])
                body = [interval for interval in body if interval.writer not in SUBTREE[child]]
                self.entries += sum(len(interval.whole) for interval in body)
                # The node adds what its subtree has told, unless it has no children.
                own = told if CHILDREN[child] else []
                bodies[child] = body + [interval for interval in own
                                        if interval.writer in SUBTREE[child]]

    def filtered(self, intervals, child, held):
        """Returns what a subtree needs of these intervals."""
        needed = set()
        for page in range(PAGES):
            naming = [interval for interval in intervals if page in interval.whole]
            listed = any(interval.whole[page] & SUBTREE[child] for interval in naming)
            may_hold = "held" in self.rules and page in held
            # The subtree may know whom a joined interval lists.
            is_joined = any(interval.writer in SUBTREE[child] and not any(interval.whole.values())
                            for interval in naming)
            if "joined" in self.rules and is_joined and page not in held:
                needed.add(page)
            if naming and (may_hold or listed):
                for me in SUBTREE[child]:
                    is_named = self.is_named(naming, page, me)
                    # A node that was pushed a page which it may not hold hears that it was whole.
                    is_new = page not in held and any(me in interval.whole[page]
                                                      for interval in naming)
                    if is_named or is_new:
                        needed.add(page)
                if "all listed" not in self.rules and listed and page in held:
                    needed.discard(page)
        parts = [Interval(interval.writer, interval.number, interval.by_barrier,
                          {page: whole for page, whole in interval.whole.items()
                           if page in needed}) for interval in intervals]
        return [part for part in parts if part.whole]

    def is_named(self, naming, page, me):
        """Returns whether a node must invalidate a page, as far as its parent knows (COH-10.9)."""
        news = [interval for interval in naming if interval.writer != me]
        is_lacking = any(me not in interval.whole[page] for interval in news)
        writers = {interval.writer for interval in news}
        crosses = len(writers) > 1 and any(not interval.by_barrier for interval in news)
        return is_lacking or (crosses and "order" in self.rules)

    def leave(self, node, known, base, intervals):
        """Applies what the departure says."""
        news = [interval for interval in intervals
                if interval.writer != node.me and interval.number > known[interval.writer]]
        has_risen = any(base[writer] > node.base[writer] for writer in range(NODES)
                        if writer != node.me)
        for number, page in enumerate(node.pages):
            naming = [interval for interval in news if number in interval.whole]
            in_doubt = any(come.in_doubt and come.epoch <= node.epoch for come in page.come)
            is_late = number in node.late and has_risen and "late" in self.rules
            kept = page.kept
            if self.is_named(naming, number, node.me) or in_doubt or is_late:
                self.invalidate(node, number)
            elif kept and page.state == "invalid":
                says = any(node.me in interval.whole[number] for interval in naming)
                is_known = kept.interval <= base[kept.source]
                if (says or number in node.reported or "confirmed" not in self.rules) and is_known:
                    page.state, page.cells, page.kept = "valid", list(kept.values), None
                elif is_known:
                    page.kept = None
        self.raise_vector(node, base)
        node.base = base
        node.epoch, node.phase, node.late = node.epoch + 1, "open", set()


# Runs.


def first_violation(seed, walks, rules):
    """Runs a program. Returns what went wrong first, and entries of departures."""
    rng = random.Random(seed)
    drawing, page = Drawing(rng, NODES, THREADS, PAGES, CELLS, 0.5), rng.randrange(PAGES)
    crossing = drawing.crossed(page) if rng.random() < 0.3 else None
    is_brought = crossing is None and rng.random() < 0.3
    if is_brought:
        # Node 1 may tell a joined interval, and node 2 is below it.
        drawing.brought(page, 1, 2, 4)
    program = drawing.draw(rng.randrange(2, 6))
    homes = [rng.randrange(NODES) for _ in range(PAGES)]
    if is_brought:
        homes[page] = 1
    readers = {(writer, page): [node for node in range(NODES) if node not in (writer, homes[page])
                                and rng.random() < 0.5]
               for writer in range(NODES) for page in range(PAGES)}
    if crossing and crossing[2] != homes[page]:
        for writer in crossing[:2]:
            readers[(writer, page)] = sorted({*readers[(writer, page)], crossing[2]})
    if is_brought:
        readers[(1, page)] = [2]
    def make(walk):
        return Walk(random.Random(walk), program, homes, readers, rules)
    return run_walks(seed, walks, make, ("entries", "all_entries"))


if __name__ == "__main__":
    main(RULES, first_violation, 12)
