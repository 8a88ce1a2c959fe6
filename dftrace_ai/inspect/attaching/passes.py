"""One forward of a layer and its backward: what is seen and what is changed on the way."""

from __future__ import annotations

import math
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor

from dftrace_ai.inspect.attaching.fp8 import hybrid_format
from dftrace_ai.inspect.attaching.surroundings import is_computed_again, transformed
from dftrace_ai.inspect.collecting.observer import FP8_FEATURE, amax_of
from dftrace_ai.inspect.collecting.rings import Asked
from dftrace_ai.inspect.config.features import DUMP_TENSORS
from dftrace_ai.inspect.nonfinite import CAUSES, MARKS
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.blocks import mxfp8
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.fp8 import (
    Quantised,
    fake_quantise,
    fake_quantise_in_blocks,
    quantised,
    scale_of,
)
from dftrace_ai.inspect.numerics.statistics import COLUMNWISE

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.inspect.attaching.fp8 import Recipe
    from dftrace_ai.inspect.attaching.layer import LiveLayer, Table, Treatment
    from dftrace_ai.inspect.collecting.observer import Cast
    from dftrace_ai.inspect.numerics.blocks import Blocks
    from dftrace_ai.inspect.numerics.formats import Format
    from dftrace_ai.inspect.numerics.record import Record

BACKWARD = frozenset({"gradient", "dgrad", "wgrad"})
"""The tensors that come with the backward pass."""

_GEMM_RESULTS = ("dgrad", "wgrad")


