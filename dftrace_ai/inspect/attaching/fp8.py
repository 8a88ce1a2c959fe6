"""Emulated FP8: recipes, where they are in force, and what delayed scaling knows of a tensor."""

from __future__ import annotations

import math
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from dftrace_ai.inspect.attaching.surroundings import not_compiled
from dftrace_ai.inspect.collecting.observer import amax_of
from dftrace_ai.inspect.config import Schedule
from dftrace_ai.inspect.config.names import canonical, listed
from dftrace_ai.inspect.errors import InspectTypeError, InspectValueError
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.fp8 import scale_of
from dftrace_ai.inspect.numerics.record import NEUTRAL, Record
from dftrace_ai.inspect.ranks.reduction import GroupMerger, Slot, SlotTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from dftrace_ai.inspect.ranks.exchange import Groups

NAMES = ("delayed", "current")
FP8_FORMATS = ("HYBRID", "E4M3", "E5M2")
ALGORITHMS = ("max", "most_recent")
BACKWARD_TENSORS = frozenset({"gradient", "dgrad", "wgrad"})


def hybrid_format(tensor: str) -> Format:
    """Return the format of a tensor under HYBRID: more range for what flows backward."""
    return Format.E5M2 if tensor in BACKWARD_TENSORS else Format.E4M3


@dataclass(frozen=True)
class Recipe:
    """How FP8 scales tensors."""

    # ``delayed`` scales by what was seen in earlier steps, ``current`` by the tensor itself.
    name: str = "delayed"
    fp8_format: str = "HYBRID"  # HYBRID is E4M3 for activations and weights and E5M2 for gradients
    margin: int = 0  # the scale is that of amax * 2**margin
    amax_history_len: int = 1024  # of how many steps delayed scaling knows
    amax_compute_algo: str = "max"  # ``max`` of the history, or its ``most_recent`` entry
    # Whether ranks share the amax of delayed scaling; all must have the recipe.
    reduce_amax: bool = False

    def __post_init__(self) -> None:
        for key, known in (
            ("name", NAMES),
            ("fp8_format", FP8_FORMATS),
            ("amax_compute_algo", ALGORITHMS),
        ):
            given = getattr(self, key)
            found = canonical(given, known)
            if found is None:
                raise InspectValueError(
                    f"recipe: {key} has to be {listed(known, 'or')}, not {given!r}"
                )
            object.__setattr__(self, key, found)
        for key, least in (("margin", None), ("amax_history_len", 1)):
            given = getattr(self, key)
            whole = isinstance(given, int) and not isinstance(given, bool)
            if not whole or (least is not None and given < least):
                bound = "" if least is None else f" of at least {least}"
                raise InspectValueError(
                    f"recipe: {key} has to be a whole number{bound}, not {given!r}"
                )
        if not isinstance(self.reduce_amax, bool):
            raise InspectValueError(
                f"recipe: reduce_amax has to be True or False, not {self.reduce_amax!r}"
            )

    @classmethod
    def of(cls, given: Any) -> Recipe | None:
        """Return the recipe that a user gave."""
        # That is a dict of the attributes, the name alone, True for the default recipe; None and
        # False are none.
        if given is None or given is False:
            return None
        if isinstance(given, Recipe):
            return given
        if given is True:
            return cls()
        if isinstance(given, str):
            return cls(name=given)
        if not isinstance(given, dict):
            raise InspectTypeError(
                f"recipe: a dict, a name or True is accepted, not {type(given).__name__}"
            )
        known = cls.__dataclass_fields__
        unknown = [key for key in given if key not in known]
        if unknown:
            raise InspectValueError(
                f"recipe: {listed(map(repr, unknown))} not known; known are {listed(known)}"
            )
        return cls(**given)

    def format_of(self, tensor: str) -> Format:
        """Return the format of a tensor."""
        if self.fp8_format == "HYBRID":
            return hybrid_format(tensor)
        return Format(self.fp8_format)


class _Entered(Protocol):
    def fp8_entered(self) -> None:
        """Be told that FP8 has been switched on somewhere."""


LISTENERS: weakref.WeakSet[_Entered] = weakref.WeakSet()
"""Who is told when `fp8_autocast` is entered."""


class _Regions(threading.local):
    def __init__(self) -> None:
        self.stack: list[fp8_autocast] = []


_regions = _Regions()


class fp8_autocast:  # noqa: N801 - named as the context managers of torch are
    """Emulate FP8 in the GEMMs of attached layers inside of a `with` block.

    Both operands of each GEMM are rounded to FP8 and back; the GEMM itself runs in the precision
    that it has anyhow. What a forward was run with is also in force in its backward. The state is
    that of the thread, and blocks may stand in each other: the innermost is in force.

    Args:
        enabled: False switches FP8 off in the block, also that of `attach(fp8=...)`.
        recipe: a dict with any of name (``delayed`` or ``current``), fp8_format (``HYBRID``,
            ``E4M3`` or ``E5M2``), margin, amax_history_len, amax_compute_algo (``max`` or
            ``most_recent``) and reduce_amax. None is that of `attach(fp8=...)`, else delayed
            scaling in HYBRID.

    Raises:
        InspectValueError: a key or a value of the recipe is not known.
        InspectTypeError: the recipe is something else.

    Example::

        with debug_api.fp8_autocast(recipe={"name": "current"}):
            loss = model(batch)
        loss.backward()
    """

    def __init__(self, enabled: bool = True, recipe: Any = None) -> None:
        self.enabled = enabled
        self.recipe = Recipe.of(recipe)

    # Compiled, the blocks of a function would be entered and left before its GEMMs run.
    @not_compiled
    def __enter__(self) -> Self:
        _regions.stack.append(self)
        if self.enabled:
            for one in list(LISTENERS):
                one.fp8_entered()
        return self

    @not_compiled
    def __exit__(self, *raised: object) -> None:
        _regions.stack.pop()


