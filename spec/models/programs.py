"""Random programs without data races, for the models of homes and of departures.

A program has *agents*, which are the threads of the nodes. Agent (n, 0) calls the barriers of node n.
The other agents of a node call none, so what they do overlaps barriers. Each agent reads and writes
cells, and takes the lock. A sequential machine says what each read returns. The past of an operation
is how many operations of each agent happened before it. An access is drawn only if no race follows.
"""

from dataclasses import dataclass


@dataclass
class Op:
    """Operation of an agent. A cell is a pair (page, cell)."""

    kind: str
    cell: tuple = (0, 0)
    value: int = 0
    ticket: int = 0


class Violation(Exception):
    """A program read a wrong value, a message was refused, or nothing could go on."""


def join(one, other):
    """Returns the joined past, or vector clock, of two."""
    return [max(pair) for pair in zip(one, other)]


def covers(past, other):
    """Returns whether everything in the other past is in this one."""
    return all(mine >= theirs for mine, theirs in zip(past, other))


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

    def locked(self, agent, accesses=3):
        """Accesses cells under the lock."""
        self.ops[agent].append(Op("lock", ticket=self.tickets))
        self.tickets += 1
        self.pasts[agent] = join(self.pasts[agent], self.lock_past)
        for _ in range(self.rng.randrange(accesses + 1)):
            self.access(agent)
        self.ops[agent].append(Op("unlock"))
        self.lock_past = list(self.pasts[agent])

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
        self.ops[agent].append(Op("lock", ticket=self.tickets))
        self.tickets += 1
        self.pasts[agent] = join(self.pasts[agent], self.lock_past)
        push, self.push = self.push, 0.0
        cells = [cell for cell in self.cells if cell[0] == page]
        for cell in cells:
            self.access(agent, True, cell)
        self.ops[agent].append(Op("push", cells[0]))
        if self.rng.random() < 0.25:
            self.access(agent, True, self.rng.choice(cells))
        self.push = push
        self.ops[agent].append(Op("unlock"))
        self.lock_past = list(self.pasts[agent])

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
        self.ops[agent].append(Op("lock", ticket=self.tickets))
        self.tickets += 1
        self.pasts[agent] = join(self.pasts[agent], self.lock_past)
        self.access(agent, True, cell)
        self.ops[agent].append(Op("unlock"))
        self.lock_past = list(self.pasts[agent])

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
