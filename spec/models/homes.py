"""Model of homes that move at a barrier (COH-11).

Usage: homes.py FIRST_SEED LAST_SEED [WALKS [RULES, ...]]
       homes.py 0 60 20
       homes.py 0 60 20 'all,without deferral'

Each seed is one random program without data races, for 3 nodes of 2 threads, 2 pages of 2 cells and
1 lock (programs.py). The second threads of the nodes lock, read and write while the first ones wait
in barriers, so intervals are late and fetches and diffs cross the barrier. Each walk takes another
random order of messages. It is no exhaustive search. Answers are read again before they are
delivered. Updates, operations on elements, deaths and pauses (COH-11.8) are not in this model.

A barrier at which homes move has two rounds. In the first, nodes ask. The departure *proposes* moves.
All nodes arrive again at once, without their programs. The second departure *confirms* the moves that
nothing has contradicted. Each rule can be dropped, and is then to make programs wrong:

  valid      A node asks only for pages that it holds valid (COH-11.1).
  others     A move is proposed only if no interval told in the first round, of a node other than the
             new home, names the page (COH-11.2).
  round      Homes change when the second round is over, not when the first one is (COH-11.4).
  cancel     A move is confirmed only if no interval told in the second round names the page
             (COH-11.4).
  deferral   A node begins no release between the close of its interval for the second round and its
             departure (COH-11.3).
  from close This begins at the close, and not only when the node arrives (COH-11.3).
  early      The new home serves as the home once it has arrived at the second round (COH-11.4).
  moved      The old home refuses fetches when it has left the second round. The requester goes to
             the home that it knows by then, or else to the proposed one. (Without the refusal the
             fetch waits for ever.) (COH-11.5)
  kept       What the old home has stored since its arrival is a change of a copy from then on
             (COH-11.6).
"""

import random
from dataclasses import dataclass, field

from programs import Drawing, Schedule, Thread, Violation, join, main, run_walks

NODES, THREADS, PAGES, CELLS = 3, 2, 2, 2
RULES = ("valid", "others", "round", "cancel", "deferral", "from close", "early", "moved", "kept")


@dataclass
class Page:
    """Page on one node. At its home it is always valid."""

    cells: list
    state: str = "valid"
    stale: bool = False
    dirty: set = field(default_factory=set)


@dataclass(eq=False)
class Message:
    """Diff, fetch or answer to a fetch, on its way."""

    kind: str
    source: int
    target: int
    page: int
    cells: tuple = ()
    values: tuple = ()


class Node:
    """One node."""

    def __init__(self, me, homes):
        self.me = me
        self.pages = [Page([0] * CELLS) for _ in range(PAGES)]
        self.homes = list(homes)
        self.vector = [0] * NODES
        self.epoch = 0
        # Pages whose changes went home before their interval was closed.
        self.early = set()
        # Moves that the first round has proposed: page to new home.
        self.proposed = {}
        # 0 between barriers, else the number of the round.
        self.round = 0
        # Whether the interval for this round is closed, and whether the node has arrived.
        self.has_closed = self.has_arrived = False

    def is_home(self, page, rules):
        """Returns whether this node serves as the home of a page."""
        if self.homes[page] == self.me:
            return True
        waits = self.has_arrived and self.round == 2
        return "early" in rules and waits and self.proposed.get(page) == self.me


