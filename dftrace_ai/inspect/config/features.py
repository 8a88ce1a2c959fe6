"""The features: what the built-in ones do, and a register of those that users add."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dftrace_ai.inspect.config import names
from dftrace_ai.inspect.errors import InspectValueError
from dftrace_ai.inspect.numerics.statistics import BLOCK_RANGE
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Class = TypeVar("Class", bound=type)

FEATURE_METHODS = (
    "modify_tensor_enabled",
    "modify_tensor",
    "inspect_tensor_enabled",
    "inspect_tensor",
    "fp8_gemm_enabled",
)

_SCHEDULE = """\
  freq: due are the iterations that it divides; 1 where it is null or not given
  start_step, end_step: the first and the last iteration; null or -1 is open
  start_end_list: [[start, end], ...] in place of these, each without its end; -1 is open"""

_GEMMS = """\
  gemms: a list of fprop, dgrad, wgrad
  gemms_struct: a list of {gemm: NAME, ...} with further keys for this GEMM"""

_OPERANDS = f"""\
{_GEMMS}
  tensors: a list of activation, weight, gradient
  tensors_struct: a list of {{tensor: NAME, ...}} with further keys for this tensor
  margin: the amax is taken as amax * 2**margin; 0 where it is not given"""

_TENSORS = """\
  tensors: a list of activation, weight, gradient, output, dgrad, wgrad
  tensors_struct: a list of {tensor: NAME, ...} with further keys for this tensor"""

_TEXTS = {
    "base.LogTensorStats": f"""\
Logs statistics of the tensors that are handed to `log_tensor_stats`.
  stats: a list of {names.STATS_IN_SHORT["LogTensorStats"]}
  tensors: a list of the names used in these calls
  tensors_struct: a list of {{tensor: NAME, ...}} with further keys for this tensor
{_SCHEDULE}""",
    "transformer_engine.LogTensorStats": f"""\
Logs statistics of operands and results of GEMMs, taken before any quantisation.
  stats: a list of {names.STATS_IN_SHORT["LogTensorStats"]}, and of
    {{{BLOCK_RANGE}: {{block_size: 32, dims: 1}}}}, where dims 2 takes squares
{_TENSORS}
{_SCHEDULE}""",
    "transformer_engine.LogFp8TensorStats": f"""\
Logs what FP8 does to operands and results of GEMMs.
  stats: a list of {names.STATS_IN_SHORT["LogFp8TensorStats"]}
{_TENSORS}
{_SCHEDULE}""",
    "transformer_engine.LogNvfp4TensorStats": f"""\
Logs what NVFP4 would do to operands and results of GEMMs.
  stats: a list of {names.STATS_IN_SHORT["LogNvfp4TensorStats"]}
{_TENSORS}
{_SCHEDULE}""",
    "transformer_engine.DisableFp8Gemm": f"""\
Runs GEMMs in high precision although FP8 is on.
{_GEMMS}""",
    "transformer_engine.DisableFp8Layer": """\
Runs all GEMMs of the layer in high precision although FP8 is on.
  no keys""",
    "transformer_engine.PerTensorScaling": f"""\
Scales operands by their own amax of this moment; the GEMM stays in FP8.
{_OPERANDS}""",
    "transformer_engine.FakeQuant": f"""\
Runs GEMMs in high precision with operands or results rounded to FP8.
{_OPERANDS}
  quant_format: FP8E4M3 or FP8E5M2, with one scale for the tensor; MXFP8E4M3 or MXFP8E5M2,
    with a power of two for each 32 neighbours of the last dimension
  as tensors, also output, dgrad and wgrad: the result of the GEMM is rounded""",
    "transformer_engine.DumpTensors": f"""\
