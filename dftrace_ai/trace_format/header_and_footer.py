"""What header and closing line of a trace say: the process, counts of events, losses, the end."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    get_args,
    get_type_hints,
)

if TYPE_CHECKING:
    from dftrace_ai.trace_format.json_types import EventLine, Json

# The category of the lines that the format itself needs, and the names of four of them.
OWN_CATEGORY: Final = "dftrace"
HEADER: Final = "dftrace"
FOOTER: Final = "end"
INDEX: Final = "index"
CLOCK: Final = "clock"

MERGED_LINE: Final = b'{"name":"merged","cat":"dftrace","ph":"M"'
"""How the line behind the first begins in a file that was made of many traces for a viewer, which
passes over it: what such a file holds would count twice beside them."""

# The name of a line with a key and a value of the user's; all other `M` lines are the format's.
CUSTOM_METADATA: Final = "CM"

Ending = Literal["finalize", "exit", "exception", "rotated", "loader", "died", "reboot"]
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

SAMPLE: Final = EventKind("P", "samples", "sample")
"""What lines of samples of stacks hold, which are no events themselves."""

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
        "LOST {}, the spool was full; raise spool_bytes or set overflow to 'wait'; if its file "
        "could not grow so far, see to its disk (spool_dir) or the limit of files (ulimit -f)",
    ),
    Loss("waits", "time", "threads waited {} for a full spool; durations hold those waits"),
    Loss("unmatched_stops", "stop()", "{} without a start()"),
    Loss("args_sanitised", "value", "{} of arguments replaced by safe ones"),
    Loss("unfinished", "span", ""),
)


class Said(NamedTuple):
    """What the schema of the lines says of a member; one without it is not in the schema."""

    about: str = ""
    always: bool = False
    least: int | None = None
    most: int | None = None
    pattern: str = ""
    kind: object = None
    """A type that takes less than the annotation; None for that."""


HASH: Final = Said("Hash of the host's name.", always=True, pattern=r"^[0-9a-f]{16}$")
PROCESS: Final = Said("Process id.", always=True, least=0, most=2**32 - 1)

Text = Annotated[str | None, Said()]
Number = Annotated[int | None, Said(least=0)]
Hash = Annotated[str | None, HASH]
# What every line has.
GivenText = Annotated[str | None, Said(always=True)]
Count = Annotated[int | None, Said(always=True, least=0)]


class Ntp(NamedTuple):
    """How well the kernel says that its wall clock is kept, as adjtimex(2) tells it."""

    synchronised: bool
    # It is within so much of the true time, at most and by estimate.
    max_error_us: int
    estimated_error_us: int
    # By how much it is made to run faster than by itself.
    frequency_ppm: float

    @classmethod
    def of(cls, said: object) -> Ntp | None:
        """Read the member of a header or closing line; None where it is none."""
        told = [said.get(name) for name in cls._fields] if isinstance(said, dict) else []
        return cls._make(told) if [*map(type, told)] == [bool, int, int, float] else None


class Generated(NamedTuple):
    """Of what seed, and with what causes, `dftrace generate` made a trace that nobody recorded."""

    seed: int
    causes: tuple[str, ...]

    @classmethod
    def of(cls, said: object) -> Generated | None:
        """Read the member of a header; None where it is none."""
        seed, causes = map(said.get, cls._fields) if isinstance(said, dict) else (None, None)
        if type(seed) is not int or not isinstance(causes, list):
            return None
        return cls(seed, tuple(causes)) if all(type(cause) is str for cause in causes) else None

    @property
    def told(self) -> str:
        """The seed and the causes: ``seed 0, slow-rank:17:6``."""
        return ", ".join((f"seed {self.seed}", *self.causes))


class HeaderFacts(NamedTuple):
    """What a file says of its process, in the line's order; None for what it does not say."""

    hhash: Hash = None
    format: Annotated[int | None, Said(always=True, kind=Literal[1])] = None
    host: GivenText = None
    # The process, by the number that its lines carry.
    pid: Annotated[int | None, PROCESS] = None
    ppid: Count = None
    run: Annotated[
        str | None, Said("Same in all of a run.", always=True, pattern=r"^[0-9a-f]+$")
    ] = None
    time_base_us: Annotated[
        int | None, Said("Microseconds since 1970 to add to ts.", always=True, least=0)
    ] = None
    timestamps: Annotated[str | None, Said(always=True, kind=Literal["relative", "epoch_us"])] = (
        None
    )
    # ``tsc`` or ``monotonic``.
    clock: GivenText = None
    version: GivenText = None
    rank: Number = None
    world_size: Number = None
    local_rank: Number = None
    # Who gave the rank.
    launcher: str | None = None
    layout: Annotated[str | None, Said("Rank in each dimension: dp=0,pp=1.")] = None
    # Who gave the job its name, and the scheduler's name of the host below.
    scheduler: Text = None
    job_id: Text = None
    run_id: Text = None
    node: Text = None
    restarts: Number = None
    launch: Annotated[str | None, Said("Same in all that one call of dftrace run has started.")] = (
        None
    )
    python: str | None = None
    cmdline: tuple[str, ...] | None = None
    data_dir: str | None = None
    system: str | None = None
    machine: str | None = None
    # Logical processors, of which `cores` are physical.
    cpus: int | None = None
    memory_bytes: int | None = None
    cores: int | None = None
    torch: str | None = None
    generated: Annotated[Generated | None, Said("Made by dftrace generate; absent else.")] = None
    lines_hz: Annotated[int | None, Said("Samples of stacks a second.", least=1)] = None
    lines_refused: Annotated[str | None, Said("Why asked for samples were not taken.")] = None
    boot_id: Text = None
    pid_namespace: Number = None
    # Ticks since the host began.
    process_start: Number = None
    # Below 0 where the wall clock shows less than the host has run for; that is not known then.
    clock_offset_ns: Annotated[int | None, Said("From CLOCK_BOOTTIME to the file's times.")] = None
    ntp: Annotated[Ntp | None, Said("How well the wall clock was kept; absent if unknown.")] = None
    part: int | None = None

    @classmethod
    def of(cls, args: dict[str, Json]) -> HeaderFacts:
        """Read the arguments of a header line, whoever wrote it."""
        return _sensible(cls, args)

    def placed(
        self, rank: int | None, world_size: int | None, local_rank: int | None
    ) -> HeaderFacts:
        """Return the same of this rank."""
        return self._replace(rank=rank, world_size=world_size, local_rank=local_rank)


