"""`dftrace top --prometheus`: what Prometheus' own parser reads of running ranks, and its rule file and board."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import promql_parser
import pytest
import yaml
from conftest import clean_environment
from docs.pages import DOCS, between, plain, table
from prometheus_client.parser import text_string_to_metric_families
from safety.commands import invoke

from dftrace_ai.cli.live_view import metrics
from dftrace_ai.live import Observer
from live.programs import program, until

PAGE = DOCS / "guide" / "prometheus.md"
ALERTS = DOCS / "prometheus" / "alerts.yaml"
BOARD = DOCS / "prometheus" / "dashboard.json"

Series = dict[tuple[str, str], tuple[dict[str, str], float]]


@contextmanager
def metrics_of(folder: Path) -> Iterator[str]:
    """Serves them, in a process of its own, and gives their address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dftrace_ai.cli", "top", str(folder), "--prometheus", "127.0.0.1:0"],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        found = re.fullmatch(
            r"metrics at (http://127\.0\.0\.1:\d+/metrics)\n", process.stdout.readline()
        )
        assert found
        yield found[1]
    finally:
        process.kill()
        process.communicate()


def scraped(address: str) -> tuple[Series, dict[str, str]]:
    """Series by name and rank, with their labels and value; and what each metric is."""
    # Whatever proxy the environment names: it is this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    text = opener.open(address, timeout=300).read().decode()
    series: Series = {}
    about: dict[str, str] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, sample.labels.get("rank", "")
            if "category" in sample.labels and sample.name != "dftrace_open_span_seconds":
                key = sample.name, f"{key[1]} {sample.labels['category']}"
            assert key not in series
            series[key] = sample.labels, sample.value
            about[sample.name] = family.documentation
    return series, about


RANK = """
    with dftrace_ai.tracing():
        for step in range(4):
            with ai.compute.forward(step=step):
                pass
        with ai.comm.all_reduce.derive(name='"a\\\\b\\n}')(step=step):
            done()
        for step in range(4, 10):
            with ai.compute.forward(step=step):
                pass
        with ai.comm.barrier(step=step):
            done()
"""


