"""What Dynamo is told of annotations: a node in a graph is a context that does nothing.

Loaded late, with torch's compiler: none of this runs outside of a compilation. What it needs of
Dynamo's inside is looked for before anything is changed.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any

from dftrace_ai._native import BoundFunction, Node, TracedFunction
from dftrace_ai.run.late_import import is_older_than
from dftrace_ai.wording import ToldOnce, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["DynamoRules"]


class Inert:
    """A node in a compiled function whose graph broke: it enters and leaves without a span."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node

    def __enter__(self) -> Any:
        return self.node

    def __exit__(self, *_: object) -> None:
        """Record nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Decorate, or make an instance, as the node does."""
        return self.node(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)

    def __repr__(self) -> str:
        return repr(self.node)


class Reentry:
    """Gives what stands for a node, by the number that the compiled code has in its place."""

    def __init__(self) -> None:
        self._nodes: dict[int, Any] = {}

    def number(self, node: Any) -> int:
        """Return the number of a node, which is kept from now on.

        `node`: whose block the graph broke in.
        """
        self._nodes[id(node)] = node
        return id(node)

    def node(self, number: int) -> Any:
        """Return the node of a number."""
        return self._nodes[number]

    def __call__(self, number: int) -> Inert:
        """Return what stands for the node of a number."""
        return Inert(self._nodes[number])


reenter = Reentry()
"""What Dynamo calls, in the code that goes on behind a graph break, to have a node again."""


# Calls that only record: nothing is left of them in a graph, and they give None.
RECORDING = frozenset({"start", "stop", "instant", "counter", "flow_out", "flow_in"})
ENTERING = frozenset({"__enter__", "__aenter__"})
LEAVING = frozenset({"__exit__", "__aexit__"})
OTHER_CALLS = frozenset({"derive", "iter", "update", "enable", "disable", "reset"})
CALLS = RECORDING | ENTERING | LEAVING | OTHER_CALLS

# What is not found in another torch: the graph breaks, as it does without us.
NOT_THERE = (AttributeError, TypeError, KeyError, AssertionError, ImportError)

# The type of what is decorated and does not bind, such as a functools.partial.
DECORATED_OBJECT = type(TracedFunction(Node("", ""), functools.partial(print)))

_told = ToldOnce()