class FooterFacts(NamedTuple):
    """What a closing line says, in its order, of its file; None for what it does not say."""

    hhash: Hash = None
    events: Annotated[
        int | None, Said("Sum of the six counts that follow.", always=True, least=0)
    ] = None
    spans: Count = None
    instants: Count = None
    counters: Count = None
    flows: Annotated[int | None, Said("Tails and heads, each counted.", always=True, least=0)] = (
        None
    )
    metadata: Annotated[int | None, Said("CM lines.", always=True, least=0)] = None
    # Spans without an end.
    unfinished: Count = None
    samples: Annotated[
        int | None, Said("Samples of stacks, which are no events; absent without any.", least=0)
    ] = None
    dropped: Annotated[
        int | None, Said("Events lost because the spool was full.", always=True, least=0)
    ] = None
    waits: Annotated[
        int | None, Said("Times a thread waited for the writer.", always=True, least=0)
    ] = None
    unmatched_stops: Count = None
    args_sanitised: Annotated[
        int | None, Said("Values replaced by safe ones.", always=True, least=0)
    ] = None
    bytes: Annotated[int | None, Said("Plain bytes before this line.", always=True, least=0)] = None
    file_bytes: Annotated[
        int | None, Said("Bytes of the file before this line.", always=True, least=0)
    ] = None
    # Of formatting and writing.
    drain_cpu_us: Count = None
    # An `Ending` where the recorder wrote it.
    ended: Annotated[str | None, Said(always=True, kind=Ending)] = None
    part: Number = None
    earlier_events: Annotated[int | None, Said("In the parts before.", least=1)] = None
    error: Annotated[str | None, Said("Type of the exception that nobody caught.")] = None
    signal: Annotated[int | None, Said("That killed the process.", least=1)] = None
    exit_status: Annotated[int | None, Said(least=0, most=255)] = None
    write_error: Annotated[str | None, Said("Why the process could not write the rest itself.")] = (
        None
    )
    damaged: Annotated[int | None, Said("Kinds of damage found in the spool.", least=1)] = None
    overwritten: Annotated[int | None, Said("Events that a flight recorder let go.", least=1)] = (
        None
    )
    alive_us: Annotated[
        int | None, Said("A process that died is known to have lived then.", least=1)
    ] = None
    layout: Annotated[str | None, Said("As in the header, known later.")] = None
    rank: Annotated[int | None, Said("As in the header, known later.", least=0)] = None
    world_size: Number = None
    local_rank: Number = None
    ntp: Annotated[Ntp | None, Said("As in the header, at the end.")] = None

    @classmethod
    def of(cls, args: dict[str, Json]) -> FooterFacts:
        """Read the arguments of a closing line, whoever wrote it."""
        return _sensible(cls, args)

    @property
    def losses(self) -> dict[str, int]:
        """The counts that mean a loss and are above zero, by name."""
        counts = {loss.member: getattr(self, loss.member) for loss in LOSSES}
        return {name: count for name, count in counts.items() if count}


