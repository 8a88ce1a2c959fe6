"""dftracer's function decorator, with the fields that its users read and relations to entities."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation import dftracer_functions
from dftrace_ai.annotation.node import ProfilerNode
from dftrace_ai.compat.dftracer.arguments import Arguments, plain, set_arguments
from dftrace_ai.compat.dftracer.recorder import dftracer
from dftrace_ai.compat.dftracer.vocabulary import EntityRelation, EntityStore
from dftrace_ai.run.emitting import time_us

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from dftrace_ai.compat.dftracer.vocabulary import EntityID, TagValueTuple

__all__ = ["dft_fn"]


class dft_fn(dftracer_functions.dft_fn):  # noqa: N801 - the name that users of dftracer know
    """`dftrace_ai.dft_fn`, as it is in dftracer.

    Example::

        io = dft_fn("storage")

        @io.log
        def read(step): ...
    """

    def __init__(
        self,
        cat: str,
        name: str | None = None,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        enable: bool = True,
    ) -> None:
        called = name or sys._getframe(1).f_code.co_name
        self._bind(ProfilerNode(str(cat), str(called), bool(enable)))
        self.update(epoch, step, image_idx, image_size)

    def _bind(self, node: ProfilerNode) -> None:
        self._node = node
        self._cat = node.cat
        self._name = node.name
        self._flush = False
        self._relations: dict[EntityRelation, list[EntityID]] = {}
        self._created_us = time_us()

    @classmethod
    def _of(cls, node: ProfilerNode) -> Self:
        """Return what dftracer has as the ``profiler`` of a node."""
        made = cls.__new__(cls)
        made._bind(node)
        return made

    @property
    def _enable(self) -> bool:
        return self._node.enabled

    @_enable.setter
    def _enable(self, on: bool) -> None:
        self._node._switch(bool(on))

    @property
    def _arguments_int(self) -> Arguments:
        return Arguments(self._node, "int", self._picked_up)

    @_arguments_int.setter
    def _arguments_int(self, values: Mapping[str, TagValueTuple]) -> None:
        set_arguments(self._node, "int", values)

    @property
    def _arguments_float(self) -> Arguments:
        return Arguments(self._node, "float", self._picked_up)

    @_arguments_float.setter
    def _arguments_float(self, values: Mapping[str, TagValueTuple]) -> None:
        set_arguments(self._node, "float", values)

    @property
    def _arguments_string(self) -> Arguments:
        return Arguments(self._node, "string", self._picked_up)

    @_arguments_string.setter
    def _arguments_string(self, values: Mapping[str, TagValueTuple]) -> None:
        set_arguments(self._node, "string", values)

    def update(
        self,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        args: Mapping[str, Any] | None = None,
        **free: Any,
    ) -> Self:
        """Set arguments for the events that end from now on; see `dftrace_ai.dft_fn.update`."""
        return super().update(epoch, step, image_idx, image_size, plain(args), **free)

    def flush(self) -> Self:
        """End the span that is open, with the relations that it was given."""
        super().flush()
        self._flush = True
        return self

    def reset(self) -> Self:
        """Begin a new span, which `flush` ends; it has no relations yet."""
        self._flush = False
        self._forget_relations()
        return super().reset()

    def __exit__(self, exc_type: type[BaseException] | None, exc: object, tb: object) -> None:
        super().__exit__(exc_type, exc, tb)
        self._forget_relations()

    def _forget_relations(self) -> None:
        if self._relations:
            args = self._node._copy_args()
            for relation in self._relations:
                args.pop(relation.name.lower(), None)
            self._relations = {}
            self._node._clear_args()
            self._node._merge_args(args)

    def relate(self, relation: EntityRelation, entity: EntityID) -> Self:
        """Say what the event has to do with an entity: an argument such as ``used``.

        Args:
            relation: one of those below 16; others are left out.
            entity: its number, of `dftracer.declare_entity`; 0 is left out.

        Returns:
            This object.
        """
        if self._enable and entity and int(relation) < 16:
            known = EntityRelation(int(relation))
            self._relations.setdefault(known, []).append(entity)
            numbers = [f"{one:016x}" for one in self._relations[known]]
            self._node._merge_args({known.name.lower(): numbers})
        return self

    def relate_entity(
        self,
        relation: EntityRelation,
        type: str,  # noqa: A002 - dftracer's name
        key: Any,
        store: EntityStore = EntityStore.MEMORY,
        uri: str = "",
    ) -> EntityID:
        """Declare an entity and relate it to the event; returns its number."""
        if not self._enable:
            return 0
        entity = dftracer.get_instance().declare_entity(type, key, store, uri)
        self.relate(relation, entity)
        return entity

    def uses(
        self,
        type: str,  # noqa: A002
        key: Any,
        store: EntityStore = EntityStore.MEMORY,
        uri: str = "",
    ) -> EntityID:
        """Say that the event reads an entity; returns its number."""
        return self.relate_entity(EntityRelation.USED, type, key, store, uri)

    def generates(
        self,
        type: str,  # noqa: A002
        key: Any,
        store: EntityStore = EntityStore.MEMORY,
        uri: str = "",
    ) -> EntityID:
        """Say that the event makes an entity; returns its number."""
        return self.relate_entity(EntityRelation.GENERATED, type, key, store, uri)
