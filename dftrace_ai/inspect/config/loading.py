"""Reading a config: from a file or a dict to sections, with everything that is wrong on the way."""

from __future__ import annotations

import copy
import os
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from dftrace_ai.config.rows import nearest
from dftrace_ai.config.yaml_file import Guard, opened
from dftrace_ai.inspect.config import features, names
from dftrace_ai.inspect.config.grammar import (
    FEATURE_MODELS,
    KEY_ALIASES,
    LOGGING,
    BaseLogTensorStats,
    DisableFp8Gemm,
    DisableFp8Layer,
    DumpTensors,
    FakeQuant,
    Feature,
    Layers,
    LogKeys,
    SectionHead,
)
from dftrace_ai.inspect.config.names import listed
from dftrace_ai.inspect.config.problems import Problem, Problems, as_written
from dftrace_ai.inspect.config.sections import (
    Choosing,
    CustomUse,
    InspectConfig,
    Section,
    fp8_off_gemms,
    has_own_tensors,
    in_force,
    listed_names,
    modified,
    schedule_of,
    use_of_dumps,
)
from dftrace_ai.inspect.errors import InspectError, InspectTypeError, InspectValueError
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_core import ErrorDetails

    from dftrace_ai.inspect.config.schedule import Schedule
    from dftrace_ai.inspect.config.sections import Keys
    from dftrace_ai.trace_format.json_types import Json


HEAD_KEYS = ("enabled", "layers")


def load(config_file: ConfigSource) -> InspectConfig:
    """Read a config that is to be used."""
    # None, an empty path and one that does not exist give a config without sections.
    found = parsed(config_file)
    if found is None:
        return _nothing(config_file)
    problems = Problems()
    config = _config(found, problems)
    problems.raise_first()
    return config


def examine(config_file: ConfigSource) -> tuple[InspectConfig | None, list[Problem]]:
    """Read a config to see what is wrong with it."""
    # The config has the sections without errors; it is None where the file cannot be read at all.
    import yaml

    try:
        found = parsed(config_file)
    except yaml.YAMLError as error:
        place = os.fspath(config_file) if isinstance(config_file, (str, os.PathLike)) else ""
        return None, [Problem("error", str(place), _yaml_fault(error), yaml.YAMLError)]
    except InspectError as error:
        kind = TypeError if isinstance(error, InspectTypeError) else ValueError
        return None, [Problem("error", "", str(error), kind)]
    if found is None:
        config = _nothing(config_file)
        return config, list(config.warnings)
    problems = Problems()
    config = _config(found, problems)
    return config, problems.found