LATE_RANK: Final = "rank"
"""The key of the ``CM`` line that tells a rank which became known late: ``3 of 8``."""


def late_rank_of(event: EventLine) -> tuple[int, int] | None:
    """Return the rank and the size of the world that a line tells; None for any other."""
    args = event.get("args")
    if event.get("name") != CUSTOM_METADATA or event.get("ph") != "M" or not isinstance(args, dict):
        return None
    value = args.get("value")
    if args.get("name") != LATE_RANK or not isinstance(value, str):
        return None
    rank, _, size = value.partition(" of ")
    short = len(value) < 32 and value.isascii()
    return (int(rank), int(size)) if short and rank.isdigit() and size.isdigit() else None


def header_of(event: EventLine) -> HeaderFacts | None:
    """Return the facts of an event that is a header line; None for any other.

    The number of the process is that of the line, which all other lines carry, too.
    """
    if not is_own(event, HEADER):
        return None
    args = event.get("args")
    said = args if isinstance(args, dict) else {}
    return HeaderFacts.of({**said, "pid": event.get("pid")})


def footer_of(event: EventLine) -> FooterFacts | None:
    """Return the facts of an event that is a closing line; None for any other."""
    args = event.get("args")
    return FooterFacts.of(args) if is_own(event, FOOTER) and isinstance(args, dict) else None


def is_own(event: EventLine, name: str) -> bool:
    """Return whether an event is the line of the format's that has this name."""
    return event.get("name") == name and event.get("cat") == OWN_CATEGORY and event.get("ph") == "M"


F = TypeVar("F", HeaderFacts, FooterFacts)


def _sensible(facts: type[F], said: dict[str, Json]) -> F:
    """Return facts of the members that are known and of the type that the recorder gives them."""
    values = {name: _of_type(kind, said.get(name)) for name, kind in _TYPES[facts.__name__].items()}
    if isinstance(layout := said.get("layout"), dict):  # as other recorders have it
        values["layout"] = ",".join(f"{name}={rank}" for name, rank in layout.items())
    return facts(**{name: value for name, value in values.items() if value is not None})


def _of_type(wanted: Any, value: object) -> Any:
    """Return a value as a member of this type has it; None where it is none of the type."""
    if wanted is int:
        return value if type(value) is int and 0 <= value < 2**63 else None
    if wanted in (Ntp, Generated):
        return wanted.of(value)
    if wanted is str:
        return value if isinstance(value, str) else None
    words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return tuple(value) if words and isinstance(value, list) else None


# The type of each member, without the None that all may be.
_TYPES: Final = {
    facts.__name__: {name: get_args(kind)[0] for name, kind in get_type_hints(facts).items()}
    for facts in (HeaderFacts, FooterFacts)
}