def recipe_in_force(own: Recipe | None) -> Recipe | None:
    """Return the recipe of this thread at this moment, None where FP8 is off."""
    if not _regions.stack:
        return own
    innermost = _regions.stack[-1]
    if not innermost.enabled:
        return None
    return innermost.recipe or own or _DEFAULT


_DEFAULT = Recipe()


# Delayed scaling


class DelayedScaling:
    """What delayed scaling knows of one tensor, apart for forwards that gradients can follow."""

    # Other forwards, as those of an evaluation, leave no trace in the training. They run under the
    # scale that the training has made. Of a layer that has none, as a frozen one that runs without
    # gradients, they make a scale of their own.

    def __init__(self, recipe: Recipe, format: Format) -> None:  # noqa: A002 - of numbers
        self.format = format
        self.trained = AmaxHistory(recipe, format)
        """Of forwards with gradients, and of backwards."""
        self.aside = AmaxHistory(recipe, format)
        """Of forwards without, as long as there is nothing else."""

    def note(self, amax: float | Tensor, *, gradients: bool) -> None:
        """Take in the amax of a tensor of this step."""
        if gradients:
            self.trained.note(amax)
        elif not self.trained.known:
            self.aside.note(amax)

    def scale(self, *, gradients: bool) -> float | Tensor:
        """Return the scale in force in this step; arguments as for `note`."""
        return (self.trained if gradients or self.trained.known else self.aside).scale


class AmaxHistory:
    """The amax of one tensor in the last steps, and the scale that follows from them."""

    def __init__(self, recipe: Recipe, format: Format) -> None:  # noqa: A002 - of numbers
        self.recipe = recipe
        self.format = format
        self.scale: float | Tensor = 1.0
        """What is in force in this step."""
        self.present: float | Tensor | None = None
        """The amax of this step up to now, None where the tensor was not seen."""
        self._ring: Tensor | None = None
        self._next = 0

    @property
    def known(self) -> bool:
        """Whether a step has ended in which the tensor was seen."""
        return self._ring is not None

    def note(self, amax: float | Tensor) -> None:
        """Take in the amax of a tensor of this step; NaN stays NaN, and twice is as once."""
        if self.present is None:
            self.present = amax
        elif isinstance(amax, Tensor) or isinstance(self.present, Tensor):
            self.present = torch.maximum(_number(amax), _number(self.present))
        elif math.isnan(amax) or math.isnan(self.present):
            self.present = math.nan
        else:
            self.present = max(amax, self.present)

    def roll(self) -> None:
        """End the step: its amax enters the history, of which the next scale is made."""
        # A step in which the tensor was not seen leaves everything as it is.
        amax = self.present
        if amax is None:
            return
        self.present = None
        if self._ring is None:
            device = amax.device if isinstance(amax, Tensor) else torch.device("cpu")
            length = self.recipe.amax_history_len
            # What is made in inference mode cannot be written to outside of it.
            with torch.inference_mode(mode=False):
                self._ring = torch.zeros(length, dtype=torch.float32, device=device)
        self._ring[self._next] = amax
        self._next = (self._next + 1) % len(self._ring)
        most = self._ring.amax() if self.recipe.amax_compute_algo == "max" else amax
        if isinstance(most, Tensor) and not most.is_cpu:
            self.scale = plain.scale_of(most, self.format, self.recipe.margin, self.scale)
        else:
            before = float(self.scale)
            self.scale = scale_of(float(most), self.format, self.recipe.margin, before)


def _number(amax: float | Tensor) -> Tensor:
    if isinstance(amax, Tensor):
        return amax
    return torch.tensor(amax, dtype=torch.float32, device="cpu")


_ALWAYS = (Schedule(),)


class AmaxSharing:
    """Makes the amax of a step that of a group of ranks."""

    # Ranks may have different layers, and a layer may have run on some of them only.

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._group: Any = None
        self._merger: GroupMerger | None = None
        self._table = SlotTable({})

    def share(
        self,
        scalings: Mapping[tuple[str, str, Recipe], DelayedScaling],
        group: Any,
        *,
        anyway: bool,
    ) -> None:
        """Replace the amax of this step by the largest of the group."""
        # All members must call this alike. Without a recipe that shares nothing is exchanged. With
        # `anyway` it is exchanged although this rank may have nothing.
        shared = {}
        for (layer, tensor, recipe), scaling in scalings.items():
            if recipe.reduce_amax:
                shared[Slot(layer, tensor, str(recipe))] = scaling.trained
                if scaling.aside.present is not None:
                    shared[Slot(layer, tensor, f"{recipe} without gradients")] = scaling.aside
        if not (shared or anyway) or not self._groups.usable(group):
            return
        if self._merger is None or group is not self._group:
            self._merger, self._group = GroupMerger(group), group
        records = {
            slot: _as_record(float(history.present))
            for slot, history in shared.items()
            if history.present is not None
        }
        if list(shared) != list(self._table.slots):
            self._table = SlotTable(dict.fromkeys(shared, _ALWAYS))
        try:
            merged = self._merger.merge(self._table, records, 0)
        except Exception as error:  # noqa: BLE001 - other ranks must not end the training
            self._groups.lost(group, error)
            return
        for slot, history in shared.items():
            if merged[slot].n_total:
                history.present = amax_of(merged[slot])


def _as_record(amax: float) -> Record:
    """Return a record of one element, as far as its magnitude goes."""
    is_nan = math.isnan(amax)
    return NEUTRAL._replace(amax=0.0 if is_nan else amax, n_nan=float(is_nan), n_total=1.0)
