"""Namespaces of users: which feature of a section does what is called for a layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.inspect.config import LayerInfo
from dftrace_ai.inspect.config.features import api_of, custom_features, public_methods
from dftrace_ai.inspect.config.names import listed
from dftrace_ai.inspect.errors import InspectAssertionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.inspect.config import CustomUse, InspectConfig, Section
    from dftrace_ai.inspect.session.silent_sections import SilentSections
    from dftrace_ai.trace_format.json_types import Json


class Namespace:
    """The calls of a namespace, as attributes: ``debug_api.mine.process_tensor``."""

    def __init__(self, name: str, of_session: Callable[[], UserNamespaces]) -> None:
        self._name = name
        self._of_session = of_session

    def __getattr__(self, call: str) -> Callable[..., Any]:
        known = _calls(self._name)
        if call not in known:
            raise AttributeError(f"no feature of {self._name} has {call}; known: {listed(known)}")
        return partial(self._called, call)

    def _called(self, call: str, /, layer_name: str, **given: Any) -> Any:
        return self._of_session().call(self._name.lower(), call, layer_name, **given)

    def __dir__(self) -> list[str]:
        return _calls(self._name)


def _calls(namespace: str) -> list[str]:
    found = {
        method
        for feature in custom_features()
        if feature.namespace.lower() == namespace.lower()
        for method in public_methods(feature.implementation)
    }
    default = getattr(api_of(namespace), "_default_api_impl", None)
    return sorted(found.union(() if default is None else public_methods(default)))


class _Doer(NamedTuple):
    """A feature that a section of the config uses."""

    use: CustomUse
    feature: Any  # an object of its class


class UserNamespaces:
    """The features and the rules of users' namespaces in a session."""

    def __init__(self, config: InspectConfig, silent: SilentSections) -> None:
        self._config = config
        self._silent = silent
        self._rules: dict[str, Any] = {}
        self._doers: dict[tuple[str, str], list[_Doer]] = {}
        self._features: dict[type, Any] = {}

    def call(self, namespace: str, call: str, layer: str, /, **given: Any) -> Any:
        """Have the feature that the section of a layer has for it do what is called."""
        rules = self._rules_of(namespace)
        _ask(rules, "input_assertions_hook", None, call, **given)
        chosen = {
            doer.use.feature.name: (getattr(doer.feature, call), config)
            for doer in self._doers_for(namespace, layer)
            if callable(getattr(doer.feature, call, None))
            and (config := _config_for(rules, call, layer, doer, **given)) is not None
        }
        if not chosen:
            default = getattr(getattr(rules, "_default_api_impl", None), call, None)
            return {} if default is None else default({}, layer, **given)
        if len(chosen) > 1 and not _ask(
            rules, "is_multiple_feature_invocation_allowed", False, call
        ):
            raise InspectAssertionError(
                f"{layer}: {listed(chosen)} of {namespace} all have {call}; one feature at most may"
            )
        returned = [method(config, layer, **given) for method, config in chosen.values()]
        for one in returned:
            _ask(rules, "output_assertions_hook", None, call, one, **given)
        if len(returned) == 1:
            return returned[0]
        configs = {name: config for name, (_, config) in chosen.items()}
        return _ask(
            rules, "handle_multi_feature_output", returned[0], call, returned, configs, **given
        )

    def each(self, method: str) -> None:
        """Call a method of the rules of each namespace that has been used."""
        for rules in self._rules.values():
            _ask(rules, method, None)

    def _rules_of(self, namespace: str) -> Any:
        if namespace not in self._rules:
            implementation = api_of(namespace)
            self._rules[namespace] = None if implementation is None else implementation()
        return self._rules[namespace]

    def _doers_for(self, namespace: str, layer: str) -> list[_Doer]:
        key = namespace, layer
        if key not in self._doers:
            info = LayerInfo(layer)
            section = self._config.section_of(info, [info])
            self._doers[key] = [
                _Doer(use, self._feature(use.feature.implementation))
                for use in (section.custom if section is not None else ())
                if use.feature.namespace.lower() == namespace.lower()
            ]
            self._note(section, layer)
        return self._doers[key]

    def _note(self, section: Section | None, layer: str) -> None:
        # The section did what it is there for.
        self._silent.given[layer, ""] = section
        self._silent.logged.add(layer)

    def _feature(self, implementation: type) -> Any:
        if implementation not in self._features:
            self._features[implementation] = implementation()
        return self._features[implementation]


def _config_for(
    rules: Any, call: str, layer: str, doer: _Doer, /, **given: Any
) -> dict[str, Json] | None:
    """Return the keys with which a feature does what is called, None where it does not."""
    route = getattr(rules, "routing_condition", None)
    if route is None:
        return doer.use.keys_for(given.get("gemm"), given.get("tensor_name"))
    does, config = route(call, dict(doer.use.config), layer, doer.feature, **given)
    return (config or doer.use.config) if does else None


def _ask(rules: Any, method: str, otherwise: Any, /, *given: Any, **named: Any) -> Any:
    function = getattr(rules, method, None)
    return otherwise if function is None else function(*given, **named)
