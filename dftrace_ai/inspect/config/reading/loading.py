"""Reading a config: from a file or a dict to sections, with everything that is wrong on the way."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any

from dftrace_ai.config.settings import nearest
from dftrace_ai.inspect.config import features, names
from dftrace_ai.inspect.config.grammar.models import (
    FEATURE_MODELS,
    BaseLogTensorStats,
    Feature,
    Layers,
    SectionHead,
)
from dftrace_ai.inspect.config.problems import Problem, Problems, as_written
from dftrace_ai.inspect.config.reading.checking import (
    check_combinations,
    check_feature,
    what_chooses,
)
from dftrace_ai.inspect.config.reading.faults import note_faults, renamed
from dftrace_ai.inspect.config.reading.file import ConfigSource, parsed
from dftrace_ai.inspect.config.sections import CustomUse, Section
from dftrace_ai.inspect.config.selection import InspectConfig
from dftrace_ai.inspect.errors import InspectError, InspectTypeError
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["examine", "load"]

HEAD_KEYS = ("enabled", "layers")


def load(config_file: ConfigSource) -> InspectConfig:
    """Read a config that is to be used.

    Args:
        config_file: the path of a YAML file, or what such a file holds as a dict. None, an
            empty path and a path that does not exist give a config without sections.

    Returns:
        The config, with warnings of what was odd.

    Raises:
        InspectError: something is wrong; the error is also the ValueError, AssertionError or
            TypeError that the fault is documented with. The message names the section, the
            key and what is accepted.
        yaml.YAMLError: the file is not YAML.

    Example::

        config = load("inspect.yaml")
        config = load({"all": {"enabled": True, "layers": {"layer_types": ["all"]}}})
    """
    found = parsed(config_file)
    if found is None:
        return _nothing(config_file)
    problems = Problems()
    config = _config(found, problems)
    problems.raise_first()
    return config


def examine(config_file: ConfigSource) -> tuple[InspectConfig | None, list[Problem]]:
    """Read a config to see what is wrong with it.

    Args:
        config_file: as for `load`.

    Returns:
        The config with the sections that have no errors, None where the file cannot be read
        at all; and all problems.

    Example::

        config, problems = examine("inspect.yaml")
        for problem in problems:
            print(problem.severity, problem)
    """
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
        self.features: dict[str, Mapping[str, Any]] = {}
        self.base: Mapping[str, Any] | None = None
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
        read = note_faults(model, renamed(body, where, self.problems), where, self.problems)
        if read is None:
            return
        keys = read.model_dump(exclude_unset=True, exclude={"enabled"})
        base = namespace == names.BASE_NAMESPACE
        if check_feature(name, keys, where, self.problems, base=base):
            if base:
                self.base = keys
            else:
                self.features[name] = keys

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
            choosing = what_chooses(config, where, self.problems)
            self.custom.append(CustomUse(custom, config, choosing))


def _section(name: str, body: Any, problems: Problems) -> Section | None:
    """Return a section that is not disabled; None where it has errors."""
    before = len(problems.errors)
    if not isinstance(body, dict):
        problems.error(name, f"a mapping of keys is needed, not {as_written(body)}")
        return None
    head = {key: body[key] for key in HEAD_KEYS if key in body}
    if isinstance(head.get("layers"), dict):
        head["layers"] = renamed(head["layers"], f"{name}.layers", problems)
    read = note_faults(SectionHead, head, name, problems)
    reader = _Reader(name, problems)
    for key, inner in body.items():
        if key not in HEAD_KEYS:
            reader.key(key, inner)
    check_combinations(name, reader.features, problems)
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
