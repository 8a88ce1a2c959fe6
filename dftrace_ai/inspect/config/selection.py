"""A config that has been read, and which of its sections each layer belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dftrace_ai.inspect.config.layers import what_selects
from dftrace_ai.inspect.config.names import listed
from dftrace_ai.inspect.errors import InspectValueError
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dftrace_ai.inspect.config.layers import LayerInfo
    from dftrace_ai.inspect.config.problems import Problem
    from dftrace_ai.inspect.config.sections import Section

__all__ = ["InspectConfig", "Selector"]


class Selector:
    """Finds the section of each layer of a model.

    Args:
        sections: the enabled sections by name.
        layers: all layers that there are; whether an entry of `layer_types` is held
            against names or classes depends on them.

    Example::

        selector = Selector(config.sections, [LayerInfo("model.fc1", "Linear")])
        section = selector.section_of(LayerInfo("model.fc1", "Linear"))
    """

    def __init__(self, sections: Mapping[str, Section], layers: Iterable[LayerInfo]) -> None:
        self._sections = sections
        self._layers = tuple(layers)
        self._found: dict[LayerInfo, Section | None] = {}
        self._tests = [
            (section, what_selects(section.layers, self._layers)) for section in sections.values()
        ]

    def section_of(self, layer: LayerInfo) -> Section | None:
        """Return the section that selects a layer, or None.

        Raises:
            InspectValueError: more than one does.
        """
        if layer not in self._found:
            self._found[layer] = self._search(layer)
        return self._found[layer]

    def sections_of(self, layer: LayerInfo) -> list[Section]:
        """Return all sections that select a layer; more than one are an error of the config."""
        return [section for section, selects in self._tests if selects(layer)]

    def _search(self, layer: LayerInfo) -> Section | None:
        found = self.sections_of(layer)
        if len(found) > 1:
            names = listed([in_short(section.name) for section in found])
            raise InspectValueError(
                f"layer {in_short(layer.name)} is selected by the sections {names}; "
                "a layer can be in one section only"
            )
        return found[0] if found else None

    def unmatched_names(self) -> list[tuple[Section, str]]:
        """Return the entries of `exact_layer_names` that are the name of no layer."""
        names = {layer.name for layer in self._layers}
        return [
            (section, name)
            for section in self._sections.values()
            for name in section.layers.exact_layer_names
            if name not in names
        ]


@dataclass(frozen=True, eq=False)
class InspectConfig:
    """What a config file asks for.

    Attributes:
        sections: the enabled sections by name, in the order of the file.
        disabled: the names of the sections that are not enabled.
        warnings: what was odd.
        path: the file as it was named; None where a dict was given, or nothing.
        given: whether there was a config at all.
    """

    sections: Mapping[str, Section] = field(default_factory=dict)
    disabled: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    path: str | None = None
    given: bool = True

    def selector(self, layers: Iterable[LayerInfo]) -> Selector:
        """Return what finds the section of each of these layers.

        Args:
            layers: all layers that there are.
        """
        return Selector(self.sections, layers)

    def section_of(self, layer: LayerInfo, layers: Iterable[LayerInfo]) -> Section | None:
        """Return the section of one layer, None where none selects it.

        Args:
            layer: the layer.
            layers: all layers that there are. For more than one question use `selector`.

        Raises:
            InspectValueError: more than one section selects the layer.
        """
        return self.selector(layers).section_of(layer)
