"""Which layers a section selects: names, patterns, types and numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from dftrace_ai.inspect.config.bounded_search import searcher
from dftrace_ai.inspect.config.names import listed
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dftrace_ai.inspect.config.grammar import Layers


@dataclass(frozen=True)
class LayerInfo:
    """A layer, as far as the selection of layers needs to know it."""

    name: str  # the full name, such as ``model.decoder.1.mlp.fc1``
    class_name: str = ""  # the class of the module, such as ``Linear``; empty where none is known
    # Whether its GEMMs can be run otherwise; of the other layers, only statistics can be had.
    has_gemms: bool = True


@lru_cache(maxsize=1024)  # asked by each section for each layer
def layer_number(name: str) -> int | None:
    """Return the first part of a dotted name that is a number: 1 for ``decoder.1.mlp.fc1``."""
    for part in name.split("."):
        if part.isascii() and part.isdigit():
            return int(part)
    return None


def _bare(name: str) -> str:
    return name.lower().replace("_", "")


def what_selects(layers: Layers, every: Iterable[LayerInfo]) -> Callable[[LayerInfo], bool]:
    """Return what tells whether a selection is about a layer."""
    given = layers.model_fields_set
    if "exact_layer_names" in given:
        exact = frozenset(layers.exact_layer_names)
        return lambda layer: layer.name in exact
    if "layer_name_regex_pattern" in given:
        found = searcher(layers.layer_name_regex_pattern)
        return lambda layer: found(layer.name)
    tests: list[Callable[[LayerInfo], bool]] = []
    if "layer_types" in given:
        tests.append(_test_of_types(layers.layer_types, every))
    if "layer_numbers" in given and layers.layer_numbers != "all":
        ranges = layers.layer_numbers
        tests.append(lambda layer: _of_number(ranges, layer.name))
    if len(tests) == 1:
        return tests[0]
    return lambda layer: all(test(layer) for test in tests)


def _test_of_types(
    entries: Sequence[str], every: Iterable[LayerInfo]
) -> Callable[[LayerInfo], bool]:
    if any(entry.lower() == "all" for entry in entries):
        return lambda _: True
    every = tuple(every)
    classes = {_bare(entry) for entry in entries if not any(entry in layer.name for layer in every)}
    # One pattern for all entries: found at once, however many there are.
    parts = re.compile("|".join(map(re.escape, entries)) or "(?!)")
    if not classes:
        return lambda layer: parts.search(layer.name) is not None
    return lambda layer: (
        parts.search(layer.name) is not None
        or (bool(layer.class_name) and _bare(layer.class_name) in classes)
    )


def _of_number(ranges: Iterable[tuple[int, int]], name: str) -> bool:
    number = layer_number(name)
    return number is not None and any(first <= number <= last for first, last in ranges)


def describe_layers(layers: Layers) -> str:
    """Say in words which layers a selection is about."""
    given = layers.model_fields_set
    if "exact_layer_names" in given:
        return f"named {listed(map(in_short, layers.exact_layer_names), 'or') or 'nothing'}"
    if "layer_name_regex_pattern" in given:
        return f"whose name has a match of {in_short(layers.layer_name_regex_pattern)}"
    parts = []
    if "layer_types" in given:
        if any(entry.lower() == "all" for entry in layers.layer_types):
            parts.append("of every name")
        else:
            entries = listed(map(in_short, layers.layer_types), "or")
            parts.append(f"with {entries or 'nothing'} in the name, else as the class")
    if "layer_numbers" in given:
        parts.append(f"of number {_numbers_in_words(layers)}")
    return " and ".join(parts)


def _numbers_in_words(layers: Layers) -> str:
    if layers.layer_numbers == "all":
        return "all"
    ranges = [
        str(first) if first == last else f"{first}-{last}" for first, last in layers.layer_numbers
    ]
    return listed(ranges, "or") or "none"
