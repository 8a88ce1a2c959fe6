"""dftracer's way into compiled graphs: each operator of a graph is a span.

Apart, since programs import it by this path, as `dftracer.python.dynamo`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.compat.dftracer.nodes import DFTracerAI
from dftrace_ai.compat.vocabulary import DFTRACER_ENABLE
from dftrace_ai.errors import DftraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai._native import Span

__all__ = ["CAT_DYNAMO", "Dynamo", "create_backend", "create_detailed_op_name", "dynamo"]

CAT_DYNAMO = "dynamo"

OPERATORS = frozenset({"call_module", "call_function", "call_method"})


def create_detailed_op_name(node: Any, gm: Any) -> str:
    """Return what the spans of an operator are called, such as ``function.addmm.default``.

    Args:
        node: of a graph of torch.fx.
        gm: the graph's module.
    """
    target = str(node.target)
    flat = target.replace(".", "_")
    if node.op == "call_module":
        return f"{target}.{type(gm.get_submodule(node.target)).__name__}_{flat}"
    if node.op == "call_function":
        return f"function.{getattr(node.target, '__name__', target)}"
    return f"method.{flat}" if node.op == "call_method" else f"{node.op}.{flat}"


class Dynamo(DFTracerAI):
    """Compiles with spans around the operators of the graphs.

    Args:
        name: name of the node; the operators have their own.
        epoch: epoch number of the events.
        step: step number of the events.
        image_idx: index of the item.
        image_size: size of the item in bytes.
        enable: False records nothing.

    Example::

        @dynamo.compile
        def forward(x):
            return model(x)
    """

    def __init__(
        self,
        name: str | None = None,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        enable: bool = True,
    ) -> None:
        super().__init__(
            cat=CAT_DYNAMO,
            name=name,
            epoch=epoch,
            step=step,
            image_idx=image_idx,
            image_size=image_size,
            enable=enable,
        )
        # For each operator its nodes where gradients are off and on.
        self._operators: list[tuple[DFTracerAI, DFTracerAI]] = []
        self._numbers: dict[str, int] = {}
        self.call_stack: list[Any] = []

    def add_enhanced_timing_to_graph(self, gm: Any) -> Any:
        """Put a span around each operator of a graph.

        Args:
            gm: a ``torch.fx.GraphModule``; it is changed.

        Returns:
            The same.
        """
        graph = gm.graph
        # One object for all of them: as such torch before 2.5 knows what a graph calls.
        begin = self._begin_operator
        for node in [node for node in graph.nodes if node.op in OPERATORS]:
            number = self._number(create_detailed_op_name(node, gm))
            with graph.inserting_before(node):
                span = graph.call_function(begin, (number,))
            with graph.inserting_after(node):
                graph.call_function(_end_operator, (span,))
        gm.recompile()
        return gm

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            off, on = (self._alike(name, DFTracerAI) for _ in range(2))
            for grad_enabled, node in enumerate((off, on)):
                node._merge_args({"grad_enabled": grad_enabled})
                self._add_child(node)
            self._operators.append((off, on))
            self._numbers[name] = len(self._operators) - 1
        return self._numbers[name]

    def _begin_operator(self, number: int) -> Span | None:
        import torch

        return self._operators[number][torch.is_grad_enabled()]._begin()

    def compile(self, f_py: Callable[..., Any] | None = None, autograd: bool = True) -> Any:
        """Compile a function or module with a span for each operator.

        Args:
            f_py: what to compile; without it a decorator is returned.
            autograd: record the backward pass, too: what is compiled are then the
                operators below autograd.

        Returns:
            What is compiled; where nothing is recorded, `f_py` as it is.

        Raises:
            DftraceError: torch is not there, or cannot do this.
        """
        if f_py is None:
            return lambda func: self.compile(func, autograd)
        if not (DFTRACER_ENABLE and self.enabled):
            return f_py
        backend = self._backend(autograd)
        import torch

        return torch.compile(f_py, backend=backend)

    def _backend(self, autograd: bool) -> Callable[..., Any]:
        try:
            from torch._dynamo.backends.common import aot_autograd
        except ImportError as error:
            raise DftraceError(
                f"operators of compiled graphs need PyTorch with torch.compile ({error}); "
                "install dftrace-ai[torch]"
            ) from error

        def with_spans(gm: Any, example_inputs: Any, **options: Any) -> Any:
            forward = self.add_enhanced_timing_to_graph(gm).forward
            return _boxed(forward) if autograd else forward

        if not autograd:
            return with_spans
        made: Callable[..., Any] = aot_autograd(fw_compiler=with_spans)
        return made

    def count_parameters(self, module: Any) -> int | None:
        """Return how many parameters a module has; None for what is no module."""
        if not hasattr(module, "parameters"):
            return None
        return sum(int(parameter.numel()) for parameter in module.parameters())


def _boxed(forward: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Return what autograd calls: with a list, which is emptied so that its tensors may go."""

    def boxed(arguments: list[Any]) -> Any:
        given = tuple(arguments)
        arguments.clear()
        return forward(*given)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _end_operator(span: Span | None) -> None:
    if span is not None:
        span.end()


def create_backend(
    name: str | None = None,
    epoch: int | None = None,
    step: int | None = None,
    image_idx: int | None = None,
    image_size: float | None = None,
    enable: bool = True,
    autograd: bool = True,
) -> Any:
    """Return a backend for ``torch.compile`` that records each operator as a span; see `Dynamo`.

    Example::

        model = torch.compile(model, backend=create_backend(epoch=0))
    """
    tracer = Dynamo(name, epoch, step, image_idx, image_size, enable)
    return tracer._backend(autograd)


dynamo = Dynamo()
"""The tracer of the process."""