def _yaml_fault(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"not YAML: {str(error).splitlines()[0]}"
    context = getattr(error, "context", None)
    words = ", ".join(str(part) for part in (context, getattr(error, "problem", None)) if part)
    return f"line {mark.line + 1}, column {mark.column + 1}: not YAML: {words}"


def _nothing(config_file: Any) -> InspectConfig:
    if config_file is None or config_file == "":
        fault = Problem("warning", "", "there is no config file", UserWarning)
    else:
        place = str(os.fspath(config_file))
        fault = Problem("warning", place, "there is no such config file", UserWarning)
    return InspectConfig(warnings=(fault,), given=False)


def _config(found: tuple[Any, str | None], problems: Problems) -> InspectConfig:
    content, path = found
    sections: dict[str, Section] = {}
    disabled: list[str] = []
    if content is not None and not isinstance(content, dict):
        problems.error("", f"sections are needed, 'name: ...', not {as_written(content)}")
        content = None
    for name, body in (content or {}).items():
        if not isinstance(name, str):
            problems.error(in_short(name), "the name of a section has to be text; put it in quotes")
        elif isinstance(body, dict) and body.get("enabled") is False:
            disabled.append(name)
        else:
            section = _section(name, body, problems)
            if section is not None:
                sections[name] = section
    if not sections and not problems.errors:
        problems.warning("", "no section is enabled")
    return InspectConfig(sections, tuple(disabled), tuple(problems.warnings), path)


class _Reader:
    """Reads one section; what it notes is noted with the section's name."""

    def __init__(self, section: str, problems: Problems) -> None:
        self.section = section
        self.problems = problems
        self.features: dict[str, Feature] = {}
        self.base: BaseLogTensorStats | None = None
        self.custom: list[CustomUse] = []
        self._spelt: dict[tuple[str, str], str] = {}

    def key(self, key: Any, body: Any) -> None:
        """Read a key of the section that is neither `enabled` nor `layers`."""
        namespace = features.namespace_of(key)
        if namespace is not None:
            self._namespace(namespace, str(key), body)
        else:
            self._feature(names.BASE_NAMESPACE, f"{self.section}.{_spelling(key)}", key, body)

    def _namespace(self, namespace: str, spelling: str, body: Any) -> None:
        where = f"{self.section}.{spelling}"
        if body is not None and not isinstance(body, dict):
            self.problems.error(where, f"features are needed, 'name: ...', not {as_written(body)}")
            return
        for key, inner in (body or {}).items():
            self._feature(namespace, f"{where}.{_spelling(key)}", key, inner)

    def _feature(self, namespace: str, where: str, key: Any, body: Any) -> None:
        name, model = _built_in(namespace, key)
        custom = features.custom_feature(key, namespace) if name is None else None
        if name is None and custom is None:
            self.problems.error(where, _unknown(namespace, key), AssertionError)
            return
        full = namespace, name or (custom.name if custom else "")
        earlier = self._spelt.setdefault(full, where)
        if earlier != where:
            self.problems.error(where, f"{full[1]} is given twice in this section, see {earlier}")
        elif isinstance(body, dict) and body.get("enabled") is False:
            return
        elif name is not None and model is not None:
            self._read_built_in(namespace, name, model, where, body)
        elif custom is not None:
            self._read_custom(custom, where, body)

    def _read_built_in(
        self, namespace: str, name: str, model: type[Feature], where: str, body: Any
    ) -> None:
        read = _note_faults(model, _renamed(body, where, self.problems), where, self.problems)
        if read is None:
            return
        base = namespace == names.BASE_NAMESPACE
        if _check_feature(read, where, self.problems, base=base):
            if isinstance(read, BaseLogTensorStats):
                self.base = read
            elif isinstance(read, DumpTensors):
                self.custom.append(use_of_dumps(read))
            else:
                self.features[name] = read

    def _read_custom(self, custom: features.CustomFeature, where: str, body: Any) -> None:
        if not isinstance(body, dict):
            self.problems.error(where, f"a mapping of keys is needed, not {as_written(body)}")
        elif not isinstance(body.get("enabled"), bool):
            fault = "is missing" if "enabled" not in body else "has to be true or false"
            kind = AssertionError if "enabled" not in body else ValueError
            self.problems.error(f"{where}.enabled", fault, kind)
        else:
            config = {key: value for key, value in body.items() if key != "enabled"}
            config = copy.deepcopy(config)
            known = None if features.api_of(custom.namespace) else KNOWN
            choosing = _what_chooses(config, where, self.problems, known)
            self.custom.append(CustomUse(custom, config, choosing))


def _section(name: str, body: Any, problems: Problems) -> Section | None:
    """Return a section that is not disabled; None where it has errors."""
    before = len(problems.errors)
    if not isinstance(body, dict):
        problems.error(name, f"a mapping of keys is needed, not {as_written(body)}")
        return None
    head = {key: body[key] for key in HEAD_KEYS if key in body}
    if isinstance(head.get("layers"), dict):
        head["layers"] = _renamed(head["layers"], f"{name}.layers", problems)
    read = _note_faults(SectionHead, head, name, problems)
    reader = _Reader(name, problems)
    for key, inner in body.items():
        if key not in HEAD_KEYS:
            reader.key(key, inner)
    _check_combinations(name, reader.features, problems)
    if read is None or len(problems.errors) > before:
        return None
    layers: Layers = read.layers
    return Section(name, layers, reader.features, reader.base, tuple(reader.custom))


def _built_in(namespace: str, key: Any) -> tuple[str | None, type[Feature] | None]:
    if namespace == names.NAMESPACE:
        name = names.canonical(key, names.FEATURES, names.FEATURE_ALIASES)
        return name, FEATURE_MODELS[name] if name else None
    if namespace == names.BASE_NAMESPACE:
        name = names.canonical(key, names.BASE_FEATURES)
        return name, BaseLogTensorStats if name else None
    return None, None


def _unknown(namespace: str, key: Any) -> str:
    known = features.known_names(namespace)
    if namespace != names.BASE_NAMESPACE:
        hint = nearest(str(key)[:200], known)
        return f"unknown feature {in_short(key)}{hint}; known in {namespace}: {names.listed(known)}"
    if names.canonical(key, names.FEATURES, names.FEATURE_ALIASES):
        return f"unknown here; {in_short(key)} has to stand under {names.NAMESPACE}"
    known = [*HEAD_KEYS, *known, names.NAMESPACE, *names.NAMESPACE_ALIASES]
    hint = nearest(str(key)[:200], known)
    return f"unknown feature or namespace {in_short(key)}{hint}; known: {names.listed(known)}"


def _spelling(key: Any) -> str:
    return key if isinstance(key, str) else in_short(key)


Model = TypeVar("Model", bound=BaseModel)

# Keys whose absence, or whose presence in the wrong place, is documented as an AssertionError.
ASSERTED = frozenset({"enabled", "layers"})

STRUCTS = ("gemms_struct", "tensors_struct")


def _renamed(body: Any, where: str, problems: Problems) -> Any:
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
                _renamed(item, f"{where}.{struct}[{index}]", problems)
                for index, item in enumerate(found[struct])
            ]
    return found


