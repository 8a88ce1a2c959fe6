"""The page on what is promised: its packages, former names and kinds of JSON are those that there are."""

from __future__ import annotations

import json
import re
from importlib import import_module

from dftrace_ai.cli.commands import FORMER
from docs.pages import DOCS, ROOT, between, plain, table

PAGE = DOCS / "promises.md"


def test_every_kind_of_json_has_its_row() -> None:
    wanted = set()
    for path in (ROOT / "schemas").glob("*.schema.json"):
        members = json.loads(path.read_text(encoding="utf-8")).get("properties", {})
        if kind := members.get("kind", {}).get("const"):
            number = str(members.get("format", {}).get("const", ""))
            wanted.add((kind, number, f"[{path.name}](../schemas/{path.name})"))
    rows = [(plain(kind), number, schema) for kind, number, schema in table(between(PAGE, "kinds"))]
    assert set(rows) == wanted
    assert len(rows) == len(wanted) == len({kind for kind, *_ in wanted}) > 20


def test_public_packages_say_what_is_public() -> None:
    rows = table(between(PAGE, "packages"))
    for name, about in rows:
        module = import_module(plain(name))
        assert module.__all__
        assert all(hasattr(module, each) for each in module.__all__)
        assert set(re.findall(r"`(\w+)`", about)) <= set(module.__all__)
    assert len(rows) > 10


def test_former_names_of_options_are_listed() -> None:
    written = [[plain(cell) for cell in row] for row in table(between(PAGE, "former"))]
    assert written == [
        [command, former, " ".join(now)]
        for command, names in FORMER.items()
        for former, now in names.items()
    ]
