"""Modules get a class that looks at one attribute before it does what the original does."""

from __future__ import annotations

import copyreg
import functools
import sys
import weakref
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from dftrace_ai.inspect.attaching.layer import LiveLayer
from dftrace_ai.inspect.attaching.modules.attention import run_attention
from dftrace_ai.inspect.attaching.modules.gemms import Call, Operands, run_linear
from dftrace_ai.inspect.attaching.modules.observed import first_tensor, look_into, run_compiled
from dftrace_ai.inspect.attaching.modules.opaque import compiled_linear, token_of
from dftrace_ai.inspect.attaching.surroundings import left_alone, not_compiled, unreachable
from dftrace_ai.inspect.errors import InspectRuntimeError
from dftrace_ai.run.late_import import is_older_than, when_imported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from dftrace_ai.inspect.naming import Kind


# What objects are copied by, without an import of ours in their pickles.
_NEWOBJ = vars(copyreg)["__newobj__"]
_RECONSTRUCTOR = vars(copyreg)["_reconstructor"]

_OWN = ("_inspect_plan", "_inspect_station")


class Station:
    """What is attached to a module: its layers, of which an attention has several."""

    def __init__(self, module: nn.Module, kind: Kind) -> None:
        self.kind = kind
        self.layers: dict[str, LiveLayer] = {}
        """By part; a module that is one layer has the part ''."""
        self.busy: set[LiveLayer] = set()
        """The layers with something to do now."""
        self._module = weakref.ref(module)
        self.token = token_of(weakref.ref(self))
        """Stands for it in compiled code."""
        original = type(module)
        # No class can replace the forward of the module itself: it is followed one call earlier.
        way = "called" if "forward" in vars(module) else kind
        try:
            object.__setattr__(module, "__class__", _swapped_class(original, way))
        except (TypeError, RuntimeError) as error:
            raise InspectRuntimeError(
                f"a module of class {original.__name__} cannot be attached to: {error}"
            ) from error
        keep_compilations_from_hooks()
        if _WITH_OPAQUE_MODULES:
            _forget_compiled()
        vars(module)["_inspect_station"] = self
        vars(module)["_inspect_plan"] = None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Be nothing in a copy of a module that copies its attributes by itself."""
        return type(None), ()

    @property
    def module(self) -> nn.Module | None:
        """The module, as long as it lives."""
        return self._module()

    def layer(self, part: str, name: str) -> LiveLayer:
        """Return the layer of a part, made where there is none."""
        if part not in self.layers:
            self.layers[part] = LiveLayer(name)
        return self.layers[part]

    def set_busy(self, layer: LiveLayer, *, busy: bool) -> None:
        """Say whether a layer has something to do from now on."""
        if busy:
            self.busy.add(layer)
        else:
            self.busy.discard(layer)
        module = self._module()
        if module is None:
            return
        vars(module)["_inspect_plan"] = self if self.busy else None

    def leave(self) -> None:
        """Make the module what it was, once none of its layers is needed."""
        if any(layer.inspected or layer.watch for layer in self.layers.values()):
            return
        self.busy.clear()
        module = self._module()
        if module is None:
            return
        original = getattr(type(module), "_inspect_original", None)
        for own in _OWN:
            vars(module).pop(own, None)
        # A wrapper such as FSDP may have made a class of its own out of ours: it stays, idle.
        if original is not None and "_inspect_original" in vars(type(module)):
            object.__setattr__(module, "__class__", original)

    # What the classes do while something is to be done

    def run_linear(self, module: nn.Linear, given: Tensor) -> Tensor:
        """Run a Linear."""
        weight, bias = module.weight, module.bias
        linear = nn.functional.linear
        operands = Operands(given, weight, bias)
        return self._run_layer(module, operands, lambda: linear(given, weight, bias))

    def run_conv1d(self, module: nn.Module, original: Callable[[], Tensor], call: Call) -> Tensor:
        """Run a linear layer with a transposed weight."""
        (given,) = call.values()
        weight, bias = cast("Tensor", module.weight), cast("Tensor | None", module.bias)
        return self._run_layer(module, Operands(given, weight, bias, transposed=True), original)

    def _run_layer(
        self, module: nn.Module, operands: Operands, original: Callable[[], Tensor]
    ) -> Tensor:
        if not torch.compiler.is_compiling():
            return self._run_gemms(module, operands, original)
        if left_alone():
            return original()
        return compiled_linear(self.token, "", operands)

    @not_compiled
    def _run_gemms(
        self, module: nn.Module, operands: Operands, original: Callable[[], Tensor]
    ) -> Tensor:
        if self._passes_over(operands.activation):
            return original()
        return run_linear(self.layers[""], operands, original, training=module.training)

    def run_attention(self, module: nn.Module, original: Callable[[], Any], call: Call) -> Any:
        """Run an attention with its projections as layers."""
        if not torch.compiler.is_compiling():
            return self._run_projections(module, original, call)
        if left_alone():
            return original()
        return run_attention(self.layers, cast("nn.MultiheadAttention", module), self.token, call)

    @not_compiled
    def _run_projections(self, module: nn.Module, original: Callable[[], Any], call: Call) -> Any:
        if self._passes_over(first_tensor(call.values())):
            return original()
        return run_attention(self.layers, cast("nn.MultiheadAttention", module), self.token, call)

    def run_other(self, module: nn.Module, original: Callable[[], Any], call: Call) -> Any:
        """Run a module of which only what goes in and comes out is seen."""
        given = call.values()
        if torch.compiler.is_compiling():
            if left_alone():
                return original()
            return run_compiled(self.token, module, original, given)
        look = self._look_into(module, given)
        returned = original()
        if look is not None:
            look(returned)
        return returned

    @not_compiled
    def _look_into(self, module: nn.Module, given: tuple[Any, ...]) -> Callable[[Any], None] | None:
        if self._passes_over(first_tensor(given)):
            return None
        return look_into(self.layers[""], module, given)

    def _passes_over(self, given: Any) -> bool:
        """Tell whether the module is left as it is, because of where it runs or on what."""
        there = any(layer.has_records_of(given) for layer in self.layers.values())
        where = unreachable(given, there=there)
        if where is not None:
            for layer in self.layers.values():
                layer.passes_over(where)
        return where is not None


def _forget_compiled() -> None:
    """Have everything compiled anew when it is called next."""
    compiler: Any = sys.modules.get("torch._dynamo")
    if compiler is not None:
        compiler.reset_code_caches()


def station_at(module: nn.Module, kind: Kind) -> Station:
    """Return what is attached to a module, made where there is nothing."""
    present = vars(module).get("_inspect_station")
    # A replica that was copied attribute by attribute still has that of the original.
    if isinstance(present, Station) and present.module is module:
        return present
    return Station(module, kind)


# Lets a weight that is computed whenever it is asked for be computed once in a forward.
_computed_once: Callable[[], AbstractContextManager[Any]] = parametrize.cached


# What stands in the namespace of each class of ours, beside what it has from the original.


def _reduce(self: Any, protocol: Any) -> Any:
    """Copy and pickle an object as one of the original class."""
    present = type(self)
    original = present._inspect_original
    reduced = original.__reduce_ex__(self, protocol)
    if not isinstance(reduced, tuple) or len(reduced) < 2:
        return reduced
    function, arguments, *rest = reduced
    arguments = tuple(original if one is present else one for one in arguments)
    if function is _NEWOBJ:
        # Pickle accepts it for the class of the object alone.
        function = original.__new__
        if function is object.__new__ and len(arguments) == 1:
            function, arguments = _RECONSTRUCTOR, (original, object, None)
    if rest and isinstance(rest[0], dict):
        rest[0] = {key: value for key, value in rest[0].items() if key not in _OWN}
    return (function, arguments, *rest)


def _get_name(self: Any) -> str:
    """Return what a printed model shows."""
    original: type = self._inspect_original
    return original.__name__


def _forward_linear(self: Any, input: Tensor) -> Tensor:  # noqa: A002 - as torch names it
    plan: Station | None = self._inspect_plan
    if plan is None:
        return nn.functional.linear(input, self.weight, self.bias)
    return plan.run_linear(self, input)


# How a station runs a module that has something to do.
_Run: TypeAlias = "Callable[[Station, Any, Callable[[], Any], Call], Any]"


def _followed(run: _Run, module: Any, original: Callable[..., Any], call: Call) -> Any:
    plan: Station = module._inspect_plan

    def unchanged() -> Any:
        return original(module, *call.args, **call.kwargs)

    if parametrize.is_parametrized(module):
        with _computed_once():
            return run(plan, module, unchanged, call)
    return run(plan, module, unchanged, call)


def _way(kind: str, run: _Run) -> Callable[..., Any]:
    """Return a forward that looks for a plan before it does what the original does."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        original: Callable[..., Any] = self._inspect_original.forward
        if self._inspect_plan is None:
            return original(self, *args, **kwargs)
        return _followed(run, self, original, Call(args, kwargs))

    # The compiler counts by the code how often it has compiled something: one for each kind.
    forward.__code__ = forward.__code__.replace(co_name=f"forward_{kind}")
    return forward


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    original: Callable[..., Any] = self._inspect_original.__call__
    if self._inspect_plan is None:
        return original(self, *args, **kwargs)
    return _followed(Station.run_other, self, original, Call(args, kwargs))


