"""What `dftrace validate` says, as values; their JSON is `schemas/validate.schema.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai.analysis.validating.validate import FileCheck  # noqa: TC001 - pydantic needs it

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from dftrace_ai.analysis.validating.validate import Validation
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["ValidationReport", "report_adapter", "report_of"]

FORMAT: Final = 1


@dataclass(frozen=True)
class ValidationReport:
    """What `dftrace validate --json` prints.

    Attributes:
        format: version of this form.
        fault_count: faults in all files.
        files: each file, by path.
        notes: what is to be said of clocks, of several runs, and of files that contradict each
            other.
    """

    format: Literal[1]
    fault_count: int
    files: tuple[FileCheck, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> JsonObject:
        """Return everything as plain values, fit for JSON."""
        return asdict(self)


def report_of(found: Validation) -> ValidationReport:
    """Return what is said of a validation.

    Args:
        found: what `validate_traces` has returned.
    """
    return ValidationReport(FORMAT, found.fault_count, found.files, found.notes)


def report_adapter() -> TypeAdapter[ValidationReport]:
    """Return what checks such reports and makes their schema."""
    from pydantic import TypeAdapter

    return TypeAdapter(ValidationReport)