def _note_faults(model: type[Model], body: Any, where: str, problems: Problems) -> Model | None:
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


def _check_feature(keys: Feature, where: str, problems: Problems, *, base: bool = False) -> bool:
    """Note what a feature, here or in the section itself, lacks; say whether it can be used."""
    # Its keys have been checked one by one.
    before = len(problems.errors)
    if isinstance(keys, LOGGING):
        _check_log(keys, where, problems)
        if base and keys.said("freq") is None and not _every(keys.said("tensors_struct"), "freq"):
            problems.warning(where, "freq is not given; every iteration is taken")
    elif isinstance(keys, DumpTensors):
        _check_dumps(keys, where, problems)
    elif not isinstance(keys, DisableFp8Layer):
        _check_gemms(keys, where, problems)
    return len(problems.errors) == before


def _every(items: tuple[Keys, ...] | None, key: str) -> bool:
    return bool(items) and all(item.said(key) is not None for item in items or ())


def _selects(keys: Keys, kind: str, where: str, problems: Problems) -> bool:
    if keys.said(f"{kind}s") is None and keys.said(f"{kind}s_struct") is None:
        problems.error(where, f"{kind}s or {kind}s_struct is needed")
        return False
    if not listed_names(keys, kind):
        problems.warning(where, f"without effect: {kind}s is empty")
    return True


def _check_log(keys: LogKeys, where: str, problems: Problems) -> None:
    if not _selects(keys, "tensor", where, problems):
        return
    for tensor, found in in_force(keys, "tensor"):
        if not found.stats:
            problems.error(where, f"stats is needed for {tensor}, a list of statistics")
        _check_schedule(schedule_of(found), tensor, "logged", where, problems)


def _check_dumps(keys: DumpTensors, where: str, problems: Problems) -> None:
    if not _selects(keys, "tensor", where, problems):
        return
    for tensor, found in in_force(keys, "tensor"):
        if not (found.high_precision_tensor or found.quantized_tensor):
            lacking = "neither high_precision_tensor nor quantized_tensor is true"
            problems.warning(where, f"nothing is written of {tensor}: {lacking}")
        _check_schedule(schedule_of(found), tensor, "written", where, problems)


def _check_schedule(
    schedule: Schedule, tensor: str, done: str, where: str, problems: Problems
) -> None:
    if schedule.disordered:
        problems.warning(
            where, f"start_end_list of {tensor} overlaps or is not in order; all of it counts"
        )
    if schedule.next_due(-1) is None:
        problems.warning(where, f"{tensor} is never {done}: no iteration is due")


def _check_gemms(keys: Feature, where: str, problems: Problems) -> None:
    if not _selects(keys, "gemm", where, problems) or isinstance(keys, DisableFp8Gemm):
        return
    lacking: list[str] = []
    for gemm, found in in_force(keys, "gemm"):
        if not _selects(found, "tensor", f"{where} ({gemm})", problems):
            continue
        for tensor, inner in in_force(found, "tensor"):
            if isinstance(inner, FakeQuant) and not inner.quant_format:
                lacking.append(f"{tensor} in {gemm}")
    if lacking:
        problems.error(
            where,
            f"quant_format is needed for {names.listed(lacking)}; "
            f"accepted: {names.listed(names.FORMATS, 'or')}",
        )
    _warn_of_strangers(keys, where, problems)


