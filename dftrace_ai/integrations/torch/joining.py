"""How a rank joins the group of all ranks: a span while it waits for those that have not come."""

from __future__ import annotations

import functools
import inspect
import os
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import asked, beside, give_anew
from dftrace_ai.run.known_late import expect_rank
from dftrace_ai.run.ranks import number_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CellType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps

NAME: Final = "init_process_group"


def record_joining(options: AutoOptions | None, swaps: Swaps) -> None:
    """Record `init_process_group` from now on, by whatever name the program has it."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    original: Any = getattr(dist, NAME, None)
    wrapper = original
    while hasattr(original, "__wrapped__"):
        wrapper, original = original, original.__wrapped__
    if original is None:
        return
    recorded = _recorded(options, original)
    # Within torch's own decorators, whose results programs may have imported by name before.
    cell = _cell_of(wrapper, original)
    if cell is not None:
        cell.cell_contents = recorded
        swaps.then(functools.partial(_put_back, cell, recorded, original))
        return
    for module in (dist, distributed_c10d):
        swaps.swap(module, NAME, lambda found: _recorded(options, found))


def _cell_of(wrapper: Any, original: Any) -> CellType | None:
    def holds(cell: CellType) -> bool:
        return cell.cell_contents is original

    cells = getattr(wrapper, "__closure__", None) or ()
    return next((cell for cell in cells if asked(holds, cell)), None)


def _put_back(cell: CellType, recorded: object, original: object) -> None:
    if cell.cell_contents is recorded:
        cell.cell_contents = original


def _recorded(options: AutoOptions | None, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        if options is not None and not options.gate.recording:
            return original(*args, **kwargs)
        joining = asked(lambda: _joining(signature.bind(*args, **kwargs))) or _UNTOLD
        node = beside(ai.comm.init_process_group, of_the_step=False, copy=get_ident())
        give_anew(node, {"backend": joining.backend, "world_size": joining.world_size})
        span = node._begin()
        if span is None:
            return original(*args, **kwargs)
        try:
            asked(expect_rank, joining.rank, joining.world_size)
            result = original(*args, **kwargs)
        except BaseException as error:
            span.end(type(error))
            raise
        span.end()
        return result

    return recorded


class _Joining(NamedTuple):
    """What a call says of the group; None for what is not known."""

    backend: str | None
    world_size: int | None
    rank: int | None


_UNTOLD: Final = _Joining(None, None, None)


def _joining(call: inspect.BoundArguments) -> _Joining:
    given = call.arguments
    backend = given.get("backend")
    return _Joining(
        str(backend) if isinstance(backend, str) else None,
        _number(given.get("world_size"), "WORLD_SIZE"),
        _number(given.get("rank"), "RANK"),
    )


def _number(given: Any, variable: str) -> int | None:
    # Torch takes the variable for what is not given, -1.
    return given if type(given) is int and given >= 0 else number_of(os.environ.get(variable))
