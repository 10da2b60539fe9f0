"""Model of locks as a distributed queue, whose grants carry what was written (COH-7, COH-10.17).

Usage: locks.py FIRST_SEED LAST_SEED [WALKS [RULES, ...]]
       locks.py 0 60 20
       locks.py 0 60 20 'all,without ask'

Each seed is one random program for 4 nodes, 2 locks, and 2 pages of 2 cells. Lock n protects cell n of
both pages, so the two locks share pages. Nodes 0 and 1 manage the locks, and are the homes of the
pages. A node takes one lock, or lock 1 inside of lock 0, tries a lock, or stops waiting for one. It
takes a lock alone, or for reading, and then only reads under it. A thread that asks for a lock after
another one of its node has stopped waiting takes the request of that one over. In
some walks node 2 or 3 dies at any time. What it had sent then is lost from some point on, and the
others learn of the death at different times. Since no node has a lock beside one that writes, the
order of the sections is that in which they are granted, and one memory says what each read returns.
Each walk takes another random order of messages. Barriers are not in this model.

The manager of a lock keeps the queue. It tells each entry which entry comes next. The holder grants
to that one directly, and tells the manager so (*passed*). A holder that knows no living next one gives
the lock back to the manager. Each rule can be dropped, and is then to make programs wrong:

  linked       The manager tells the last entry about a new one. (Without it no grant is direct, and
               nothing is wrong: the line shows how many grants are direct.) (L1)
  crossing     A manager that gets the lock back grants it, though it has told the giver its next
               entry (L2).
  any order    *Passed* of a later holder may come before that of an earlier one (L3).
  named        *Passed* names the entry that got the lock. If that one is dead, the manager finds out
               who has the lock as after the death of a holder (L4).
  ask          After the death of the holder, the manager asks the first living entry whether the lock
               was granted to it. It knows of the death when it answers, so no grant of the dead node
               comes later (L5).
  giver        It does so, too, after the death of the node that granted the lock to the holder. That
               grant may not have come (L14).
  stopped      A node that has stopped waiting passes the lock on when it is granted (L6).
  homes first  A grant is sent when all homes but its receiver have acknowledged the changes (L7).
  behind       A grant follows the changes of its sender to the receiver as a home (L8).
  all named    A page stays valid only if all new intervals that name it are in the grant (L9).
  valid        The bytes of a grant are applied only to a page that is valid (L10).
  early        A page whose changes went home before the interval was closed is in no grant (L11).
  unknown      Intervals that the receiver knows are not applied (L12).
  position     The intervals of a grant are kept, and applied, in the order of the holders (L13).
  drained      The manager grants a lock alone only when all readers have given it back (L15).
  behind first A request that reads waits behind the first one that writes. (Without it nothing is
               wrong, but one that writes may wait for ever.) (L16)
  passed by    Requests that read pass by one that writes and that no thread waits for. (Without it
               nothing is wrong, but they wait for other readers without a reason.) (L19)
  apart        The manager tells no holder of a request that reads, and no reader of a next one
               (L17).
  unlisted     What the unlock of a reader closes is in no grant, since readers have no order. (Without
               it nothing is wrong: what a reader has written, it wrote under another lock.) (L18)
"""

import random
from dataclasses import dataclass, field

from programs import Schedule, Violation, main, run_walks

NODES, LOCKS, PAGES, CELLS = 4, 2, 2, 2
RULES = ("linked", "crossing", "any order", "named", "ask", "giver", "stopped", "homes first", "behind",
         "all named", "valid", "early", "unknown", "position", "drained", "behind first", "apart",
         "unlisted", "passed by")


