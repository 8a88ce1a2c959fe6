"""A file of settings that is none, and values that would act on a terminal."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import clean_environment

from dftrace_ai.config import sources as config_sources
from dftrace_ai.config.sources import load_config
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import ToldOnce

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
