"""Custom features in attached layers: when they are asked, and what they may do."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dftrace_ai.inspect.attaching.dumping import TensorFiles
from dftrace_ai.inspect.config.features import DUMP_TENSORS
from dftrace_ai.inspect.config.names import GEMMS, OPERANDS, RESULTS, TENSORS
from dftrace_ai.inspect.errors import InspectAssertionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from dftrace_ai.inspect.config import CustomUse
    from dftrace_ai.inspect.numerics.fp8 import Quantised

_QUERIES = tuple((gemm, tensor) for gemm in GEMMS for tensor in (*OPERANDS[gemm], RESULTS[gemm]))

_ABSENT = {
    "modify_tensor": ("default_quantizer", "out", "dtype"),
    "inspect_tensor": (
        *("tp_group", "rowwise_quantized_tensor", "columnwise_quantized_tensor"),
        *("quantizer", "tp_size"),
    ),
}
"""What Transformer Engine hands to these methods, too; of it there is a `tp_group` at most here."""


@dataclass(frozen=True, eq=False)
class Implementation:
    """A custom feature of a section, ready to be asked."""

    use: CustomUse  # what the config says of it
    feature: Any  # an object of the registered class
    tp_group: Any = None  # that of `attach`
    _named: dict[str, frozenset[str] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, use: CustomUse, tp_group: Any, files: TensorFiles) -> Implementation:
        """Make the object of a feature that a section uses; that of DumpTensors is given."""
        is_ours = use.feature is DUMP_TENSORS
        return cls(use, files if is_ours else use.feature.implementation(), tp_group)

    @property
    def name(self) -> str:
        """What the config calls it."""
        return self.use.feature.name

    def has(self, method: str) -> bool:
        """Tell whether the feature has a method."""
        return callable(getattr(self.feature, method, None))

    def call(self, method: str, **given: Any) -> Any:
        """Call a method, whose parameters may stand in any order."""
        function = getattr(self.feature, method)
        if method not in self._named:
            self._named[method] = _named_parameters(function, given, _ABSENT.get(method, ()))
        named = self._named[method]
        if named is None:
            return function(*given.values())
        known = {"tp_group": self.tp_group, **given}
        return function(**{name: known.get(name) for name in named})


def _named_parameters(
    function: Callable[..., Any], given: Collection[str], absent: tuple[str, ...]
) -> frozenset[str] | None:
    """Return by which names to call a function; None where it only knows the documented order."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parameters = signature.parameters.values()
    if any(one.kind in {one.POSITIONAL_ONLY, one.VAR_POSITIONAL} for one in parameters):
        return None
    rest = any(one.kind is one.VAR_KEYWORD for one in parameters)
    own = {one.name: one.default is one.empty for one in parameters if one.kind != one.VAR_KEYWORD}
    needed = {name for name, is_needed in own.items() if is_needed}
    if not needed <= {*given, *absent}:
        try:
            signature.bind(*given)  # as many as there are
        except TypeError:
            pass  # it knows something else by name, which is not here
        else:
            return None
    more = {name for name in (*given, *absent) if name not in own} if rest else set()
    return frozenset(needed | (own.keys() & {"tp_group", *given}) | more)


@dataclass
class _Answer:
    yes: bool = False
    ask_at: int | None = 0
    asked_at: int = -1


