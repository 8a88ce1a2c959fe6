"""YAML files that somebody else wrote, read without letting them do harm."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dftrace_ai import system
from dftrace_ai.wording import in_short, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import yaml

MERGE_TAG = "tag:yaml.org,2002:merge"
FAULT_LETTERS = 200


@dataclass(frozen=True)
class Guard:
    """How much a YAML file may hold, and what is raised where it holds more."""

    most_bytes: int  # of the file
    most_depth: int  # of values inside of each other
    most_nodes: int  # of keys and values, those counted again that references stand for
    references: bool  # whether there may be any
    # Makes the error of a file that cannot be read, of a message.
    unreadable: Callable[[str], Exception]
    # Makes the error of what is not accepted, of the file, a line and what it is.
    refused: Callable[[str, int, str], Exception]


@dataclass(frozen=True)
class YamlFile:
    """A YAML file whose nodes are known, and not yet what they stand for."""

    name: str  # what messages call it
    root: yaml.Node | None  # its outermost node, None for an empty file
    loader: Any  # makes objects of nodes


@contextmanager
def opened(path: str | os.PathLike[str], guard: Guard) -> Iterator[YamlFile]:
    """Read a YAML file; its values are made within the block, and raise what the guard makes."""
    import yaml

    name = quoted(os.fspath(path))
    text = _small_text(path, name, guard)
    loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader = None
    try:
        _refuse_size(yaml.parse(text, Loader=loader_class), name, guard)
        loader = loader_class(text)
        root = loader.get_single_node()
        if root is not None:
            _refuse_multiplication(root, name, guard)
        yield YamlFile(name, root, loader)
    except yaml.YAMLError as error:
        # Newer parsers have a limit of their own, far above that of any guard.
        if "nesting depth" not in str(getattr(error, "problem", "")):
            raise
        line: int = cast("Any", error).problem_mark.line + 1
        raise guard.refused(name, line, _fault(guard.most_depth + 1, guard)) from error
    except ValueError as error:
        if isinstance(error, type(guard.unreadable(""))):
            raise
        # A date that does not exist, a number of thousands of digits.
        fault = f"{name}: a value cannot be read: {str(error)[:FAULT_LETTERS]}"
        raise guard.unreadable(fault) from error
    finally:
        if loader is not None:
            loader.dispose()


def _small_text(path: str | os.PathLike[str], name: str, guard: Guard) -> str:
    """Return the text of a file that may be anything: a pipe, a device, a disk image."""
    # Not waiting for a writer, should it become a pipe after it was looked at.
    flags = system.TO_READ
    try:
        data = None
        if stat.S_ISREG(Path(path).stat().st_mode):
            with open(os.open(path, flags), "rb") as file:  # noqa: PTH123
                data = file.read(guard.most_bytes + 1)
    except OSError as error:
        raise guard.unreadable(f"{name}: cannot read the settings: {error.strerror}") from error
    except ValueError as error:
        raise guard.unreadable(f"{name}: cannot read the settings: {error}") from error
    if data is None:
        raise guard.unreadable(f"{name}: cannot read the settings: not a regular file")
    if len(data) > guard.most_bytes:
        raise guard.unreadable(
            f"{name}: no file of settings: it has more than {guard.most_bytes} bytes"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        fault = f"{name}: the settings are not UTF-8 text: {error.reason}"
        raise guard.unreadable(fault) from error


def _fault(depth: int, guard: Guard) -> str:
    return "nested too deeply" if depth > guard.most_depth else "too many values"


def _refuse_size(events: Iterable[Any], name: str, guard: Guard) -> None:
    """Refuse what takes hours to build: many nodes, or many inside each other."""
    import yaml

    depth = 0
    for nodes, event in enumerate(events):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent) and not guard.references:
            problem = f"a reference (*{event.anchor}); write the value itself"
            raise guard.refused(name, _line(event), problem)
        if depth > guard.most_depth or nodes > guard.most_nodes:
            raise guard.refused(name, _line(event), _fault(depth, guard))


def _children(node: yaml.Node) -> list[yaml.Node]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refuse_multiplication(root: yaml.Node, name: str, guard: Guard) -> None:
    """Refuse references of which a few lines stand for gigabytes, or that never end, and twins."""
    import yaml

    # How many nodes a node stands for, and how many lie inside each other.
    extents: dict[int, tuple[int, int] | None] = {}

    def extent(node: yaml.Node) -> tuple[int, int]:
        if id(node) in extents:
            known = extents[id(node)]
            if known is None:
                raise guard.refused(name, _line(node), "a value that contains itself")
            return known
        extents[id(node)] = None
        if isinstance(node, yaml.MappingNode):
            _refuse_twins(node, name, guard)
        inner = [extent(child) for child in _children(node)]
        nodes = 1 + sum(count for count, _ in inner)
        depth = 1 + max((deepest for _, deepest in inner), default=0)
        if nodes > guard.most_nodes or depth > guard.most_depth:
            fault = f"{_fault(depth, guard)}, by its references"
            raise guard.refused(name, _line(node), fault)
        extents[id(node)] = nodes, depth
        return nodes, depth

    extent(root)


def _refuse_twins(mapping: yaml.MappingNode, name: str, guard: Guard) -> None:
    """Refuse a key that is given twice: YAML would take the last one without a word."""
    import yaml

    lines: dict[tuple[str, str], int] = {}
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE_TAG:
            continue
        line = _line(key)
        earlier = lines.get((key.tag, key.value))
        if earlier is not None:
            fault = f"{in_short(key.value)} is given twice, first in line {earlier}"
            raise guard.refused(name, line, fault)
        lines[key.tag, key.value] = line


def _line(found: Any) -> int:
    """Return in which line an event or a node begins."""
    line: int = found.start_mark.line + 1
    return line
