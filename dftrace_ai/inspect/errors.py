"""The exceptions of tensor inspection: each is an `InspectError` and the builtin one meant."""

from __future__ import annotations

from dftrace_ai.errors import DftraceError


class InspectError(DftraceError):
    """Base of every error of tensor inspection.

    Catch it to treat any of them alike::

        try:
            debug_api.initialize(config_file="inspect.yaml")
        except InspectError as error:
            print(f"training goes on without inspection: {error}")
    """


class InspectValueError(InspectError, ValueError):
    """A value is not accepted, or two settings contradict each other."""


class InspectAssertionError(InspectError, AssertionError):
    """Something that has to be given is missing, or a name is not known."""


class InspectTypeError(InspectError, TypeError):
    """An argument has a type that is not accepted."""


class InspectRuntimeError(InspectError, RuntimeError):
    """The call is not possible now, such as before `initialize`."""


def error_of(kind: type[Exception], message: str) -> InspectError:
    """Return the error of ours that is also of a builtin class."""
    ours: dict[type[Exception], type[InspectError]] = {
        ValueError: InspectValueError,
        AssertionError: InspectAssertionError,
        TypeError: InspectTypeError,
        RuntimeError: InspectRuntimeError,
    }
    return ours[kind](message)
