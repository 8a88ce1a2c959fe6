"""The page on summaries: its options and its grammar against what the command takes."""

from __future__ import annotations

import re
import shlex

from safety.commands import invoke

from dftrace_ai.analysis.where import FIELDS, where_of
from dftrace_ai.cli.summary import By
from dftrace_ai.conditions import OPERATORS
from docs.pages import DOCS, between, blocks, section, table

PAGE = DOCS / "guide" / "sum-up.md"


def test_the_conditions_are_accepted() -> None:
    (block,) = blocks(PAGE, "sh")
    for line in block.text.splitlines():
        words = shlex.split(line)
        where_of(words[words.index("--where") + 1])
    rows = dict(table(between(PAGE, "where")))
    told = set(re.findall(r"`([\w.]+)`", rows["field"]))
    assert told == {*FIELDS, "args.NAME"}
    assert set(OPERATORS) <= set(re.findall(r"`(\S+)`", rows["comparison"]))


def test_every_form_is_on_the_page() -> None:
    text = section(PAGE, "What has a row")
    listed = set(re.findall(r"`(?:--by )?(\w+)`", " ".join(row[0] for row in table(text))))
    assert listed == {each.value for each in By} - {"name"}
    help_text = invoke("summary", "--help").out
    for option in re.findall(r"`(--\w+)", text):
        assert option in help_text