class Pass:
    """One forward of a layer and the backward that belongs to it. It holds no tensors."""

    def __init__(
        self,
        layer: LiveLayer,
        table: Table,
        recipe: Recipe | None,
        *,
        looks: bool,
        again: bool,
        gradients: bool,
        micro_batch: int,
    ) -> None:
        self._layer = layer
        self._table = table
        self._recipe = recipe
        self._looks = looks
        self._again = again
        self._gradients = gradients
        self._micro_batch = micro_batch
        self._amax: dict[str, float | Tensor] = {}
        self._made_of: dict[str, weakref.ref[Tensor]] = {}

    def needs_gemms(self) -> bool:
        """Tell whether the GEMMs have to be run one by one."""
        return bool(self._table) or any(map(self.wants, _GEMM_RESULTS))

    def inspects(self, tensor_name: str) -> bool:
        """Tell whether the config asks to look at a tensor now."""
        layer = self._layer
        return (
            self._looks
            and (tensor_name in layer.armed or tensor_name in layer.custom.inspectors)
            and (tensor_name in BACKWARD or not self._is_repeated())
        )

    def _is_repeated(self) -> bool:
        # A compiler may compute again what comes out of a layer, and not that the layer begins.
        return self._again or is_computed_again()

    def wants(self, tensor_name: str) -> bool:
        """Tell whether anyone looks at a tensor now."""
        watch = self._layer.watch
        if watch is None:
            return self.inspects(tensor_name)
        watched = watch.wants(tensor_name) and (tensor_name in BACKWARD or not self._is_repeated())
        return watched or self.inspects(tensor_name)

    def see(self, tensor_name: str, tensor: Tensor, *, is_operand: bool = True) -> None:
        """Show a tensor, as it is before anything is changed, to those who look at it."""
        # `is_operand` is False where the GEMM gets it in another format.
        layer = self._layer
        inspects = self.inspects(tensor_name)
        if not inspects and (layer.watch is None or not self.wants(tensor_name)):
            return
        replaced = _replaced_by(tensor)
        if replaced is not None and layer.passes_over(replaced):
            return
        record: Record | None = None
        if inspects:
            record = self._inspected(tensor_name, tensor, is_operand=is_operand)
        if layer.watch is None:
            if record is not None:
                MARKS.seen(layer.name, tensor_name, record, self._micro_batch)
        elif tensor_name in CAUSES:
            self._made_of[tensor_name] = weakref.ref(tensor)
        else:
            layer.watch.look(tensor_name, tensor, record, self._micro_batch, self._made_of)

    def _inspected(self, tensor_name: str, tensor: Tensor, *, is_operand: bool) -> Record | None:
        layer = self._layer
        if any(one.is_partial() for one in getattr(tensor, "placements", ())):
            layer.tell_of_parts(tensor_name)
        record: Record | None = None
        observer = layer.armed.get(tensor_name)
        amax: float | Tensor | None = None
        if observer is not None:
            micro_batch = self._micro_batch if layer.watch is None else None
            found = observer.see(tensor, partial(self._scale, tensor_name), micro_batch)
            if isinstance(found, Asked):
                if self._recipe is not None or self._table:
                    amax = found.amax()
            elif found is not None:
                record, amax = found, amax_of(found)
            if not observer.told:
                observer.told = True
                for feature in observer.features:
                    layer.tell(feature, "look_at_tensor_before_process", tensor_name)
        layer.custom.inspect(tensor_name, tensor, partial(self._quantised, tensor_name, tensor))
        if amax is not None and (
            is_operand or not any(name == tensor_name for _, name in self._table)
        ):
            self._keep(tensor_name, amax)
        return record

    def made_of(self, activation: Tensor | None, weight: Tensor | None) -> None:
        """Say what the output is made of that will be seen next, where they have been seen."""
        for name, tensor in (("activation", activation), ("weight", weight)):
            if tensor is not None:
                self._made_of[name] = weakref.ref(tensor)

    def look_back(self, gradient: Tensor) -> None:
        """Show the gradient of the output; a hook for a tensor."""
        self.see("gradient", gradient)

    def _keep(self, tensor_name: str, amax: float | Tensor) -> None:
        self._amax[tensor_name] = amax
        if self._recipe is not None:
            delayed = self._layer.scalings.get((self._recipe, tensor_name))
            if delayed is not None:
                # What a checkpoint computes again is told again: of reentrant ones, and in
                # compiled code, only that belongs to a backward.
                delayed.note(amax, gradients=self._gradients)

    def _amax_of(self, tensor_name: str, tensor: Tensor) -> float | Tensor | None:
        if tensor_name not in self._amax:
            if not tensor.numel():
                return None
            self._keep(tensor_name, _amax(tensor))
        return self._amax[tensor_name]

    def _scale(self, tensor_name: str, source: str, amax: float | Tensor) -> Cast | None:
        """Return how a tensor is quantised, or would be; see `ScaleSource`."""
        recipe = self._recipe
        if source == "delayed":
            if recipe is None or recipe.name != "delayed":
                self._layer.tell_idle(
                    FP8_FEATURE, "has nothing of delayed scaling to tell of forwards without it"
                )
                return None
            delayed = self._layer.scaling(recipe, tensor_name)
            return delayed.format, delayed.scale(gradients=self._gradients)
        if source.startswith("used"):
            in_blocks: Blocks | None = None
            for (_, name), treatment in self._table.items():
                if name != tensor_name or treatment.format is None:
                    continue
                if not treatment.in_blocks:
                    return treatment.format, self._scale_under(treatment, treatment.format, amax)
                in_blocks = mxfp8(
                    treatment.format, treatment.margin, columnwise=source.endswith(COLUMNWISE)
                )
            if in_blocks is not None:
                return in_blocks
            self._layer.tell_idle(
                FP8_FEATURE, "tells what current scaling would do to tensors that stay out of FP8"
            )
        format_ = recipe.format_of(tensor_name) if recipe else hybrid_format(tensor_name)
        return format_, _scale_of(amax, format_)

    def _quantised(self, tensor_name: str, tensor: Tensor) -> Quantised | None:
        """Return what FP8 makes of a tensor here; None where it stays out of it."""
        for (_, name), treatment in self._table.items():
            if name != tensor_name or treatment.format is None or not tensor.numel():
                continue
            if treatment.in_blocks:
                return quantised(tensor, treatment.format, None, treatment.margin)
            amax = self._amax.get(tensor_name)
            scale = self._scale_under(
                treatment, treatment.format, _amax(tensor) if amax is None else amax
            )
            return quantised(tensor, treatment.format, scale)
        self._layer.tell_idle(DUMP_TENSORS.name, f"has no FP8 of {tensor_name}: it is not rounded")
        return None

    def _scale_under(
        self, treatment: Treatment, format_: Format, amax: float | Tensor
    ) -> float | Tensor:
        if treatment.delayed is not None:
            return treatment.delayed.scale(gradients=self._gradients)
        return _scale_of(amax, format_, treatment.margin)

    def changed(
        self, gemm: str, tensor_name: str, tensor: Tensor, whole: Tensor | None = None
    ) -> Tensor:
        """Return a tensor as it goes into a GEMM, or comes out of it."""
        # It stays as it is. `whole` is what it is a part of, where the scale is to be that of the
        # whole.
        treatment = self._table.get((gemm, tensor_name))
        if treatment is None:
            return tensor
        layer = self._layer
        if layer.passes_over(_replaced_by(tensor)):
            return tensor
        if treatment.feature is not None:
            layer.tell(treatment.feature, "process_tensor", f"{gemm}, {tensor_name}")
        if treatment.custom is not None:
            return layer.custom.modified(treatment.custom, gemm, tensor_name, tensor)
        if treatment.format is None:
            return tensor
        given: tuple[Any, ...] = (treatment.format, None, treatment.margin)
        if not treatment.in_blocks:
            amax = self._amax_of(tensor_name, tensor if whole is None else whole)
            if amax is None:
                return tensor
            given = (treatment.format, self._scale_under(treatment, treatment.format, amax), 0)
        if torch.is_grad_enabled() and tensor.requires_grad:
            apply: Callable[..., Tensor] = _PassedThrough.apply
            return apply(tensor, *given)
        return _quantised(tensor, *given)


