"""Where a config comes from, and files that are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from inspect_configs import EXAMPLES, LOG, one_section

from dftrace_ai.inspect.config import examine, load
from dftrace_ai.inspect.errors import InspectError, InspectTypeError, InspectValueError

LAUGHS = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 60))
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "inspect.yaml"


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_and_what_it_holds_are_the_same(file: Path, kind: type) -> None:
    for text in EXAMPLES.values():
        file.write_text(text)
        from_file, from_dict = load(kind(file)), load(yaml.safe_load(text))
        assert list(from_file.sections) == list(from_dict.sections)
        assert (from_file.path, from_dict.path) == (str(file), None)
        for name, section in from_file.sections.items():
            assert section.features == from_dict.sections[name].features
            assert section.layers == from_dict.sections[name].layers


@pytest.mark.parametrize("missing", ["", None, "no/such/file.yaml"])
def test_no_config_is_no_error(missing: Any) -> None:
    config = load(missing)
    assert not config.sections
    assert not config.given
    (warning,) = config.warnings
    assert "config file" in warning.text
    assert examine(missing)[1] == [warning]


@pytest.mark.parametrize("wrong", [3, ["a"], b"inspect.yaml", object()])
def test_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="config_file") as raised:
        load(wrong)
    assert isinstance(raised.value, InspectTypeError)
    assert [problem.kind for problem in examine(wrong)[1]] == [TypeError]


def test_what_is_no_yaml_comes_out_as_it_is(file: Path) -> None:
    file.write_text("a: [1\nb: 2\n")
    with pytest.raises(yaml.YAMLError) as raised:
        load(file)
    assert not isinstance(raised.value, InspectError)
    config, (problem,) = examine(file)
    assert config is None
    assert (problem.where, problem.kind) == (str(file), yaml.YAMLError)
    assert problem.text.startswith("line 2, column 2: not YAML: ")


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("a: {enabled: false}\nb: {}\na: {enabled: true}\n", 3, "'a' is given twice"),
        ("a:\n  enabled: true\n  layers: {layer_types: x, layer_types: y}\n", 3, "'layer_types'"),
        ("a: [{x: [{y: 1, y: 2}]}]\n", 1, "'y' is given twice"),
        ("a: " + "[" * 40 + "]" * 40, 1, "nested too deeply"),
        ("- " * 40 + "x\n", 1, "nested too deeply"),
        # Slow to build, and deeper than a stack.
        ("a: " + "[" * 60_000, 1, "nested too deeply"),
        ("{" * 60_000, 1, "nested too deeply"),
        ("- " * 60_000, 1, "nested too deeply"),
        ("a: [" + "x, " * 110_000 + "]\n", 1, "too many values"),
        ("a: &a [*a]\n", 1, "contains itself"),
        ("a: &a {b: {c: *a}}\n", 1, "contains itself"),
        (LAUGHS, 6, "too many values"),
        (MERGES, None, "too many values"),
        (CHAIN, None, "nested too deeply"),
    ],
)
def test_what_does_harm_is_refused_with_its_line(
    file: Path, text: str, line: int | None, word: str
) -> None:
    file.write_text(text)
    with pytest.raises(InspectValueError) as raised:
        load(file)
    assert word in str(raised.value)
    assert str(raised.value).startswith(f"{file}:{line or ''}")
    assert examine(file)[0] is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a: 1\n#" + b"x" * 2**20, "more than 1048576 bytes"),
        (b"a: \xff\n", "not UTF-8"),
        (b"a: 2001-99-99\n", "a value cannot be read"),
        (b"a: " + b"9" * 5000 + b"\n", "a value cannot be read"),
        (b"- a\n- b\n", "sections are needed"),
        (b"text\n", "sections are needed, 'name: ...', not 'text'"),
    ],
)
def test_a_file_that_is_no_config_is_refused(file: Path, data: bytes, words: str) -> None:
    file.write_bytes(data)
    with pytest.raises(InspectValueError) as raised:
        load(file)
    assert words in str(raised.value)
    assert len(str(raised.value)) < 500


def test_a_file_that_would_run_something_is_no_yaml(file: Path, tmp_path: Path) -> None:
    file.write_text(f"a: !!python/object/apply:os.mkdir ['{tmp_path}/owned']\n")
    with pytest.raises(yaml.YAMLError):
        load(file)
    assert not (tmp_path / "owned").exists()


def test_a_pipe_and_a_directory_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(InspectValueError, match="not a regular file"):
            load(path)


def test_references_serve_what_they_are_for(file: Path) -> None:
    file.write_text(
        """
first: &first
  enabled: true
  layers: {layer_types: fc1}
  torch:
    LogTensorStats: &log {enabled: true, stats: [mean], tensors: [weight], freq: 10}
second:
  <<: *first
  layers: {layer_types: fc2}
  torch:
    LogTensorStats: {<<: *log, freq: 20}
"""
    )
    first, second = load(file).sections.values()
    one, other = (section.features["LogTensorStats"] for section in (first, second))
    assert one.said("freq") == 10
    assert other == one.model_copy(update={"freq": 20})
    assert second.layers.layer_types == ("fc2",)


def test_an_empty_file_has_no_sections(file: Path) -> None:
    file.write_text("# nothing\n")
    assert [warning.text for warning in load(file).warnings] == ["no section is enabled"]


def test_a_dict_is_not_changed_and_may_contain_itself() -> None:
    config = one_section({"layer_type": "fc1"}, LogTensorStats={**LOG, "type": "x"})
    before = repr(config)
    assert len(examine(config)[1]) == 2
    assert repr(config) == before
    config["one"]["layers"] = config
    config["one"]["transformer_engine"]["LogTensorStats"]["freq"] = config
    assert {problem.severity for problem in examine(config)[1]} == {"error"}
    assert all(len(problem.text) < 400 for problem in examine({"a": 10**9000, "b": "x" * 9999})[1])


def test_a_config_is_read_without_torch() -> None:
    code = (
        "import sys\n"
        "import dftrace_ai.inspect.errors, dftrace_ai.inspect.naming\n"
        "from dftrace_ai.inspect.config import features, load, sections\n"
        "load({'a': {'enabled': True, 'layers': {'layer_types': 'fc1'}}})\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
