"""What a project says in `dftrace.toml` and pyproject.toml: which file counts, and what it may say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from analysis.why.made_runs import Training
from conftest import clean_environment
from docs.pages import DOCS, ROOT, blocks
from safety.commands import invoke

from dftrace_ai.config import load_config
from dftrace_ai.config.project_file import OF_PROJECT, OPTIONS
from dftrace_ai.config.settings import SETTINGS
from dftrace_ai.errors import ConfigError

SCHEMA = json.loads((ROOT / "schemas" / "project.schema.json").read_text("utf-8"))
INSTALLATION = json.loads((ROOT / "schemas" / "installation.schema.json").read_text("utf-8"))
PYPROJECT = "[project]\nname = 'p'\n[tool.dftrace]\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, with the current directory below its root."""
    root = tmp_path / "project"
    (root / "a" / "b").mkdir(parents=True)
    (root / ".git").mkdir()
    monkeypatch.chdir(root / "a" / "b")
    return root


def sources() -> dict[str, str]:
    value = json.loads(invoke("info", "--json").out)
    jsonschema.validate(value, INSTALLATION)
    return value["sources"]


def depth(**environ: str) -> int:
    return load_config(environ=environ).auto_depth


def test_arguments_variables_and_named_files_win_over_the_project(project: Path) -> None:
    assert depth() == 1
    (project / "dftrace.toml").write_text("auto_depth = 2\nlines_hz = 7\n")
    assert depth() == 2
    (project / "named.yaml").write_text("auto_depth: 3")
    named = {"DFTRACE_CONFIG": str(project / "named.yaml")}
    assert depth(**named) == 3
    assert depth(**named, DFTRACE_AUTO_DEPTH="4") == 4
    assert load_config(environ={**named, "DFTRACE_AUTO_DEPTH": "4"}, auto_depth=5).auto_depth == 5
    assert load_config(environ=named).lines_hz == 7
    # Who was started by a run has what that found.
    assert depth(DFTRACE_LAUNCH="0@1.2") == 1


def test_the_nearest_file_counts_and_none_beyond_the_repository(project: Path) -> None:
    (project.parent / "dftrace.toml").write_text("auto_depth = 9\n")
    assert depth() == 1
    (project / "pyproject.toml").write_text(PYPROJECT + "auto_depth = 2\n")
    assert depth() == 2
    (project / "dftrace.toml").write_text("auto_depth = 3\n")
    assert depth() == 3
    # Without a table of ours it is none.
    (project / "a" / "pyproject.toml").write_text("[project]\nname = 'dftrace'\n[tool.x]\n")
    assert depth() == 3
    (project / "a" / "pyproject.toml").write_text(PYPROJECT + "auto_depth = 4\n")
    assert depth() == 4


def test_a_table_counts_in_all_forms_that_toml_has(project: Path) -> None:
    file = project / "pyproject.toml"
    for text in (
        "[tool]\ndftrace.auto_depth = 2\n",
        "[tool]\nruff = {}\r\n  'dftrace' = {auto_depth = 2}\n",
        '[tool]\n"dftrace".auto_depth = 2\n',
        '["tool".dftrace]\nauto_depth = 2\n',
        "[ 'tool' . \"dftrace\" ]\nauto_depth = 2\n",
        "tool.dftrace.auto_depth = 2\n",
        "tool = {dftrace = {auto_depth = 2}}\n",
        '["t\\u006fol"."dftrac\\u0065"]\nauto_depth = 2\n',
        '"t\\U0000006fol".dftrace = {auto_depth = 2}\n',
    ):
        file.write_text(text)
        assert depth() == 2, text
    # These are of others.
    (project / "dftrace.toml").write_text("auto_depth = 3\n")
    for text in ("[project.scripts]\ndftrace = 'p:main'\n", "[tool.x]\ndftrace.auto_depth = 2\n"):
        (project / "a" / "pyproject.toml").write_text(text)
        assert depth() == 3, text