Writes tensors to files: LOG_DIR/tensor_dumps/rank_0/LAYER_TENSOR_iter_000000.pt.
{_TENSORS}
  high_precision_tensor: true for the tensor as it is seen
  quantized_tensor: true for what FP8 makes of it, with the scale
{_SCHEDULE}""",
}


@dataclass(frozen=True)
class CustomFeature:
    """A feature that a user has registered."""

    name: str  # what a config calls it
    namespace: str  # under which namespace of a section; `base` is the section itself
    implementation: type  # the class; it has at least one of `FEATURE_METHODS`

    @property
    def full_name(self) -> str:
        """Namespace and name: ``transformer_engine.Clip``."""
        return f"{self.namespace}.{self.name}"


DUMP_TENSORS = CustomFeature("DumpTensors", names.NAMESPACE, object)
"""Built in, and asked as those of users are; what it does is made where layers are attached."""

_custom: dict[tuple[str, str], CustomFeature] = {}
_apis: dict[str, tuple[str, type]] = {}
"""The namespaces whose features are called by users: their names, and what says how, by small
letters."""


def namespace_of(name: Any) -> str | None:
    """Return the namespace that a key of a section means, or None where it means none."""
    own = (feature.namespace for feature in _custom.values())
    known = [names.NAMESPACE, *own, *(name for name, _ in _apis.values())]
    return names.canonical(name, known, names.NAMESPACE_ALIASES)


def api_of(namespace: str) -> type | None:
    """Return what says how the features of a namespace are called, None for ours."""
    found = _apis.get(namespace.lower())
    return found[1] if found else None


def register_feature(name: str, namespace: str = names.NAMESPACE) -> Callable[[Class], Class]:
    """Make a class known as a feature that a config can name.

    The class has at least one of these methods; `config` is what the config file gives for
    the feature, without `enabled`::

        modify_tensor_enabled(config, layer_name, gemm, tensor_name, iteration)
        modify_tensor(config, layer_name, gemm, tensor_name, tensor, iteration, **kw)
        inspect_tensor_enabled(config, layer_name, tensor_name, iteration)
        inspect_tensor(config, layer_name, tensor_name, tensor, iteration, **kw)
        fp8_gemm_enabled(config, layer_name, gemm, iteration)

    The ones ending in ``_enabled`` return a truth value, or a pair of it and the next iteration
    at which to ask again (None for never).

    Their parameters may stand in any order. They may have those of Transformer Engine's features
    as well: tp_group is that of `attach`; quantizer, rowwise_quantized_tensor, default_quantizer
    and the like are None.
    Where the config has `gemms` or `tensors`, or their structs, the feature is asked about those
    alone, and `config` is what is in force for them, with `gemm` and `tensor`. In a namespace of
    `register_namespace_api` it may have any methods.

    Args:
        name: what a config calls the feature.
        namespace: under which key of a section it stands; ``base`` is the section itself.

    Returns:
        A decorator that returns the class as it is.

    Raises:
        InspectValueError: the name is empty or taken, or the class has none of the methods.

    Example::

        @register_feature("Clip")
        class Clip:
            def modify_tensor_enabled(self, config, layer_name, gemm, tensor_name, iteration):
                return tensor_name == "gradient", iteration + 1

            def modify_tensor(
                self, config, layer_name, gemm, tensor_name, tensor, iteration, **kw
            ):
                return tensor.clamp(-config["limit"], config["limit"])
    """
    for text in (name, namespace):
        if not isinstance(text, str) or not text or text.lower() in {"enabled", "layers"}:
            raise InspectValueError(f"{in_short(text)} is no name for a feature or namespace")
    known = names.NAMESPACE_ALIASES.get(namespace.lower(), namespace)
    known = names.canonical(known, [names.NAMESPACE, names.BASE_NAMESPACE]) or known
    is_ours = known in {names.NAMESPACE, names.BASE_NAMESPACE}

    def register(implementation: Class) -> Class:
        methods = FEATURE_METHODS if is_ours else public_methods(implementation)
        if not any(callable(getattr(implementation, one, None)) for one in methods):
            raise InspectValueError(
                f"feature {name}: {implementation.__name__} has none of the methods "
                f"{names.listed(FEATURE_METHODS)}"
            )
        if _built_in(name, known) is not None:
            raise InspectValueError(f"{known}.{name} is a built-in feature; choose another name")
        key = known.lower(), name.lower()
        present = _custom.get(key)
        # The file that defines it may be executed again, by the next session.
        if present and present.implementation.__qualname__ != implementation.__qualname__:
            raise InspectValueError(
                f"{known}.{name} is already registered, by {present.implementation.__qualname__}"
            )
        _custom[key] = CustomFeature(name, known, implementation)
        return implementation

    return register


def public_methods(implementation: type) -> list[str]:
    """Return the methods of a class that its users may call."""
    return [
        name
        for name in dir(implementation)
        if not name.startswith("_") and callable(getattr(implementation, name))
    ]


def register_namespace_api(namespace: str) -> Callable[[Class], Class]:
    """Make a class known as what says how the features of a namespace of yours are called.

    What the features of the namespace can do is then called in the training as
    ``debug_api.<namespace>.<method>(layer_name, **arguments)``. The section that selects the layer
    decides which feature does it: it gets the keys of the config that are in force, the name of
    the layer, and the arguments; `gemm` and `tensor_name` among them are what `gemms` and
    `tensors` of the config choose by. What it returns is returned; ``{}`` where no feature does it.

    The class may have any of these, called as nvdlfw-inspect calls those of its namespaces::

        input_assertions_hook(api_name, **arguments)
        routing_condition(api_name, config, layer_name, feature_obj, **arguments)
        is_multiple_feature_invocation_allowed(api_name)
        handle_multi_feature_output(api_name, outputs, features_to_invoke, **arguments)
        output_assertions_hook(api_name, returned, **arguments)
        step(), end_debug()

    `routing_condition` returns whether the feature is called, and its config or None for that of
    the section. Without `is_multiple_feature_invocation_allowed` one feature at most may do it.
    An attribute `_default_api_impl` is an object whose methods do it where no feature does.

    Args:
        namespace: under which key of a section the features stand; not one of ours.

    Returns:
        A decorator that returns the class as it is.

    Raises:
        InspectValueError: the name is empty, ours, no name of an attribute, or taken.

    Example::

        @register_namespace_api("mine")
        class Mine:
            pass

        @register_feature("Clip", namespace="mine")
        class Clip:
            def process_tensor(self, config, layer_name, tensor_name, tensor):
                return tensor.clamp(max=config["limit"])

        clipped = debug_api.mine.process_tensor("decoder", tensor_name="hidden", tensor=hidden)
    """
    if not isinstance(namespace, str) or not namespace.isidentifier() or namespace[0] == "_":
        raise InspectValueError(f"{in_short(namespace)} is no name for a namespace")
    if namespace.lower() in {names.NAMESPACE, names.BASE_NAMESPACE, *names.NAMESPACE_ALIASES}:
        raise InspectValueError(f"{namespace} is a namespace of ours; choose another name")

    def register(implementation: Class) -> Class:
        _, present = _apis.get(namespace.lower(), ("", implementation))
        # The file that defines it may be executed again, by the next session.
        if present.__qualname__ != implementation.__qualname__:
            raise InspectValueError(f"{namespace} is already registered, by {present.__qualname__}")
        _apis[namespace.lower()] = namespace, implementation
        return implementation

    return register


def _built_in(name: Any, namespace: str) -> str | None:
    known = names.BASE_FEATURES if namespace == names.BASE_NAMESPACE else names.FEATURES
    if namespace not in {names.BASE_NAMESPACE, names.NAMESPACE}:
        return None
    return names.canonical(name, known, names.FEATURE_ALIASES)


def custom_feature(name: Any, namespace: str) -> CustomFeature | None:
    """Return the registered feature of a name, in any case, or None."""
    return _custom.get((namespace.lower(), name.lower())) if isinstance(name, str) else None


def custom_features() -> list[CustomFeature]:
    """Return all registered features."""
    return list(_custom.values())


@contextmanager
def kept_on_success() -> Iterator[None]:
    """Forget the features that were registered in a block which an error leaves."""
    before = dict(_custom), dict(_apis)
    try:
        yield
    except BaseException:
        forget_custom_features()
        _custom.update(before[0])
        _apis.update(before[1])
        raise


def forget_custom_features() -> None:
    """Make all registered features unknown, and the namespaces of users."""
    _custom.clear()
    _apis.clear()


def known_names(namespace: str) -> list[str]:
    """Return the features that stand in a namespace, for messages."""
    built_in: Iterable[str] = ()
    if namespace == names.NAMESPACE:
        built_in = names.FEATURES
    elif namespace == names.BASE_NAMESPACE:
        built_in = names.BASE_FEATURES
    own = [one.name for one in _custom.values() if one.namespace.lower() == namespace.lower()]
    return [*built_in, *own]


def feature_names() -> list[str]:
    """Return the full names of all features: ``transformer_engine.FakeQuant``."""
    return [*_TEXTS, *(feature.full_name for feature in _custom.values())]


def _text(full_name: str) -> str:
    if full_name in _TEXTS:
        return _TEXTS[full_name]
    namespace, _, name = full_name.partition(".")
    feature = custom_feature(name, namespace)
    described = (feature.implementation.__doc__ if feature else None) or "A custom feature."
    return "\n".join(line.rstrip() for line in described.strip().splitlines())


def summaries() -> dict[str, str]:
    """Return what each feature does in one line, by full name."""
    return {name: _text(name).splitlines()[0] for name in feature_names()}


def explanations(wanted: str | Iterable[str] | None = None) -> dict[str, str]:
    """Return what features do and which keys they have."""
    # They are by full name; those wanted are names with or without the namespace, in any case, and
    # ``"all"`` or none is all.
    every = feature_names()
    if wanted is None:
        return {name: _text(name) for name in every}
    found: list[str] = []
    for one in wanted if isinstance(wanted, (list, tuple, set, frozenset)) else [wanted]:
        matching = every if str(one).lower() == "all" else _matching(str(one), every)
        if not matching:
            raise InspectValueError(f"{in_short(one)} is no feature; known: {names.listed(every)}")
        found += matching
    return {name: _text(name) for name in found}


def _matching(wanted: str, every: list[str]) -> list[str]:
    front, _, last = wanted.rpartition(".")
    name = (names.canonical(last, names.FEATURES, names.FEATURE_ALIASES) or last).lower()
    namespace = names.NAMESPACE_ALIASES.get(front.lower(), front.lower())
    return [
        one
        for one in every
        if one.lower().rpartition(".")[2] == name
        and (not namespace or one.lower().rpartition(".")[0] == namespace)
    ]
