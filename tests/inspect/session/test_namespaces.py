"""Namespaces of users: which feature is called, with what, and as nvdlfw-inspect itself does it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from inspect_sessions import main_log, session

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.config.features import forget_custom_features
from dftrace_ai.inspect.errors import InspectError


@pytest.fixture(autouse=True)
def _registered_anew() -> Iterator[None]:
    forget_custom_features()
    yield
    forget_custom_features()


class Hooks:
    """What users write for nvdlfw-inspect; it is the base class there that differs."""

    calls: list[tuple[Any, ...]] = []

    class Default:
        def process_tensor(self, config: Any, layer_name: str, **given: Any) -> Any:
            return ("default", layer_name, given["tensor"])

    def input_assertions_hook(self, api_name: str, **given: Any) -> None:
        self.calls.append(("input", api_name, sorted(given)))

    def routing_condition(
        self, api_name: str, config: Any, layer_name: str, feature_obj: Any, **given: Any
    ) -> tuple[bool, Any]:
        if given["tensor_name"] not in config["tensors"]:
            return False, None
        return True, {**config, "asked": api_name}

    def output_assertions_hook(self, api_name: str, ret: Any, **given: Any) -> None:
        self.calls.append(("output", api_name, ret))

    def is_multiple_feature_invocation_allowed(self, api_name: str) -> bool:
        return api_name == "look"

    def handle_multi_feature_output(
        self, api_name: str, outputs: Any, features_to_invoke: Any, **given: Any
    ) -> Any:
        return [*outputs, sorted(features_to_invoke)]


class Scale:
    def process_tensor(self, config: Any, layer_name: str, **given: Any) -> Any:
        return (layer_name, given["tensor"] * config["by"], config["asked"])

    def look(self, config: Any, layer_name: str, **given: Any) -> Any:
        return ("scale", config["by"])


class Clip:
    def look(self, config: Any, layer_name: str, **given: Any) -> Any:
        return ("clip", config["at"])


CONFIG = {
    "one": {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": "a.*"},
        "mine": {
            "Scale": {"enabled": True, "tensors": ["hidden"], "by": 3},
            "Clip": {"enabled": True, "tensors": ["hidden", "x"], "at": 7},
        },
    }
}
CALLS = [
    ("process_tensor", "a1", "hidden"),
    ("process_tensor", "a1", "x"),
    ("process_tensor", "b", "hidden"),
    ("look", "a2", "hidden"),
    ("look", "a2", "x"),
    ("look", "a2", "y"),
    ("process_tensor", "a1", "hidden"),
]


def asked(api: Any) -> list[Any]:
    return [
        getattr(api, call)(layer_name=layer, tensor_name=tensor, tensor=5)
        for call, layer, tensor in CALLS
    ]


def register_with_nvdlfw() -> None:
    """Make the same classes known to nvdlfw-inspect, which has to be reading its features."""
    from nvdlfw_inspect.base import BaseNamespaceAPI
    from nvdlfw_inspect.registry import Registry, api_method

    class PeersHooks(Hooks, BaseNamespaceAPI):
        def __init__(self) -> None:
            BaseNamespaceAPI.__init__(self)
            self._default_api_impl = Hooks.Default()
            self._cacheable_api_kwargs_map = {"process_tensor": ["tensor_name"]}

    Registry.register_namespace_api("mine")(PeersHooks)
    for feature in (Scale, Clip):
        methods = {name: api_method(one) for name, one in vars(feature).items() if name[0] != "_"}
        Registry.register_feature("mine")(type(feature.__name__, (), methods))


def of_nvdlfw(folder: Path) -> list[Any]:
    """What nvdlfw-inspect returns with the same classes and the same config."""
    peer = pytest.importorskip("nvdlfw_inspect.api", reason="nvdlfw-inspect is not installed")
    features = folder / "features"
    features.mkdir()
    (features / "own.py").write_text(
        f"import sys\nsys.modules[{__name__!r}].register_with_nvdlfw()\n"
    )
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    peer.initialize(str(path), feature_dirs=str(features), log_dir=str(folder))
    try:
        return asked(peer.mine)
    finally:
        peer.end_debug()


def test_calls_are_routed_as_nvdlfw_inspect_routes_them(tmp_path: Path) -> None:
    Hooks.calls.clear()
    expected, hooks = of_nvdlfw(tmp_path), list(Hooks.calls)
    Hooks.calls.clear()

    @debug_api.register_namespace_api("mine")
    class Mine(Hooks):
        _default_api_impl = Hooks.Default()

    for feature in (Scale, Clip):
        debug_api.register_feature(feature.__name__, namespace="mine")(feature)
    with session(CONFIG, tmp_path):
        assert asked(debug_api.mine) == expected
        assert Hooks.calls == hooks
    assert expected[0] == ("a1", 15, "process_tensor")
    assert expected[1] == ("default", "a1", 5)
    assert expected[3] == [("scale", 3), ("clip", 7), ["Clip", "Scale"]]
    assert expected[5] == {}
    assert not [line for line in main_log(tmp_path) if "produced nothing" in line]


def test_without_rules_the_config_chooses_and_one_feature_at_most_does_it(tmp_path: Path) -> None:
    ended: list[str] = []

    @debug_api.register_namespace_api("Mine")
    class Mine:
        def step(self) -> None:
            ended.append("step")

        def end_debug(self) -> None:
            ended.append("end")

    for feature in (Scale, Clip):
        debug_api.register_feature(feature.__name__, namespace="mine")(feature)
    struct = [{"tensor": "x", "by": 2}, {"tensor": "y"}]
    features = {
        "Scale": {"enabled": True, "by": 4, "tensors_struct": struct},
        "Clip": {"enabled": True, "tensors": ["y"], "at": 1},
    }
    layers = {"exact_layer_names": ["a"]}
    with session({"one": {"enabled": True, "layers": layers, "mine": features}}, tmp_path):
        assert dir(debug_api.mine) == ["look", "process_tensor"]
        assert debug_api.mine.look("a", tensor_name="x") == ("scale", 2)
        assert debug_api.MINE.look("b", tensor_name="x") == {}
        assert debug_api.mine.look("a", tensor_name="z") == {}
        with pytest.raises(AssertionError, match="Scale and Clip of mine all have look"):
            debug_api.mine.look("a", tensor_name="y")
        with pytest.raises(AttributeError, match="no feature of mine has nothing; known: look"):
            debug_api.mine.nothing("a")
        debug_api.step()
        assert ended == ["step"]
    assert ended == ["step", "end"]
    with pytest.raises(RuntimeError, match="not initialized"):
        debug_api.mine.look("a", tensor_name="x")


@pytest.mark.parametrize("name", ["transformer_engine", "Base", "torch", "", "a b", "_a", 3])
def test_names_that_are_ours_or_none_are_refused(name: Any) -> None:
    with pytest.raises(InspectError, match="namespace"):
        debug_api.register_namespace_api(name)


def test_a_namespace_has_one_set_of_rules_and_is_forgotten_with_the_features() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'mine'"):
        debug_api.mine  # noqa: B018 - the attribute is asked for
    debug_api.register_namespace_api("mine")(Hooks)
    debug_api.register_namespace_api("mine")(Hooks)
    with pytest.raises(InspectError, match="already registered, by Hooks"):
        debug_api.register_namespace_api("Mine")(Scale)
    assert "mine" not in vars(debug_api)
