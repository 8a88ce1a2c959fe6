"""The page over all runs, and what it asks for; what others put into names and files is data.

Loaded late, by `dftrace ui` alone; `dftrace view` serves a site of its own by the same server.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

from dftrace_ai.conditions import MISSING, condition_of, holds, names_in, near
from dftrace_ai.errors import ConfigError, DftraceError
from dftrace_ai.loggers.runs.conditions import OF_RUNS
from dftrace_ai.loggers.runs.log_files import kept_bytes
from dftrace_ai.page.palette import STATIC as PAGE_STATIC
from dftrace_ai.ui import answers
from dftrace_ai.ui.kept import FIGURES, MAP, METRICS, PICTURES, READ, WHOLE_STEPS, packed_map
from dftrace_ai.ui.local_server import MEDIA_TYPES, Site, file_below
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dftrace_ai.trace_format.json_types import Json
    from dftrace_ai.ui.kept import Kept
    from dftrace_ai.ui.live import Observers
    from dftrace_ai.ui.local_server import LocalHandler
    from dftrace_ai.ui.readers import Readers
    from dftrace_ai.ui.runs_below import FoundRun, RunsBelow
    from dftrace_ai.ui.step_table import StepTable

STATIC: Final = Path(__file__).with_name("static")
# A build may lack what draws lines: the page asks for it beside all else, and sees that by itself.
PLOTS: Final = frozenset({"uplot.js", "uplot.css"})

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
OUR_PAGES: Final = frozenset({"none", "same-origin"})

JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"
# So long a page waits for a run that is read for the first time.
PATIENCE_S: Final = 30.0
MOST_KEPT: Final = 20
PICTURE_BYTES: Final = 16 << 20
# Nanoseconds of more than so long do not fit into 64 bits.
LATEST_S: Final = 4e9

KINDS: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}


class AskedWronglyError(Exception):
    """What was asked cannot be answered: a status, and words for people."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status = status


Key = TypeVar("Key")
Value = TypeVar("Value")


def _take(kept: dict[Key, Value], key: Key, value: Value) -> list[Value]:
    """Keep a value among so many as were asked for last; returns those that go."""
    kept.pop(key, None)
    kept[key] = value
    return [kept.pop(old) for old in list(kept)[:-MOST_KEPT]]


