"""The tree is what schemas/categories.yaml says."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import generate_categories_module
import pytest
import yaml
from conftest import Traced

from dftrace_ai import ai
from dftrace_ai.annotation.node import ProfilerNode

VOCABULARY = Path(__file__).resolve().parents[3] / "schemas" / "categories.yaml"


def test_categories_module_is_what_its_source_generates() -> None:
    written = ast.unparse(ast.parse(generate_categories_module.TARGET.read_text(encoding="utf-8")))
    assert ast.unparse(ast.parse(generate_categories_module.generated(VOCABULARY))) == written


def test_every_name_of_the_vocabulary_is_reached_by_its_path_and_written(traced: Traced) -> None:
    tree = yaml.safe_load(VOCABULARY.read_text(encoding="utf-8"))
    nodes: list[tuple[Any, str, str]] = [(ai, "ai_root", "ai_root")]
    for category, entry in tree["categories"].items():
        branch = getattr(ai, category)
        nodes.append((branch, category, category))
        for name in (*entry["nodes"], *entry.get("additions", ())):
            full = f"{category}.{name}" if entry.get("qualified") else name
            nodes.append((getattr(branch, name), category, full))
        if entry.get("io"):
            nodes.append((branch.io, category, f"{category}.io"))
            nodes += [
                (getattr(branch.io, name), category, f"{category}.io.{name}")
                for name in tree["io"]["nodes"]
            ]
    with traced() as rec:
        for node, _, _ in nodes:
            assert isinstance(node, ProfilerNode)
            with node:
                pass
    wanted = [(cat, name) for _, cat, name in nodes]
    assert [(e.cat, e.name) for e in rec.trace.spans] == wanted
    assert [(node.cat, node.name) for node, _, _ in nodes] == wanted
    assert all(e.user == {} for e in rec.trace.spans)
    for unknown in ("computer", "forwards"):
        with pytest.raises(AttributeError):
            getattr(ai.compute, unknown)


def test_events_are_named_as_documented() -> None:
    assert ai.data.io.open.name == "data.io.open"
    assert ai.other.log.name == "other.log"
    assert ai.checkpoint.init.name == "checkpoint.init"
    assert ai.data.item.init.name == "item.init"
    collate = ai.data.preprocess.derive(name="collate")
    assert (collate.name, collate.cat) == ("preprocess.collate", "data")
    assert ai.data.preprocess.derive(name="collate") is collate