def test_ranks_are_scraped_while_they_run_and_when_they_have_died(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    environ = {"DFTRACE_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a"}
    with metrics_of(tmp_path / "run") as address:
        # It may be there first.
        assert [name for name, _ in scraped(address)[0]] == ["dftrace_scrape_seconds"]
        with (
            program(RANK, tmp_path / "run", DFTRACE_RANK="0", **environ) as first,
            program(RANK, tmp_path / "run", DFTRACE_RANK="1", **environ) as second,
        ):
            seen, about = until(
                lambda: scraped(address), lambda got: ("dftrace_step", "1") in got[0]
            )
            runs = {labels["run"] for labels, _ in seen.values() if labels}
            assert len(runs) == 1
            for rank, running in (("0", first), ("1", second)):
                assert seen["dftrace_step", rank][1] == 3
                assert ("dftrace_step_seconds", rank) not in seen
                up, alive = seen["dftrace_process_up", rank]
                assert (up["pid"], alive) == (str(running.pid), 1)
                labels, age = seen["dftrace_open_span_seconds", rank]
                assert (labels["category"], labels["name"]) == ("comm", 'all_reduce."a\\b\n}')
                assert 0 < age
                assert 0 < seen["dftrace_stuck_seconds", rank][1]
                assert seen["dftrace_events_dropped_total", rank][1] == 0
                assert seen["dftrace_resident_memory_bytes", rank][1] > 5e6
                assert seen["dftrace_spool_bytes", rank][1] > 0
            written = {plain(row[0]): row[-1] for row in table(between(PAGE, "metrics"))}
            assert about.items() <= written.items()

            first.go_on()
            first.wait_until_ready()
            second.kill()
            seen, later = until(
                lambda: scraped(address), lambda got: got[0]["dftrace_step", "0"][1] == 9
            )
            assert later.items() <= written.items()
            assert seen["dftrace_step_seconds", "0"][1] > 0
            assert [seen["dftrace_process_up", rank][1] for rank in "01"] == [1, 0]
            # What it does is over. That the others wait for it, they do.
            of_dead = {name for name, key in seen if key.partition(" ")[0] == "1"}
            assert of_dead - {"dftrace_waited_for_ratio"} == {
                "dftrace_process_up",
                "dftrace_step",
                "dftrace_spool_bytes",
                "dftrace_events_dropped_total",
                "dftrace_drain_cpu_seconds_total",
            }
            labels = seen["dftrace_open_span_seconds", "0"][0]
            assert (labels["category"], labels["name"]) == ("comm", "barrier")
            shares = [
                value for (name, _), (_, value) in seen.items() if name == "dftrace_category_ratio"
            ]
            assert all(0 <= share <= 1.001 for share in shares)
            assert shares

            # Of a run that is over the dead are told of once more, and then there are none.
            first.kill()
            seen, _ = until(
                lambda: scraped(address), lambda got: not got[0]["dftrace_process_up", "0"][1]
            )
            assert [seen["dftrace_process_up", rank][1] for rank in "01"] == [0, 0]
            assert [name for name, _ in scraped(address)[0]] == ["dftrace_scrape_seconds"]


def sent(address: str, asked: bytes) -> socket.socket:
    place = urlsplit(address)
    client = socket.create_connection((place.hostname, place.port), timeout=60)
    client.sendall(asked)
    return client


def received(client: socket.socket) -> bytes:
    """All until the server ends the connection."""
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


def asking(address: str) -> bytes:
    """The answer; nothing of a server that hangs up."""
    try:
        with sent(address, b"GET /metrics HTTP/1.0\r\n\r\n") as client:
            return received(client)
    except ConnectionError:
        return b""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[str]:
    """The address of a server of this process."""
    server, address = metrics.serve(Observer([tmp_path]), "127.0.0.1:0")
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()


def test_who_asks_no_further_keeps_nobody_from_the_metrics(
    here: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "PATIENCE_S", 0.5)
    monkeypatch.setattr(metrics._Asked, "timeout", 0.5)
    clients = []
    with ExitStack() as open_ones:
        for _ in range(4 * metrics.MOST_CONNECTIONS):
            client = open_ones.enter_context(sent(here, b""))
            clients.append(client)
            with suppress(ConnectionError):
                client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        # The clients stay: a scrape is answered as soon as the server has left them.
        until(lambda: asking(here), lambda got: b"dftrace_scrape_seconds" in got)
        for client in clients:
            with suppress(ConnectionError):
                received(client)
    assert capfd.readouterr().err == ""


FORMS = (
    b"Accept: application/openmetrics-text;version=\xff;escaping=\xff;;=;q",
    b"Accept: application/openmetrics-text;version=1.0.0x,text/plain;version=x",
    b"Accept-Encoding: \xff",
)


def test_whatever_is_asked_for_there_is_the_text_format_and_nothing_on_stderr(
    here: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for form in FORMS:
        with sent(here, b"GET /metrics HTTP/1.1\r\n" + form + b"\r\n\r\n") as client:
            head, _, body = received(client).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 OK")
        assert list(text_string_to_metric_families(body.decode()))
    for asked in (b"GET /metrics HTTP/1.0\r\n\r\n", b"G" * 100_000, b"GET / HTTP/1.0\r\n"):
        with suppress(ConnectionError), sent(here, asked) as client:
            # Who leaves at once, without a farewell.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert scraped(here)
    assert capfd.readouterr().err == ""


def metrics_in(expression: str) -> set[str]:
    promql_parser.parse(re.sub(r"\$\w+", ".*", expression))
    return set(re.findall(r"\bdftrace_\w+", expression))


def test_rules_and_board_ask_for_metrics_that_there_are() -> None:
    known = {plain(row[0]) for row in table(between(PAGE, "metrics"))}
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    for rule in group["rules"]:
        assert metrics_in(rule["expr"]) <= known
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"]
    panels = json.loads(BOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        for target in panel["targets"]:
            assert metrics_in(target["expr"]) <= known
    with pytest.raises(ValueError):
        metrics_in("rate(dftrace_step[")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("here", "--prometheus here: PORT or HOST:PORT, such as 9108"),
        ("127.0.0.1:70000", "PORT or HOST:PORT"),
        ("256.0.0.1:0", "--prometheus 256.0.0.1:0: "),
        ("a..b:0", "--prometheus a..b:0: no host can have this name"),
        ("a" * 300 + ":0", "no host can have this name"),
        ("evil\ndftrace: name:0", r"--prometheus evil\ndftrace: name:0: "),
    ],
)
def test_a_place_where_nobody_can_listen_is_told(tmp_path: Path, place: str, said: str) -> None:
    done = invoke("top", tmp_path, "--prometheus", place)
    assert done.status == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    both = invoke("top", tmp_path, "--prometheus", "0", "--json")
    assert "--json and --prometheus cannot be given together" in both.err
