"""Decorated functions and methods that compiled code calls, or that are compiled themselves."""

from __future__ import annotations

import functools
import inspect

import pytest
from conftest import RunScript

from dftrace_ai import ai
from dftrace_ai.annotation import wrapping

SHAPES = """
import functools
import json
import torch
from dftrace_ai import ai, initialize

class Plain:
    def __init__(self):
        self.k = 3

    @ai.compute.forward
    def m(self, x, b=1):
        return x * self.k + b

    @ai.compute.forward
    @classmethod
    def c(cls, x):
        return x + 2

    @ai.compute.forward
    @staticmethod
    def s(x):
        return x + 4

    @ai.compute.forward
    @property
    def p(self):
        return self.k

    @ai.compute.forward
    def __call__(self, x):
        return x + 8

class Below(Plain):
    @ai.compute.step
    def m(self, x, b=1):
        return super().m(x, b) + 1

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)

    @ai.compute.forward
    def forward(self, x):
        return self.helper(self.inner(x))

    @ai.compute.forward
    def helper(self, x):
        return x + 1

o, below, module = Plain(), Below(), Module()
held, table = o.m, [o.m]
shapes = {
    "method": lambda x: o.m(x + 1) + 1,
    "keywords": lambda x: o.m(x + 1, b=2) + 1,
    "of the class": lambda x: Plain.m(o, x + 1) + 1,
    "class method": lambda x: Plain.c(x + 1) + o.c(x),
    "static method": lambda x: Plain.s(x + 1) + o.s(x),
    "property": lambda x: x + o.p,
    "call": lambda x: o(x + 1) + 1,
    "super": lambda x: below.m(x + 1) + 1,
    "held": lambda x: held(x + 1) + 1,
    "held in a list": lambda x: table[0](x + 1) + 1,
    "bound inside": lambda x: (lambda f: f(x + 1) + f(x))(o.m),
    "partial": lambda x: functools.partial(o.m, b=5)(x + 1),
    "getattr": lambda x: getattr(o, "m")(x + 1),
    "module": lambda x: module(x) + 1,
    "method of a module": lambda x: module.helper(x + 1) + 1,
    "compiled method": o.m,
    "compiled module": module,
}
run = initialize()
x = torch.ones(2, 2)

def recorded(call):
    run.flush()
    before = run.stats().get("written_spans", 0)
    result = call(x)
    run.flush()
    return result, run.stats()["written_spans"] - before

wrong = {}
for name, shape in shapes.items():
    spans = name in ("compiled method", "compiled module")  # that around the call
    want = shape(x)
    torch._dynamo.reset()
    compiled = torch.compile(shape, backend="eager")
    try:
        for _ in range(2):
            got = recorded(compiled)
            if not torch.equal(got[0], want) or got[1] != spans:
                wrong[name] = f"{got} instead of {want} and {spans}"
    except Exception as error:
        wrong[name] = f"{type(error).__name__}: {error}"
print(json.dumps(wrong))
"""


def test_compiled_code_is_right_and_recorded_by_one_span_around_it(run_script: RunScript) -> None:
    pytest.importorskip("torch")
    assert run_script(SHAPES).said == [{}]


def test_the_binding_that_is_shown_to_a_compiler_binds() -> None:
    class Model:
        @ai.compute.forward
        def add(self, a: int) -> int:
            return a + 1

    m = Model()
    add = vars(Model)["add"]
    assert add.__get__(m) == m.add
    assert add.__get__(m, Model)(1) == 2
    assert add.__get__(None, Model) is add
    shown = inspect.getattr_static(type(add), "__get__")
    assert inspect.isfunction(shown)
    assert (shown.__defaults__, shown.__closure__) == (None, None)


def test_for_an_old_torch_descriptors_hold_plain_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 2.7 Dynamo asserts that what a property or class method calls is a plain function."""
    monkeypatch.setattr(wrapping, "needs_plain_functions", lambda: True)

    class Model:
        @ai.compute.forward
        @property
        def value(self) -> int:
            """A number."""
            return 3

        @ai.compute.forward
        @classmethod
        def make(cls, a: int) -> int:
            return a

        @ai.compute.forward
        @staticmethod
        def static(a: int) -> int:
            return a

        @ai.compute.forward
        def method(self) -> int:
            return 4

        cached = ai.compute.forward(functools.cached_property(lambda _: 5))

    m = Model()
    assert (m.value, m.make(1), Model.make(2), m.method(), m.cached) == (3, 1, 2, 4, 5)
    assert inspect.isfunction(vars(Model)["value"].fget)
    assert inspect.isfunction(vars(Model)["make"].__func__)
    assert inspect.isfunction(m.static)
    assert (m.static(6), Model.static(7)) == (6, 7)
    assert list(inspect.signature(Model.make).parameters) == ["a"]
    assert vars(Model)["value"].__doc__ == "A number."
