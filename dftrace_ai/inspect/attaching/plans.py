"""What the config asks of each layer of a model, worked out before anything is changed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.inspect.attaching.custom import CustomCalls, Implementation
from dftrace_ai.inspect.attaching.modules.observed import observable_tensors
from dftrace_ai.inspect.attaching.modules.swap import Station
from dftrace_ai.inspect.attaching.weights import is_unready, what_is_the_weight
from dftrace_ai.inspect.collecting.collector import DEFAULT_GROUP
from dftrace_ai.inspect.collecting.observer import TensorObserver
from dftrace_ai.inspect.config import LayerPlan, Observe, layer_plan
from dftrace_ai.inspect.config.names import TENSORS, listed
from dftrace_ai.inspect.errors import InspectRuntimeError, InspectValueError
from dftrace_ai.inspect.ranks.exchange import distributed
from dftrace_ai.inspect.session.silent_sections import near

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.inspect.attaching.fp8.recipes import Recipe
    from dftrace_ai.inspect.naming import NamedLayer
    from dftrace_ai.inspect.session.session import Session

__all__ = ["PlannedLayer", "Plans", "first_of"]

NAMED_MOST = 8
"""A warning names so many layers."""


class PlannedLayer(NamedTuple):
    """What is to be done with a layer.

    Attributes:
        layer: the layer.
        plan: how its operands go into the GEMMs.
        observers: who looks at its tensors.
        custom: its custom features.
    """

    layer: NamedLayer
    plan: LayerPlan
    observers: dict[str, TensorObserver]
    custom: CustomCalls


class Plans:
    """What is to be done with the layers of a model; nothing is changed by it.

    Args:
        session: the session.
        layers: of the model.
        recipe: of FP8, None where it is off.
        tp_group: that of `attach`, for custom features.

    Raises:
        InspectRuntimeError: a module will change its class by itself.
        InspectValueError: two sections select a layer, or one is attached already.
        InspectAssertionError: two features modify the same tensor.
    """

    def __init__(
        self, session: Session, layers: list[NamedLayer], recipe: Recipe | None, tp_group: Any
    ) -> None:
        self._session = session
        self._tp_group = tp_group
        self._recipe = recipe
        self._unreached: dict[str, list[NamedLayer]] = {}
        self.layers = self._planned(layers)
        for one in self.layers:
            if one.plan.ignored:
                ignored = f"{listed(one.plan.ignored)} cannot act"
                self._unreached.setdefault(ignored, []).append(one.layer)

    def _planned(self, layers: list[NamedLayer]) -> list[PlannedLayer]:
        """Work everything out; nothing is changed yet, so that an error leaves nothing behind."""
        session = self._session
        infos = [layer.info for layer in layers]
        selector = session.config.selector(infos)
        made: dict[int, Implementation] = {}
        weights: dict[int, Any] = {}
        planned = []
        for layer, info in zip(layers, infos, strict=True):
            if is_unready(layer.module):
                raise InspectRuntimeError(
                    f"{layer.name}: a {info.class_name} changes its class when it first runs; run "
                    "the model once before `attach`"
                )
            present = vars(layer.module).get("_inspect_station")
            live = present.layers.get(layer.part) if isinstance(present, Station) else None
            if live is not None and live.inspected:
                raise InspectValueError(f"{live.name}: the module is attached already")
            plan = layer_plan(selector.section_of(info), info)
            if self._recipe is not None:
                plan.check_recipe(self._recipe.name)
            observers = self._observers(layer, plan.observe, weights)
            for use in plan.custom:
                if id(use) not in made:
                    made[id(use)] = Implementation.of(use, self._tp_group)
            uses = [made[id(use)] for use in plan.custom]
            custom = CustomCalls(
                layer.name, uses, plan.modify, session.broke, has_gemms=info.has_gemms
            )
            custom.arm(session.iteration, strict=True)
            planned.append(PlannedLayer(layer, plan, observers, custom))
        self._selector, self._infos = selector, infos
        return planned

    def _observers(
        self, layer: NamedLayer, wanted: Iterable[Observe], weights: dict[int, Any]
    ) -> dict[str, TensorObserver]:
        by_tensor: dict[str, list[Observe]] = {}
        for observe in wanted:
            by_tensor.setdefault(observe.tensor, []).append(observe)
        known = TENSORS if layer.kind != "other" else observable_tensors(layer.module)
        unseen = tuple(tensor for tensor in by_tensor if tensor not in known)
        if unseen:
            self._unreached.setdefault(f"{listed(unseen)} cannot be seen", []).append(layer)
        observers = {}
        for tensor, observes in by_tensor.items():
            if tensor in unseen:
                continue
            group: str | None = DEFAULT_GROUP
            if tensor == "weight":
                weight = what_is_the_weight(layer)
                if id(weight) in weights:
                    # Tied: it appears under the name of the first layer that has it.
                    continue
                if weight is not None:
                    weights[id(weight)] = weight
                group = None
            observers[tensor] = TensorObserver(
                layer.name, tensor, observes, group, self._session.failed
            )
        return observers

    def tell(self) -> None:
        """Tell of what cannot be done, and the session which sections have layers."""
        session = self._session
        for what, layers in self._unreached.items():
            names = [f"{layer.name} ({layer.info.class_name})" for layer in layers]
            session.log.write(
                f"{what} on these layers, whose GEMMs are not reached: {first_of(names)}.",
                logging.WARNING,
            )
        named = {info.name: info for info in self._infos}
        sections = {one.layer.name: one.plan.section for one in self.layers if one.plan.section}
        session.silent.attached(named, sections)
        # Of several ranks, another one may have the layer.
        level = logging.WARNING if distributed() is None else logging.INFO
        for section, missing in self._selector.unmatched_names():
            place = f"{section.name}.layers.exact_layer_names"
            close = near([missing], named)
            message = f"{place}: no layer is called {missing}{close and '; '}{close}."
            session.log.write(message, level)
            if level == logging.WARNING:
                session.silent.told_of(section.name)


def first_of(names: list[str]) -> str:
    """Return names as a list in words, the first of them where they are many."""
    if len(names) > NAMED_MOST:
        names = [*names[:NAMED_MOST], f"{len(names) - NAMED_MOST} more"]
    return listed(names)
