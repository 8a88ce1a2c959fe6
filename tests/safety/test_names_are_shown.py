"""Names, paths and values of settings are read by people and obeyed by no terminal; no file of settings harms."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines, small_trace
from conftest import clean_environment

from dftrace_ai.cli.terminal import shown
from dftrace_ai.config import sources as config_sources
from dftrace_ai.config.sources import load_config
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import ToldOnce
from safety.commands import acting, at_terminal, dftrace, invoke

# Window title, clear screen, the same in one C1 character, direction of writing, ends of lines.
EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b2Jb\u202egnp.exe\u2028\r\x00\x7f|\nforged  line"


def test_what_acts_is_escaped_and_nothing_else() -> None:
    assert shown("a\x1b[2Jb") == r"a\x1b[2Jb"
    assert shown("\x9b\u202e\u2066\u2028\n\t\x7f\ufeff") == r"\x9b\u202e\u2066\u2028\n\t\x7f\ufeff"
    assert shown(os.fsdecode(b"caf\xe9")) == r"caf\xe9"
    for harmless in (
        "",
        "läs",
        "日本語",
        "नमस्\u200dते",
        "👩\u200d💻",
        "a\\b",
        "a\u00a0b\u3000c",
        "'\"<>&",
    ):
        assert shown(harmless) == harmless


def test_no_character_of_unicode_gets_through() -> None:
    # All at once: a terminal sees them all.
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert acting(shown(everything, letters=sys.maxunicode + 2)) <= {"\u200c", "\u200d"}


def test_a_long_name_ends_in_an_ellipsis() -> None:
    assert shown("x" * 1_000_000, 10) == "x" * 9 + "…"
    assert len(shown("x" * 1_000_000)) == 2000


@pytest.fixture
def evil_directory(tmp_path: Path) -> Path:
    """Names that act in spans, threads, categories, hosts, footers and the file's own name."""
    folder = tmp_path / "e\x1b[31mvil\n"
    trace = TraceLines(host=EVIL.replace("\x00", ""))
    for name in (EVIL, "x" * 1_000_000):
        trace.event("X", name, "compute", 1000, 5, hhash="2a702c695247d487")
        trace.add(json.dumps({"name": name, "cat": name, "ph": EVIL, "dur": 1}))
    trace.lines.append('{"name":"end","cat":"dftrace","ph":"M","args":{"ended":"\\u001b[2J"}}')
    trace.write(folder / "t\u202e\x1b[2J.pfw")
    (folder / "bad\x1b]0;x\x07.pfw").write_bytes(b"\x89PNG")
    marker = folder / f"m\x1b[2J-{platform.node()}-1.spool-at"
    marker.write_text("/x/dftrace-\x1b[2J.spool\n")
    return folder


@pytest.mark.parametrize("command", ["summary", "validate"])
def test_a_terminal_obeys_nothing(evil_directory: Path, command: str) -> None:
    status, text = at_terminal(command, evil_directory)
    assert status == 1
    assert acting(text) == set()
    assert r"\x1b[2J" in text
    assert "forged  line" not in text.splitlines()
    assert max(map(len, text.splitlines())) < 3000
    assert text.count("bad") == 1
    assert "is gone" in text


@pytest.mark.parametrize("words", [["summary"], ["view", "--no-browser"]])
def test_errors_and_paths_act_no_more_than_names(evil_directory: Path, words: list[str]) -> None:
    status, text = at_terminal(*words, "--no-recover", evil_directory / "bad\x1b]0;x\x07.pfw")
    assert status == 2
    assert acting(text) == set()
    assert len(text.splitlines()) == 1


def test_a_file_that_looks_like_an_option_is_shown_escaped(tmp_path: Path) -> None:
    status, text = at_terminal("summary", "--\x1b]0;owned\x07")
    assert (status, acting(text)) == (2, set())


def test_info_shows_what_the_environment_holds(tmp_path: Path) -> None:
    env = {"DFTRACE_RANK": "\x1b[2J1\u202e", "DFTRACE_\x1b[2J": "x", "DFTRACE_LOG_FIL": "\n"}
    status, text = at_terminal("info", env=env)
    assert status == 1
    assert acting(text) == set()
    assert r"\x1b[2J1" in text


def test_json_is_exact_whatever_the_streams_encoding(evil_directory: Path) -> None:
    done = dftrace("summary", "--json", evil_directory, env={"PYTHONIOENCODING": "ascii"})
    assert done.status == 1
    found = json.loads(done.out)
    assert EVIL in {row["name"] for row in found["spans"]}
    assert max(len(row["name"]) for row in found["spans"]) == 1_000_000
    assert found["skipped"][0]["path"].endswith("bad\x1b]0;x\x07.pfw")
    assert acting(done.err) == set()


