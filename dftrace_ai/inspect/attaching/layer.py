"""One attached layer while it runs: how its operands go into GEMMs, and who looks at them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from torch import Tensor

from dftrace_ai.inspect.attaching.custom import CustomCalls
from dftrace_ai.inspect.attaching.fp8 import DelayedScaling, Recipe, recipe_in_force
from dftrace_ai.inspect.config import PLAN_LINES, LayerPlan
from dftrace_ai.inspect.nonfinite import MARKS
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.output import trace_events
from dftrace_ai.wording import ToldOnce

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.inspect.attaching.custom import Implementation
    from dftrace_ai.inspect.collecting.observer import TensorObserver
    from dftrace_ai.inspect.collecting.rings import Rings
    from dftrace_ai.inspect.naming import NamedLayer
    from dftrace_ai.inspect.nonfinite import LayerWatch


Description = Literal["FP8 quantization", "High precision", "modify_tensor()"]


class Treatment(NamedTuple):
    """How a tensor is changed in a GEMM."""

    format: Format | None  # of the cast; None where a custom feature changes the tensor
    margin: int = 0  # of a scale made of the tensor itself
    delayed: DelayedScaling | None = None  # what delayed scaling knows; None under another
    feature: str | None = None  # who asked for it; None is the recipe
    custom: Implementation | None = None  # the custom feature that changes the tensor
    in_blocks: bool = False  # each has a scale of its own, as in MXFP8


def described(treatment: Treatment | None) -> Description:
    """Say in the words of Transformer Engine's log how an operand goes into a GEMM."""
    if treatment is None:
        return "High precision"
    return "FP8 quantization" if treatment.feature is None else "modify_tensor()"


Table = dict[tuple[str, str], Treatment]
"""By (gemm, tensor)."""


class PlannedLayer(NamedTuple):
    """What is to be done with a layer: its plan, with those who carry it out."""

    layer: NamedLayer
    plan: LayerPlan
    observers: Mapping[str, TensorObserver]  # who looks at its tensors
    custom: CustomCalls


class _Say(Protocol):
    def __call__(self, message: str, level: int = logging.INFO, /) -> None:
        """Write a line to the main log."""


