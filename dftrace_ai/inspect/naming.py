"""The layers of a model: their names, and which of them have GEMMs that can be run otherwise."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from dftrace_ai import recorder
from dftrace_ai.inspect.config.layers import LayerInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TypeGuard

    from torch import nn

Module = TypeVar("Module", bound="nn.Module")

Kind = Literal["linear", "conv1d", "attention", "other"]

ROOT = "model"

# Children through which wrappers reach the module they wrap; no part of a name.
WRAPPED = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})


@dataclass(frozen=True, eq=False)
class NamedLayer:
    """A layer of a model."""

    name: str  # its name, which no other layer of the model has
    module: nn.Module  # the module. Several layers of kind attention have the same one
    # How its GEMMs can be reached: ``linear`` is a Linear whose forward is that of
    # `torch.nn.Linear`, ``conv1d`` the same with a transposed weight, ``attention`` a projection
    # inside of `torch.nn.MultiheadAttention`; of ``other``, only what goes in and comes out can be
    # seen.
    kind: Kind
    # Which projection of an attention: ``in_proj``, ``q_proj``, ``k_proj``, ``v_proj`` or
    # ``out_proj``; empty for other kinds.
    part: str = ""

    @property
    def info(self) -> LayerInfo:
        """What the selection of layers needs to know."""
        return LayerInfo(self.name, _class_of(self.module).__name__, self.kind != "other")


def layers_of(
    model: nn.Module, name: str | None = None, taken: Iterable[str] = ()
) -> list[NamedLayer]:
    """Return the layers of a model: linear modules, and others with parameters of their own."""
    # A layer is called as its attribute `name` says, where that is a text, and otherwise by `name`
    # and its path in the model, without the parts that DistributedDataParallel, torch.compile and
    # similar wrappers add. A module around it whose attribute `name` is a text that no other one
    # has stands in the place of the path up to there. A module that is used twice is one layer.
    # Where two modules say the same name, the second one is called by its path. `taken` are names
    # that no layer can have; one that would is numbered, as ``model.0#2``. They are in the order of
    # `named_modules`, the projections of an attention in the place of the attention.
    from torch import nn

    if recorder.lack():
        return []  # it is what computes statistics
    found: list[NamedLayer] = []
    taken = set(taken)
    inside: set[int] = set()
    walked = list(_walk(model))
    named = _named_paths(walked)
    if name is not None:
        named.pop((), None)

    def add(called: Iterable[str], module: nn.Module, kind: Kind, part: str = "") -> None:
        free = next(one for one in called if one not in taken)
        taken.add(free)
        found.append(NamedLayer(free, module, kind, part))

    for path, module in walked:
        if id(module) in inside or not (isinstance(module, nn.Linear) or _has_own(module)):
            continue
        if _has_forward_of(module, nn.MultiheadAttention):
            inside.add(id(module.out_proj))
            for part in _projections(module):
                called = _candidates(module, path, name, named, f".{part}")
                add(called, module, "attention", part)
        else:
            add(_candidates(module, path, name, named), module, _kind(module))
    return found


def assigned_names(model: nn.Module | Iterable[nn.Module]) -> Iterator[str]:
    """Give the modules of a model names, and yield each; see `infer_and_assign_layer_names`."""
    from torch import nn

    models: Iterable[nn.Module] = [model] if isinstance(model, nn.Module) else model
    for one in models:
        for path, module in _walk(one, numbered=True):
            present = inspect.getattr_static(type(module), "name", None)
            fixed = isinstance(present, property) and present.fset is None
            if not fixed and not isinstance(module, nn.ModuleList):
                name = ".".join([ROOT, *path])
                module.name = name  # type: ignore[assignment]
                yield name


def _walk(model: nn.Module, *, numbered: bool = False) -> Iterator[tuple[list[str], nn.Module]]:
    """Yield each module once, with the parts of its path."""
    from torch import nn
    from torch.nn.utils.parametrize import is_parametrized

    seen: set[int] = set()
    pending: list[tuple[list[str], nn.Module]] = [([], model)]
    while pending:
        path, module = pending.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        children = []
        for key, child in module.named_children():
            if key == "parametrizations" and is_parametrized(module):
                continue
            part = [key]
            if key in WRAPPED or (not path and _wraps(module, key)):
                part = []
            elif numbered and isinstance(module, nn.ModuleList):
                number = getattr(child, "layer_number", None)
                if isinstance(number, int) and not isinstance(number, bool):
                    part = [str(number)]
            children.append(([*path, *part], child))
        pending += reversed(children)


def _has_own(module: nn.Module) -> bool:
    """Tell whether a module computes with parameters of its own."""
    # A list or dict of parameters never runs: they belong to the module that holds it.
    from torch import nn

    containers = (nn.ParameterList, nn.ParameterDict)
    if isinstance(module, containers):
        return False
    # Asked first: layers of Keras make their dict of parameters when they are asked.
    if next(module.parameters(recurse=False), None) is not None:
        return True
    held = (child for child in module.children() if isinstance(child, containers))
    return any(True for one in held for _ in one.parameters())


def _wraps(module: nn.Module, key: str) -> bool:
    """Tell whether a module only holds another one, as DistributedDataParallel does."""
    return (
        key == "module"
        and len(list(module.children())) == 1
        and next(module.parameters(recurse=False), None) is None
    )


def _name_of(module: nn.Module) -> str | None:
    """Return how a module says that it is called, None where it says nothing."""
    try:
        said = getattr(module, "name", None)
    except Exception:  # noqa: BLE001 - a property of the program's own, which need not work now
        return None
    return said if isinstance(said, str) and said else None


def _named_paths(walked: Iterable[tuple[list[str], nn.Module]]) -> dict[tuple[str, ...], str]:
    """Return the paths of the modules that say names which no other one says."""
    named: dict[str, list[tuple[str, ...]]] = {}
    for path, module in walked:
        said = _name_of(module)
        if said is not None:
            named.setdefault(said, []).append(tuple(path))
    return {paths[0]: said for said, paths in named.items() if len(paths) == 1}


def _candidates(
    module: nn.Module,
    path: list[str],
    name: str | None,
    named: Mapping[tuple[str, ...], str],
    ending: str = "",
) -> Iterator[str]:
    """Yield what a layer may be called, the best first."""
    said = _name_of(module)
    if said is not None:
        yield said + ending
    for length in range(len(path) - 1, -1, -1):
        around = named.get(tuple(path[:length]))
        if around is not None:
            yield ".".join([around, *path[length:]]) + ending
            break
    by_path = ".".join([name or ROOT, *path]) + ending
    yield by_path
    number = 2
    while True:
        yield f"{by_path}#{number}"
        number += 1


def _class_of(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module, that from before where it has one of ours."""
    found: type[nn.Module] = getattr(type(module), "_inspect_original", type(module))
    return found


def _has_forward_of(module: nn.Module, owner: type[Module]) -> TypeGuard[Module]:
    """Tell whether calling a module does what the class does, and nothing else."""
    return (
        isinstance(module, owner)
        and "forward" not in vars(module)
        and _class_of(module).forward is owner.forward
    )


def _kind(module: nn.Module) -> Kind:
    from torch import nn

    if _has_forward_of(module, nn.Linear):
        return "linear"
    for owner in type(module).__mro__:
        if (owner.__module__, owner.__qualname__) == ("transformers.pytorch_utils", "Conv1D"):
            return "conv1d" if _has_forward_of(module, owner) else "other"
    return "other"


def _projections(attention: nn.MultiheadAttention) -> tuple[str, ...]:
    packed = attention._qkv_same_embed_dim
    return (*(("in_proj",) if packed else ("q_proj", "k_proj", "v_proj")), "out_proj")