@overload
def begin_pass(
    layer: LiveLayer, *, training: bool, gradients: bool, anyway: Literal[True]
) -> Pass: ...
@overload
def begin_pass(layer: LiveLayer, *, training: bool, gradients: bool) -> Pass | None: ...
def begin_pass(
    layer: LiveLayer, *, training: bool, gradients: bool, anyway: bool = False
) -> Pass | None:
    """Return what goes with a forward and its backward, None where nothing is to be done."""
    # Gradients are not recorded in the first forward of a checkpoint, but are when it is computed
    # again. With `anyway` something is returned in any case.
    again = is_computed_again()
    trains = training or gradients
    recipe = layer.recipe_of_forward(again=again, trains=trains)
    looks = training or layer.observe_eval
    custom_looks = looks and bool(layer.custom.inspectors)
    table = layer.table(recipe)
    if not (table or (looks and layer.armed) or custom_looks or layer.watch or anyway):
        return None
    return Pass(
        layer,
        table,
        recipe,
        looks=looks,
        again=again,
        gradients=gradients,
        micro_batch=layer.counted(again=again, trains=trains),
    )


class _PassedThrough(torch.autograd.Function):
    """Fake quantisation that a gradient passes as if nothing were done: for double backward."""

    @staticmethod
    def forward(
        _ctx: object,
        tensor: Tensor,
        *given: Any,
    ) -> Tensor:
        return _quantised(tensor, *given)

    @staticmethod
    def backward(_ctx: object, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0], None, None, None


def _quantised(
    tensor: Tensor,
    format: Format,  # noqa: A002 - of numbers
    scale: float | Tensor | None,
    margin: int = 0,
) -> Tensor:
    """Return a tensor as its format gives it back; without a scale blocks have their own."""
    if scale is None:
        return fake_quantise_in_blocks(tensor, format, margin)
    return fake_quantise(tensor, format, scale)


def _replaced_by(tensor: Tensor) -> str | None:
    """Return what has put another tensor in place: a backward of many gradients at once does."""
    return "torch.func" if transformed(tensor) else None


def _scale_of(amax: float | Tensor, format_: Format, margin: int = 0) -> float | Tensor:
    """Return a scale, which stays on the device where the amax is."""
    if isinstance(amax, Tensor):
        return plain.scale_of(amax, format_, margin)
    return scale_of(amax, format_, margin)


def _amax(tensor: Tensor) -> float | Tensor:
    if not tensor.is_cpu:
        return tensor.detach().abs().amax()
    record = collect(tensor, zeros=False)
    return math.nan if record is None else amax_of(record)
