"""`dftrace migrate`: names of modules change, every other byte stays, the rest is listed."""

from __future__ import annotations

import codecs
import json
import os
from pathlib import Path

import pytest
from conftest import RunScript
from pydantic import TypeAdapter
from safety.commands import invoke

from dftrace_ai.cli.migrate import Migration, migrated

NEW = "dftrace_ai.compat.dftracer"

CHANGED = {
    "from dftracer.python import ai, dft_fn\n": f"from {NEW} import ai, dft_fn\n",
    "from dftracer.logger import dftracer as logger, dft_fn  # fmt: skip\n": (
        f"from {NEW} import dftracer as logger, dft_fn  # fmt: skip\n"
    ),
    "import dftracer.python as d, os\n": f"import {NEW} as d, os\n",
    "from dftracer import python as p; x = 1\n": (
        "from dftrace_ai.compat import dftracer as p; x = 1\n"
    ),
    "from  dftracer.python.ai_common \\\n  import (\n  AI , # root\n)\n": (
        f"from  {NEW} \\\n  import (\n  AI , # root\n)\n"
    ),
    "from dftracer.python.dynamo import create_backend\n": (
        f"from {NEW}.dynamo import create_backend\n"
    ),
    "from dftracer.python.dbg.torch import trace_handler\n": (
        f"from {NEW}.torch import trace_handler\n"
    ),
    "from dftracer.python import *\n": f"from {NEW} import *\n",
    "import dftracer.python\nwith dftracer.python.ai.compute: f('é', dftracer.python.env.os)\n": (
        f"import {NEW}\nwith {NEW}.ai.compute: f('é', {NEW}.os)\n"
    ),
    "try:\n\tfrom dftracer.python import ai\nexcept ImportError:\n\tai = None\n": (
        f"try:\n\tfrom {NEW} import ai\nexcept ImportError:\n\tai = None\n"
    ),
    "if a:\n    def f():\n        é = 1; from dftracer.python import data as é\n": (
        f"if a:\n    def f():\n        é = 1; from {NEW} import data as é\n"
    ),
    "x = '''\n\x0c'''; from dftracer.python import ai": f"x = '''\n\x0c'''; from {NEW} import ai",
}
LEFT = {
    "import dftracer\n": "otherwise|nothing in the place",
    "import dftracer.python, dftracer.dftracer\n": "nothing in the place|otherwise",
    "import dftracer.python\nfrom dftracer.python import dftracer\n": "otherwise",
    "from dftracer.python import ai, LLM\n": "has no LLM",
    "from dftracer.dftracer import initialize\n": "nothing in the place of dftracer.dftracer",
    "from dftracer import dftracer\n": "names of dftracer itself",
    "from dftracer . python import ai\n": "blanks",
    "import importlib\nimportlib.import_module('dftracer.python')\n": "in a string",
    "from dftracer.python import (\n": "not Python",
    "# coding: no-such-coding dftracer\n": "not Python",
    "# coding: rot13 dftracer\n": "not Python",
    f"from dftracer.python import ai\nx = {'-' * 3000}1\n": "too deeply",
    f"import dftracer.python\nx = {' + '.join('1' * 2000)}\n": "too deeply",
    "# coding: utf-7\nfrom dftracer.python import ai\nx = '+AGE-'\n": "other bytes of it",
    "import dftracer.python\nf = lambda dftracer: dftracer.logger.info()\n": "otherwise",
    "import dftracer.python\ndef dftracer(): ...\n": "otherwise",
    "import dftracer.python\ntry: ...\nexcept E as dftracer: dftracer.python\n": "otherwise",
}
KEPT = [
    "import dftracer_other\nfrom .dftracer.python import ai\nfrom dftracers import python\n",
    "x = 'import dftracer.python'  # from dftracer.python import ai\n",
]


