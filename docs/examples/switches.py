"""enable and disable: a leaf, a category or the tree, and single places that differ."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


@ai.compute.forward
def follows() -> None:
    """Without parentheses a place follows every later switch of its node."""


@ai.compute.forward(enable=True)
def always() -> None: ...


@ai.compute.forward(args={"kind": "fixed"})
def fixed() -> None:
    """Parentheses take the state of now; a later disable() does not reach this place."""


with dftrace_ai.tracing(log_file=OUT / "switches"):
    ai.compute.disable()
    follows()
    always()
    fixed()
    with ai.data.item:
        pass

    ai.compute.enable()
    follows()
    with ai.compute.backward(enable=False):
        pass

    ai.disable()
    with ai.data.item:
        pass
    ai.instant("not recorded either")
    ai.enable()
