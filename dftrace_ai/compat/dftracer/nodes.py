"""dftracer's classes of nodes, and views of the process' one tree that are of these classes.

A view hangs below the node that it stands for, so that it has what is set there; what is set in
the view is set there, too. The tree itself stays what it is for those who do not ask for dftracer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dftrace_ai.annotation.categories as of_the_tree
from dftrace_ai._native import quick_calls
from dftrace_ai.annotation.branching import BranchingNode
from dftrace_ai.annotation.node import QUICK, ProfilerNode, given_arguments
from dftrace_ai.annotation.tree import Tree
from dftrace_ai.annotation.tree import ai as the_tree
from dftrace_ai.compat.functions import dft_fn
from dftrace_ai.compat.vocabulary import ROOT_CAT, ROOT_NAME, without_tags
from dftrace_ai.run.emitting import time_us

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Self

    from dftrace_ai._native import TracedIterator

__all__ = [
    "AI",
    "IO",
    "Checkpoint",
    "Communication",
    "Compute",
    "DFTracerAI",
    "Data",
    "DataLoader",
    "Device",
    "Other",
    "Pipeline",
    "ai",
    "checkpoint",
    "comm",
    "compute",
    "data",
    "dataloader",
    "device",
    "pipeline",
]


class DFTracerAI(ProfilerNode):
    """A node as it is in dftracer: what `ProfilerNode` is, made and asked in dftracer's way.

    Args:
        cat: category of the events.
        name: name of the events; None takes the category's.
        epoch: epoch number of the events.
        step: step number of the events.
        image_idx: index of the item.
        image_size: size of the item in bytes.
        enable: False records nothing.

    Example::

        storage = DFTracerAI(cat="storage", name="read")
        with storage(step=3):
            read()
    """

    # The node of the tree that this one is a view of; None for one of its own.
    _viewed: ProfilerNode | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _quick_as_here(cls)

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Make it without a name, which the constructor of its class knows."""
        return super().__new__(cls, "", "", True)

    def __init__(
        self,
        *,
        cat: str,
        name: str | None = None,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        enable: bool = True,
    ) -> None:
        given = given_arguments(epoch, step, image_idx, image_size)
        self._settle(str(cat), str(name or cat), given, enable)

    def _settle(self, cat: str, name: str, args: dict[str, object], enabled: bool) -> None:
        self._rename(cat, name)
        self._merge_args(args)
        self._switch(bool(enabled))
        BranchingNode.__init__(self, cat, name)

    @property
    def profiler(self) -> dft_fn:
        """Dftracer's decorator behind the node, with its fields."""
        found: dft_fn | None = self.__dict__.get("_profiler")
        if found is None:
            found = self.__dict__["_profiler"] = dft_fn._of(self)
        return found

    @property
    def _children(self) -> dict[str, BranchingNode]:
        return _Children(self)

    @_children.setter
    def _children(self, children: Mapping[str, BranchingNode]) -> None:
        _Children(self).update(children)

    def create_children(self, names: Mapping[str, str]) -> None:
        """Make children, as attributes of this node.

        Args:
            names: the name of the events by that of the attribute.
        """
        for attribute, name in names.items():
            setattr(self, attribute, self._child(str(name)))

    def get_time(self) -> int:
        """Return microseconds since the epoch, by the trace's clock."""
        return time_us()

    def __call__(
        self, fn: Any = None, *, args: Mapping[str, Any] | None = None, **given: Any
    ) -> Any:
        """Decorate a function, or make an instance; see `ProfilerNode`."""
        return super().__call__(fn, args=args and without_tags(args), **given)

    def update(
        self,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        args: Mapping[str, Any] | None = None,
        **free: Any,
    ) -> Self:
        """Set arguments for the events of this node and of all below it; see `ProfilerNode`."""
        return super().update(
            epoch, step, image_idx, image_size, args and without_tags(args), **free
        )

    def iter(  # type: ignore[override]
        self,
        iterator: Iterable[Any] | None = None,
        *,
        include_block: bool = True,
        include_iter: bool = True,
        iter_name: str | None = None,
        block_name: str | None = None,
        iterable: Iterable[Any] | None = None,
    ) -> TracedIterator[Any]:
        """Iterate with two events an item; see `ProfilerNode`, which calls it `iterable`."""
        wanted: Any = iterable if iterator is None else iterator
        return super().iter(
            wanted,
            include_block=include_block,
            include_iter=include_iter,
            iter_name=iter_name,
            block_name=block_name,
        )

    @property
    def _bearer(self) -> Any:
        """Who has the arguments and the switch: of a view the node of the tree."""
        return super() if self._viewed is None else self._viewed

    def _merge_args(self, updates: dict[str, Any]) -> None:
        self._bearer._merge_args(updates)

    def _clear_args(self) -> None:
        self._bearer._clear_args()

    def _switch(self, on: bool) -> None:
        self._bearer._switch(on)

    def _child_of(self, name: str, kind: type[Any]) -> Any:
        if self._viewed is None or name in self._named:
            return super()._child_of(name, kind)
        child = _view(self._viewed._child_of(name, _NATIVE.get(kind, kind)))
        self.__dict__.setdefault("_named", {})[name] = child
        child._above = (self, name)
        return child

    def __getattr__(self, name: str) -> Any:
        below = vars(self._viewed).get(name) if self._viewed is not None else None
        if not isinstance(below, BranchingNode) or below._above is None:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
        view = self.__dict__[name] = self._child_of(below._above[1], type(below))
        return view

    def _have_all(self) -> None:
        """Make the views of all that is below the node that this one is a view of."""
        if self._viewed is not None:
            for name, value in [*vars(self._viewed).items()]:
                if isinstance(value, BranchingNode):
                    getattr(self, name)
            for name, below in [*self._viewed._named.items()]:
                self._child_of(name, type(below))

    def _alike(self, name: str, kind: type[Any], enabled: bool | None = None) -> Any:
        return _become(super()._alike(name, _NATIVE.get(kind, kind), enabled))

    def _branch(self, category: str, kind: type[Any]) -> Any:
        branch = _become(kind(category, category))
        branch._merge_args(self._copy_args())
        branch._switch(self.enabled)
        self._hang(category, branch)
        return branch

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments, *_ = super().__reduce__()
        if arguments[:1] != (type(self),):
            return make, arguments
        fields = {k: v for k, v in vars(self).items() if k not in _INSIDE}
        return _remade, (*arguments, fields)


