"""Parts that the models share: random walks, the command line, and programs without data races.

A program has *agents*, which are the threads of the nodes. Agent (n, 0) calls the barriers of node n.
The other agents of a node call none, so what they do overlaps barriers. Each agent reads and writes
cells, and takes the lock. A sequential machine says what each read returns. The past of an operation
is how many operations of each agent happened before it. An access is drawn only if no race follows.
"""

import sys
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Op:
    """Operation of an agent. A cell is a pair (page, cell)."""

    kind: str
    cell: tuple = (0, 0)
    value: int = 0
    ticket: int = 0


class Violation(Exception):
    """A program read a wrong value, two nodes had a lock, or nothing could go on."""


def join(one, other):
    """Returns the joined past, or vector clock, of two."""
    return [max(pair) for pair in zip(one, other)]


def covers(past, other):
    """Returns whether everything in the other past is in this one."""
    return all(mine >= theirs for mine, theirs in zip(past, other))


class Thread:
    """One agent of a program, while it runs."""

    def __init__(self, node, program):
        self.node, self.program, self.at = node, program, 0
        # Messages that the release waits for, once it has begun.
        self.waits_for, self.vector = None, None

    def op(self):
        """Returns the next operation."""
        return self.program[self.at] if self.at < len(self.program) else None

    def next(self):
        """Ends the operation."""
        self.at, self.waits_for, self.vector = self.at + 1, None, None
        return True


class Schedule:
    """One run of a program: nodes and messages take steps in a random order.

    A model has `rng`, `messages`, and `speed`, which is a weight for each node and kind of message.
    Its methods `step` and `deliver` return whether the step could be taken.
    """

    STEPS_MAX = 0

    def agents(self):
        """Returns the agents that may take a step, each behind the key of its speed."""
        return [(thread.node.me, thread) for thread in self.threads]

    def is_over(self):
        """Returns whether the program has ended."""
        return not any(thread.op() for thread in self.threads)

    def begin_step(self, number):
        """Does what is due before a step of this number."""

    def step(self, thread):
        """Takes the next operation of a thread, or a part of it. Returns whether it could."""
        op = thread.op()
        return op is not None and getattr(self, op.kind)(thread, thread.node, op)

    def run(self):
        """Runs the program to its end."""
        for number in range(self.STEPS_MAX):
            self.begin_step(number)
            turns = [(key, self.step, agent) for key, agent in self.agents()]
            turns += [(message.kind, self.deliver, message) for message in self.messages]
            speeds = [self.speed[key] for key, _, _ in turns]
            while turns:
                place = self.rng.choices(range(len(turns)), speeds)[0]
                _, take, actor = turns.pop(place)
                speeds.pop(place)
                if take(actor):
                    break
            else:
                if not self.is_over():
                    raise Violation("nothing can go on")
                return
        raise Violation("the program does not end")


def run_walks(seed, walks, make, counts):
    """Runs walks of a program. Returns what went wrong first, and sums of these counts."""
    sums = dict.fromkeys(counts, 0)
    for number in range(walks):
        walk = make((seed << 20) + number)
        try:
            walk.run()
        except Violation as violation:
            return f"seed {seed}, walk {number}: {violation}", sums
        sums = {name: total + getattr(walk, name) for name, total in sums.items()}
    return None, sums


def main(rules, first_violation, walks):
    """Runs all programs with all rules, and without each of them.

    Arguments are the first seed, the one behind the last, walks of each program, and the sets of
    rules by name, separated by commas.
    """
    first, last = int(sys.argv[1]), int(sys.argv[2])
    walks = int(sys.argv[3]) if len(sys.argv) > 3 else walks
    sets = {"all": set(rules)}
    sets.update({f"without {rule}": set(rules) - {rule} for rule in rules})
    chosen = sys.argv[4].split(",") if len(sys.argv) > 4 else list(sets)
    for name in chosen:
        results = [first_violation(seed, walks, sets[name]) for seed in range(first, last)]
        wrong = [violation for violation, _ in results if violation]
        counts = "".join(f", {count.replace('_', ' ')} {sum(sums[count] for _, sums in results):6}"
                         for count in results[0][1])
        print(f"{name:22} right {len(results) - len(wrong):4}, wrong {len(wrong):4}{counts}"
              f"  {wrong[0] if wrong else ''}", flush=True)


