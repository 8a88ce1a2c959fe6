"""The rules of the format: of a line, its place in the file, and the counts of the footer.

Loaded late, for pydantic is. What index lines and files say is held against the lines here, too.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pydantic import ValidationError

from dftrace_ai.analysis.reading.clock_faults import NEVER
from dftrace_ai.analysis.reading.identity import recordings_of
from dftrace_ai.analysis.reading.index_file import IndexFileError, index_path, read_index
from dftrace_ai.analysis.reading.index_line import index_of
from dftrace_ai.analysis.reading.reader import LINE_BYTES, LongLine
from dftrace_ai.analysis.summary.indexing import figures_of
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format import lines
from dftrace_ai.trace_format.header_and_footer import (
    COUNT_OF,
    COUNTS,
    CUSTOM_METADATA,
    FOOTER,
    HEADER,
    INDEX,
    SAMPLE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dftrace_ai.analysis.reading.index_file import ProcessFigures
    from dftrace_ai.analysis.reading.index_line import (
        IndexedOthers,
        IndexedSpans,
        IndexedTrack,
        IndexFigures,
    )
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.json_types import Json
    from dftrace_ai.trace_format.lines import FooterArgs


# The first `"ts":` outside of a string is the event's own: it stands before args.
NANOSECOND_TIME = re.compile(rb'"ts":(\d{1,20})\.(\d{3}),(?:"dur":(\d{1,20})\.(\d{3}),)?"ph":')
MICROSECOND_TIME = re.compile(rb'"ts":(\d{1,20}),(?:"dur":(\d{1,20}),)?"ph":')

PHASE = re.compile(rb'"ph":"([A-Za-z])"')

# An escaped backslash right before the closing quote makes Perfetto lose the rest of the file.
FINAL_BACKSLASH = re.compile(rb'(?<!\\)(?:\\\\)+"')

# The backslash of the escape is none that another one escapes.
SURROGATE = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]")

# The styles of time as the native reader has them.
NO_STYLE: Final = 0
THREE_DECIMALS: Final = 1
WHOLE_MICROS: Final = 2


# The models list everything that is wrong with a line, which for 16 MiB of nulls takes 30 GiB.
# Longer lines are looked through first, up to the first fault.
MODELLED_BYTES = 16 * 1024

# As deep as the models go.
MOST_DEPTH = 200

MESSAGE_LETTERS = 300

NOT_KEPT = (
    "not a value that viewers keep: text, true, false, a finite "
    "number, an integer of 64 bits, an object, or a list without null"
)


@dataclass(frozen=True, order=True)
class Fault:
    """A place where a file departs from the format; as text ``file:line: message``."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class Spans(Protocol):
    """Who looks whether spans nest."""

    def add(self, pid: int, tid: int, start_ns: int, end_ns: int | None, line: int) -> None:
        """Take in a span; `end_ns` is None for one that never ended."""


