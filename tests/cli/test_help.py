"""What holds for every command: help with an example that its own parser takes, and JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from safety.commands import invoke

from dftrace_ai.cli import app


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


EVERY = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_has_json_and_an_example_that_it_takes(words: tuple[str, ...]) -> None:
    command = EVERY[words]
    prints = words != ("run",)  # it becomes another program
    assert prints == ("--json" in {option for one in command.params for option in one.opts})
    examples = [
        paragraph.removeprefix("Example: ")
        for paragraph in " ".join(
            line.strip() or "\n" for line in (command.help or "").splitlines()
        ).split(" \n ")
        if paragraph.startswith("Example: ")
    ]
    assert len(examples) == 1, command.help
    said, *rest = shlex.split(examples[0].replace("\n", " ").strip())
    assert (said, *rest[: len(words)]) == ("dftrace", *words)
    command.make_context(" ".join(words), rest[len(words) :])
    done = invoke(*words, "--help")
    assert done.status == 0
    assert f"Example: dftrace {' '.join(words)}" in " ".join(done.out.split())
