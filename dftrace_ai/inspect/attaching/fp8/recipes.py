"""Emulated FP8: the recipe, and where it is in force."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dftrace_ai.inspect.attaching.surroundings import not_compiled
from dftrace_ai.inspect.config.names import canonical, listed
from dftrace_ai.inspect.errors import InspectTypeError, InspectValueError
from dftrace_ai.inspect.numerics.formats import Format

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["LISTENERS", "Recipe", "fp8_autocast", "hybrid_format", "recipe_in_force"]

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
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