class CustomCalls:
    """The custom features of one layer."""

    # A method ending in ``_enabled`` is asked once for an iteration. With a pair it says when to
    # ask next: until then nothing is modified or inspected, and a GEMM stays as the last answer
    # was.

    def __init__(
        self,
        layer: str,
        implementations: Iterable[Implementation],
        taken: Iterable[tuple[str, str]],
        failed: Callable[[str, str, Exception], None],
        *,
        has_gemms: bool,
    ) -> None:
        self.layer = layer
        self.iteration = 0
        self.modifiers: dict[tuple[str, str], Implementation] = {}
        """Who modifies a tensor in this iteration, by (gemm, tensor)."""
        self.inspectors: dict[str, list[Implementation]] = {}
        """Who inspects a tensor in this iteration."""
        self.high_precision: frozenset[str] = frozenset()
        """The GEMMs for which FP8 is off in this iteration."""
        self._implementations = tuple(implementations)
        self._taken = frozenset(taken)
        self._failed = failed
        self._has_gemms = has_gemms
        self._answers: dict[tuple[Any, ...], _Answer] = {}

    def __bool__(self) -> bool:
        return bool(self._implementations)

    def arm(self, iteration: int, *, strict: bool = False) -> bool:
        """Ask what is to be done in an iteration; say whether it is anything."""
        # Where two features modify the same tensor it raises if strict, else the first one does.
        if iteration < self.iteration:
            self._answers.clear()
        self.iteration = iteration
        self.modifiers = {}
        self.inspectors = {}
        off: set[str] = set()
        for one in self._implementations:
            if self._has_gemms:
                for gemm, tensor in _QUERIES:
                    if self._asked(one, "modify_tensor", gemm=gemm, tensor_name=tensor):
                        self._modifies(one, (gemm, tensor), strict=strict)
                off.update(gemm for gemm in GEMMS if self._turns_off(one, gemm))
            for tensor in TENSORS:
                if self._asked(one, "inspect_tensor", tensor_name=tensor):
                    self.inspectors.setdefault(tensor, []).append(one)
        self.high_precision = frozenset(off)
        return bool(self.modifiers or self.inspectors or self.high_precision)

    def next_ask(self) -> int | None:
        """Return the iteration at which a feature wants to be asked again, None for never."""
        found = (answer.ask_at for answer in self._answers.values())
        return min((one for one in found if one is not None), default=None)

    def _modifies(self, one: Implementation, query: tuple[str, str], *, strict: bool) -> None:
        other = self.modifiers.get(query)
        if other is None and query not in self._taken:
            self.modifiers[query] = one
            return
        gemm, tensor = query
        clash = InspectAssertionError(
            f"{self.layer}: {one.name} and {other.name if other else 'a built-in feature'} both "
            f"modify {tensor} in {gemm}; one feature at most may"
        )
        if strict:
            raise clash
        self._tell(one, "modify_tensor", clash)

    def _tell(self, one: Implementation, method: str, error: Exception) -> None:
        self._failed(self.layer, f"{method} of feature {one.name}", error)

    def _asked(self, one: Implementation, method: str, **about: str) -> bool:
        answer = self._answer(one, method, f"{method}_enabled", **about)
        return answer is not None and answer.yes

    def _turns_off(self, one: Implementation, gemm: str) -> bool:
        answer = self._answer(one, "fp8_gemm_enabled", "fp8_gemm_enabled", gemm=gemm)
        return answer is not None and not answer.yes

    def _answer(
        self, one: Implementation, method: str, question: str, **about: str
    ) -> _Answer | None:
        if not one.has(question) or not one.has(method):
            return None
        config = one.use.keys_for(about.get("gemm"), about.get("tensor_name"))
        if config is None:
            return None
        answer = self._answers.setdefault((id(one), question, *about.values()), _Answer())
        if answer.asked_at == self.iteration:
            return answer
        if answer.ask_at is None or self.iteration < answer.ask_at:
            # Not asked in this iteration.
            return answer if question == "fp8_gemm_enabled" else None
        answer.asked_at = self.iteration
        try:
            said = one.call(
                question, config=config, layer_name=self.layer, **about, iteration=self.iteration
            )
            if isinstance(said, tuple):
                yes, ask_at = said
                answer.yes, answer.ask_at = bool(yes), None if ask_at is None else int(ask_at)
            else:
                answer.yes, answer.ask_at = bool(said), self.iteration + 1
        except Exception as error:  # noqa: BLE001 - a feature must not end the training
            self._tell(one, question, error)
            # On for a GEMM is what holds without the feature.
            answer.yes, answer.ask_at = question == "fp8_gemm_enabled", self.iteration + 1
        if answer.ask_at is not None and answer.ask_at <= self.iteration:
            answer.ask_at = self.iteration + 1
        return answer

    def modified(self, one: Implementation, gemm: str, tensor_name: str, tensor: Tensor) -> Tensor:
        """Return what a feature makes of a tensor; the tensor itself where it fails."""
        try:
            with torch.no_grad():
                found = one.call(
                    "modify_tensor",
                    config=one.use.keys_for(gemm, tensor_name),
                    layer_name=self.layer,
                    gemm=gemm,
                    tensor_name=tensor_name,
                    tensor=tensor.detach(),
                    iteration=self.iteration,
                )
            if not isinstance(found, Tensor) or found.shape != tensor.shape:
                made = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
                raise TypeError(  # noqa: TRY301 - told as any other failure of it
                    f"modify_tensor returned {made}, not a tensor of shape {tuple(tensor.shape)}"
                )
        except Exception as error:  # noqa: BLE001 - a feature must not end the training
            self._tell(one, "modify_tensor", error)
            return tensor
        return found.to(tensor.dtype)

    def inspect(
        self, tensor_name: str, tensor: Tensor, quantised: Callable[[], Quantised | None]
    ) -> None:
        """Show a tensor to those who inspect it, and to our own what FP8 makes of it."""
        for one in self.inspectors.get(tensor_name, ()):
            more = {"quantised": quantised} if isinstance(one.feature, TensorFiles) else {}
            try:
                with torch.no_grad():
                    one.call(
                        "inspect_tensor",
                        config=one.use.keys_for(None, tensor_name),
                        layer_name=self.layer,
                        tensor_name=tensor_name,
                        tensor=tensor.detach(),
                        iteration=self.iteration,
                        **more,
                    )
            except Exception as error:  # noqa: BLE001 - it must not end the training
                self._tell(one, "inspect_tensor", error)
