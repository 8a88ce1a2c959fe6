"""What one key cannot know: what a feature lacks, and which features exclude each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.config import names
from dftrace_ai.inspect.config.plans import fp8_off_gemms, modified
from dftrace_ai.inspect.config.resolving import (
    for_gemm,
    for_tensor,
    has_own_tensors,
    listed_names,
)
from dftrace_ai.inspect.config.schedule import Schedule
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dftrace_ai.inspect.config.problems import Problems

__all__ = ["check_combinations", "check_feature", "what_chooses"]


def check_feature(
    name: str, keys: Mapping[str, Any], where: str, problems: Problems, *, base: bool = False
) -> bool:
    """Note what a feature lacks; the keys have been checked one by one.

    Args:
        name: the feature.
        keys: its keys, in their one spelling, without `enabled`.
        where: its place in the file.
        problems: where to note.
        base: whether it stands in the section itself.

    Returns:
        Whether the feature can be used.
    """
    before = len(problems.errors)
    if name in names.LOG_FEATURES:
        _check_log(keys, where, problems)
        if base and "freq" not in keys and not _every(keys.get("tensors_struct"), "freq"):
            problems.warning(where, "freq is not given; every iteration is taken")
    elif name != "DisableFp8Layer":
        _check_gemms(name, keys, where, problems)
    return len(problems.errors) == before


def _every(items: Any, key: str) -> bool:
    return bool(items) and all(key in item for item in items)


def _selects(keys: Mapping[str, Any], kind: str, where: str, problems: Problems) -> bool:
    if f"{kind}s" in keys or f"{kind}s_struct" in keys:
        if not listed_names(keys, kind):
            problems.warning(where, f"without effect: {kind}s is empty")
        return True
    problems.error(where, f"{kind}s or {kind}s_struct is needed")
    return False


def _in_force(keys: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each name that keys select with the keys in force there; a twin's, too."""
    struct = f"{kind}s_struct"
    for_one = for_gemm if kind == "gemm" else for_tensor
    if struct not in keys:
        for name in listed_names(keys, kind):
            yield name, for_one(keys, name) or {}
    for item in keys.get(struct, ()):
        yield item[kind], for_one({**keys, struct: (item,)}, item[kind]) or {}


def _check_log(keys: Mapping[str, Any], where: str, problems: Problems) -> None:
    if not _selects(keys, "tensor", where, problems):
        return
    for tensor, found in _in_force(keys, "tensor"):
        if not found.get("stats"):
            problems.error(where, f"stats is needed for {tensor}, a list of statistics")
        schedule = Schedule.of(found)
        if schedule.disordered:
            problems.warning(
                where, f"start_end_list of {tensor} overlaps or is not in order; all of it counts"
            )
        if schedule.next_due(-1) is None:
            problems.warning(where, f"{tensor} is never logged: no iteration is due")


def _check_gemms(name: str, keys: Mapping[str, Any], where: str, problems: Problems) -> None:
    if not _selects(keys, "gemm", where, problems) or name == "DisableFp8Gemm":
        return
    of_gemms = {gemm: for_gemm(keys, gemm) or {} for gemm in listed_names(keys, "gemm")}
    lacking: list[str] = []
    for gemm, found in _in_force(keys, "gemm"):
        if not _selects(found, "tensor", f"{where} ({gemm})", problems):
            continue
        for tensor, inner in _in_force(found, "tensor"):
            if name == "FakeQuant" and not inner.get("quant_format"):
                lacking.append(f"{tensor} in {gemm}")
    if lacking:
        problems.error(
            where,
            f"quant_format is needed for {names.listed(lacking)}; "
            f"accepted: {names.listed(names.FORMATS, 'or')}",
        )
    _warn_of_strangers(name, keys, of_gemms, where, problems)