def draw(rng):
    """Returns the operations of each node: pairs of a word and an argument."""
    programs = []
    for _ in range(NODES):
        ops = []
        for _ in range(rng.randrange(2, 6)):
            lock = rng.randrange(LOCKS)
            kind = rng.choice(("lock", "lock", "lock", "lock", "try", "stop"))
            reads = rng.random() < 0.3
            ops.append((kind, (lock, reads)))
            ops += accesses(rng, lock, reads)
            if lock == 0 and kind == "lock" and rng.random() < 0.4:
                inner = rng.random() < 0.3
                ops += [("lock", (1, inner))] + accesses(rng, 1, inner) + [("unlock", 1)]
                ops += accesses(rng, 0, reads)
            ops.append(("unlock", lock))
        programs.append(ops)
    for _ in range(rng.randrange(3)):
        crossed_sections(rng, programs)
    return programs


def crossed_sections(rng, programs):
    """Adds sections in which one node changes a page under both locks, one inside of the other."""
    one, two, other = rng.sample(range(NODES), 3)
    page = rng.randrange(PAGES)
    outer, inner = ("lock", (0, False)), ("lock", (1, False))
    programs[one] += [outer, ("write", (page, 0)), inner, ("write", (page, 1)),
                      ("unlock", 1), ("unlock", 0)]
    programs[two] += [inner, ("write", (page, 1)), ("unlock", 1), inner,
                      ("read", (page, 1)), ("unlock", 1), outer, ("read", (page, 0)),
                      ("unlock", 0)]
    programs[other] += [inner, ("write", (1 - page, 1)), ("unlock", 1)]


def accesses(rng, lock, reads):
    """Returns a few accesses to cells of a lock."""
    kinds = ("read",) if reads else ("read", "write", "write")
    return [(rng.choice(kinds), (rng.randrange(PAGES), lock)) for _ in range(rng.randrange(4))]


@dataclass
class Page:
    """Page on one node."""

    cells: list
    state: str = "valid"
    stale: bool = False
    dirty: set = field(default_factory=set)


@dataclass(frozen=True)
class Entry:
    """A request: its node, its number there, the vector clock of the node, and whether it reads."""

    rank: int
    request: int
    vector: tuple
    reads: bool


@dataclass
class Written:
    """What one interval wrote, as a grant carries it."""

    position: int
    writer: int
    number: int
    # Bytes by page. A page is here only with all bytes that the interval wrote to it.
    pages: dict


@dataclass(eq=False)
class Message:
    """Message on its way. Ordered ones of one pair of nodes keep their order."""

    kind: str
    source: int
    target: int
    body: tuple
    ordered: bool = True
    behind: list = field(default_factory=list)


class Managed:
    """A lock at its manager. If it is held alone, the first entry of the queue should have it."""

    def __init__(self):
        self.queue, self.held, self.broken = [], False, False
        self.readers = []
        # Entries that no thread waits for.
        self.abandoned = set()
        # Entries that have passed the lock, as later holders have shown, and did not say so yet.
        self.unconfirmed = set()
        self.vector, self.history = [0] * NODES, []
        # An entry that was asked whether it has the lock, and the node that has granted the lock to
        # the first entry.
        self.asked, self.giver = None, None


class Node:
    """One node."""

    def __init__(self, me, program):
        self.me, self.program, self.at = me, program, 0
        self.pages = [Page([0] * CELLS) for _ in range(PAGES)]
        self.vector, self.early = [0] * NODES, set()
        self.requests = 0
        # By lock: number of the request, whether it is granted, whether somebody waits, next entry.
        self.wants = {}
        # By lock: what its last holders wrote, in their order.
        self.history = {lock: [] for lock in range(LOCKS)}
        # Releases under way: lock, vector, and the changes that they wait for.
        self.releases = []
        self.dead, self.is_dead = set(), False


@dataclass
class Want:
    """Request of a node for a lock."""

    entry: Entry
    granted: bool = False
    stopped: bool = False
    next: object = None
    releasing: bool = False


