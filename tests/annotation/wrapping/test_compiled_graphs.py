"""Annotations in compiled code: one graph, made once, with the same gradients, and no span inside."""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Traced
from torch_features import compiles

from dftrace_ai import ai, dft_fn

torch = pytest.importorskip("torch")
CompileCounterWithBackend = pytest.importorskip("torch._dynamo.testing").CompileCounterWithBackend

# The compiler itself looks at what is no more to be used.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")

inductor = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="needs a compiler of C++"
)

STEPS = 50

Step = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@ai.compute.forward
def decorated(x: Any, factor: float = 2.0) -> Any:
    return x * factor


@ai.compute.forward
@ai.compute.step
def decorated_twice(x: Any) -> Any:
    return x + 1


scaled = ai.compute.forward(functools.partial(torch.mul, other=3.0))


class Plain:
    k = 3.0

    @ai.compute.forward
    def method(self, x: Any, b: float = 1.0) -> Any:
        return x * self.k + b

    @ai.compute.forward
    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x + cls.k

    @ai.compute.forward
    @staticmethod
    def static(x: Any) -> Any:
        return x + 4

    @ai.compute.forward
    @property
    def value(self) -> float:
        return self.k

    @ai.compute.forward
    def __call__(self, x: Any) -> Any:
        return x + 8


class Below(Plain):
    @ai.compute.step
    def method(self, x: Any, b: float = 1.0) -> Any:
        return super().method(x, b) + 1

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return super().of_class(x) * 2

    @staticmethod
    def static(x: Any) -> Any:
        return super(Below, Below).static(x) * 2


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.node = ai.compute.derive("layer")

    @ai.compute.forward
    def forward(self, x: Any) -> Any:
        with self.node:
            return self.helper(self.inner(x))

    @ai.compute.forward
    def helper(self, x: Any) -> Any:
        return torch.relu(x) + x


class Deeper(Layer):
    @ai.compute.forward
    def forward(self, x: Any) -> Any:
        return super().forward(x) + 1


own = dft_fn("mine", "block")
on_device = ai.compute.forward(device=True)


@ai.compute.forward(device=True)
def on_device_too(x: Any) -> Any:
    return x * 2


held_node = ai.compute.forward(step=3)
obj, below = Plain(), Below()
held, table = obj.method, [obj.method]


def a_with(x: Any) -> Any:
    with ai.compute.forward:
        return x.sin()


def two_withs(x: Any) -> Any:
    with ai.compute.forward, ai.comm.all_reduce as node:
        y = x.sin()
        with node:
            y = y.cos()
    with ai.compute:
        return y * 2


def with_arguments(x: Any) -> Any:
    with ai.compute.forward(step=1, args={"rows": x.shape[0]}):
        return x.sin()


def with_held(x: Any) -> Any:
    with held_node, held_node.derive("part"), ai.data.item.init:
        return x.sin()


def with_device(x: Any) -> Any:
    with on_device, ai.compute.forward(device=True, step=2), on_device.derive("part"):
        return on_device_too(x.sin())


def with_own(x: Any) -> Any:
    with own:
        return x.sin()


def a_loop(x: Any) -> Any:
    for factor in ai.compute.forward.iter((1.0, 2.0, 3.0)):
        x = x * factor
    return x


def caught(x: Any) -> Any:
    try:
        with ai.compute.forward:
            y = x.sin()
            raise ValueError("no")
    except ValueError:
        return y + 1


def calls_that_record(x: Any) -> Any:
    ai.compute.forward.start(step=1)
    ai.instant("now", args={"a": 1})
    ai.counter("rows", x.shape[0])
    y = x.sin()
    ai.compute.forward.flow_out("a")
    ai.compute.forward.stop()
    return y


def decorated_inside(x: Any) -> Any:
    @ai.compute.forward
    def inner(y: Any) -> Any:
        return y * 2

    return inner(x)


def bound_inside(x: Any) -> Any:
    bound = obj.method
    return bound(x) + bound(x, b=2.0)


SHAPES: dict[str, Step] = {
    "with": a_with,
    "with twice": two_withs,
    "with arguments": with_arguments,
    "with held": with_held,
    "with device": with_device,
    "with dft_fn": with_own,
    "loop": a_loop,
    "caught": caught,
    "calls": calls_that_record,
    "function": lambda x: decorated(x) + decorated(x, factor=3.0),
    "function twice": lambda x: decorated_twice(x) * 2,
    "callable": lambda x: scaled(x) * 2,
    "inside": decorated_inside,
    "method": lambda x: obj.method(x) + obj.method(x, b=2.0),
    "of the class": lambda x: Plain.method(obj, x),
    "class method": lambda x: Plain.of_class(x) + obj.of_class(x),
    "static method": lambda x: Plain.static(x) + obj.static(x),
    "property": lambda x: x * obj.value,
    "call": lambda x: obj(x) * 2,
    "super": lambda x: below.method(x) * 2,
    "super class method": lambda x: Below.of_class(x) + below.of_class(x),
    "super static method": lambda x: below.static(x),
    "held": lambda x: held(x) * 2,
    "held in a list": lambda x: table[0](x) * 2,
    "bound inside": bound_inside,
    "partial": lambda x: functools.partial(obj.method, b=5.0)(x),
    "getattr": lambda x: getattr(obj, "method")(x),  # noqa: B009
}


