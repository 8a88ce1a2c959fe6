"""The tree is what schemas/categories.yaml says."""

import ast
from pathlib import Path

import generate_categories_module
import yaml

from dftrace_ai import ai
from dftrace_ai.annotation.node import ProfilerNode

VOCABULARY = Path(__file__).resolve().parents[3] / "schemas" / "categories.yaml"


def test_categories_module_is_what_its_source_generates():
    written = ast.unparse(ast.parse(generate_categories_module.TARGET.read_text(encoding="utf-8")))
    assert ast.unparse(ast.parse(generate_categories_module.generated(VOCABULARY))) == written


def test_every_name_of_the_vocabulary_is_reached_by_its_path():
    tree = yaml.safe_load(VOCABULARY.read_text(encoding="utf-8"))
    for category, entry in tree["categories"].items():
        branch = getattr(ai, category)
        assert (branch.cat, branch.name) == (category, category)
        for name in (*entry["nodes"], *entry.get("additions", ())):
            node = getattr(branch, name)
            assert isinstance(node, ProfilerNode)
            assert node.cat == category
            assert node.name == (f"{category}.{name}" if entry.get("qualified") else name)
        if entry.get("io"):
            for name in tree["io"]["nodes"]:
                assert getattr(branch.io, name).name == f"{category}.io.{name}"


def test_events_are_named_as_documented():
    assert ai.data.io.open.name == "data.io.open"
    assert ai.other.log.name == "other.log"
    assert ai.checkpoint.init.name == "checkpoint.init"
    assert ai.data.item.init.name == "item.init"
    assert ai.data.preprocess.derive(name="collate").name == "preprocess.collate"
