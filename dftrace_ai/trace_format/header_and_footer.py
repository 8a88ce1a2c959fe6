"""What header and closing line of a trace say: the process, counts of events, losses, the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = [
    "COUNTS",
    "COUNT_OF",
    "CUSTOM_METADATA",
    "ENDINGS",
    "FOOTER",
    "HEADER",
    "INDEX",
    "KINDS",
    "LOSSES",
    "OWN_CATEGORY",
    "Ending",
    "EventKind",
    "FooterFacts",
    "HeaderFacts",
    "Loss",
    "footer_of",
    "header_of",
]

# The category of the lines that the format itself needs, and the names of three of them.
OWN_CATEGORY: Final = "dftrace"
HEADER: Final = "dftrace"
FOOTER: Final = "end"
INDEX: Final = "index"

# The name of a line with a key and a value of the user's; all other `M` lines are the format's.
CUSTOM_METADATA: Final = "CM"

Ending = Literal["finalize", "exit", "exception", "rotated", "died", "reboot"]
"""How recording ended, as the footer has it."""

ENDINGS: Final[tuple[Ending, ...]] = get_args(Ending)


class EventKind(NamedTuple):
    """A kind of line that is an event."""

    ph: str
    """Its phase; of `M` only ``CM`` is an event."""
    member: str
    """The member of the footer that counts it."""
    noun: str
    """What people call one."""


KINDS: Final = (
    EventKind("X", "spans", "span"),
    EventKind("B", "unfinished", "unfinished span"),
    EventKind("i", "instants", "instant"),
    EventKind("C", "counters", "counter"),
    EventKind("s", "flows", "flow"),
    EventKind("f", "flows", "flow"),
    EventKind("M", "metadata", "metadata"),
)

COUNT_OF: Final = {kind.ph: kind.member for kind in KINDS if kind.ph != "M"}
"""The member of the footer that counts a line, by its phase where that suffices to tell."""

COUNTS: Final = tuple(dict.fromkeys(kind.member for kind in KINDS))
"""The members of the footer that add up to ``events``."""


class Loss(NamedTuple):
    """A count of the footer that means that something was lost or done otherwise than asked."""

    member: str
    noun: str
    text: str
    """What to say of it, with the count and its noun for ``{}``; empty for nothing."""


LOSSES: Final = (
    Loss(
        "dropped",
        "event",
        "LOST {}, the spool was full; raise spool_bytes or set overflow to 'wait'",
    ),
    Loss("waits", "time", "threads waited {} for a full spool; durations hold those waits"),
    Loss("unmatched_stops", "stop()", "{} without a start()"),
    Loss("args_sanitised", "value", "{} of arguments replaced by safe ones"),
    Loss("unfinished", "span", ""),
)


class HeaderFacts(NamedTuple):
    """What a file says of its process; None for what it does not say, or says senselessly.

    The members are those of the header line, in its order.

    Attributes:
        hhash: hash of the host's name.
        format: version of the format.
        host: the host's name.
        pid: the process, by the number that its lines carry.
        ppid: its parent.
        run: hexadecimal digits, the same in all processes of a run.
        time_base_us: microseconds since 1970 to add to every `ts`.
        timestamps: ``relative`` or ``epoch_us``.
        clock: ``tsc`` or ``monotonic``.
        version: that of dftrace_ai.
        rank: the rank.
        world_size: number of ranks.
        local_rank: rank on the host.
        launcher: who said so.
        layout: rank in each dimension of a parallel training, such as ``dp=0,pp=1``.
        scheduler: who gave the job its name.
        job_id: the job's name.
        run_id: torchrun's name of the run.
        node: the scheduler's name of the host.
        restarts: times that the job was started again.
        python: version.
        cmdline: words of the command line.
        data_dir: the setting of that name.
        system: operating system.
        machine: architecture of the processor.
        cpus: logical processors.
        memory_bytes: main memory of the host.
        cores: physical processors.
        torch: version.
        boot_id: the kernel's name for this start of the host.
        pid_namespace: number of the namespace in which the process has its number.
        process_start: when the process began, in ticks since the host did.
        part: number of the file among the parts of a trace.
    """

    hhash: str | None = None
    format: int | None = None
    host: str | None = None
    pid: int | None = None
    ppid: int | None = None
    run: str | None = None
    time_base_us: int | None = None
    timestamps: str | None = None
    clock: str | None = None
    version: str | None = None
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    launcher: str | None = None
    layout: str | None = None
    scheduler: str | None = None
    job_id: str | None = None
    run_id: str | None = None
    node: str | None = None
    restarts: int | None = None
    python: str | None = None
    cmdline: tuple[str, ...] | None = None
    data_dir: str | None = None
    system: str | None = None
    machine: str | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    cores: int | None = None
    torch: str | None = None
    boot_id: str | None = None
    pid_namespace: int | None = None
    process_start: int | None = None
    part: int | None = None

    @classmethod
    def of(cls, args: Mapping[str, object]) -> HeaderFacts:
        """Read the arguments of a header line, whoever wrote it."""
        return cls(**_sensible(cls, args))


class FooterFacts(NamedTuple):
    """What a closing line says; None for what it does not say, or says senselessly.

    The members are those of the line, in its order. Counts are of the file.

    Attributes:
        hhash: hash of the host's name.
        events: events in all.
        spans: finished spans.
        instants: moments.
        counters: samples.
        flows: tails and heads of arrows.
        metadata: keys with values.
        unfinished: spans without an end.
        dropped: events that were lost because the spool was full.
        waits: times a thread waited for room in the spool.
        unmatched_stops: calls of `stop()` without a `start()`.
        args_sanitised: values that could not be written as they were.
        bytes: plain bytes before the line.
        file_bytes: bytes of the file before the block of the line.
        drain_cpu_us: microseconds of processor time for formatting and writing.
        ended: how recording ended: an `Ending` where the recorder wrote it.
        part: number of the file among the parts of a trace.
        earlier_events: events in the parts before it.
        error: type of the exception that nobody caught.
        signal: that killed the process.
        exit_status: of the process.
        write_error: why the process could not write the rest itself, so that another has.
        damaged: kinds of damage found in the spool.
        overwritten: events that a flight recorder let go.
        alive_us: until when the process is known to have lived, as `ts`, where it died.
        layout: as in the header, where it became known later.
    """

    hhash: str | None = None
    events: int | None = None
    spans: int | None = None
    instants: int | None = None
    counters: int | None = None
    flows: int | None = None
    metadata: int | None = None
    unfinished: int | None = None
    dropped: int | None = None
    waits: int | None = None
    unmatched_stops: int | None = None
    args_sanitised: int | None = None
    bytes: int | None = None
    file_bytes: int | None = None
    drain_cpu_us: int | None = None
    ended: str | None = None
    part: int | None = None
    earlier_events: int | None = None
    error: str | None = None
    signal: int | None = None
    exit_status: int | None = None
    write_error: str | None = None
    damaged: int | None = None
    overwritten: int | None = None
    alive_us: int | None = None
    layout: str | None = None

    @classmethod
    def of(cls, args: Mapping[str, object]) -> FooterFacts:
        """Read the arguments of a closing line, whoever wrote it."""
        return cls(**_sensible(cls, args))

    @property
    def losses(self) -> dict[str, int]:
        """The counts that mean a loss and are above zero, by name."""
        counts = {loss.member: getattr(self, loss.member) for loss in LOSSES}
        return {name: count for name, count in counts.items() if count}


def header_of(event: Mapping[str, object]) -> HeaderFacts | None:
    """Return the facts of an event that is a header line; None for any other.

    The number of the process is that of the line, which all other lines carry, too.

    Example::

        facts = header_of(json.loads(line))
        if facts:
            print(facts.rank, facts.host)
    """
    if not _is_own(event, HEADER):
        return None
    args = event.get("args")
    said = args if isinstance(args, dict) else {}
    return HeaderFacts.of({**said, "pid": event.get("pid")})


def footer_of(event: Mapping[str, object]) -> FooterFacts | None:
    """Return the facts of an event that is a closing line; None for any other."""
    args = event.get("args")
    return FooterFacts.of(args) if _is_own(event, FOOTER) and isinstance(args, dict) else None


def _is_own(event: Mapping[str, object], name: str) -> bool:
    return event.get("name") == name and event.get("cat") == OWN_CATEGORY and event.get("ph") == "M"


def _sensible(facts: type[HeaderFacts | FooterFacts], said: Mapping[str, object]) -> JsonObject:
    """Return the members that are known and of the type that the recorder gives them."""
    values = {name: _of_type(kind, said.get(name)) for name, kind in _TYPES[facts.__name__].items()}
    return {name: value for name, value in values.items() if value is not None}


def _of_type(wanted: object, value: object) -> object:
    """Return a value as a member of this type has it; None where it is none of the type."""
    if wanted is int:
        return value if type(value) is int and 0 <= value < 2**63 else None
    if wanted is str:
        return value if isinstance(value, str) else None
    words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return tuple(value) if words and isinstance(value, list) else None


# The type of each member, without the None that all may be.
_TYPES: Final[dict[str, dict[str, object]]] = {
    facts.__name__: {name: get_args(kind)[0] for name, kind in get_type_hints(facts).items()}
    for facts in (HeaderFacts, FooterFacts)
}