def _quick_as_here(kind: type[DFTracerAI]) -> None:
    """Have calls with numbers make nodes without Python, where a kind does not call otherwise."""
    if all(getattr(kind, name) is getattr(DFTracerAI, name) for name in QUICK):
        quick_calls(kind, DFTracerAI)


_quick_as_here(DFTracerAI)

# What a copy makes itself.
_INSIDE = frozenset({"_named", "_above", "_profiler", "_keys"})


def _remade(
    kind: type[DFTracerAI],
    cat: str,
    name: str,
    enabled: bool,
    args: dict[str, object],
    fields: dict[str, object],
) -> DFTracerAI:
    node = kind.__new__(kind)
    node._settle(cat, name, args, enabled)
    vars(node).update(fields)
    for child in fields.values():
        if isinstance(child, BranchingNode):
            node._hang(child.name, child)
    return node


class _Children(dict[str, BranchingNode]):
    """The children of a node by attribute or name; what is put here hangs on the node."""

    def __init__(self, node: DFTracerAI) -> None:
        self._node = node
        node._have_all()
        keys = {id(v): k for k, v in vars(node).items() if isinstance(v, ProfilerNode)}
        keys.update(vars(node).get("_keys", {}))
        super().__init__()
        for name, child in node._named.items():
            super().__setitem__(keys.get(id(child), name), child)

    def __setitem__(self, key: str, child: BranchingNode) -> None:
        if all(child is not one for one in self._node._named.values()):
            self._node._hang(child.name, child)
        vars(self._node).setdefault("_keys", {})[id(child)] = key
        super().__setitem__(key, child)

    def update(self, other: Mapping[str, BranchingNode]) -> None:  # type: ignore[override]
        """Put children here."""
        for key, child in other.items():
            self[key] = child


