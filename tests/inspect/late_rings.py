"""A device whose records come late, on the CPU: what a GPU that is behind looks like."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dftrace_ai.inspect.collecting.rings import Rings
from dftrace_ai.inspect.numerics.ring import Ring
from dftrace_ai.inspect.session import open_session


class LateCopies:
    """Copies that come after some steps, or when they are waited for."""

    def __init__(self, late_by: int) -> None:
        self.late_by = late_by
        self.now = 0
        self.waits = 0
        self.under_way: list[Copy] = []

    def __call__(self, rows: Tensor, on_host: Tensor) -> Copy:
        on_host.fill_(-1)
        self.under_way.append(Copy(self, rows, on_host))
        return self.under_way[-1]


class Copy:
    """One of them."""

    def __init__(self, copies: LateCopies, rows: Tensor, on_host: Tensor) -> None:
        self.copies, self.rows, self.on_host = copies, rows, on_host
        self.comes_at = copies.now + copies.late_by

    def query(self) -> bool:
        come = self.copies.now >= self.comes_at
        if come:
            self._arrive()
        return come

    def synchronize(self) -> None:
        if not self.query():
            self.copies.waits += 1
            self._arrive()

    def _arrive(self) -> None:
        if self.rows.is_meta:
            self.on_host.fill_(1.0)
        else:
            self.on_host.copy_(self.rows)


def through_rings(late_by: int, device: str = "cpu", **of_ring: Any) -> LateCopies:
    """Let the open session treat the CPU, or another device, as one whose records come late.

    Call it before anything is attached; count `now` up with each step. Of tensors without numbers
    the records are made up.
    """
    copies = LateCopies(late_by)

    def make(of: torch.device, **told: Any) -> Ring[Any]:
        return Ring(of, copy=copies, **{**told, **of_ring})

    session = open_session.session
    assert session is not None
    session.collector.rings = Rings(session.say_once, devices=[device], make=make)
    return copies