@pytest.mark.parametrize("before", CHANGED)
@pytest.mark.parametrize("form", ["plain", "CRLF", "CR", "mark", "latin-1"])
def test_names_change_and_nothing_else(before: str, form: str) -> None:
    def formed(text: str) -> bytes:
        ends = {"CRLF": "\r\n", "CR": "\r"}.get(form, "\n")
        text = ("# coding: latin-1\n" if form == "latin-1" else "") + text
        content = text.replace("\n", ends).encode("latin-1" if form == "latin-1" else "utf-8")
        return codecs.BOM_UTF8 + content if form == "mark" else content

    done = migrated(formed(before))
    assert (done.content, done.left) == (formed(CHANGED[before]), ())
    assert done.lines
    again = migrated(done.content)
    assert (again.content, again.lines, again.left) == (done.content, (), ())


@pytest.mark.parametrize("before", LEFT)
def test_what_cannot_be_changed_is_left_and_listed(before: str) -> None:
    done = migrated(before.encode())
    assert any(word in one.reason for one in done.left for word in LEFT[before].split("|"))
    if "dftracer.python import dftracer" not in before:
        assert done.content == before.encode()


@pytest.mark.parametrize("before", KEPT)
def test_what_is_no_import_of_dftracer_stays(before: str) -> None:
    assert migrated(before.encode()) == (before.encode(), (), ())


def test_the_command_shows_writes_and_is_done(tmp_path: Path) -> None:
    script, other = tmp_path / "src" / "train.py", tmp_path / "src" / ".venv" / "kept.py"
    other.parent.mkdir(parents=True)
    text = "from dftracer.python import ai\r\n"
    for path in (script, other):
        path.write_bytes(text.encode())
    script.chmod(0o750)
    os.mkfifo(tmp_path / "src" / "pipe.py")
    (tmp_path / "src" / "bad.py").write_text("import dftracer(\n", encoding="utf-8")
    (tmp_path / "link.py").symlink_to(script)

    def run(*words: object) -> tuple[int, str, str]:
        done = invoke("migrate", *words)
        return done.status, done.out, done.err

    status, out, err = run(tmp_path / "src")
    assert status == 1
    assert f"-from dftracer.python import ai\n+from {NEW} import ai\n" in out
    assert "bad.py:1: left as it is, not Python" in err
    assert "pipe.py:1: left as it is, it is no regular file" in err
    assert "1 file to change, --write does it; 3 files read" in err
    assert script.read_bytes() == text.encode()
    status, out, _ = run("--write", "--json", tmp_path / "link.py")
    assert status == 0
    found = TypeAdapter(Migration).validate_python(json.loads(out))
    assert (found.written, found.read, found.files[0].lines, found.left) == (True, 1, (1,), ())
    assert script.read_bytes() == text.replace("dftracer.python", NEW).encode()
    assert (tmp_path / "link.py").is_symlink()
    assert os.stat(script).st_mode & 0o777 == 0o750
    assert sorted(p.name for p in script.parent.iterdir()) == [
        ".venv",
        "bad.py",
        "pipe.py",
        "train.py",
    ]
    assert other.read_bytes() == text.encode()
    owned, linked = script.parent / "owned.py", script.parent / "linked.py"
    for path in (owned, linked):
        path.write_bytes(text.encode())
    linked.with_suffix(".too").hardlink_to(linked)
    if os.geteuid() == 0:
        os.chown(owned, 12345, 12346)
    before = owned.stat()
    assert run("--write", owned, linked)[0] == 0
    for path in (owned, linked, linked.with_suffix(".too")):
        assert path.read_bytes() == text.replace("dftracer.python", NEW).encode()
    after = owned.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (
        *(before.st_uid, before.st_gid, before.st_mode),
    )
    assert run("--json", script)[0] == 0
    assert json.loads(run("--json", script)[1])["files"] == []
    assert run(tmp_path / "none")[0] == 2


def test_a_migrated_program_runs(run_script: RunScript) -> None:
    before = """
import dftracer.python
from dftracer.logger import dftracer as logger, dft_fn
log = logger.initialize_log()
with dftracer.python.ai.compute.forward: ...
dft_fn("io").log(len)("x")
log.finalize()
"""
    done = run_script(migrated(before.encode()).content.decode())
    assert done.trace().names == {"forward": 1, "len": 1}