class _OfTheTree(DFTracerAI):
    """A category: its name is that of its class."""

    _cat = ""
    _own_name = ""

    def __init__(
        self,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        enable: bool = True,
    ) -> None:
        given = given_arguments(epoch, step, image_idx, image_size)
        self._settle(self._cat, self._own_name or self._cat, given, enable)


class IO(DFTracerAI, of_the_tree.Io):
    """Operations on files and streams."""

    def __init__(
        self,
        *,
        cat: str,
        parent_name: str,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        enable: bool = True,
    ) -> None:
        given = given_arguments(epoch, step, image_idx, image_size)
        self._settle(str(cat), f"{parent_name}.io", given, enable)


class Compute(_OfTheTree, of_the_tree.Compute):
    """Work on the model."""

    _cat = "compute"


class Data(_OfTheTree, of_the_tree.Data):
    """Work on the data set."""

    _cat = "data"


class DataLoader(_OfTheTree, of_the_tree.DataLoader):
    """Work of the data loader."""

    _cat = "dataloader"


class Communication(_OfTheTree, of_the_tree.Comm):
    """Communication between ranks."""

    _cat = "comm"


class Device(_OfTheTree, of_the_tree.Device):
    """Work of an accelerator's memory."""

    _cat = "device"


class Checkpoint(_OfTheTree, of_the_tree.Checkpoint):
    """Saving and restoring of the model."""

    _cat = "checkpoint"


class Pipeline(_OfTheTree, of_the_tree.Pipeline):
    """Phases of the whole job."""

    _cat = "pipeline"


class Other(_OfTheTree, of_the_tree.Other):
    """What fits no other category."""

    _cat = "other"


class AI(_OfTheTree, Tree):
    """The root of a tree."""

    _cat, _own_name = ROOT_CAT, ROOT_NAME

    def _reduce_place(self, keys: tuple[str, ...]) -> tuple[Any, ...] | None:
        return (_at, keys) if self is ai else None


_NATIVE: dict[type, type[Any]] = {DFTracerAI: ProfilerNode}
_NATIVE.update((kind, kind.__bases__[1]) for kind in _OfTheTree.__subclasses__())
_NATIVE[IO] = of_the_tree.Io
_OURS = {native: ours for ours, native in _NATIVE.items()}


def _become(node: Any) -> Any:
    """Make a node that was just made one of dftracer's classes, and all below it."""
    ours = _OURS.get(type(node))
    if ours is not None:
        node.__class__ = ours
    for child in node._named.values():
        _become(child)
    return node


def _view(node: BranchingNode) -> Any:
    """Return a new view of a node of the tree; what is below comes when it is asked for."""
    kind: Any = _OURS.get(type(node), DFTracerAI)
    made = kind.__new__(kind)
    made._rename(node.cat, node.name)
    made._take_args(node)
    made._switch(node.enabled)
    made._viewed = node
    node._add_child(made)
    return made


ai: AI = _view(the_tree)


def _at(*keys: str) -> ProfilerNode:
    """Return the view at a place of the tree, made if it is a derived one of another process."""
    node: ProfilerNode = ai
    for key in keys:
        node = node._child(key)
    return node


compute: Compute = ai.compute  # type: ignore[assignment]
data: Data = ai.data  # type: ignore[assignment]
dataloader: DataLoader = ai.dataloader  # type: ignore[assignment]
comm: Communication = ai.comm  # type: ignore[assignment]
device: Device = ai.device  # type: ignore[assignment]
checkpoint: Checkpoint = ai.checkpoint  # type: ignore[assignment]
pipeline: Pipeline = ai.pipeline  # type: ignore[assignment]