def _warn_of_strangers(
    name: str,
    keys: Mapping[str, Any],
    of_gemms: Mapping[str, Mapping[str, Any]],
    where: str,
    problems: Problems,
) -> None:
    """Warn of tensors that are selected for GEMMs which do not have them."""
    effective = set(modified(name, keys))
    own = {item["gemm"] for item in keys.get("gemms_struct", ()) if has_own_tensors(item)}
    strangers: list[str] = []
    shared = [gemm for gemm in of_gemms if gemm not in own]
    for gemms in ([gemm] for gemm in own):
        strangers += _strangers(gemms, of_gemms, effective)
    # What is said once for several GEMMs has to fit one of them.
    if shared:
        strangers += _strangers(shared, of_gemms, effective)
    if strangers:
        problems.warning(where, f"without effect: {names.listed(strangers)}")


def _strangers(
    gemms: list[str],
    of_gemms: Mapping[str, Mapping[str, Any]],
    effective: set[tuple[str, str]],
) -> list[str]:
    return [
        f"{tensor} is no tensor of {names.listed(gemms, 'or')}"
        for tensor in listed_names(of_gemms[gemms[0]], "tensor")
        if not any((gemm, tensor) in effective for gemm in gemms)
    ]


def what_chooses(
    config: Mapping[str, Any],
    where: str,
    problems: Problems,
    kinds: tuple[str, ...] = ("gemm", "tensor"),
) -> dict[str, Any]:
    """Return the keys by which a custom feature chooses GEMMs and tensors, as built-in ones do.

    Args:
        config: the keys of the feature, which may mean anything.
        where: its place in the file.
        problems: where to warn of what chooses nothing.
        kinds: what is looked for.
    """
    found: dict[str, Any] = {}
    for kind in kinds:
        known = names.GEMMS if kind == "gemm" else names.TENSORS
        for key in (f"{kind}s", f"{kind}s_struct"):
            if key not in config:
                continue
            entries = [config[key]] if isinstance(config[key], str) else config[key]
            if not isinstance(entries, (list, tuple)):
                problems.warning(f"{where}.{key}", "is no list, and chooses nothing")
                continue
            chosen: list[Any] = []
            for entry in entries:
                name = entry.get(kind) if isinstance(entry, dict) else entry
                one = names.canonical(name, known)
                if one is None or isinstance(entry, dict) != key.endswith("_struct"):
                    problems.warning(
                        f"{where}.{key}",
                        f"{in_short(entry)} chooses no {kind}; known: {names.listed(known)}",
                    )
                elif isinstance(entry, dict):
                    inside = ("tensor",) if kind == "gemm" else ()
                    inner = what_chooses(entry, f"{where}.{key}", problems, inside)
                    chosen.append({**entry, **inner, kind: one})
                else:
                    chosen.append(one)
            found[key] = tuple(chosen)
    return found


def check_combinations(
    section: str, features: Mapping[str, Mapping[str, Any]], problems: Problems
) -> None:
    """Note the features of a section that cannot be had together.

    Args:
        section: the name of the section.
        features: the keys of its features, each of which has been checked.
        problems: where to note.
    """
    if "PerTensorScaling" not in features:
        return
    where = f"{section}.{names.NAMESPACE}.PerTensorScaling"
    scaled = modified("PerTensorScaling", features["PerTensorScaling"])
    quantised = modified("FakeQuant", features.get("FakeQuant", {}))
    for name in ("FakeQuant", "DisableFp8Gemm", "DisableFp8Layer"):
        if name not in features:
            continue
        off = fp8_off_gemms(name, features[name])
        for gemm in names.GEMMS:
            tensors = [tensor for other, tensor in scaled if other == gemm]
            if gemm not in off or not tensors:
                continue
            twice = [one for one in tensors if (gemm, one) in quantised] * (name == "FakeQuant")
            if twice:
                problems.error(
                    where,
                    f"{names.listed(twice)} in {gemm} is given to FakeQuant, too; "
                    "one of the two can have it",
                )
            else:
                problems.error(
                    where,
                    f"{names.listed(tensors)} in {gemm} needs {gemm} in FP8, "
                    f"and {name} takes {gemm} out of it",
                )
