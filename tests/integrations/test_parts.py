"""Parts of other packages, and names that no part has."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest
from conftest import Traced

import dftrace_ai
from dftrace_ai.errors import ConfigError
from dftrace_ai.integrations import parts as parts_module
from dftrace_ai.integrations.auto import Auto


def test_a_part_of_another_package_needs_no_torch(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = []
    home = type(sys)("their_parts")
    for name in ("tensorflow", "keras"):

        def install(options, name=name):
            installed.append(name)
            return lambda: installed.remove(name)

        setattr(home, name, install)
        monkeypatch.setitem(sys.modules, name, type(sys)(name))
    monkeypatch.setitem(sys.modules, "their_parts", home)
    monkeypatch.setattr(
        parts_module,
        "entry_points",
        lambda group: [
            EntryPoint(f"their-{name}", f"their_parts:{name}", group)
            for name in [group.rpartition(".")[2]]
            if name in ("tensorflow", "keras")
        ],
    )
    with traced(perfetto=False):
        auto(parts="steps,their-keras,their-tensorflow")
        assert set(auto.parts) == {"steps", "their-keras", "their-tensorflow"}
        assert sorted(installed) == ["keras", "tensorflow"]
        auto.remove()
    assert installed == []


def test_a_part_that_nobody_brings_is_named(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = "auto_parts: there is no part 'forwrad'; there are steps, io, lightning"
    for parts in ("forwrad", ["steps", "-forwrad"]):
        with pytest.raises(ConfigError, match=said):
            auto(parts=parts)
    assert dftrace_ai.auto.options is None
    monkeypatch.setenv("DFTRACE_AUTO_PARTS", "steps,forwrad")
    with traced(perfetto=False):  # the environment stops no training
        assert auto().options is not None
    told = [one.getMessage() for one in caplog.records]
    assert [one[: len(said)] for one in told if one.startswith("auto_parts")] == [said]