@dataclass(frozen=True)
class Asked:
    """What stands behind the question mark of an address."""

    values: Mapping[str, list[str]]

    @classmethod
    def of(cls, address: str) -> Asked:
        """Read an address."""
        return cls(parse_qs(urlsplit(address).query, keep_blank_values=True))

    def text(self, name: str, default: str | None = None) -> str:
        """Return what a name stands for."""
        found = self.values.get(name, [] if default is None else [default])
        if not found:
            raise AskedWronglyError(HTTPStatus.BAD_REQUEST, f"{name} is missing")
        return found[0]

    def number(self, name: str) -> float:
        """Return a time."""
        try:
            value = float(self.text(name))
        except ValueError:
            value = math.nan
        if not abs(value) < LATEST_S:
            raise AskedWronglyError(HTTPStatus.BAD_REQUEST, f"{name} is no time")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number."""
        text = self.text(name, None if default is None else str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise AskedWronglyError(HTTPStatus.BAD_REQUEST, f"{name} is no number")
        return int(text)


class RunsSite(Site):
    """The page over the runs below a directory."""

    # `opened` adds the page that shows a run in Perfetto, at a time and of some ranks where these
    # are not empty, and returns its secret and its address; `closed` removes it.

    def __init__(
        self,
        runs: RunsBelow,
        kept: Kept,
        readers: Readers,
        opened: Callable[[FoundRun, str, str], tuple[str, str]],
        closed: Callable[[str], None],
    ) -> None:
        self.runs = runs
        self.kept = kept
        self.readers = readers
        self._opened = opened
        self._closed = closed
        self._tables: dict[Path | None, StepTable] = {}
        self._diffs: dict[tuple[tuple[str, str], ...], bytes] = {}
        self._views: dict[str, str] = {}
        self._observers: Observers | None = None
        self._answers: dict[str, Callable[[Asked], bytes]] = {
            "runs": self._runs, "run": self._run, "steps": self._steps, "heat": self._heat,
            "metrics": self._metrics, "media": self._media, "match": self._match,
            "diff": self._diff, "live": self._live, "tensors": self._tensors,
        }  # fmt: skip

    def answer(self, handler: LocalHandler, rest: str) -> None:
        """Answer a request for the page, a part of it, or data."""
        if handler.headers.get("Sec-Fetch-Site", "none") not in OUR_PAGES:
            handler.refuse()
            return
        try:
            self._answer(handler, rest)
        except AskedWronglyError as error:
            handler.send(_json({"error": str(error)}), JSON, POLICY, status=error.status)

    def _answer(self, handler: LocalHandler, rest: str) -> None:
        kind, _, name = rest.partition("/")
        if handler.command == "POST":
            # This alone writes anything to a run: the traces of the dead are completed.
            if rest == "api/recover":
                handler.send(self._recover(Asked.of(handler.path)), JSON, POLICY)
            else:
                handler.refuse()
        elif kind == "api" and name in self._answers:
            media_type = BINARY if name == "heat" else JSON
            body = self._answers[name](Asked.of(handler.path))
            handler.send(body, media_type, POLICY, packed=True)
        elif (kind, name) == ("api", "picture"):
            handler.send(*self._picture(Asked.of(handler.path)), POLICY)
        elif rest == "perfetto":
            handler.send_on(self._perfetto(Asked.of(handler.path)))
        else:
            name = rest or "index.html"
            plain = "/" not in name and not name.startswith(".")
            file = (file_below(STATIC, name) or file_below(PAGE_STATIC, name)) if plain else None
            if file is None and name in PLOTS:
                handler.send(b"", MEDIA_TYPES[Path(name).suffix], POLICY)
            else:
                handler.send_file(file, POLICY, packed=True)

    act = answer

    def _found(self, asked: Asked, name: str = "id") -> FoundRun:
        run = self.runs.one(asked.text(name))
        if run is None:
            raise AskedWronglyError(
                HTTPStatus.NOT_FOUND, f"there is no run {quoted(asked.text(name))} any more"
            )
        return run

    def _runs(self, asked: Asked) -> bytes:
        self.readers.attend()
        found, more = self.runs.all()
        rows = list(map(self._row, found))
        listed = {"words": answers.WORDS, "parts": answers.PARTS, "runs": rows, "more": more}
        reading = sum(row["state"] == "reading" or not row["fresh"] for row in rows)
        root = _told(self.runs.root)
        return _json({**listed, "root": root, "reading": reading, "now_s": time.time()})

    def _row(self, run: FoundRun) -> answers.Row:
        known = self.kept.card(run.path)
        failure = self.readers.failure(run)
        card, standing = known[1] if known else None, run.standing()
        if card is None and failure:
            card = _blank("unreadable", failure)
        elif not run.files:
            card = _blank("not-recovered", NOT_RECOVERED) if standing == "died" else card
        if card is not None and standing == "died":
            card = {**card, "hint": f"dftrace recover {quoted(str(run.path))}"}
        return {
            "id": run.id, "state": standing or _state_of(card, failure), "card": card,
            "fresh": not run.files or self.readers.is_fresh(run), "changed_s": run.changed_s,
            "files": len(run.files), "bytes": sum(size for _, size, _ in run.files),
        }  # fmt: skip

    def _run(self, asked: Asked) -> bytes:
        run = self._found(asked)
        self.readers.attend()
        again = bool(asked.text("refresh", ""))
        reading = bool(run.files) and self.readers.want(run, PATIENCE_S, again=again)
        kept = self._read(run)
        if kept is None and run.files and not reading:
            # It was not whole, or was read anew meanwhile.
            reading = self.readers.want(run, PATIENCE_S)
            kept = self._read(run)
        row = self._row(run)
        head: answers.RunHead = {
            "id": run.id,
            "state": row["state"],
            "reading": reading,
            "stale": not row["fresh"],
            "parts": list(answers.PARTS),
            "card": row["card"],
        }
        read, figures, steps = kept or (NOTHING_READ, b"null", b"null")
        told = _json({**head, **read})[:-1]
        return b'%b,"figures":%b,"steps":%b}' % (told, figures, steps)

    def _read(self, run: FoundRun) -> tuple[answers.ReadRun, bytes, bytes] | None:
        """Return what was read of a run: facts, figures, and the steps of the whole of it."""
        try:
            _, read = self.kept.read(run.path, READ)
            figures, _ = self.kept.read(run.path, FIGURES)
            facts = cast("answers.ReadRun", read)
            steps, _ = self.kept.read(run.path, WHOLE_STEPS) if facts["strip"] else (b"null", None)
        except LookupError:
            return None
        return facts, figures, steps

    def _home(self, run: FoundRun) -> Path | None:
        """Return where the figures of a run lie, by those of its files that were read last."""
        known = self.kept.card(run.path)
        return None if known is None else self.kept.of_run(run.path) / known[0]

    @contextmanager
    def _table(self, run: FoundRun) -> Iterator[StepTable]:
        from dftrace_ai.ui.step_table import FACTS, StepTable

        home = self._home(run)
        try:
            table = self._tables.get(home)
            if table is None:
                table = StepTable(home or self.kept.path)  # where there is none
                _take(self._tables, home, table)
            yield table
        except (OSError, ValueError) as error:
            self._tables.pop(home, None)
            if home and (home / FACTS).exists():  # they are not whole
                self.kept.forget(run.path, home.name)
            raise AskedWronglyError(
                HTTPStatus.CONFLICT, "no steps of this run were read"
            ) from error

    def _steps(self, asked: Asked) -> bytes:
        with self._table(self._found(asked)) as table:
            rank, begin, end = asked.whole("rank"), asked.number("a"), asked.number("b")
            if rank not in table.facts.ranks:
                raise AskedWronglyError(HTTPStatus.CONFLICT, f"rank {rank} has no steps")
            found: answers.StepsAnswer = table.steps(rank, begin, end, asked.whole("n", 800))
        return _json(found)

    def _heat(self, asked: Asked) -> bytes:
        what, begin, end = asked.text("what", "own"), asked.number("a"), asked.number("b")
        run, cells = self._found(asked), asked.whole("cols", 300)
        known = self.kept.map_of_ranks(run.path, (what, begin, end, cells))
        if known is not None:
            return known
        with self._table(run) as table:
            if what not in table.measures:
                raise AskedWronglyError(HTTPStatus.CONFLICT, f"steps have no part {quoted(what)}")
            return packed_map(*table.heat(what, begin, end, cells))

    def _kept_json(self, run: FoundRun, name: str) -> object:
        try:
            return self.kept.read(run.path, name)[1]
        except LookupError as error:
            raise AskedWronglyError(HTTPStatus.CONFLICT, "this run is not read yet") from error

    def _metrics(self, asked: Asked) -> bytes:
        all_of_them = cast(
            "list[answers.MetricSeries]", self._kept_json(self._found(asked), METRICS)
        )
        # By their names, or by their places in what is told of the run: names may be of any length.
        wanted, places = set(asked.values.get("name", ())), set(asked.values.get("at", ()))
        found = [
            one for at, one in enumerate(all_of_them) if one["name"] in wanted or str(at) in places
        ]
        return _json({"metrics": found})

    def _tensors(self, asked: Asked) -> bytes:
        return _json(self._kept_json(self._found(asked), MAP.format(asked.whole("at"))))

    def _pictures(self, asked: Asked) -> list[answers.LoggedPicture]:
        found = cast(
            "dict[str, list[answers.LoggedPicture]]",
            self._kept_json(self._found(asked), PICTURES),
        )
        # As metrics are asked for: by a name, or by its place.
        place = asked.whole("at", len(found))
        return found.get([*found, asked.text("name", "")][min(place, len(found))], [])

    def _media(self, asked: Asked) -> bytes:
        found = self._pictures(asked)
        items = [{"n": at, "step": one[0], "t": one[1]} for at, one in enumerate(found)]
        return _json({"items": items})

    def _picture(self, asked: Asked) -> tuple[bytes, str]:
        items, at = self._pictures(asked), asked.whole("n")
        data = None
        if at < len(items):
            data = kept_bytes(Path(items[at][2]), items[at][3], PICTURE_BYTES)
        kind = next((kind for head, kind in KINDS.items() if data and data.startswith(head)), None)
        if data is None or kind is None:
            raise AskedWronglyError(HTTPStatus.NOT_FOUND, "this picture cannot be shown")
        return data, kind

    def _match(self, asked: Asked) -> bytes:
        found, _ = self.runs.all()
        rows = list(map(self._row, found))
        ids: list[str] = []
        error = ""
        try:
            conditions = [condition_of(text, OF_RUNS) for text in asked.values.get("where", ())]
            known = {name for row in rows for name in _values_of(row)}
            unknown = sorted({name for one in conditions for name in names_in(one)} - known)
            for name in unknown:
                meant = near(name, known)
                hint = f"; did you mean {quoted(meant)}?" if meant else ""
                error = f"no run has anything of the name {quoted(name)}{hint}"
            for row in () if unknown else rows:
                values = _values_of(row)
                if all(holds(one, lambda name: values.get(name, MISSING)) for one in conditions):  # noqa: B023
                    ids.append(row["id"])
        except ConfigError as wrong:
            error = str(wrong)
        return _json({"ids": ids, "error": error})

    def _diff(self, asked: Asked) -> bytes:
        pair = self._found(asked, "a"), self._found(asked, "b")
        key = tuple((run.id, run.key) for run in pair)
        known = self._diffs.get(key)
        if known is not None:
            return known
        for run in pair:
            self.readers.want(run, PATIENCE_S)
        sides: list[Json] = [
            [str(run.path), list(run.names), str(self._home(run) or "")] for run in pair
        ]
        found, failed = self.readers.front.do("compare", sides)
        if failed:
            raise AskedWronglyError(HTTPStatus.CONFLICT, failed)
        _take(self._diffs, key, found.encode())
        return found.encode()

    def _live(self, asked: Asked) -> bytes:
        from dftrace_ai.ui.live import Observers

        run = self._found(asked)
        self._observers = self._observers or Observers()
        seen: answers.LiveAnswer = self._observers.look(run.path)
        return _json(seen)

    def _recover(self, asked: Asked) -> bytes:
        from dftrace_ai.spools.completing import complete_directories

        run = self._found(asked)
        found = complete_directories([run.path], deep=False)
        self.runs.all(now=True)
        failed = list(map(_told, [*found.failed, *found.damaged]))
        return _json({"done": list(map(_told, found.finished)), "failed": failed})

    def _perfetto(self, asked: Asked) -> str:
        run = self._found(asked)
        try:
            secret, address = self._opened(run, asked.text("at", ""), asked.text("ranks", ""))
        except DftraceError as error:
            raise AskedWronglyError(HTTPStatus.CONFLICT, str(error)) from error
        for old in _take(self._views, secret, secret):
            self._closed(old)
        return address


NOT_RECOVERED: Final = (
    "Its process has died, and nobody has completed its trace; what it recorded is still there."
)
NOTHING_READ: Final[answers.ReadRun] = {
    "strip": None, "step_ranks": [], "measures": [], "metrics": [], "media": [], "params": {},
    "tensor_maps": [], "not_recorded": [],
}  # fmt: skip


def _blank(verdict: str, what: str) -> answers.Card:
    return {
        "began_s": None, "wall_s": None, "ranks": 0, "events": 0, "steps": 0, "median_ns": None,
        "steps_per_s": None, "spark": [], "verdict": verdict, "words": answers.WORDS[verdict],
        "severity": "note", "confidence": None, "share": None, "what": what, "late_ranks": [],
        "losses": 0, "older": 0, "ended": [], "logged": None, "as_of_s": time.time(),
        "metrics": {}, "params": {}, "hint": "",
    }  # fmt: skip


def _state_of(card: answers.Card | None, failure: str) -> answers.State:
    """Return how a run stands that no marker tells of."""
    if failure:
        return "unreadable"
    if card is None:
        return "reading"
    if {"died", "exception", "reboot"} & set(card["ended"]):
        return "died"
    return "unknown" if "not closed" in card["ended"] else "ended"


def _values_of(row: answers.Row) -> dict[str, Json]:
    """Return what conditions may be about: params before metrics before facts."""
    card = row["card"]
    facts: dict[str, Json] = {
        name: value for name, value in (card or {}).items() if isinstance(value, int | float | str)
    }
    facts |= {"run": row["id"], "name": row["id"].rpartition("/")[2], "state": row["state"]}
    facts |= {"status": row["state"], "files": row["files"], "bytes": row["bytes"]}
    return {**facts, **card["metrics"], **card["params"]} if card else facts


def _told(path: object) -> str:
    return str(path).encode("utf-8", "backslashreplace").decode()


def _json(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