_WAYS: dict[str, Mapping[str, Callable[..., Any]]] = {
    "linear": {"forward": _forward_linear},
    "conv1d": {"forward": _way("conv1d", Station.run_conv1d)},
    "attention": {"forward": _way("attention", Station.run_attention)},
    "other": {"forward": _way("other", Station.run_other)},
    "called": {"__call__": _call},
}

# Torch 2.4 compiles modules by what they are when they are first called, and those of its own not
# at all: they are operators of its graphs, as attention has to be, which it could not compile.
_WITH_OPAQUE_MODULES = is_older_than(2, 5)

_classes: weakref.WeakValueDictionary[tuple[type, str], type] = weakref.WeakValueDictionary()


def _swapped_class(original: type[nn.Module], way: str) -> type[nn.Module]:
    if getattr(original, "_inspect_original", None) is not None:
        # Someone has made a class of one of ours, which looks at the attribute already.
        return original
    found = _classes.get((original, way))
    if found is None:
        # A second base would change the layout, and no object could change to the class.
        metaclass: Any = type(original)
        looked_into = _WITH_OPAQUE_MODULES and way != "attention"
        found = metaclass(
            f"Inspect{original.__name__}",
            (original,),
            {
                **_WAYS[way],
                "__reduce_ex__": _reduce,
                "_get_name": _get_name,
                "__module__": original.__module__ if not looked_into else __name__,
                "__doc__": original.__doc__,
                "_inspect_original": original,
                "_inspect_plan": None,
            },
        )
        _classes[original, way] = found
    return cast("type[nn.Module]", found)