def test_a_path_that_is_not_utf8_is_shown_and_kept_in_json(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.pfw"))
    trace = small_trace()
    trace.lines.pop()
    trace.write(path)
    done = dftrace("summary", path)
    assert (done.status, acting(done.err)) == (0, set())
    assert r"caf\xe9.pfw: no closing line" in done.err
    done = invoke("summary", "--json", path)
    assert json.loads(done.out)["files"][0]["path"] == str(path)
    assert invoke("validate", path, "--unfinished-ok").status == 0


def test_a_thousand_rows_are_printed_and_the_rest_is_counted(tmp_path: Path) -> None:
    trace = TraceLines()
    for number in range(1500):
        trace.span(f"n{number}", "compute", number * 10, 5)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw.gz")
    out = invoke("summary", path).out
    assert sum(" compute " in line for line in out.splitlines()) == 1000
    rule = "those with the greatest total; --all prints all, --json has them, too"
    assert f"500 rows more; shown are {rule}" in " ".join(out.split())
    assert len(json.loads(invoke("summary", "--json", path).out)["spans"]) == 1500


LOADING = """
import json, sys
from pathlib import Path
from dftrace_ai.config.sources import load_config
from dftrace_ai.errors import ConfigError

told = {}
for path in sys.argv[1:]:
    try:
        load_config(path, {})
    except ConfigError as error:
        told[Path(path).name] = str(error)
(line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
print(json.dumps({"told": told, "peak_mib": int(line.split()[1]) >> 10}))
"""

LAUGHS = "a0: &a0 x\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)


def test_every_file_that_is_none_is_refused_in_a_line(tmp_path: Path) -> None:
    texts = {
        "call": (
            "rank: !!python/object/apply:os.mkdir [owned]\n",
            "1: not YAML as expected: could",
        ),
        "name": ("data_dir: !!python/name:os.system\n", "1: not YAML as expected: could not"),
        "laughs": (LAUGHS.replace("a0:", "data_dir:", 1), "2: not YAML as expected: a reference"),
        "ring": ("data_dir: &a [*a]\n", "1: not YAML as expected: a reference (*a)"),
        "deep": ("rank: " + "[" * 60_000, ":1: not YAML as expected: nested too deeply"),
        "flow": ("{" * 60_000, ":1: not YAML as expected: nested too deeply"),
        "blocks": ("- " * 30_000, ":1: not YAML as expected: nested too deeply"),
        "number": ("rank: " + "9" * 5000 + "\n", ": a value cannot be read: Exceeds the limit"),
        "date": ("data_dir: 2001-99-99\n", ": a value cannot be read: month must be in 1..12"),
        "control": ("data_dir: \x07\n", ": not YAML: unacceptable character #x0007"),
        "nul": ("data_dir: a\0b\n", ": not YAML: unacceptable character #x0000"),
        "key": ("k" * 1000 + ": 1\n", ":1: unknown key 'kkk"),
        "value": ("rank: " + "v" * 60_000 + "\n", ":1: rank: 'vvv"),
        "escape": ('rank: "\\e[2J\\u202e"\n', r":1: rank: '\x1b[2J\u202e' is not accepted"),
    }
    for name, (text, _) in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01" * 100)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(100 << 20)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "ring of links").symlink_to("ring of links")
    parts = {name: part for name, (_, part) in texts.items()} | {
        "binary": ": the settings are not UTF-8 text",
        "huge": ": no file of settings: it has more than 65536 bytes",
        "pipe": ": cannot read the settings: not a regular file",
        "directory": ": cannot read the settings: not a regular file",
        "device": ": cannot read the settings: not a regular file",
        "ring of links": ": cannot read the settings: Too many levels of symbolic links",
        "missing": ": cannot read the settings: No such file or directory",
    }
    done = subprocess.run(
        [sys.executable, "-c", LOADING, *(tmp_path / name for name in parts)],
        capture_output=True,
        text=True,
        env=clean_environment(),
        cwd=tmp_path,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["told"].keys() == parts.keys()
    for name, part in parts.items():
        message = told["told"][name]
        assert message.startswith(f"{tmp_path / name}"), message
        assert part in message, (name, message)
        assert message.isprintable(), name
        assert len(message) < 700, name
    assert not (tmp_path / "owned").exists()
    assert told["peak_mib"] < 150


@pytest.mark.parametrize("text", ["\x1b[2J", "a\0b", "\u202e1", "1\n2", "\x9b2J"])
def test_a_value_of_the_environment_is_shown_escaped(text: str) -> None:
    for variable in ("DFTRACE_RANK", "DFTRACE_COMPRESSION", "DFTRACER_WRITE_BUFFER_SIZE"):
        with pytest.raises(ConfigError) as raised:
            load_config(environ={variable: text})
        message = str(raised.value)
        assert message.startswith(f"environment variable {variable}: ")
        assert message.isprintable()
    with pytest.raises(ConfigError) as raised:
        load_config(environ={"DFTRACE_CONFIG": f"/no/{text}"})
    assert str(raised.value).isprintable()


def test_the_name_of_a_variable_is_shown_escaped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(config_sources, "_told", ToldOnce())
    caplog.set_level(logging.WARNING, "dftrace_ai")
    load_config(environ={"DFTRACE_COMPRESSION\x1b": "x"})
    (message,) = caplog.messages
    assert message.isprintable()