class Rules:
    """Holds lines against the format, in the order of the file.

    `spans` takes the spans of lines without a fault. `counted_elsewhere` gives the events of lines
    that were found right without the rules, `figures` what the lines before one add up to.
    """

    def __init__(
        self,
        path: str,
        limit: int,
        spans: Spans,
        counted_elsewhere: Callable[[], Mapping[str, int]],
        figures: Callable[[], FoundFigures | None] = lambda: None,
        part: int = 0,
    ) -> None:
        self.path = path
        self.limit = limit
        self.spans = spans
        self.counted_elsewhere = counted_elsewhere
        self.figures = figures
        self.part = part
        # Index lines that were not held against the lines before them.
        self.unchecked_indexes = 0
        self.faults: list[Fault] = []
        self.fault_count = 0
        # By kind, of the lines that were given.
        self.counts: Counter[str] = Counter()
        # Numbers of the last header and of the closing line; 0 for none so far.
        self.header_line = 0
        self.header_missed = False
        self.footer_line = 0
        self.time = NANOSECOND_TIME
        self._model = LineModel()
        self.last_line = 0
        self.samples = 0
        # The frames of samples so far, by process and id.
        self._frames: dict[tuple[int, int], set[int]] = {}

    def fault(self, line: int, message: str) -> None:
        """Count a fault, and keep it if it is among the first."""
        self.fault_count += 1
        if len(self.faults) < self.limit:
            self.faults.append(Fault(self.path, line, message))

    def all_counts(self) -> Counter[str]:
        """Return the events by kind, of all lines."""
        return self.counts + Counter(self.counted_elsewhere())

    def line(self, number: int, line: bytes, plain_bytes: int) -> None:
        """Look at the next line, without its line break, behind so many bytes of plain text."""
        self.last_line = number
        if number == 1 and line == b"[":
            return
        if self._framing(number, line):
            self._event(number, line, plain_bytes)

    def plain_style(self) -> int:
        """Return how lines behind the last one write times if they are right by themselves.

        `NO_STYLE` where it takes more: what is wrong with them may be their place.
        """
        begun = self.header_line or self.header_missed
        if not begun or self.footer_line or self.last_line < 2:
            return NO_STYLE
        return WHOLE_MICROS if self.time is MICROSECOND_TIME else THREE_DECIMALS

    def _framing(self, number: int, line: bytes) -> bool:
        """Check what surrounds an object; False when the line holds none."""
        if number == 1:
            self.fault(1, "the first line must be '[' alone")
        if self.footer_line:
            self.fault(number, f"stands behind the closing line {self.footer_line}")
        if not line.strip():
            self.fault(number, "the line is empty")
            return False
        if line in {b"[", b"]"}:
            self.fault(
                number, f"{line.decode()!r} where an event is due; only the first line is '['"
            )
            return False
        if line.endswith(b","):
            self.fault(number, "a comma behind the object; lines are not separated by commas")
            return False
        if number == 2 and b'"name":"process_name"' not in line:
            self.fault(number, "the first event must be process_name, so that the file is shown")
        return True

    def _event(self, number: int, line: bytes, plain_bytes: int) -> None:
        try:
            event = self._model.event(line)
        except LineFaultError as error:
            self.fault(number, str(error))
            self._count_anyway(line)
            return
        if b'\\\\"' in line and FINAL_BACKSLASH.search(line):
            self.fault(
                number,
                r"a text ends in a backslash not written as \u005c; Perfetto loses what follows",
            )
        if (b"\\ud" in line or b"\\uD" in line) and SURROGATE.search(line):
            self.fault(number, "a surrogate escape (\\ud800 to \\udfff); write UTF-8 itself")
        ph = event.ph
        if ph == "M":
            self._metadata(number, event, line, plain_bytes)
            return
        if ph != SAMPLE.ph:
            self.counts[COUNT_OF[ph]] += 1
        if not self.header_line and not self.header_missed:
            self.fault(number, "an event before the header line (name 'dftrace')")
            self.header_missed = True
        time = self.time.search(line)
        if time is None:
            self.fault(number, self._time_rule())
        elif ph == "X":
            start, end = self._span_ns(time)
            self.spans.add(event.pid, event.tid, start, end, number)
        elif ph == "B":
            start, _ = self._span_ns(time)
            self.spans.add(event.pid, event.tid, start, None, number)
        elif ph == SAMPLE.ph:
            self._stacks(number, event)

    def _span_ns(self, time: re.Match[bytes]) -> tuple[int, int]:
        parts = [int(part or 0) for part in time.groups()]
        if self.time is MICROSECOND_TIME:
            start, duration = parts[0] * 1000, parts[1] * 1000
        else:
            start, duration = parts[0] * 1000 + parts[1], parts[2] * 1000 + parts[3]
        return start, start + duration

    def _time_rule(self) -> str:
        if self.time is MICROSECOND_TIME:
            return "ts and dur must be whole microseconds (the header says epoch_us)"
        return "ts and dur must be microseconds with exactly three decimals, ts first"

    def _metadata(self, number: int, event: Any, line: bytes, plain_bytes: int) -> None:
        if event.name == CUSTOM_METADATA:
            self.counts["metadata"] += 1
        elif event.name == HEADER:
            if self.header_line:
                self.fault(number, f"a second header line; the first is line {self.header_line}")
            self.header_line = number
            epoch = event.args.timestamps == "epoch_us"
            self.time = MICROSECOND_TIME if epoch else NANOSECOND_TIME
        elif event.name == INDEX:
            found = self.figures()
            if found is None:
                self.unchecked_indexes += 1
                return
            for message in index_faults(line, number - 1, plain_bytes, self.part, found):
                self.fault(number, message)
        elif event.name == FOOTER:
            self.footer_line = number
            self._against_footer(number, event.args, plain_bytes)

    def _stacks(self, number: int, event: Any) -> None:
        """Hold samples against the line that comes before them, and the frames that they name."""
        profile = event.pid, event.id
        if event.name == "Profile":
            if profile in self._frames:
                self.fault(number, f"a second Profile of id {event.id}, where one is due")
            self._frames.setdefault(profile, set())
            return
        data = event.args.data
        samples, known = data.cpu_profile.samples, self._frames.get(profile)
        self.samples += len(samples)
        if known is None:
            self.fault(number, f"samples before the Profile of id {event.id}; viewers drop them")
            return
        if not len(samples) == len(data.time_deltas) == len(data.cpu) == len(data.cut):
            self.fault(number, "samples, timeDeltas, cpu and cut are not of one length")
        if data.late and len(data.late) != len(samples):
            self.fault(number, "samples and late are not of one length")
        for node in data.cpu_profile.nodes:
            if node.id in known or (node.parent and node.parent not in known):
                what = "stands twice" if node.id in known else f"lies in {node.parent}, not there"
                self.fault(number, f"the frame {node.id} {what}")
            known.add(node.id)
        if unknown := [one for one in samples if one not in known]:
            self.fault(number, f"a sample of the frame {unknown[0]}, which is not there")

    def _count_anyway(self, line: bytes) -> None:
        """Count a faulty line as what it says it is, so that the counts do not fail as well."""
        ph = PHASE.search(line)
        kind = COUNT_OF.get(ph[1].decode()) if ph else None
        if b'"name":"CM"' in line:
            kind = "metadata"
        if kind:
            self.counts[kind] += 1

    def _against_footer(self, number: int, said: FooterArgs, plain_bytes: int) -> None:
        counts = self.all_counts()
        found = {name: counts[name] for name in COUNTS}
        found["events"] = sum(found.values())
        found["bytes"] = plain_bytes
        found[SAMPLE.member] = self.samples
        for name, count in found.items():
            if (getattr(said, name) or 0) != count:
                self.fault(
                    number,
                    f"the closing line says {name} {getattr(said, name)}, the file holds {count}",
                )


