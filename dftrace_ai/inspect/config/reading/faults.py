"""What pydantic says of a config, in our words: the place in the file, what is accepted."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from dftrace_ai.config.settings import nearest
from dftrace_ai.inspect.config.grammar.models import KEY_ALIASES
from dftrace_ai.inspect.config.names import listed
from dftrace_ai.inspect.config.problems import as_written
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_core import ErrorDetails

    from dftrace_ai.inspect.config.problems import Problems

__all__ = ["note_faults", "renamed"]

Model = TypeVar("Model", bound=BaseModel)

# Keys whose absence, or whose presence in the wrong place, is documented as an AssertionError.
ASSERTED = frozenset({"enabled", "layers"})

STRUCTS = ("gemms_struct", "tensors_struct")


def renamed(body: Any, where: str, problems: Problems) -> Any:
    """Return keys with those that have another spelling in the usual one, in items, too."""
    if not isinstance(body, dict):
        return body
    found = dict(body)
    for alias, key in KEY_ALIASES.items():
        if alias not in found:
            continue
        if key in found:
            problems.error(f"{where}.{alias}", f"{key} is given, too; {alias} is the same key")
        else:
            problems.warning(f"{where}.{alias}", f"is taken as {key}; write {key}")
            found[key] = found[alias]
        del found[alias]
    for struct in STRUCTS:
        if isinstance(found.get(struct), (list, tuple)):
            found[struct] = [
                renamed(item, f"{where}.{struct}[{index}]", problems)
                for index, item in enumerate(found[struct])
            ]
    return found


def note_faults(model: type[Model], body: Any, where: str, problems: Problems) -> Model | None:
    """Return what a model makes of a part of a config; None, with the faults noted, if nothing."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            kind, text = _explained(fault, model)
            problems.error(_place(where, fault["loc"]), text, kind)
    return None


def _place(where: str, loc: Sequence[int | str]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc]
    return where + "".join(parts)


def _explained(fault: ErrorDetails, model: type[BaseModel]) -> tuple[type[Exception], str]:
    """Return the class of the error that a fault is, and what to say of it."""
    kind, loc = fault["type"], fault["loc"]
    key = loc[-1] if loc else ""
    if kind in {"value_error", "assertion_error"}:
        error = AssertionError if kind == "assertion_error" else ValueError
        return error, str(fault["ctx"]["error"])
    if kind == "missing":
        return AssertionError if key in ASSERTED else ValueError, "is missing"
    if kind == "extra_forbidden":
        return _unknown_key(str(key), loc, model)
    accepted = {
        "model_type": "a mapping of keys, 'key: value'",
        "model_attributes_type": "a mapping of keys, 'key: value'",
        "tuple_type": "a list of mappings",
        "bool_type": "true or false",
        "invalid_key": "text as a key",
    }.get(kind)
    if accepted is None:
        return ValueError, fault["msg"]
    return ValueError, f"{as_written(fault['input'])} is not accepted; accepted: {accepted}"


def _unknown_key(
    key: str, loc: Sequence[int | str], model: type[BaseModel]
) -> tuple[type[Exception], str]:
    inner = _model_at(model, loc[:-1])
    known = [*inner.model_fields]
    if key == "enabled":
        return AssertionError, "an item has no 'enabled'; leave the item out instead"
    accepted = f"accepted: {listed(known)}" if known else "there are no keys"
    return ValueError, f"unknown key {in_short(key)}{nearest(key[:200], known)}; {accepted}"


def _model_at(model: type[BaseModel], loc: Sequence[int | str]) -> type[BaseModel]:
    """Return the model of the mapping at a place."""
    for part in loc:
        if isinstance(part, str):
            annotation = model.model_fields[part].annotation
            for one in (annotation, *typing.get_args(annotation)):
                if isinstance(one, type) and issubclass(one, BaseModel):
                    model = one
    return model