T = TypeVar("T")

_COMPILER = "torch._dynamo.convert_frame"
_autograd: Any = torch._C._autograd


@functools.cache
def keep_compilations_from_hooks() -> None:
    """Have checkpoints count no tensors of compilations, from now on."""
    # A checkpoint that is not reentrant counts by hooks what its forward saves, and what it saves
    # when it is computed again. Torch before 2.5 shows such hooks what its compiler tries out, too,
    # which belongs to one of the two alone, and the backward raises. Attaching and detaching have
    # layers compiled anew, also within a checkpoint in which they were not compiled before.
    if is_older_than(2, 5):
        when_imported(_COMPILER, _lay)


def _lay() -> None:
    compiler: Any = sys.modules[_COMPILER]
    compiler._compile = _out_of_sight(compiler._compile)


def _out_of_sight(compile_frame: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compile_frame)
    def compile_unseen(*args: Any, **kwargs: Any) -> Any:
        if not _hooks_are_on():
            return compile_frame(*args, **kwargs)
        # Torch asks the innermost hooks alone.
        with torch.autograd.graph.saved_tensors_hooks(_same, _same):
            return compile_frame(*args, **kwargs)

    return compile_unseen


def _hooks_are_on() -> bool:
    """Tell whether this thread has hooks for saved tensors: torch refuses to forbid them then."""
    if not _autograd._saved_tensors_hooks_is_enabled():
        return False
    try:
        _autograd._saved_tensors_hooks_disable("asked for")
    except RuntimeError:
        return True
    finally:
        _autograd._saved_tensors_hooks_enable()
    return False


def _same(saved: T) -> T:
    return saved