class Walk(Schedule):
    """One run of a program."""

    STEPS_MAX = 6000

    def __init__(self, rng, program, homes, rules):
        self.rng, self.rules = rng, rules
        self.nodes = [Node(me, homes) for me in range(NODES)]
        self.threads = [Thread(self.nodes[node], ops) for (node, _), ops in program.items()]
        self.messages, self.intervals = [], {}
        self.lock_turn, self.lock_vector, self.lock_epoch = 0, [0] * NODES, 0
        # Vectors and asks of the nodes that have arrived, and the departure of each node.
        self.arrived, self.departed, self.base = {}, {}, [0] * NODES
        self.moves = 0
        self.speed = {key: rng.choice((1.0, 1.0, 0.1, 0.02))
                      for key in [0, 1, 2, "diff", "fetch", "answer"]}
        self.rereads = rng.choice((0.0, 0.2))
        self.asks = rng.choice((0.3, 0.9))

    # Order.

    # Memory.

    def touch(self, node, number):
        """Returns whether a page is valid, or None if it was requested now."""
        page = node.pages[number]
        if page.state == "invalid":
            page.state, page.stale = "fetching", False
            self.messages.append(Message("fetch", node.me, node.homes[number], number))
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
        return thread.next()

    def send_diff(self, node, number):
        """Sends the changes of a page to its home."""
        page = node.pages[number]
        if node.homes[number] != node.me and page.dirty:
            cells = tuple(sorted(page.dirty))
            self.messages.append(Message("diff", node.me, node.homes[number], number, cells,
                                         tuple(page.cells[cell] for cell in cells)))

    def close(self, node):
        """Closes the interval of a node, and sends its changes home."""
        named = {number for number, page in enumerate(node.pages) if page.dirty} | node.early
        for number, page in enumerate(node.pages):
            self.send_diff(node, number)
            page.dirty = set()
        node.early = set()
        if named:
            node.vector[node.me] += 1
            self.intervals[(node.me, node.vector[node.me])] = named

    def release(self, thread, node):
        """Begins a release. It is over when all changes are at their homes. Returns whether."""
        if thread.waits_for is None:
            self.close(node)
            thread.waits_for = [message for message in self.messages
                                if message.kind == "diff" and message.source == node.me]
            thread.vector = list(node.vector)
        return not any(message in self.messages for message in thread.waits_for)

    def learn(self, node, vector):
        """Applies the write notices of intervals that a node did not know."""
        for writer in range(NODES):
            if writer == node.me:
                continue
            for number in range(node.vector[writer] + 1, vector[writer] + 1):
                for page in self.intervals[(writer, number)]:
                    self.invalidate(node, page)
            node.vector[writer] = max(node.vector[writer], vector[writer])

    def invalidate(self, node, number):
        """Makes the copy of a page invalid, after its changes were sent home."""
        page = node.pages[number]
        if node.homes[number] == node.me:
            return
        if page.state == "fetching":
            page.stale = True
        elif page.state == "valid":
            self.send_diff(node, number)
            if page.dirty:
                node.early.add(number)
            page.dirty, page.state = set(), "invalid"

    # Messages.

    def deliver(self, message):
        """Delivers a message, or reads its bytes again. Returns whether anything happened."""
        node = self.nodes[message.target]
        if message.kind == "diff":
            # COH-5.5: behind earlier diffs of its sender.
            first = next(other for other in self.messages if other.kind == "diff"
                         and (other.source, other.target) == (message.source, message.target))
            if first is not message:
                return False
            if not node.is_home(message.page, self.rules):
                raise Violation(f"node {node.me} refuses a diff of page {message.page}")
            for cell, value in zip(message.cells, message.values):
                node.pages[message.page].cells[cell] = value
        elif message.kind == "fetch":
            if any(other.kind == "diff" and other.source == message.source
                   and other.target == node.me for other in self.messages):
                return False
            if not node.is_home(message.page, self.rules):
                return self.refuse(message, node)
            self.messages.append(Message("answer", node.me, message.source, message.page,
                                         values=tuple(node.pages[message.page].cells)))
        elif self.rng.random() < self.rereads:
            message.values = tuple(self.nodes[message.source].pages[message.page].cells)
            return True
        else:
            page = node.pages[message.page]
            page.state = "invalid" if page.stale else "valid"
            if not page.stale:
                page.cells = list(message.values)
            page.stale = False
        self.messages.remove(message)
        return True

    def refuse(self, message, node):
        """Refuses a fetch at a node that is no home. The requester goes to the new home."""
        requester = self.nodes[message.source]
        if "moved" not in self.rules:
            return False
        home = requester.homes[message.page]
        if home == node.me:
            # The requester has not left the second round.
            home = requester.proposed.get(message.page, node.me)
        if home == node.me:
            raise Violation(f"node {node.me} is the new home of page {message.page} and refuses")
        message.target = home
        return True

    # Synchronisation.

    def lock(self, thread, node, op):
        """Takes the lock when it is the turn of this ticket."""
        if self.lock_turn != 2 * op.ticket or node.epoch < self.lock_epoch:
            return False
        self.lock_turn += 1
        self.learn(node, list(self.lock_vector))
        return thread.next()

    def unlock(self, thread, node, _):
        """Releases, and gives the lock back."""
        waits = node.has_closed if "from close" in self.rules else node.has_arrived
        is_deferred = waits and node.round == 2 and "deferral" in self.rules
        if thread.waits_for is None and is_deferred:
            return False
        begins = thread.waits_for is None
        if not self.release(thread, node):
            return begins
        self.lock_turn += 1
        self.lock_vector = join(self.lock_vector, thread.vector)
        self.lock_epoch = max(self.lock_epoch, node.epoch)
        return thread.next()

    def barrier(self, thread, node, _):
        """Takes a step of a barrier."""
        if not node.has_arrived:
            begins = thread.waits_for is None
            if begins:
                node.round, node.has_closed = max(node.round, 1), True
            if not self.release(thread, node):
                return begins
            node.has_arrived = True
            asks = set(self.asked(node)) if node.round == 1 else set()
            self.arrived[node.me] = (thread.vector, asks)
            thread.waits_for = None
            if len(self.arrived) == NODES:
                self.depart()
            return True
        if node.me not in self.departed:
            return False
        base, proposed, confirmed = self.departed.pop(node.me)
        self.learn(node, base)
        node.has_closed, node.has_arrived, node.epoch = False, False, node.epoch + 1
        for page, home in confirmed.items():
            self.move(node, page, home)
        node.proposed = proposed
        if node.round == 1 and proposed:
            # The node arrives again by itself.
            node.round = 2
            return True
        node.round = 0
        return thread.next()

    def asked(self, node):
        """Returns the pages of which a node asks to be the home."""
        for number, page in enumerate(node.pages):
            is_valid = page.state == "valid" or "valid" not in self.rules
            if node.homes[number] != node.me and is_valid and self.rng.random() < self.asks:
                yield number

    def depart(self):
        """Computes the departure, once all nodes have arrived."""
        base = [max(vector[of] for vector, _ in self.arrived.values()) for of in range(NODES)]
        told = [(writer, named) for (writer, number), named in self.intervals.items()
                if self.base[writer] < number <= base[writer]]

        def is_named(page, home):
            return any(writer != home and page in named for writer, named in told)

        proposed, confirmed = {}, {}
        before = self.nodes[0].proposed if self.nodes[0].round == 2 else None
        if before is None:
            for me, (_, asks) in sorted(self.arrived.items()):
                for page in asks:
                    if "others" not in self.rules or not is_named(page, me):
                        proposed[page] = me
            if "round" not in self.rules:
                proposed, confirmed = {}, proposed
        else:
            confirmed = {page: home for page, home in before.items()
                         if "cancel" not in self.rules or not is_named(page, None)}
        self.moves += len(confirmed)
        self.base, self.arrived = base, {}
        self.departed = {me: (base, proposed, confirmed) for me in range(NODES)}

    def move(self, node, page, home):
        """Changes the home of a page on a node."""
        if node.homes[page] == node.me and "kept" not in self.rules:
            node.pages[page].dirty = set()
        if home == node.me and node.pages[page].state != "valid":
            # Only with a planted fault. The bytes here pass for the newest ones.
            node.pages[page].state, node.pages[page].stale = "valid", False
        node.homes[page] = home


# Runs.


def first_violation(seed, walks, rules):
    """Runs a program. Returns what went wrong first, and how many homes have moved."""
    rng = random.Random(seed)
    program = Drawing(rng, NODES, THREADS, PAGES, CELLS).draw(rng.randrange(1, 4))
    homes = [rng.randrange(NODES) for _ in range(PAGES)]
    return run_walks(seed, walks, lambda walk: Walk(random.Random(walk), program, homes, rules),
                     ("moves",))


if __name__ == "__main__":
    main(RULES, first_violation, 20)
