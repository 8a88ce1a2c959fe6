"""One language for all commands, read from their own parameters: a word means one thing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from cli.test_cli import EVERY
from conftest import clean_environment
from safety.commands import invoke

from dftrace_ai.cli.commands import COMMANDS, FORMER

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "commands.md"

# What is written where a value stands, and the only words that take such a value.
VALUES = {
    "N": {"--top", "--epochs", "--workers", "--iterations", "--attempt", "--jobs"},
    "SECONDS": {"--idle", "--interval", "--window"},
    "CONDITION": {"--where", "--fail-if"},
    "PATTERN": {"--project", "--name", "--group", "--metric"},
    "DIR": {"--plots", "--spool-dir", "--feature-dirs", "--out", "--timeline"},
    "FILE": {"--out", "--config", "--dask-file"},
    "PATH": {"--out"},
}
# Of words that are about the same; the reason why there are two.
BOTH = {
    frozenset({"--json", "--csv"}): "two forms of one answer",
    frozenset({"--nvtx", "--itt"}): "two tools",
    frozenset({"--project", "--name"}): "two facts of a run",
    frozenset({"--project", "--group"}): "two facts of a run",
    frozenset({"--name", "--group"}): "two facts of a run",
}
# Where a word is written in front of what differs from command to command.
ENDS_DIFFER = {"--out", "--to", "--by", "--sort", "--steps"}
# What makes a job says with the job's words how many ranks and steps it has, not which are read.
OF_A_JOB = "generate"
ITS_OWN = {"--json", "--jobs"}


def words_of(param: Any) -> list[str]:
    return [word for word in (*param.opts, *param.secondary_opts) if word.startswith("--")]


def options() -> list[tuple[str, str, Any]]:
    """Each option that is shown, with its word and its command."""
    for command in EVERY.values():
        command.get_params(command.make_context("", [], resilient_parsing=True))
    return [
        (words_of(param)[0], " ".join(names), param)
        for names, command in EVERY.items()
        for param in command.params
        if param.param_type_name == "option"
        and not param.hidden
        and not (names == (OF_A_JOB,) and words_of(param)[0] not in ITS_OWN)
    ]


def value_of(param: Any) -> str:
    """What is written where its value stands; a choice, whatever there is to choose."""
    if param.is_flag:
        return ""
    return "a|b" if "|" in (param.metavar or "") else str(param.metavar)


OPTIONS = options()


def faults(found: list[tuple[str, str, Any]]) -> list[str]:
    """Where a word means two things, or two words mean one thing."""
    told = []
    by_word: dict[str, list[tuple[str, Any]]] = {}
    for word, command, param in found:
        by_word.setdefault(word, []).append((command, param))
    for word, uses in by_word.items():
        first_command, first = uses[0]
        for command, param in uses[1:]:
            alike = [(param.opts, first.opts), (param.secondary_opts, first.secondary_opts)]
            if word not in ENDS_DIFFER:
                alike.append((value_of(param), value_of(first)))
            # What is done, and to what: `Print JSON`, `Only the first N rows`.
            heads = 1 if word in ENDS_DIFFER else 2
            says, said = (re.findall(r"\w+", one.help)[:heads] for one in (param, first))
            if any(one != another for one, another in [*alike, (says, said)]):
                told.append(f"{word} is another of {command} than of {first_command}")
    for word, command, param in found:
        value = param.metavar
        if not param.is_flag and not value:
            told.append(f"{word} of {command} does not say what its value is")
        if value in VALUES and word not in VALUES[value]:
            told.append(f"{word} of {command} takes {value}, as {sorted(VALUES[value])} do")
    meanings = {word: uses[0][1].help for word, uses in by_word.items()}
    for pair in combinations(meanings, 2):
        one, another = (meanings[word] for word in pair)
        if SequenceMatcher(None, one, another).ratio() > 0.8 and frozenset(pair) not in BOTH:
            told.append(f"{pair[0]} and {pair[1]} mean the same")
    shorts: dict[str, set[str]] = {}
    for word, _, param in found:
        for short in {*param.opts} - {*words_of(param)}:
            shorts.setdefault(short, set()).add(word)
    told += [f"{short} is {sorted(words)}" for short, words in shorts.items() if len(words) > 1]
    return told


def test_a_word_means_one_thing_and_two_words_do_not_mean_the_same() -> None:
    assert faults(OPTIONS) == []


class Other:
    """An option as another one, but for some of what it is."""

    def __init__(self, of: Any, **changed: Any) -> None:
        self.__dict__ = {**vars(of), **changed}


@pytest.mark.parametrize(
    ("word", "of", "changed", "want"),
    [
        (
            "--idle",
            "--idle",
            {"metavar": "N", "help": "Only the first N."},
            "--idle of other takes",
        ),
        ("--top", "--idle", {}, "--top is another of other than of summary"),
        ("--rows", "--top", {"opts": ["--rows"]}, "--rows of other takes N"),
        ("--limit", "--threshold", {"opts": ["--limit"]}, "--threshold and --limit mean the same"),
        ("--online", "--online", {"opts": ["--online", "-o"]}, "-o is "),
    ],
)
def test_what_is_no_such_language_is_found(
    word: str, of: str, changed: dict[str, Any], want: str
) -> None:
    like = next(param for each, _, param in OPTIONS if each == of)
    found = faults([*OPTIONS, (word, "other", Other(like, **changed))])
    assert any(one.startswith(want) for one in found), found


def test_former_names_are_taken_and_shown_nowhere() -> None:
    now: dict[str, set[str]] = {command.rpartition(" ")[2]: set() for _, command, _ in OPTIONS}
    for word, command, param in OPTIONS:
        now[command.rpartition(" ")[2]] |= {word, *param.opts}
    for command, names in FORMER.items():
        words = next(words for words in EVERY if words[-1] == command)
        help_text = invoke(*words, "--help").out
        for former, (*_, last) in names.items():
            assert former not in now[command]
            assert former not in re.findall(r"--[\w-]+", help_text)
            assert last in now[command] or not last.startswith("--")


def test_helps_name_no_types_and_have_a_short_way(tmp_path: Path) -> None:
    for words in ((), *EVERY):
        long = invoke(*words, "--help")
        assert (long.status, long.out) == (0, invoke(*words, "-h").out)
        assert not re.findall(r"<\w+|list\[", long.out), words
    assert invoke("-V").out == invoke("--version").out != ""


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_a_narrow_help_cuts_no_name_off(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    narrow = invoke(*words, "--help").out
    # What there is to choose is one word.
    assert max(len(line) for line in narrow.splitlines() if "|" not in line) <= 40
    for param in EVERY[words].params:
        for word in param.opts if param.param_type_name == "option" else ():
            assert re.search(rf"{word}\b", narrow), word


def test_the_help_has_parts_that_begin_with_run_and_why() -> None:
    lines = invoke("--help").out.splitlines()
    listed = [found[1] for line in lines if (found := re.match(r"│ (\w+)  ", line))]
    assert listed == list(COMMANDS)
    assert listed[:2] == ["run", "why"]
    titles = [line for line in lines if line.startswith("╭")]
    assert [title.strip("╭─╮ ") for title in titles[1:]] == [*dict.fromkeys(COMMANDS.values())]


def test_the_page_of_commands_has_every_word_that_several_have() -> None:
    page = GUIDE.read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"| `{name}` |" in page
    rows = dict(
        re.findall(r"^\| `(--[\w-]+)[^`]*`[^|]*\| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    )
    for word in {word for word, _, _ in OPTIONS}:
        commands = [command for each, command, _ in OPTIONS if each == word]
        if len(commands) > 1:
            assert sorted(re.findall(r"`([\w ]+)`", rows[word])) == sorted(commands), word
    for command, names in FORMER.items():
        for former, now in names.items():
            *before, _ = next(words for words in EVERY if words[-1] == command)
            called = " ".join([*before, command])
            assert f"| `{called} {former}` | `{' '.join(now)}` |" in page


# Rows that a query of the user's asks for have the members that it says.
NO_KIND = {"sql"}


def test_every_json_says_of_which_command_it_is() -> None:
    schemas = Path(__file__).parents[2] / "schemas"
    page = (GUIDE.parent / "read-traces.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `([\w ]+)` \| (.*schemas/.*) \|$", page, re.MULTILINE)
    kinds = {}
    for _, files in table:
        for file in re.findall(r"schemas/([\w-]+\.schema\.json)", files):
            described = json.loads((schemas / file).read_text(encoding="utf-8"))
            kinds[file] = described["properties"]["kind"]["const"]
    assert len({*kinds.values()}) == len(kinds)
    told = {" ".join(command.split()) for command, _ in table} | {"info"}
    ours = {command for word, command, _ in OPTIONS if word == "--json"}
    assert ours - told == {*NO_KIND, "view", "ui"}


def completed(words: str, cursor: int | None = None) -> list[str]:
    """What bash is offered behind words."""
    typed = words.split(" ")
    done = subprocess.run(
        [Path(sys.executable).with_name("dftrace")],
        env={
            **clean_environment(),
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(typed) - 1 if cursor is None else cursor),
            "_DFTRACE_COMPLETE": "complete_bash",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_a_shell_completes_commands_options_and_choices() -> None:
    assert completed("dftrace ru") == ["run", "runs"]
    assert set(completed("dftrace ")) == set(COMMANDS)
    assert completed("dftrace why --th") == ["--threshold"]
    assert "--limit" not in completed("dftrace stuck --")
    assert completed("dftrace summary out --by t") == ["thread", "tree", "tensor"]
    assert completed("dftrace inspect ") == ["check", "features"]
    # Names of files are the shell's own.
    assert completed("dftrace why out") == []
    assert completed("dftrace run train.py --th") == []


def test_bash_completes_by_what_is_printed_for_it(tmp_path: Path) -> None:
    environment = {**clean_environment(), "SHELL": "/bin/bash"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    script = """
        eval "$(dftrace --show-completion bash)"
        COMP_WORDS=(dftrace why --fail-on w) COMP_CWORD=3
        _dftrace_completion dftrace
        echo "${COMPREPLY[@]}"
        complete -p dftrace
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    offered, how = done.stdout.splitlines()
    assert offered == "warning"
    assert "-o default" in how