def _warn_of_strangers(keys: Feature, where: str, problems: Problems) -> None:
    """Warn of tensors that are selected for GEMMs which do not have them."""
    of_gemms = dict(reversed(in_force(keys, "gemm")))
    effective = set(modified(keys))
    own = {item.said("gemm") for item in keys.said("gemms_struct") or () if has_own_tensors(item)}
    # What is said once for several GEMMs has to fit one of them.
    shared = [gemm for gemm in listed_names(keys, "gemm") if gemm not in own]
    strangers = [
        f"{tensor} is no tensor of {names.listed(gemms, 'or')}"
        for gemms in (*([gemm] for gemm in own), *([shared] if shared else ()))
        for tensor in listed_names(of_gemms[gemms[0]], "tensor")
        if not any((gemm, tensor) in effective for gemm in gemms)
    ]
    if strangers:
        problems.warning(where, f"without effect: {names.listed(strangers)}")


KNOWN = {"gemm": names.GEMMS, "tensor": names.TENSORS}


def _what_chooses(
    config: dict[str, Json],
    where: str,
    problems: Problems,
    known_names: Mapping[str, Sequence[str]] | None,
    kinds: tuple[str, ...] = ("gemm", "tensor"),
) -> Choosing:
    """Return the keys by which a custom feature chooses GEMMs and tensors, as built-in ones do."""
    # Its other keys may mean anything. What chooses nothing is warned of. Where the names are those
    # of calls, any is known.
    found = Choosing({})
    for kind in kinds:
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
                known = [str(name)] if known_names is None else known_names[kind]
                one = names.canonical(name, known)
                if one is None or isinstance(entry, dict) != key.endswith("_struct"):
                    problems.warning(
                        f"{where}.{key}",
                        f"{in_short(entry)} chooses no {kind}; known: {names.listed(known)}",
                    )
                elif isinstance(entry, dict):
                    inside = ("tensor",) if kind == "gemm" else ()
                    inner = _what_chooses(entry, f"{where}.{key}", problems, known_names, inside)
                    chosen.append(Choosing({**entry, **inner.keys, kind: one}))
                else:
                    chosen.append(one)
            found.keys[key] = tuple(chosen)
    return found


def _check_combinations(section: str, features: dict[str, Feature], problems: Problems) -> None:
    """Note the features of a section, each of which has been checked, that exclude each other."""
    if "PerTensorScaling" not in features:
        return
    where = f"{section}.{names.NAMESPACE}.PerTensorScaling"
    scaled = modified(features["PerTensorScaling"])
    quantised = modified(features["FakeQuant"]) if "FakeQuant" in features else {}
    for name in ("FakeQuant", "DisableFp8Gemm", "DisableFp8Layer"):
        if name not in features:
            continue
        off = fp8_off_gemms(features[name])
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


ConfigSource: TypeAlias = "str | os.PathLike[str] | dict[str, Any] | None"
"""The path of a YAML file, or what such a file holds; None and an empty path are no config."""


def parsed(config_file: object) -> tuple[Any, str | None] | None:
    """Return what a config holds, and the name of its file."""
    # A dict has no name. None where there is no config: an empty path, or one that does not exist.
    if isinstance(config_file, dict):
        return config_file, None
    if config_file is None or config_file == "":
        return None
    if not isinstance(config_file, (str, os.PathLike)):
        raise InspectTypeError(
            f"config_file: {in_short(config_file)} is not accepted; accepted: a path or a dict"
        )
    path = os.fspath(config_file)
    if not isinstance(path, str):
        raise InspectTypeError(f"config_file: {in_short(path)} is not accepted; accepted: text")
    return None if _is_missing(path) else (read_yaml(path), path)


def _is_missing(path: str) -> bool:
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False  # whatever is there cannot be read, which reading it tells
    return False


def read_yaml(path: str) -> Any:
    """Return what a YAML file holds."""
    with opened(path, _GUARD) as file:
        return None if file.root is None else file.loader.construct_document(file.root)


def _refused(name: str, line: int, problem: str) -> InspectValueError:
    return InspectValueError(f"{name}:{line}: {problem}")


# A config for a thousand layers has a tenth of these nodes.
_GUARD = Guard(
    most_bytes=1024 * 1024,
    most_depth=32,
    most_nodes=100_000,
    references=True,
    unreadable=InspectValueError,
    refused=_refused,
)
