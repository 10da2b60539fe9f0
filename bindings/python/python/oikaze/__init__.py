"""Shared and remote memory for clusters on ordinary Ethernet.

A program joins its job and gets everything else from it::

    import oikaze

    job = oikaze.join()
    print(f"node {job.rank} of {job.size}")
    job.barrier()

``oikaze run -n 4 -- python program.py`` starts it on four nodes of this machine.
"""

from ._array import Array, SharedArray, ViewWarning
from ._collectives import Team
from ._errors import (
    AbortedError,
    ArgumentTypeError,
    CancelledError,
    Error,
    ForkedError,
    FullError,
    InvalidError,
    JoinError,
    LeftError,
    OutOfMemoryError,
    MismatchError,
    PeerLostError,
    QueueFullError,
    RefusedError,
    SystemCallError,
    TimeoutError,  # noqa: A004 - derives from the built-in
    UnreportedError,
)
from ._job import Job, Rights, join
from ._local import Pool, by_rank, current_job, local
from ._native import (
    Arrival,
    Arrivals,
    CompletionQueue,
    Distribution,
    Fifo,
    Lock,
    Message,
    Operation,
    Peer,
    Received,
    Region,
    RemoteFifo,
    RemoteRegion,
    RemoteSignal,
    __version__,
)

__all__ = [
    "AbortedError",
    "ArgumentTypeError",
    "Array",
    "Arrival",
    "Arrivals",
    "CancelledError",
    "CompletionQueue",
    "Distribution",
    "Error",
    "Fifo",
    "ForkedError",
    "FullError",
    "InvalidError",
    "Job",
    "JoinError",
    "LeftError",
    "Lock",
    "OutOfMemoryError",
    "Message",
    "MismatchError",
    "Operation",
    "Peer",
    "PeerLostError",
    "Pool",
    "QueueFullError",
    "Received",
    "RefusedError",
    "Region",
    "RemoteFifo",
    "RemoteRegion",
    "RemoteSignal",
    "Rights",
    "SharedArray",
    "SystemCallError",
    "Team",
    "TimeoutError",
    "UnreportedError",
    "ViewWarning",
    "__version__",
    "by_rank",
    "current_job",
    "join",
    "local",
]
