"""Names that somebody else chose, as paths and trackers take them: two names are never one."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from dftrace_ai.loggers.records import Param, Params

MOST_LETTERS = 120
HASH_LETTERS = 10
UNSAFE = re.compile(r"[^\w.+=@ -]", re.ASCII)
SUFFIX = re.compile(r"\.[a-zA-Z]\w{0,9}", re.ASCII)


def plain_name(name: str) -> str:
    """Return a part of a path as made before `safe_name` told apart what came to the same."""
    part = UNSAFE.sub("_", name)[:MOST_LETTERS]
    return part if part.strip(". ") else f"_{part}"


def safe_name(name: str) -> str:
    """Return one part of a path made of a name; where it had to be changed, a hash tells which.

    Of a/b it is a_b-c14cddc033.
    """
    part = plain_name(name)
    return part if part == name else told_apart(part, name)


def safe_file_name(name: str) -> str:
    """Return the same for the name of a file, whose suffix stays at the end."""
    stem, dot, suffix = name.rpartition(".")
    if not stem or not SUFFIX.fullmatch(dot + suffix):
        return safe_name(name)
    part = plain_name(name)
    if part == name:
        return part
    return told_apart(plain_name(stem), name, MOST_LETTERS - len(suffix) - 1) + dot + suffix


def safe_parts(name: str) -> list[str]:
    """Return the parts of a path, made of a name whose slashes make directories."""
    given = [part for part in name.split("/") if part]
    parts = [safe_name(part) for part in given] or ["_"]
    if "/".join(given) != name:
        parts[-1] = told_apart(parts[-1], name)
    return parts


def lie_in(names: tuple[str, str], folder: Path) -> bool:
    """Return whether the last two parts of a path were made of a project and a run's name."""
    return all(map(is_made_of, folder.absolute().parts[-2:], names))


def is_made_of(part: str, name: str) -> bool:
    """Return whether a part of a path was made of a name, by any of these functions."""
    return part.casefold() == plain_name(name).casefold() or is_safe_name(part, name)


def is_safe_name(part: str, name: str) -> bool:
    """Return whether a part of a path is made of a name, and of no other but for its case."""
    safe = safe_name(name)
    return part.casefold() in (safe.casefold(), told_apart(safe, name).casefold())


def told_apart(changed: str, name: str, most: int = MOST_LETTERS) -> str:
    """Return what a name was changed to, in so many letters at most, with its hash behind."""
    number = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_LETTERS]
    return f"{changed[: most - HASH_LETTERS - 1]}-{number}"


def accepted_name(name: str, accepted: str, most: int) -> str:
    """Return a name where a tracker accepts it as it is; else what it accepts, told apart."""
    return name if accepted[:most] == name else told_apart(accepted, name, most)


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name, with a number behind where it is taken: ``{"a/b": 1, "a": {"b": 2}}``."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free


def flattened(params: Params, before: str = "") -> dict[str, Param]:
    """Return nested hyper-parameters by their names with slashes between: model/width."""
    flat: dict[str, Param] = {}
    for name, value in params.items():
        full = f"{before}{name}"
        if isinstance(value, dict) and value:
            for inner, one in flattened(value, f"{full}/").items():
                flat[free_name(inner, flat)] = one
        else:
            flat[free_name(full, flat)] = value
    return flat