def test_the_home_directory_is_the_last_that_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "work")
    (tmp_path / "dftrace.toml").write_text("auto_depth = 9\n")
    assert depth() == 1
    # On clusters it is often a link.
    (tmp_path / "me").symlink_to("home")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert depth() == 1
    (home / "dftrace.toml").write_text("auto_depth = 2\n")
    assert depth() == 2


def test_what_others_can_have_written_is_not_believed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> str:
        return sources()["project file"]

    file = project / "dftrace.toml"
    file.write_text("auto_depth = 2\n")
    assert told() == str(file)
    file.chmod(0o666)
    assert (depth(), told()) == (1, f"{file} is not read: everybody may write it")
    file.chmod(0o644)
    (project / "a").chmod(0o777)
    assert (depth(), told()) == (1, "none found")
    (project / "a").chmod(0o755)
    assert depth() == 2
    file.rename(project / "other.toml")
    file.symlink_to("other.toml")
    assert depth() == 1
    file.unlink()
    os.mkfifo(file)
    assert depth() == 1
    file.unlink()
    (project / "other.toml").rename(file)
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
        assert (depth(), told()) == (1, f"{file} is not read: it is another user's")
        os.chown(project / "a", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert (depth(), told()) == (1, "none found")


def test_a_directory_of_its_name_is_passed_over(project: Path) -> None:
    (project / "pyproject.toml").write_text(PYPROJECT + "auto_depth = 2\n")
    (project / "dftrace.toml").mkdir()
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    assert depth() == 2
    again = os.open(os.devnull, os.O_RDONLY)
    os.close(again)
    assert again <= free


def test_without_a_directory_there_is_none(project: Path) -> None:
    Path.cwd().rmdir()
    assert depth() == 1


REFUSED = {
    "lines_hertz = 20": "unknown key 'lines_hertz'; did you mean 'lines_hz'?",
    "[wyh]\nfail-on = 'warning'": "unknown key 'wyh'; did you mean 'why'?",
    "spool_dir = '/root/.ssh'": "for who runs it: set DFTRACE_SPOOL_DIR",
    "file_mode = '0666'": "for who runs it: set DFTRACE_FILE_MODE",
    "dump_signal = 'SIGTERM'": "for who runs it: set DFTRACE_DUMP_SIGNAL",
    "mask_secrets = false": "for who runs it: set DFTRACE_MASK_SECRETS",
    "rank = 0": "for who runs it: set DFTRACE_RANK",
    "auto_itt = true": "for who runs it: set DFTRACE_AUTO_ITT",
    "log_file = '/etc/cron.d/x'": "log_file '/etc/cron.d/x' is not accepted; accepted: a path below",
    "log_file = '../x'": "log_file '../x' is not accepted",
    "log_file = 'link/x'": "log_file 'link/x' is not accepted",
    "log_file = '.'": "whose last part is a file stem, such as 'out/trace'",
    "log_file = './.'": "log_file './.' is not accepted; accepted: a path below",
    "log_file = '..pfw'": "log_file '..pfw' is not accepted",
    "log_file = '../project'": "log_file '../project' is not accepted",
    "log_file = 'a/..'": "log_file 'a/..' is not accepted; accepted: a path below",
    "log_file = 'circle/x'": "log_file 'circle/x' is not accepted",
    "log_file = '~/x'": "log_file '~/x' is not accepted",
    'log_file = "a\\u0000b"': "is not accepted",
    "log_file = 7": "log_file 7 is not accepted",
    "lines_hz = 'often'": "lines_hz: 'often' is not accepted; accepted: a whole number from 0 to",
    "lines_hz = 1979-05-27": "is not accepted; accepted: a whole number",
    "ids = {a = 1}": "ids: {'a': 1} is not accepted",
    "why = 1": "[why] is no table of threshold and fail-on",
    "[why]\nfail-no = 'x'": "[why]: unknown key 'fail-no'; did you mean 'fail-on'?",
    "[why]\nfail-on = 'info'": "[why] fail-on: 'info' is not accepted; accepted: 'warning' or",
    "[why.threshold]\ninput = '1'": "accepted: a number by name, or two",
    "[why]\nthreshold = 0.1": "accepted: a number by name, or two",
    "[diff]\nfail-if = 'step > 1%'": "accepted: a list of conditions",
    "lines_hz" + ".a" * 1900 + " = 1": "lines_hz: this dict is not accepted",
    "log_file" + ".a" * 1900 + " = 1": "log_file this dict is not accepted",
    "[why]\nthreshold" + ".a" * 1900 + " = 1": "[why] threshold: this dict is not accepted",
    "a" + ".a" * 5000 + " = 1": "too many dots in its keys, to line 1",
    f"[a{'.a' * 900}]\n" + "b.c = 1\n" * 5000: "too many dots in its keys, to line ",
    "a = ": "not TOML: ",
    "a = " + "[" * 4000: "not TOML: ",
    "a = '\x1b[2J'": "not TOML: ",
}


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_it_may_not_say_is_told_with_its_name(project: Path, text: str) -> None:
    (project / "link").symlink_to("/etc")
    (project / "circle").symlink_to("circle")
    file = project / "dftrace.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_config(environ={})
    message = str(raised.value)
    assert message.startswith(f"{file}: ")
    assert REFUSED[text] in message
    assert message.isprintable()
    assert len(message) < 1000
    (project / "dftrace.toml").unlink()
    (project / "pyproject.toml").write_bytes(b"[tool.dftrace]\n\xff")
    with pytest.raises(ConfigError, match=r"pyproject.toml: not TOML: "):
        load_config(environ={})


def test_a_fault_of_it_is_none_of_theirs_who_record_nothing(project: Path) -> None:
    (project / "dftrace.toml").write_text("lines_hertz = 20\n")
    (project / "off.yaml").write_text("enabled: no\n")
    assert not load_config(environ={"DFTRACE_ENABLE": "0"}).enabled
    assert not load_config(environ={"DFTRACER_ENABLE": "0"}).enabled
    assert not load_config(project / "off.yaml", environ={}).enabled
    assert not load_config(environ={"DFTRACE_ENABLE": "1"}, enabled=False).enabled
    with pytest.raises(ConfigError, match="unknown key 'lines_hertz'"):
        load_config(environ={"DFTRACE_ENABLE": "0"}, enabled=True)
    with pytest.raises(ConfigError, match="unknown key 'lines_hertz'"):
        load_config(environ={"DFTRACE_ENABLE": "perhaps"})
    told = run("--set", "enabled=false", "-c", "print('went on')")
    assert (told.returncode, told.stdout, told.stderr) == (0, "went on\n", "")


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dftrace_ai.cli", "run", *words],
        env={**clean_environment(), **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_schema_is_of_what_is_accepted(project: Path) -> None:
    tomllib = pytest.importorskip("tomllib")
    assert SCHEMA["properties"].keys() == OF_PROJECT | OPTIONS.keys()
    assert OF_PROJECT < SETTINGS.keys()
    (block,) = blocks(DOCS / "configuration.md", "toml")
    jsonschema.validate(tomllib.loads(block.text), SCHEMA)
    (project / "dftrace.toml").write_text(block.text)
    config = load_config(environ={})
    assert config.log_file == project / "traces" / "run"
    for text in (
        "rank = 0",
        "[why]\nfail-on = 'info'",
        "lines_hertz = 20",
        "[diff]\nfail-on = 'warning'",
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(tomllib.loads(text), SCHEMA)


def test_options_are_those_of_the_file_unless_they_are_given(project: Path, tmp_path: Path) -> None:
    run = Training(item_ms=20, steps=60, transfer_ms=1).write(tmp_path / "run", 1)
    assert invoke("why", run).status == 0
    file = project / "dftrace.toml"
    file.write_text("[why]\nfail-on = 'warning'\n[why.threshold]\ninput = [0.02, 0.99]\n")
    done = invoke("why", run)
    assert done.status == 1
    assert done.out.startswith("INPUT-BOUND  (warning, ")
    assert f"{file}: [why] fail-on: warning; {file}: [why] threshold: input=0.02,0.99" in done.err
    given = invoke("why", run, "--fail-on", "critical", "--threshold", "input=0.02,0.99")
    assert given.status == 0
    assert str(file) not in given.err
    assert sources()["why --fail-on"] == f"warning ({file}: [why] fail-on)"
    # Other commands are not kept from their work by it, and a wrong name is told.
    file.write_text("[why.threshold]\ninptu = 0.1\n")
    assert invoke("summary", run).status == 0
    wrong = invoke("why", run)
    assert wrong.status == 2
    assert "there is no threshold 'inptu'" in wrong.err
    assert str(file) in wrong.err


PROGRAM = """
import os
os.chdir("/")
import dftrace_ai
with dftrace_ai.tracing():
    with dftrace_ai.ai.compute.forward:
        pass
    print(dftrace_ai.Config, flush=True)
"""


def test_a_run_takes_it_from_where_it_is_called_and_says_so(project: Path) -> None:
    """The program, which goes to another directory, has the same settings."""
    (project / "dftrace.toml").write_text("log_file = 'out/t'\ncompression = 'none'\nids = false\n")
    (project / "a" / "b" / "train.py").write_text(PROGRAM)
    done = run("train.py", DFTRACE_IDS="1")
    assert done.returncode == 0, done.stderr
    (trace,) = (project / "out").glob("*.pfw")
    assert '"level":1' in trace.read_text()
    told = f"dftrace: run: by {project / 'dftrace.toml'}: log_file, compression\n"
    assert told in done.stderr


def test_a_run_says_that_the_file_switches_it_off_or_is_not_read(project: Path) -> None:
    file = project / "dftrace.toml"
    file.write_text("enabled = false\nlines_hz = 7\n")
    told = run("-o", "out", "-c", "0").stderr
    assert f"nothing will be recorded: by {file}, enabled is false; --set enabled=true" in told
    assert "enabled" not in run("-o", "out", "--set", "enabled=true", "-c", "0").stderr
    file.chmod(0o666)
    assert f"run: {file} is not read: everybody may write it\n" in run("-c", "0").stderr
    assert str(file) not in run("-c", "0", DFTRACE_ENABLE="0").stderr


WAITS = """
import os, sys, time
import dftrace_ai
from dftrace_ai import ai
os.chdir(sys.argv[1])
with dftrace_ai.tracing():
    for step in range(60):
        with ai.pipeline.step:
            ai.update(step=step)
            with ai.dataloader.fetch:
                time.sleep(0.003)
"""


def test_the_end_of_a_run_is_judged_by_thresholds_of_the_project(project: Path) -> None:
    """That of where it was called, wherever the program goes; its summary by that of where it is."""
    (project / "a" / "b" / "train.py").write_text(WAITS)
    file = project / "dftrace.toml"
    file.write_text("[why.threshold]\ninput = 2.0\n")
    told = run("train.py", "/", DFTRACE_LINES_HZ="0").stderr
    assert "INPUT-BOUND" not in told
    assert f"  limits    {file}: [why] threshold: input=2.0\n" in told
    # A wrong one is told of, and the run is judged all the same.
    file.write_text("[why.threshold]\ninptu = 2.0\n")
    told = run("train.py", "..", DFTRACE_LINES_HZ="0", DFTRACE_SUMMARY="1").stderr
    assert "INPUT-BOUND" in told
    assert "  limits    as by default: --threshold inptu=2.0: there is no threshold 'inptu'" in told