def caught_without_us(x: Any) -> Any:
    try:
        with contextlib.nullcontext():
            y = x.sin()
            raise ValueError("no")
    except ValueError:
        return y + 1


class Above:
    @staticmethod
    def static(x: Any) -> Any:
        return x + 4


class BelowAbove(Above):
    @staticmethod
    def static(x: Any) -> Any:
        return super(BelowAbove, BelowAbove).static(x) * 2


class Binds:
    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self

    def __call__(self, x: Any) -> Any:
        return x + 1


class Holds:
    def __init__(self) -> None:
        self.held = Binds()

    def __call__(self, x: Any) -> Any:
        return self.held(x)


holds = Holds()

# What not every torch compiles, whether something is annotated or not.
WITHOUT_US: dict[str, Step] = {
    "caught": caught_without_us,
    "function twice": lambda x: holds(x) * 2,
    "super static method": lambda x: BelowAbove().static(x),
}


def with_modules() -> dict[str, Step]:
    torch.manual_seed(0)
    layer, deeper = Layer(), Deeper()
    beyond = {name for name, step in WITHOUT_US.items() if not compiles(step, torch.ones(2, 3))}
    return {
        **{name: step for name, step in SHAPES.items() if name not in beyond},
        "module": lambda x: layer(x) * 2,
        "modules": torch.nn.Sequential(Layer(), Layer(), Deeper()),
        "method of a module": lambda x: layer.helper(x) * 2,
        "super of a module": lambda x: deeper(x) * 2,
    }


def gradient(step: Step, x: Any) -> tuple[Any, Any]:
    x = x.clone().requires_grad_()
    y = step(x)
    y.sum().backward()
    return y.detach(), x.grad


def spans_of(run: Any) -> int:
    """How many spans a run has written."""
    run.flush()
    written: int = run.stats().get("written_spans", 0)
    return written


def fault(step: Step, backend: str, same: Callable[[Any, Any], bool], run: Any) -> str | None:
    """What is wrong with a step that is compiled, run often, and switched and updated between."""
    torch._dynamo.reset()
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    expected = gradient(step, x)
    before = spans_of(run)
    graphs = CompileCounterWithBackend(backend)
    compiled = torch.compile(step, backend=graphs, fullgraph=True)
    try:
        for number in range(STEPS):
            ai.update(step=number)
            (ai.disable if number % 7 == 3 else ai.enable)()
            found = gradient(compiled, x)
            if not all(map(same, found, expected)):
                return f"{found} instead of {expected}"
    except Exception as error:  # noqa: BLE001 - told with those of the others
        return f"{type(error).__name__}: {error}"
    finally:
        ai.enable()
        ai.reset()
    counts = graphs.frame_count, spans_of(run) - before
    return f"{counts[0]} graphs, {counts[1]} spans" if counts != (1, 0) else None


def test_every_form_is_in_one_graph_which_is_made_once(traced: Traced) -> None:
    with traced(perfetto=False) as rec:
        found = {
            name: fault(step, "eager", torch.equal, rec.run)
            for name, step in with_modules().items()
        }
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=inductor)])
def test_all_forms_are_in_one_graph_of_a_backend(traced: Traced, backend: str) -> None:
    steps = list(with_modules().values())
    same = torch.equal if backend == "aot_eager" else torch.allclose

    def all_of_them(x: Any) -> Any:
        total = x * 0
        for step in steps:
            total = total + step(x)
        return total

    with traced(perfetto=False) as rec:
        assert fault(all_of_them, backend, same, rec.run) is None


def test_what_is_compiled_is_recorded_by_one_span_around_each_call(traced: Traced) -> None:
    x = torch.ones(2, 3)
    layer = Deeper()
    with traced() as rec:
        for step in (decorated, obj.method, layer, layer.forward):
            compiled = torch.compile(step, backend="eager", fullgraph=True)
            for number in range(2):
                ai.update(step=number)
                assert torch.equal(compiled(x), compiled(x))
        with ai.compute.forward:
            torch.compile(two_withs, backend="eager", fullgraph=True)(x)
    assert rec.trace.names == {"forward": 4 * 4 + 1}
    assert [span.user["step"] for span in rec.trace.named("forward")] == [0, 0, 1, 1] * 4 + [1]