class LiveLayer:
    """A layer of an attached or watched model."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.watch: LayerWatch | None = None
        self._own_recipe: Recipe | None = None
        self.inspected = False
        """Whether the layer belongs to an attached model."""
        self.ran = False
        """Whether it ran with something to do since it was attached."""
        self._step = -1
        self._forwards = {True: 0, False: 0}
        self._reset()

    def _reset(self) -> None:
        self.plan = LayerPlan()
        self.observers: Mapping[str, TensorObserver] = {}
        self.armed: dict[str, TensorObserver] = {}
        """Who looks in this iteration, by tensor."""
        self.custom = CustomCalls(self.name, (), (), _nobody_told, has_gemms=False)
        self.observe_eval = False
        self.has_gemms = False
        self.acts = False
        """Whether the config gives it something to do in this iteration."""
        self._recipe: Recipe | None = None
        """What the last forward of the training ran with: a checkpoint is computed again so."""
        self._say: _Say = _nothing_said
        self._rings: Rings | None = None
        self._told = ToldOnce()
        self._tables: dict[Recipe | None, Table] = {}
        self.scalings: dict[tuple[Recipe, str], DelayedScaling] = {}
        """What delayed scaling knows, by recipe and tensor."""

    def inspect(
        self,
        planned: PlannedLayer,
        *,
        recipe: Recipe | None,
        observe_eval: bool,
        say: _Say,
        rings: Rings,
    ) -> None:
        """Take in what the config asks of the layer."""
        _, self.plan, self.observers, self.custom = planned
        self._own_recipe, self.observe_eval, self._say = recipe, observe_eval, say
        self._rings = rings
        self.inspected, self.ran = True, False
        self.has_gemms = planned.layer.kind != "other"
        if recipe is not None:
            # Ranks that share an amax tell each other of all layers, run or not.
            self._recipe = recipe
            self.table(recipe)

    def uninspect(self) -> None:
        """Forget what the config asks."""
        self._own_recipe = None
        self.inspected = False
        self._reset()

    @property
    def forwards(self) -> int:
        """How many forwards of the training have run in this step."""
        return self._forwards[True]

    @property
    def changes_always(self) -> bool:
        """Whether operands may be changed in every iteration."""
        return bool(self.plan.modify) or (self.has_gemms and self._own_recipe is not None)

    @property
    def scheduled(self) -> bool:
        """Whether what it does depends on the iteration."""
        return bool(self.observers) or bool(self.custom)

    def arm(self, iteration: int) -> bool:
        """Prepare for an iteration; say whether there is anything to do in it."""
        self.armed = {
            tensor: observer
            for tensor, observer in self.observers.items()
            if observer.arm(iteration)
        }
        acts = bool(self.armed)
        if self.custom:
            acts |= self.custom.arm(iteration)
            self._tables.clear()
        return acts

    def next_due(self, iteration: int) -> int | None:
        """Return the next iteration after this one in which there may be something to do."""
        found = [observer.next_due(iteration) for observer in self.observers.values()]
        if self.custom:
            found.append(self.custom.next_ask())
        return min((max(one, iteration + 1) for one in found if one is not None), default=None)

    def scaling(self, recipe: Recipe, tensor: str) -> DelayedScaling:
        """Return what delayed scaling knows of a tensor."""
        key = recipe, tensor
        if key not in self.scalings:
            self.scalings[key] = DelayedScaling(recipe, recipe.format_of(tensor))
        return self.scalings[key]

    def table(self, recipe: Recipe | None) -> Table:
        """Return how tensors are changed under a recipe, or without one."""
        found = self._tables.get(recipe)
        if found is None:
            found = self._tables[recipe] = self._table(recipe)
            if self.has_gemms:
                self._tell_plan(found)
        return found

    def _table(self, recipe: Recipe | None) -> Table:
        table: Table = {}
        if recipe is not None and self.has_gemms:
            off = self.plan.high_precision | self.custom.high_precision
            for tensor, gemm in PLAN_LINES:
                if gemm not in off:
                    delayed = self.scaling(recipe, tensor) if recipe.name == "delayed" else None
                    table[gemm, tensor] = Treatment(
                        recipe.format_of(tensor), recipe.margin, delayed
                    )
        for (gemm, tensor), modify in self.plan.modify.items():
            in_blocks = modify.format is not None and modify.format.startswith("MX")
            if modify.format is not None:
                format_ = Format(modify.format.removeprefix("MX"))
            elif recipe is not None:
                format_ = recipe.format_of(tensor)
            else:
                self.tell_idle(modify.feature, "does nothing in forwards without FP8")
                continue
            table[gemm, tensor] = Treatment(
                format_, modify.margin, feature=modify.feature, in_blocks=in_blocks
            )
        for query, one in self.custom.modifiers.items():
            table[query] = Treatment(None, feature=one.name, custom=one)
        return table

    def tell_unseen_plan(self) -> None:
        """Write the plan of a layer that is not looked at where it runs, as FP8 is off."""
        if self.has_gemms and not self._tables:
            self.table(None)

    def _tell_plan(self, table: Table) -> None:
        """Write once how the operands go into the GEMMs, and again where that is otherwise."""
        plan = {(tensor, gemm): described(table.get((gemm, tensor))) for tensor, gemm in PLAN_LINES}
        if not self._told.first("plan", *plan.values()):
            return
        for (tensor, gemm), how in plan.items():
            self._say(f"{self.name}: Tensor: {tensor}, gemm {gemm} - {how}")
        told = {f"{tensor}/{gemm}": how for (tensor, gemm), how in plan.items()}
        section = {} if self.plan.section is None else {"section": self.plan.section}
        trace_events.plan(self.name, {**section, **told})

    def tell(self, *about: str) -> None:
        """Write once which feature does something: its name, the API and what it is about."""
        if self._told.first(*about):
            feature, api, what = about
            self._say(f"{self.name}: Feature={feature}, API={api}: {what}")

    def tell_idle(self, feature: str, what: str) -> None:
        """Write once that a feature needs FP8, which this forward is not run in."""
        if self._told.first("idle", feature, what):
            self._say(f"{self.name}: {feature} {what}, which is told once.")

    def has_records_of(self, given: Any) -> bool:
        """Tell whether the device of a tensor makes the records of it."""
        return isinstance(given, Tensor) and bool(self._rings and self._rings.of(given))

    def passes_over(self, where: str | None) -> bool:
        """Tell whether the layer is left as it is now; say it once."""
        if where is None:
            return False
        self.ran = True
        if self.inspected and self._told.first(where):
            self._say(
                f"{self.name} runs under or on {where}: there it is neither looked at nor "
                "changed, which is told once.",
                logging.WARNING,
            )
        return True

    def tell_of_parts(self, tensor_name: str) -> None:
        """Say once that what is seen of a distributed tensor is no part of its elements."""
        if self._told.first("parts", tensor_name):
            self._say(
                f"{self.name}: each rank has {tensor_name} as a summand, and they are not added "
                "up here; the statistics are those of the summands.",
                logging.WARNING,
            )

    def recipe_of_forward(self, *, again: bool, trains: bool) -> Recipe | None:
        """Return by which recipe a forward runs, which a checkpoint is computed again by."""
        self.ran |= self.acts
        recipe = self._recipe if again else recipe_in_force(self._own_recipe)
        if trains:
            self._recipe = recipe
        return recipe

    def counted(self, *, again: bool, trains: bool) -> int:
        """Count a forward; return which one of the step it is, from 0."""
        # Those of an evaluation count by themselves: they are no micro-batches of the training.
        if self._step != MARKS.step:
            self._step = MARKS.step
            self._forwards = {True: 0, False: 0}
        if not again:
            self._forwards[trains] += 1
        return max(0, self._forwards[trains] - 1)


def _nobody_told(layer: str, tensor: str, error: Exception) -> None:
    """Stand in for a session."""


def _nothing_said(message: str, level: int = logging.INFO, /) -> None:
    """Stand in for a session."""