class LineFaultError(Exception):
    """A line is not as the format has it; the message says why in one line."""


class LineModel:
    """Turns lines into events, or says what is wrong, in memory that no line can raise."""

    def __init__(self) -> None:
        self._validate = lines.event_adapter().validator.validate_json
        # Arguments that the format itself knows; all others may be anything that viewers keep.
        self._known = {
            name
            for model in vars(lines).values()
            if isinstance(model, type) and issubclass(model, lines.OpenArgs)
            for name in model.model_fields
        }

    def event(self, line: bytes) -> Any:
        """Return the model of a line's event; of a long one without the user's arguments.

        Raises:
            LineFaultError: the line departs from the format.
        """
        if isinstance(line, LongLine):
            raise LineFaultError(
                f"the line has {line.size:,} bytes; readers pass over lines of more than "
                f"{LINE_BYTES // 2**20} MiB"
            )
        if len(line) > MODELLED_BYTES:
            return self._modelled(self._without_arguments(_decoded(line)))
        event = self._modelled(line)
        # As many colons behind quotes as members: no name stands there twice. With spaces between
        # the two, which the recorder does not write, they have to be looked for.
        spaced = b'" ' in line or b"\t" in line or b"\r" in line
        if spaced or line.count(b'":') != _members(event):
            _decoded(line)
        return event

    def _without_arguments(self, event: Any) -> bytes:
        """Return the line without the user's arguments, which are found to be as they should.

        Of members that no line has only some are left: one is enough to tell.
        """
        if not isinstance(event, dict):
            raise LineFaultError("not an object")
        args = event.get("args")
        if isinstance(args, dict):
            counter = event.get("ph") == "C"
            for name, value in args.items():
                if not (_is_number(value) if counter else _is_kept(value)):
                    raise LineFaultError(f"args.{name[:100]}: {NOT_KEPT}")
            known = {} if counter else self._known
            event["args"] = {name: args[name] for name in known if name in args}
        return json.dumps({name: event[name] for name in islice(event, 32)}).encode()

    def _modelled(self, line: bytes) -> Any:
        try:
            return self._validate(line)
        except ValidationError as error:
            raise LineFaultError(_in_short(error)[:MESSAGE_LETTERS]) from error


def _members(event: Any) -> int:
    """Return how many members an event and its arguments have, those of inner objects excepted."""
    args = event.__dict__.get("args")
    if args is None:
        return len(event.__pydantic_fields_set__)
    inner = args if isinstance(args, dict) else args.__pydantic_fields_set__
    return len(event.__pydantic_fields_set__) + len(inner)