class Drawing:
    """Draws a program by running it on a sequential machine."""

    def __init__(self, rng, nodes, threads, pages, cells, push=0.0):
        self.rng, self.nodes, self.push = rng, nodes, push
        self.agents = [(node, thread) for node in range(nodes) for thread in range(threads)]
        self.number = {agent: number for number, agent in enumerate(self.agents)}
        zero = [0] * len(self.agents)
        self.ops = {agent: [] for agent in self.agents}
        self.pasts = {agent: list(zero) for agent in self.agents}
        self.cells = [(page, cell) for page in range(pages) for cell in range(cells)]
        self.value = {cell: 0 for cell in self.cells}
        self.written = {cell: list(zero) for cell in self.cells}
        self.read = {cell: list(zero) for cell in self.cells}
        self.lock_past, self.tickets, self.fresh = list(zero), 0, 0

    def access(self, agent, writes=None, cell=None):
        """Reads or writes a cell, if no race follows."""
        cell = cell or self.rng.choice(self.cells)
        past = self.pasts[agent]
        past[self.number[agent]] += 1
        if not covers(past, self.written[cell]):
            return
        if not (self.rng.random() < 0.5 if writes is None else writes):
            self.ops[agent].append(Op("read", cell, self.value[cell]))
            self.read[cell] = join(self.read[cell], past)
        elif covers(past, self.read[cell]):
            self.fresh += 1
            self.value[cell] = self.fresh
            self.written[cell] = self.read[cell] = list(past)
            self.ops[agent].append(Op("write", cell, self.fresh))
            if self.rng.random() < self.push:
                self.ops[agent].append(Op("push", cell))

    @contextmanager
    def lock(self, agent):
        """Holds the lock meanwhile."""
        self.ops[agent].append(Op("lock", ticket=self.tickets))
        self.tickets += 1
        self.pasts[agent] = join(self.pasts[agent], self.lock_past)
        yield
        self.ops[agent].append(Op("unlock"))
        self.lock_past = list(self.pasts[agent])

    def locked(self, agent, accesses=3):
        """Accesses cells under the lock."""
        with self.lock(agent):
            for _ in range(self.rng.randrange(accesses + 1)):
                self.access(agent)

    def barrier(self):
        """Waits for all nodes."""
        callers = [(node, 0) for node in range(self.nodes)]
        past = [max(self.pasts[caller][at] for caller in callers)
                for at in range(len(self.agents))]
        for caller in callers:
            self.pasts[caller] = list(past)
            self.ops[caller].append(Op("barrier"))

    def pushed_whole(self, agent, page):
        """Writes and pushes all cells of a page under the lock, and perhaps writes one again."""
        push, self.push = self.push, 0.0
        cells = [cell for cell in self.cells if cell[0] == page]
        with self.lock(agent):
            for cell in cells:
                self.access(agent, True, cell)
            self.ops[agent].append(Op("push", cells[0]))
            if self.rng.random() < 0.25:
                self.access(agent, True, self.rng.choice(cells))
        self.push = push

    def crossed(self, page):
        """Lets two nodes write and push one cell, one after the other, which a third one reads.

        Returns the two writers and the reader.
        """
        one, two, reader = self.rng.sample(range(self.nodes), 3)
        push, self.push = self.push, 1.0
        self.access((reader, 0), False, (page, 0))
        self.barrier()
        for node in (one, two):
            self.written_under_lock((node, 0), (page, 0))
        self.barrier()
        self.access((reader, 0), False, (page, 0))
        self.push = push
        return one, two, reader

    def written_under_lock(self, agent, cell):
        """Writes a cell under the lock."""
        with self.lock(agent):
            self.access(agent, True, cell)

    def brought(self, page, writer, reader, other):
        """Lets one node write and push a whole page, of which another one writes a part then."""
        self.pushed_whole((writer, 0), page)
        self.written_under_lock((other, 0), (page, 0))
        self.barrier()
        self.access((reader, 0), False, (page, 0))

    def phase(self):
        """Draws what happens between two barriers: some cells have one writer, some go round."""
        if self.push and self.rng.random() < 0.6:
            # The callers of barriers are in none meanwhile, so their intervals are not late.
            page = self.rng.choice(self.cells)[0]
            nodes = self.rng.sample(range(self.nodes), min(4, self.nodes))
            for node in nodes[2:]:
                self.access((node, 0), False, (page, 0))
            for node in nodes[:self.rng.randrange(1, 3)]:
                self.pushed_whole((node, 0), page)
        writers = {page: self.rng.choice(self.agents) for page, _ in self.cells}
        for _ in range(self.rng.randrange(2, 7)):
            agent, cell = self.rng.choice(self.agents), self.rng.choice(self.cells)
            kind = self.rng.random()
            if kind < 0.4:
                self.access(writers[cell[0]], True, cell)
            elif kind < 0.7:
                self.access(agent, False, cell)
                if agent[1] > 0 and self.rng.random() < 0.7:
                    # Later writers are to know of this read.
                    self.locked(agent, 0)
            else:
                self.locked(agent)

    def draw(self, phases):
        """Returns the operations of each agent."""
        for _ in range(phases):
            self.phase()
            self.barrier()
        # A chain of locks orders the last reads of all agents.
        for agent in self.rng.sample(self.agents, len(self.agents)):
            self.locked(agent, 1)
        for agent in self.agents:
            self.locked(agent, 0)
            for cell in self.cells:
                self.access(agent, False, cell)
        return self.ops