class NodeInGraph:
    """A node where Dynamo traces: that part of its class which is ours, see `_class_of_nodes`."""

    # Of Dynamo, set by `_class_of_nodes`.
    constant: Callable[[object], Any]
    build: Callable[[Any, Any, object], Any]
    member: Callable[[Any, str], Any]
    unsupported: Callable[[str], Exception]
    name_of_getattr: str
    source: Any

    def __init__(self, node: Any, *, made: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.annotation = node
        self.made = made  # in the graph, where it got arguments that nobody has outside
        # What `reenter` is called with, in the code behind a graph break.
        self.target_values = (reenter.number(node),)

    def _by_dynamo(self, name: str, *arguments: Any) -> Any:
        return getattr(super(), name)(*arguments)

    def python_type(self) -> type:
        return type(self.annotation)

    def enter(self, tx: Any) -> Any:
        return self

    def exit(self, tx: Any, *_: Any) -> Any:
        return self.constant(None)

    def module_name(self) -> str:
        return Inert.__module__

    def fn_name(self) -> str:
        return "reenter"

    def get_attribute(self, tx: Any, name: str) -> Any:
        if name in CALLS:
            return self._by_dynamo(self.name_of_getattr, tx, name)
        try:
            value = getattr(self.annotation, name)
            source = self.source and self.member(self.source, name)
            if isinstance(value, Node):
                # No guard: which node of the tree it is makes no difference to the graph.
                return type(self)(value, source=source)
            if source is not None and isinstance(value, (str, bool)):
                return self.build(tx, source, value)
            return self._by_dynamo(self.name_of_getattr, tx, name)
        except NOT_THERE as error:
            raise self.unsupported(f"{name} of an annotation: {error}") from error

    def call_method(self, tx: Any, name: str, arguments: Any, keywords: Any) -> Any:
        if name in RECORDING:
            _tell_once(
                self.annotation, f"{name}() of it inside of a compiled function does nothing"
            )
            return self.constant(None)
        if name in LEAVING:
            return self.constant(None)
        if name in ENTERING:
            return self
        if name == "derive":
            return type(self)(self.annotation, made=True)
        if name == "iter" and arguments:
            return arguments[0]
        if name == "__call__":
            return self.call_function(tx, arguments, keywords)
        # `update`, `enable` and their like change what later spans are: never dropped in silence.
        return self._by_dynamo("call_method", tx, name, arguments, keywords)

    def call_function(self, tx: Any, arguments: Any, keywords: Any) -> Any:
        if isinstance(self.annotation, Reentry):
            return type(self)(reenter.node(arguments[0].as_python_constant()))
        return arguments[0] if arguments else type(self)(self.annotation, made=True)

    def reconstruct_type(self, codegen: Any) -> None:
        is_open = any(block.with_context is self for block in codegen.tx.block_stack)
        if is_open:
            _tell_once(
                self.annotation,
                "the graph of a compiled function breaks inside of a `with` of it, which is not "
                "recorded; put the `with` around the call of what is compiled",
            )
        self._by_dynamo("reconstruct_type", codegen)

    def reconstruct(self, codegen: Any) -> None:
        if self.made:
            raise self.unsupported("an annotation with arguments leaves the compiled function")
        self._by_dynamo("reconstruct", codegen)


def _tell_once(annotation: Any, what: str) -> None:
    node = annotation if isinstance(annotation, Node) else annotation._node
    name = f"{node.cat}.{node.name}"
    if _told.first(name, what):
        warn("%s: %s", name, what)


class DynamoRules:
    """Rules for what is annotated in compiled code, from now on.

    Raises Exception: this torch lacks something that is needed; nothing is changed then.
    """

    def __init__(self, kinds: Iterable[type], call: Callable[..., Any]) -> None:
        dynamo = _Dynamo()
        dynamo.call = call
        self._nodes = _class_of_nodes(dynamo)
        self._dispatch: dict[object, Any] = dynamo.builder._type_dispatch()
        if dynamo.builder._type_dispatch() is not self._dispatch:
            raise NotImplementedError("the table of types does not last")
        self._type_match = dynamo.type_match
        for kind in (*kinds, Inert, Reentry):
            self.add_kind(kind)
        self._dispatch[BoundFunction] = functools.partial(_bound, dynamo)
        _replace(dynamo.methods, "__init__", _taking_decorated, dynamo)
        _replace(dynamo.objects, "_maybe_get_baseclass_method", _finding_plain, dynamo)
        _replace(dynamo.supers, "_resolved_getattr_and_source", _finding_above, dynamo)
        _replace(dynamo.external_utils, "wrap_inline", _leaving_decorated, dynamo)
        if is_older_than(2, 6) and not is_older_than(2, 5):
            _replace(dynamo.objects, dynamo.name_of_getattr, _binding, dynamo)
        if not dynamo.methods_have_two_sources:
            _replace(dynamo.modules, dynamo.name_of_getattr, _finding_in_module, dynamo)

    def add_kind(self, kind: type) -> None:
        """Have the instances of one more type be nodes."""
        self._dispatch[kind] = self._node

    def _node(self, builder: Any, value: Any) -> Any:
        # The one guard: that it is a node. Its switch and its arguments are nothing to the graph.
        builder.install_guards(self._type_match)
        node = value.node if type(value) is Inert else value
        return self._nodes(node, source=builder.source)


def _replace(owner: Any, name: str, made_of: Callable[..., Any], dynamo: Any) -> None:
    """Where it is not there, or another thing, what it would do is a graph break as before."""
    for home in getattr(owner, "__mro__", (owner,)):
        original = vars(home).get(name)
        if isinstance(original, types.FunctionType):
            setattr(home, name, functools.wraps(original)(made_of(dynamo, original)))
            return


class _Dynamo:
    """What is used of Dynamo's inside; an error if something of it is not there."""

    call: Any

    def __init__(self) -> None:
        variables = "torch._dynamo.variables."
        self.builder: Any = _module(variables + "builder").VariableBuilder
        self.empty_context: Any = _module(variables + "ctx_manager").NullContextVariable
        self.partial: Any = _module(variables + "functions").FunctoolsPartialVariable
        self.methods: Any = _module(variables + "functions").UserMethodVariable
        self.modules: Any = _module(variables + "nn_module").NNModuleVariable
        self.objects: Any = _module(variables + "user_defined").UserDefinedObjectVariable
        self.supers: Any = _module(variables + "misc").SuperVariable
        self.constant: Any = _module(variables + "constant").ConstantVariable.create
        self.member: Any = _module("torch._dynamo.source").AttrSource
        self.type_match: Any = _module("torch._dynamo.guards").GuardBuilder.TYPE_MATCH
        self.unsupported: Any = _module("torch._dynamo.exc").Unsupported
        self.external_utils: Any = _module("torch._dynamo.external_utils")
        # Since torch 2.9 where the function of a method is found, beside where the method is.
        parameters = inspect.signature(self.methods.__init__).parameters
        self.methods_have_two_sources = "source_fn" in parameters
        renamed = hasattr(self.empty_context, "tp_getattro_impl")  # since torch 2.14
        self.name_of_getattr = "tp_getattro_impl" if renamed else "var_getattr"
        for name in (
            *("enter", "exit", "reconstruct", "reconstruct_type", "call_method", "call_function"),
            *("module_name", "fn_name", "python_type", self.name_of_getattr),
        ):
            getattr(self.empty_context, name)


def _module(name: str) -> Any:
    return sys.modules[name]


def _class_of_nodes(dynamo: _Dynamo) -> Any:
    fields = {
        "constant": staticmethod(dynamo.constant),
        "build": staticmethod(lambda tx, source, value: dynamo.builder(tx, source)(value)),
        "member": staticmethod(dynamo.member),
        "unsupported": staticmethod(dynamo.unsupported),
        "name_of_getattr": dynamo.name_of_getattr,
        "_nonvar_fields": {
            *("annotation", "made"),
            *getattr(dynamo.empty_context, "_nonvar_fields", ()),
        },
        dynamo.name_of_getattr: NodeInGraph.get_attribute,
    }
    bases = (NodeInGraph, dynamo.empty_context)
    return types.new_class("AnnotationVariable", bases, exec_body=lambda body: body.update(fields))


def _bound(dynamo: _Dynamo, builder: Any, value: Any) -> Any:
    """A decorated method that somebody holds: as a functools.partial of it."""
    builder.install_guards(dynamo.type_match)
    tx, source = builder.tx, builder.source
    function = dynamo.builder(tx, dynamo.member(source, "__func__"))(value.__func__)
    instance = dynamo.builder(tx, dynamo.member(source, "__self__"))(value.__self__)
    return dynamo.partial(function, [instance], {})


def _undecorated(dynamo: _Dynamo, function: Any, source: Any) -> tuple[Any, Any]:
    """Return what is decorated, however often, and where it is found."""
    while type(function) is TracedFunction and "__wrapped__" in vars(function):
        function = vars(function)["__wrapped__"]
        source = source and dynamo.member(source, "__wrapped__")
    return function, source


def _taking_decorated(dynamo: _Dynamo, original: Callable[..., None]) -> Callable[..., None]:
    """Class methods and properties hand their function on here, and it has to be a plain one."""

    def __init__(method: Any, fn: Any, *arguments: Any, **keywords: Any) -> None:  # noqa: N807
        if not dynamo.methods_have_two_sources:
            fn, keywords["source"] = _with_one_source(
                dynamo, fn, arguments[0] if arguments else None, keywords.get("source")
            )
        elif type(fn) is TracedFunction:
            fn, source = _undecorated(dynamo, fn, keywords.get("source_fn"))
            if source is not None:
                keywords["source_fn"] = source
        original(method, fn, *arguments, **keywords)

    return __init__


def _with_one_source(dynamo: _Dynamo, fn: Any, obj: Any, source: Any) -> tuple[Any, Any]:
    """Return the plain function of a method, and where it is found, for which torch makes guards.

    Guards of the defaults of what is no plain function hold never: each call would compile anew.
    """
    name, home = getattr(source, "member", ""), getattr(getattr(source, "base", None), "member", "")
    if type(fn) is TracedFunction:
        # Where a bound method is found, it is taken from behind a graph break, too.
        plain, plain_source = _undecorated(dynamo, fn, source)
        return plain, plain_source if name == "fget" or home == "__class__" else source
    if home == "__class__" and hasattr(obj, "value"):
        found, plain_source = _undecorated(dynamo, _of_class(type(obj.value), name), source)
        if found is fn:
            return fn, plain_source
    return fn, source


def _of_class(kind: type, name: str) -> Any:
    return inspect.getattr_static(kind, name, None)


def _finding_in_module(dynamo: _Dynamo, original: Callable[..., Any]) -> Callable[..., Any]:
    """Methods of modules that Dynamo does not take for objects have to be plain ones."""

    def getattribute(variable: Any, tx: Any, name: str) -> Any:
        try:
            return original(variable, tx, name)  # which makes guards, too, before it gives up
        except dynamo.unsupported:
            module = tx.output.get_submodule(variable.module_key)
            found = None if name in vars(module) else _of_class(type(module), name)
            if type(found) is not TracedFunction or variable.source is None:
                raise
        source = dynamo.member(dynamo.member(variable.source, "__class__"), name)
        plain, source = _undecorated(dynamo, found, source)
        return dynamo.methods(plain, variable, source=source)

    return getattribute


def _binding(dynamo: _Dynamo, original: Callable[..., Any]) -> Callable[..., Any]:
    """What binds by a `__get__` of Python is given itself twice by torch 2.5."""

    def getattribute(variable: Any, tx: Any, name: str) -> Any:
        found = _of_class(type(variable.value), name)
        own = getattr(variable.value, "__dict__", {})
        if type(found) is not TracedFunction or variable.source is None or name in own:
            return original(variable, tx, name)
        source = dynamo.member(dynamo.member(variable.source, "__class__"), name)
        return dynamo.partial(dynamo.builder(tx, source)(found), [variable], {})

    return getattribute


def _finding_plain(dynamo: _Dynamo, original: Callable[[Any, str], Any]) -> Callable[..., Any]:
    """Special methods, `__call__` among them, are looked up here, and have to be plain ones."""

    def method(variable: Any, name: str) -> Any:
        if name == "__call__" and type(variable.value) is DECORATED_OBJECT:
            return dynamo.call
        return _undecorated(dynamo, original(variable, name), None)[0]

    return method


def _finding_above(
    dynamo: _Dynamo, original: Callable[..., tuple[Any, Any]]
) -> Callable[..., tuple[Any, Any]]:
    """`super()` calls plain functions, static and class methods of them, and nothing else."""

    def resolved(variable: Any, tx: Any, name: str) -> tuple[Any, Any]:
        value, source = original(variable, tx, name)
        if isinstance(value, (staticmethod, classmethod)):
            return type(value)(_undecorated(dynamo, value.__func__, None)[0]), source
        return _undecorated(dynamo, value, source)

    return resolved


def _leaving_decorated(dynamo: _Dynamo, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What is given to torch.compile itself is called, with its span, and compiled inside of it."""

    def wrap_inline(fn: Any) -> Any:
        function = fn.__func__ if type(fn) is BoundFunction else fn
        plain = _undecorated(dynamo, function, None)[0]
        if plain is not function and isinstance(plain, types.FunctionType):
            return fn
        return original(fn)

    return wrap_inline