def _decoded(line: bytes) -> Any:
    """Return what a line says, if no name stands twice in any object of it."""
    try:
        return json.loads(line.decode(), object_pairs_hook=_object, parse_constant=_no_number)
    except RecursionError as error:
        raise LineFaultError("nested too deeply") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise LineFaultError(f"invalid JSON: {str(error)[:200]}") from error
    except ValueError as error:
        # Python's own limit: reading one takes time with the square of its length.
        raise LineFaultError("a number of thousands of digits") from error


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise LineFaultError(f"the name {name[:100]!r} stands twice in one object")
            seen.add(name)
    return found


def _no_number(text: str) -> Any:
    raise LineFaultError(f"{text} is no number of JSON")


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and _is_kept(value)


def _is_kept(value: Any) -> bool:
    """Return whether viewers keep a value; looks at everything inside of it, in a loop."""
    open_values: list[Iterator[Any]] = [iter((value,))]
    while open_values:
        for one in open_values[-1]:
            if isinstance(one, (dict, list)):
                if len(open_values) > MOST_DEPTH or (isinstance(one, list) and None in one):
                    return False
                open_values.append(iter(one.values() if isinstance(one, dict) else one))
                break
            if isinstance(one, float):
                if not math.isfinite(one):
                    return False
            elif isinstance(one, int) and not -(2**63) <= one < 2**63:
                return False
        else:
            open_values.pop()
    return True


def _in_short(error: ValidationError) -> str:
    """Return the first fault that the model found, in one line."""
    faults = error.errors(include_url=False, include_input=False)
    first = faults[0]
    message = str(first["msg"])
    if first["type"] == "union_tag_not_found":
        return f"no {first['ctx']['discriminator']}: the kind of the line is not known"
    if not first["loc"]:
        return message[0].lower() + message[1:]
    # The location begins with the values of ph, and of name or cat, that chose the model.
    tags = 2 if first["loc"][0] in {"M", "i", "P"} else 1
    place = [str(part)[:100] for part in first["loc"][tags:]]
    if not place or first["type"].startswith("union_tag"):
        return message[0].lower() + message[1:]
    if place[0] in {"ts", "dur"} and first["type"] != "missing":
        return f"{place[0]}: not a finite number of microseconds, 0 or more"
    if len(place) > 2:
        return f"{'.'.join(place[:2])}: {NOT_KEPT}"
    return f"{'.'.join(place)}: {message[0].lower()}{message[1:]}"


SAID_BY_BLOCKS = ("packed bytes", "plain bytes", "lines", "first time (ns)", "last time (ns)")


class FoundFigures(NamedTuple):
    """What lines add up to, as `IndexFigures` has it.

    `in_order`: on each track spans stand in the order of their ends. Where they do not, what lies
    inside of what is not known here; a thread may have had the number of another. `from_beginning`:
    what the parts of the trace before this file hold is known, too.
    """

    spans: list[IndexedSpans]
    others: list[IndexedOthers]
    tracks: list[IndexedTrack]
    reach: tuple[int, int] | None
    in_order: bool
    from_beginning: bool


def block_message(what: int, said: int, found: int) -> str:
    """Return in which way a block is not what its head says; `what` as the native reader has it."""
    if what == len(SAID_BY_BLOCKS):
        kinds = ("lines", "an index line and nothing else")
        return f"the head of the block says that it holds {kinds[said]}, which is not so"
    return f"the head of the block says {SAID_BY_BLOCKS[what]} {said}, the block has {found}"


def index_faults(
    line: bytes, lines: int, plain_bytes: int, part: int, found: FoundFigures
) -> Iterator[str]:
    """Yield in which way an index line does not say what the lines before it in its part hold."""
    said = index_of(line)
    if said is None:
        yield "the index is none that readers take: its times cannot be, or durations are missing"
        return
    for what, told, there in (
        ("lines", said.lines, lines),
        ("bytes", said.plain_bytes, plain_bytes),
        ("part", said.part, part),
    ):
        if told != there:
            yield f"the index says {what} {told}, there are {there}"
    if said.reach:
        moments = found.reach or (None, None)
        for what, told, real in zip(("first_ns", "last_ns"), said.reach, moments, strict=True):
            if told != real:
                yield f"the index says {what} {told}, of the lines before it it is {real}"
    own = found.in_order and found.from_beginning
    yield from _spans(said.spans, found.spans, own=own)
    yield from _counts(said.others, found.others)
    if found.in_order and found.from_beginning:
        yield from _tracks(said, found)


