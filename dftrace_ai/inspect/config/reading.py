"""The YAML of a config file, read without letting the file do harm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.config.sources import small_text
from dftrace_ai.errors import ConfigError, quoted
from dftrace_ai.inspect.config.problems import told
from dftrace_ai.inspect.errors import InspectTypeError, InspectValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import yaml

__all__ = ["parsed", "read_yaml"]

FILE_BYTES = 1024 * 1024
# A config for a thousand layers has a tenth of these.
MOST_NODES = 100_000
MOST_DEPTH = 32

MERGE_TAG = "tag:yaml.org,2002:merge"


def parsed(config_file: Any) -> tuple[Any, str | None] | None:
    """Return what a config holds, and the name of its file.

    Args:
        config_file: a path, or a config that is already parsed.

    Returns:
        The content and the path as text (None for a dict); None where there is no config:
        an empty path, or one that does not exist.

    Raises:
        InspectTypeError: it is neither a path nor a dict.
        InspectValueError: the file cannot be read, or is no reasonable config.
        yaml.YAMLError: the file is not YAML.
    """
    if isinstance(config_file, dict):
        return config_file, None
    if config_file is None or config_file == "":
        return None
    if not isinstance(config_file, (str, os.PathLike)):
        raise InspectTypeError(
            f"config_file: {told(config_file)} is not accepted; accepted: a path or a dict"
        )
    path = os.fspath(config_file)
    if not isinstance(path, str):
        raise InspectTypeError(f"config_file: {told(path)} is not accepted; accepted: text")
    if "\0" not in path and not Path(path).exists():
        return None
    return read_yaml(path), path


def read_yaml(path: str) -> Any:
    """Return what a YAML file holds.

    Raises:
        InspectValueError: it cannot be read, is too large, gives a key twice, or stands for
            more than it says by references.
        yaml.YAMLError: it is not YAML.
    """
    name = quoted(path)
    try:
        text = small_text(path, name, FILE_BYTES)
    except ConfigError as error:
        raise InspectValueError(str(error)) from error
    try:
        return _constructed(text, name)
    except ValueError as error:
        if isinstance(error, InspectValueError):
            raise
        # A date that does not exist, a number of thousands of digits.
        raise InspectValueError(f"{name}: a value cannot be read: {str(error)[:200]}") from error


def _constructed(text: str, name: str) -> Any:
    import yaml

    loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    _refuse_depth(yaml.parse(text, Loader=loader_class), name)
    loader = loader_class(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _refuse_multiplication(root, name)
        for mapping in _mappings(root):
            _refuse_twins(mapping, name)
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _refuse_depth(events: Iterable[Any], name: str) -> None:
    """Refuse what takes hours to build: many nodes, or many inside each other."""
    import yaml

    depth = 0
    for nodes, event in enumerate(events):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_DEPTH or nodes > MOST_NODES:
            fault = "nested too deeply" if depth > MOST_DEPTH else "too many values"
            raise InspectValueError(f"{name}:{event.start_mark.line + 1}: {fault} for a config")


def _children(node: yaml.Node) -> list[yaml.Node]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refuse_multiplication(root: yaml.Node, name: str) -> None:
    """Refuse references of which a few lines stand for gigabytes, or that never end."""
    # How many nodes a node stands for, and how many lie inside each other.
    extents: dict[int, tuple[int, int] | None] = {}

    def extent(node: yaml.Node) -> tuple[int, int]:
        if id(node) in extents:
            known = extents[id(node)]
            if known is None:
                raise InspectValueError(f"{_place(node, name)}: a value that contains itself")
            return known
        extents[id(node)] = None
        inner = [extent(child) for child in _children(node)]
        nodes = 1 + sum(count for count, _ in inner)
        depth = 1 + max((deepest for _, deepest in inner), default=0)
        if nodes > MOST_NODES or depth > MOST_DEPTH:
            fault = "nested too deeply" if depth > MOST_DEPTH else "too many values"
            raise InspectValueError(
                f"{_place(node, name)}: {fault} for a config, by its references"
            )
        extents[id(node)] = nodes, depth
        return nodes, depth

    extent(root)


def _mappings(root: yaml.Node) -> Iterator[yaml.MappingNode]:
    import yaml

    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        pending += reversed(_children(node))
        if isinstance(node, yaml.MappingNode):
            yield node


def _refuse_twins(mapping: yaml.MappingNode, name: str) -> None:
    """Refuse a key that is given twice: YAML would take the last one without a word."""
    import yaml

    lines: dict[tuple[str, str], int] = {}
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE_TAG:
            continue
        line: int = key.start_mark.line + 1
        earlier = lines.get((key.tag, key.value))
        if earlier is not None:
            raise InspectValueError(
                f"{_place(key, name)}: {told(key.value)} is given twice, first in line {earlier}"
            )
        lines[key.tag, key.value] = line


def _place(node: yaml.Node, name: str) -> str:
    return f"{name}:{node.start_mark.line + 1}"