class Walk(Schedule):
    """One run of a program."""

    STEPS_MAX = 8000

    def __init__(self, rng, programs, rules):
        self.rng, self.rules = rng, rules
        self.nodes = [Node(me, programs[me]) for me in range(NODES)]
        self.managed = [Managed() for _ in range(LOCKS)]
        self.homes = [rng.randrange(2) for _ in range(PAGES)]
        self.messages, self.intervals = [], {}
        self.memory = {(page, cell): 0 for page in range(PAGES) for cell in range(CELLS)}
        self.fresh, self.direct, self.kept, self.together = 0, 0, 0, 0
        # Intervals that a grant carries at most, as 64 KiB bound it in the protocol.
        self.carried = rng.choice((1, 3))
        # By lock: the nodes that have it, and whether they read.
        self.holders = {lock: {} for lock in range(LOCKS)}
        self.speed = {key: rng.choice((1.0, 1.0, 0.1, 0.02)) for key in
                      [0, 1, 2, 3, "acquire", "next", "grant", "passed", "unlock", "diff", "fetch",
                       "answer", "ask", "reply", "refused", "died", "abandon"]}
        self.victim = rng.choice((2, 3)) if rng.random() < 0.4 else None
        self.death = rng.randrange(10, 200)

    # Order.

    def agents(self):
        """Returns the nodes that live, each behind the key of its speed."""
        return [(node.me, node) for node in self.nodes if not node.is_dead]

    def is_over(self):
        """Returns whether all nodes that live have ended."""
        return all(node.at >= len(node.program) for _, node in self.agents())

    def begin_step(self, number):
        """Kills the node that is to die, when it is time."""
        if number >= self.death and self.victim is not None:
            self.kill(self.victim)
            self.victim = None

    def kill(self, me):
        """Kills a node. Of what it has sent, a part is lost."""
        self.nodes[me].is_dead = True
        cut = {to: self.rng.random() < 0.5 for to in range(NODES)}
        lost = []
        for message in self.messages:
            if message.source != me:
                continue
            is_cut = message.ordered and cut[message.target]
            if is_cut or self.rng.random() < 0.2 or any(one in lost for one in message.behind):
                # Everything ordered behind it is lost, too.
                cut[message.target] = cut[message.target] or message.ordered
                lost.append(message)
        self.messages = [message for message in self.messages
                         if message not in lost and message.target != me]
        for to in range(NODES):
            if to != me:
                self.messages.append(Message("died", me, to, (), False))

    def post(self, kind, source, target, *body, ordered=True, behind=()):
        """Sends a message."""
        message = Message(kind, source, target, body, ordered, list(behind))
        if not self.nodes[target].is_dead:
            self.messages.append(message)
        return message

    def deliver(self, message):
        """Delivers a message. Returns whether anything happened."""
        node = self.nodes[message.target]
        if message.ordered and any(
                other.ordered and (other.source, other.target) == (message.source, message.target)
                for other in self.messages[:self.messages.index(message)]):
            return False
        if any(other in self.messages for other in message.behind):
            return False
        self.messages.remove(message)
        if message.source in node.dead:
            return True
        getattr(self, "take_" + message.kind)(node, message.source, *message.body)
        return True

    # The program.

    def step(self, node):
        """Takes the next operation of a node, or ends a release. Returns whether it could."""
        for release in node.releases:
            if self.end_release(node, release):
                return True
        if node.at >= len(node.program):
            return False
        kind, what = node.program[node.at]
        if kind in ("read", "write"):
            return self.access(node, kind, what)
        if kind == "unlock":
            return self.unlock(node, what)
        return self.acquire(node, kind, what)

    def skip(self, node, lock):
        """Leaves a section out that the node did not get the lock for."""
        depth = 0
        while True:
            kind, what = node.program[node.at]
            node.at += 1
            depth += (kind in ("lock", "try", "stop")) - (kind == "unlock")
            if kind == "unlock" and what == lock and depth == 0:
                return True

    def acquire(self, node, kind, what):
        """Asks for a lock, waits for it, or stops waiting."""
        lock, reads = what
        want = node.wants.get(lock)
        if want is None:
            node.requests += 1
            entry = Entry(node.me, node.requests, tuple(node.vector), reads)
            node.wants[lock] = Want(entry)
            self.post("acquire", node.me, lock, lock, entry, kind == "try")
            return True
        if want.stopped and want.granted is False and kind != "try" and want.entry.reads == reads:
            want.stopped = False
            self.post("abandon", node.me, lock, lock, want.entry, False)
            return True
        if want.stopped or want.releasing:
            return False
        if want.granted:
            node.at += 1
            return True
        if want.granted is None:
            # Refused: the lock is broken, or was tried in vain.
            del node.wants[lock]
            return self.skip(node, lock)
        if kind == "stop" and self.rng.random() < 0.2:
            want.stopped = True
            self.post("abandon", node.me, lock, lock, want.entry, True)
            return self.skip(node, lock)
        return False

    def access(self, node, kind, cell):
        """Reads or writes a cell."""
        page = node.pages[cell[0]]
        if page.state == "invalid":
            page.state, page.stale = "fetching", False
            self.post("fetch", node.me, self.homes[cell[0]], cell[0], ordered=False,
                      behind=self.diffs(node.me, self.homes[cell[0]]))
            return True
        if page.state == "fetching":
            return False
        if kind == "write":
            self.fresh += 1
            page.cells[cell[1]] = self.memory[cell] = self.fresh
            page.dirty.add(cell[1])
        elif page.cells[cell[1]] != self.memory[cell]:
            raise Violation(f"node {node.me} reads {page.cells[cell[1]]} in {cell} "
                            f"in place of {self.memory[cell]}")
        node.at += 1
        return True

    # Releases.

    def diffs(self, source, target=None):
        """Returns the changes of a node that are on their way."""
        return [message for message in self.messages if message.kind == "diff"
                and message.source == source and target in (None, message.target)]

    def send_diff(self, node, number):
        """Sends the changes of a page home."""
        page, home = node.pages[number], self.homes[number]
        if home != node.me and page.dirty:
            values = {cell: page.cells[cell] for cell in page.dirty}
            self.post("diff", node.me, home, number, values, ordered=False,
                      behind=self.diffs(node.me, home))

    def unlock(self, node, lock):
        """Closes the interval, and begins to give the lock back."""
        want = node.wants[lock]
        named = {number for number, page in enumerate(node.pages) if page.dirty} | node.early
        if named:
            node.vector[node.me] += 1
            number = node.vector[node.me]
            self.intervals[(node.me, number)] = named
            wrote = {page: {cell: node.pages[page].cells[cell] for cell in node.pages[page].dirty}
                     for page in named if page not in node.early or "early" not in self.rules}
            history = node.history[lock]
            position = history[-1].position + 1 if history else 0
            if not (want.entry.reads and "unlisted" in self.rules):
                history.append(Written(position, node.me, number, wrote))
            node.history[lock] = history[-self.carried:]
        for number, page in enumerate(node.pages):
            self.send_diff(node, number)
            page.dirty = set()
        node.early = set()
        want.releasing = True
        self.holders[lock].pop(node.me, None)
        node.releases.append((lock, list(node.vector), self.diffs(node.me)))
        node.at += 1
        return True

    def end_release(self, node, release):
        """Grants the lock to the next entry, or gives it back. Returns whether it could."""
        lock, vector, diffs = release
        if node.releases[0] is not release:
            return False
        want = node.wants.get(lock)
        if not want:
            raise Violation(f"node {node.me} had lock {lock} when it was refused")
        to = want.next if want.next and want.next.rank not in node.dead else None
        target = to.rank if to else lock
        waits = [diff for diff in diffs if diff in self.messages and diff.target != target]
        if waits and "homes first" in self.rules:
            return False
        behind = [diff for diff in diffs if diff in self.messages and diff.target == target]
        behind = behind if "behind" in self.rules else []
        node.releases.remove(release)
        del node.wants[lock]
        if to:
            self.direct += 1
            self.post("passed", node.me, lock, lock, want.entry, to)
            self.grant(node.me, lock, to, vector, node.history[lock], behind)
        else:
            self.post("unlock", node.me, lock, lock, want.entry, vector,
                      list(node.history[lock]), behind=behind)
        return True

    def grant(self, source, lock, to, vector, history, behind=()):
        """Sends a grant, with what the receiver lacks."""
        carried = [one for one in history
                   if one.number > to.vector[one.writer] or "unknown" not in self.rules]
        if "position" not in self.rules:
            carried = carried[::-1]
        self.post("grant", source, to.rank, lock, to.request, vector, carried, ordered=False,
                  behind=behind)

    # Messages to nodes.

    def take_next(self, node, _, lock, request, to):
        """Learns which entry comes next."""
        want = node.wants.get(lock)
        if want and want.entry.request == request:
            want.next = to

    def take_refused(self, node, _, lock, request):
        """Learns that the lock cannot be had, or not now."""
        want = node.wants.get(lock)
        if want and want.entry.request == request:
            if want.stopped:
                del node.wants[lock]
            else:
                want.granted = None

    def take_grant(self, node, _, lock, request, vector, carried):
        """Takes a lock, and learns what its last holder knew."""
        want = node.wants.get(lock)
        if not want or want.entry.request != request or want.granted:
            raise Violation(f"node {node.me} refuses a grant of lock {lock}")
        if want.stopped and "stopped" not in self.rules:
            del node.wants[lock]
            return
        self.learn(node, vector, carried)
        known = {one.position: one for one in node.history[lock] + carried}
        if "position" in self.rules:
            node.history[lock] = [known[place] for place in sorted(known)][-self.carried:]
        else:
            node.history[lock] = (carried + node.history[lock])[-self.carried:]
        want.granted = True
        if want.stopped:
            want.releasing = True
            node.releases.append((lock, list(node.vector), self.diffs(node.me)))
            return
        self.holders[lock][node.me] = want.entry.reads
        living = [me for me in self.holders[lock] if not self.nodes[me].is_dead]
        if len(living) > 1 and not all(self.holders[lock][me] for me in living):
            raise Violation(f"nodes {sorted(living)} have lock {lock}")
        self.together += len(living) > 1

    def learn(self, node, vector, carried):
        """Applies write notices, and the bytes that came with them (L9 to L13)."""
        news = {(writer, number) for writer in range(NODES) if writer != node.me
                for number in range(node.vector[writer] + 1, vector[writer] + 1)}
        listed = {(one.writer, one.number): one for one in carried}
        for number, page in enumerate(node.pages):
            naming = [key for key in news if number in self.intervals[key]]
            if not naming or self.homes[number] == node.me:
                continue
            all_here = all(key in listed and number in listed[key].pages for key in naming)
            some = any(key in listed and number in listed[key].pages for key in naming)
            is_brought = all_here or ("all named" not in self.rules and some)
            is_valid = page.state == "valid" or ("valid" not in self.rules
                                                 and page.state == "invalid")
            if is_brought and is_valid:
                self.kept += 1
                page.state = "valid"
                for one in carried:
                    is_news = (one.writer, one.number) in news or "unknown" not in self.rules
                    if is_news and number in one.pages:
                        for cell, value in one.pages[number].items():
                            page.cells[cell] = value
            else:
                self.invalidate(node, number)
        node.vector = [max(pair) for pair in zip(node.vector, vector)]

    def invalidate(self, node, number):
        """Makes the copy of a page invalid, after its changes were sent home."""
        page = node.pages[number]
        if page.state == "fetching":
            page.stale = True
        elif page.state == "valid":
            self.send_diff(node, number)
            if page.dirty:
                node.early.add(number)
            page.dirty, page.state = set(), "invalid"

    def take_diff(self, node, _, number, values):
        """Applies changes at the home."""
        for cell, value in values.items():
            node.pages[number].cells[cell] = value

    def take_fetch(self, node, source, number):
        """Answers a fetch."""
        self.post("answer", node.me, source, number, tuple(node.pages[number].cells),
                  ordered=False)

    def take_answer(self, node, _, number, cells):
        """Installs a page."""
        page = node.pages[number]
        page.state = "invalid" if page.stale else "valid"
        if not page.stale:
            page.cells = list(cells)
        page.stale = False

    def take_ask(self, node, _, lock, request, dead):
        """Answers whether the lock was granted to a request. Nothing of the dead comes later."""
        for rank in dead:
            self.note_death(node, rank)
        want = node.wants.get(lock)
        # A request that is over was granted, and its message to the manager is before this one.
        is_here = not want or want.entry.request != request or bool(want.granted)
        self.post("reply", node.me, lock, lock, request, is_here)

    def take_died(self, node, source):
        """Learns of a death. (A message of the network, not of the dead node.)"""
        self.note_death(node, source)

    def note_death(self, node, dead):
        """Counts a node as dead."""
        if dead in node.dead:
            return
        node.dead.add(dead)
        if node.me < LOCKS:
            managed = self.managed[node.me]
            managed.unconfirmed = {one for one in managed.unconfirmed if one.rank != dead}
            # The entry that has the lock alone stays until it is known who has the lock.
            managed.queue = [one for place, one in enumerate(managed.queue)
                             if (place == 0 and managed.held) or one.rank != dead]
            managed.readers = [one for one in managed.readers if one.rank != dead]
            self.find_holder(node, managed)
            self.grant_next(node, managed)

    # The manager.

    def is_doubtful(self, node, managed):
        """Returns whether the first entry may not have the lock, because of a death."""
        by_dead = managed.giver in node.dead and "giver" in self.rules
        return managed.held and (managed.queue[0].rank in node.dead or by_dead)

    def find_holder(self, node, managed):
        """Finds out who has a lock, if the first entry of the queue may not have it."""
        if not self.is_doubtful(node, managed):
            return
        living = [one for one in managed.queue if one.rank not in node.dead]
        if living and "ask" in self.rules:
            if managed.asked != living[0]:
                managed.asked = living[0]
                self.post("ask", node.me, living[0].rank, node.me, living[0].request,
                          set(node.dead))
            return
        self.break_lock(node, managed)

    def break_lock(self, node, managed):
        """Gives a lock up, because the node that had it is dead."""
        managed.broken = True
        for one in managed.queue:
            if one.rank not in node.dead:
                self.post("refused", node.me, one.rank, node.me, one.request)
        managed.queue, managed.held = [], False

    def take_reply(self, node, source, lock, request, has):
        """Learns whether an entry has the lock."""
        managed = self.managed[lock]
        asked = managed.asked
        if not asked or (asked.rank, asked.request) != (source, request):
            return
        managed.asked = None
        if not self.is_doubtful(node, managed):
            return
        if asked in managed.queue:
            if not has:
                self.break_lock(node, managed)
                return
            managed.queue = managed.queue[managed.queue.index(asked):]
            managed.giver = None
        self.find_holder(node, managed)

    def take_acquire(self, node, source, lock, entry, tries):
        """Takes a request."""
        managed = self.managed[lock]
        waits = any(one not in managed.abandoned for one in managed.queue)
        is_taken = managed.held or waits or (managed.readers and not entry.reads)
        if managed.broken or (tries and is_taken):
            self.post("refused", node.me, source, lock, entry.request)
            return
        last = managed.queue[-1] if managed.queue else None
        if entry.reads and "behind first" not in self.rules and not managed.held:
            managed.readers.append(entry)
            self.grant(node.me, lock, entry, list(managed.vector), managed.history)
            return
        managed.queue.append(entry)
        is_alone = "apart" not in self.rules or not (entry.reads or (last and last.reads))
        if last and is_alone and "linked" in self.rules and last.rank not in node.dead:
            self.post("next", node.me, last.rank, lock, last.request, entry)
        self.grant_next(node, managed)

    def take_abandon(self, node, _, lock, entry, abandoned):
        """Learns whether a thread waits for an entry."""
        managed = self.managed[lock]
        managed.abandoned.discard(entry)
        if abandoned and not entry.reads:
            managed.abandoned.add(entry)
        self.grant_next(node, managed)

    def grant_next(self, node, managed):
        """Grants a lock that no entry has alone to the first one, and to readers behind readers."""
        while managed.queue and not managed.held and not managed.broken:
            first = managed.queue[0]
            if "passed by" in self.rules:
                first = next((one for one in managed.queue if one not in managed.abandoned), first)
                first = first if first.reads else managed.queue[0]
            if first.reads:
                managed.queue.remove(first)
                managed.readers.append(first)
            elif managed.readers and "drained" in self.rules:
                return
            else:
                managed.held, managed.giver = True, None
            self.grant(node.me, managed_rank(self, managed), first, list(managed.vector),
                       managed.history)

    def given_up(self, managed, entry):
        """Takes an entry that has the lock no more out of the queue, with those before it."""
        if entry in managed.unconfirmed:
            managed.unconfirmed.remove(entry)
            return False
        if entry not in managed.queue:
            if managed.broken:
                raise Violation(f"node {entry.rank} had a lock that was given up as broken")
            raise Violation(f"the manager does not know the entry of node {entry.rank}")
        place = managed.queue.index(entry)
        if not managed.held or any(one.reads for one in managed.queue[:place + 1]):
            raise Violation(f"node {entry.rank} cannot have had the lock alone")
        if place > 0 and "any order" not in self.rules:
            raise Violation(f"node {entry.rank} is not the holder")
        managed.unconfirmed |= {one for one in managed.queue[:place]
                                if one.rank not in self.nodes[managed_rank(self, managed)].dead}
        managed.queue = managed.queue[place + 1:]
        managed.held = False
        return True

    def take_passed(self, node, _, lock, entry, to):
        """Learns that a holder has granted the lock to the next entry."""
        managed = self.managed[lock]
        if not self.given_up(managed, entry):
            return
        managed.giver = entry.rank
        if to.rank in node.dead and "named" in self.rules:
            # It was taken out of the queue when it died.
            managed.queue.insert(0, to)
        managed.held = bool(managed.queue)
        if managed.held and managed.queue[0].reads:
            raise Violation(f"a holder has passed the lock to node {to.rank}, which reads")
        self.find_holder(node, managed)

    def take_unlock(self, node, _, lock, entry, vector, history):
        """Takes a lock back, and grants it to the next entry."""
        managed = self.managed[lock]
        was_reader = entry in managed.readers
        if was_reader:
            managed.readers.remove(entry)
        elif not self.given_up(managed, entry):
            raise Violation("a lock comes back that was passed")
        managed.vector = [max(pair) for pair in zip(managed.vector, vector)]
        if not was_reader or "unlisted" not in self.rules:
            managed.history = history
        if not was_reader:
            managed.giver = None
        had_next = bool(managed.queue)
        managed.queue = [one for place, one in enumerate(managed.queue)
                         if (place == 0 and managed.held) or one.rank not in node.dead]
        if not (had_next and "crossing" not in self.rules):
            self.grant_next(node, managed)


def managed_rank(walk, managed):
    """Returns the rank of the manager."""
    return walk.managed.index(managed)


# Runs.


def first_violation(seed, walks, rules):
    """Runs a program. Returns what went wrong first, direct grants, and pages that stayed valid."""
    programs = draw(random.Random(seed))
    return run_walks(seed, walks, lambda walk: Walk(random.Random(walk), programs, rules),
                     ("direct", "kept", "together"))


if __name__ == "__main__":
    main(RULES, first_violation, 20)