def _spans(said: list[IndexedSpans], found: list[IndexedSpans], *, own: bool) -> Iterator[str]:
    there = {row[:2]: row for row in found}
    if len({row[:2] for row in said}) != len(said):
        yield "the index has a name twice"
    for row in said:
        of = f"spans {row[0]} {row[1]}"
        real = there.pop(row[:2], None)
        if real is None:
            yield f"the index has {of}, the lines before it have none"
            continue
        for name, at in (("count", 2), ("sum_ns", 3), ("self_ns", 4), ("min_ns", 5), ("max_ns", 6)):
            if row[at] != real[at] and (own or name != "self_ns"):
                yield f"the index says {name} {row[at]} of {of}, the lines before it {real[at]}"
        if row[7] != real[7] or _durations(row) != _durations(real):
            yield f"the index has other durations of {of} than the lines before it"
    for cat, name in there:
        yield f"the index has no spans {cat} {name}, the lines before it have"


def _durations(row: IndexedSpans) -> list[int]:
    """Return durations in any order as they are told, and buckets in theirs."""
    exact, numbers = row[7:]
    return sorted(numbers) if exact else numbers


def _counts(said: list[IndexedOthers], found: list[IndexedOthers]) -> Iterator[str]:
    told, there = _by_kind(said), _by_kind(found)
    if len(told) != len(said):
        yield "the index has other events of a name twice"
    for kind in told | there:
        if told.get(kind, 0) != there.get(kind, 0):
            of = " ".join(kind)
            yield f"the index says count {told.get(kind, 0)} of {of}, it is {there.get(kind, 0)}"


def _by_kind(others: list[IndexedOthers]) -> dict[tuple[str, str, str], int]:
    return {(ph, cat, name): count for ph, cat, name, count in others}


def _tracks(said: IndexFigures, found: FoundFigures) -> Iterator[str]:
    """Those that are not told are of threads that have ended."""
    there = {row[:2]: row[2:] for row in found.tracks}
    for pid, tid, end_ns, start_ns, spans in said.tracks:
        real = there.get((pid, tid))
        if real is None or real[:2] != (end_ns, start_ns) or not _is_end_of(spans, real[2]):
            yield f"the index says of tid {tid} what its spans before it are not"


def _is_end_of(told: list[int], there: list[int]) -> bool:
    """Return whether some groups are the last ones of all.

    The first of them may be a part of one, of a thread that had the number of one before it.
    """
    if not told:
        return True
    if len(told) > len(there) or told[5:] != there[len(there) - len(told) + 5 :]:
        return False
    first, *rest = told[:5]
    real_first, *real_rest = there[len(there) - len(told) :][:5]
    same = rest[:2] == real_rest[:2] and rest[3] == real_rest[3]
    return same and first >= real_first and rest[2] <= real_rest[2]


def index_file_faults(traces: Iterable[Trace]) -> Iterator[tuple[str, list[str], str | None]]:
    """Yield what is found of each index file beside traces.

    That is its path, in which way it does not say what the lines add up to, and why it was not held
    against them; None where it was.
    """
    for parts in recordings_of(traces).values():
        path = str(index_path(parts))
        try:
            said = read_index(parts)
            if said is None:
                continue
            yield path, list(_differences(said, figures_of(parts))), None
        except IndexFileError as error:
            yield path, [], f"not used, and not held against the lines: {error}"
        except (OSError, TraceError) as error:
            yield path, [], f"not held against the lines: {error}"


def _differences(said: ProcessFigures, found: ProcessFigures) -> Iterator[str]:
    for what in ("lines", "without_duration", "unreadable", "long_lines", "main_thread_ns"):
        told, there = getattr(said, what), getattr(found, what)
        if told != there:
            yield f"the index says {what} {told}, there are {there}"
    yield from _spans(said.spans, found.spans, own=True)
    yield from _counts(said.others, found.others)
    for number, (told, there) in enumerate(zip(said.files, found.files, strict=True), 1):
        if (told.tear, told.end) != (there.tear, there.end):
            yield f"the index does not say how trace {number} of the process ends"
        times_differ = told.reach is not None and told.reach != there.reach
        if times_differ or told.clock not in {NEVER, there.clock}:
            yield f"the index says other times of trace {number} of the process than its events"
