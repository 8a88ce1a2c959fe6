"""What OpenTelemetry is told of a process: names of its semantic conventions, and ours."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from dftrace_ai._version import __version__
from dftrace_ai.analysis.otlp.messages import Resource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.trace_format.header_and_footer import HeaderFacts
    from dftrace_ai.trace_format.json_types import Json

# https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
SERVICE: Final = "OTEL_SERVICE_NAME"
MORE: Final = "OTEL_RESOURCE_ATTRIBUTES"

# https://opentelemetry.io/docs/specs/semconv/resource/host/ has names of its own for them.
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}

OURS: Final = ("run", "rank", "world_size", "local_rank", "layout", "scheduler", "job_id", "node")


def resource_of(header: HeaderFacts, recording: str) -> Resource:
    """Return the resource of a process: what its header says, and the environment of this one.

    `recording`: the name of its trace, without suffix: stem, host and number.
    """
    facts: dict[str, Json] = {
        "service.name": re.sub(rf"-{re.escape(header.host or '')}-\d+(-\d+)?$", "", recording),
        "service.instance.id": recording,
        "host.name": header.host,
        "host.arch": ARCHITECTURES.get(header.machine or "", header.machine),
        "os.type": "linux" if (header.system or "").startswith("Linux") else None,
        "process.pid": header.pid,
        "process.parent_pid": header.ppid,
        "process.runtime.name": "python" if header.python else None,
        "process.runtime.version": header.python,
        "telemetry.sdk.name": "dftrace_ai",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": header.version or __version__,
    }
    facts.update((f"dftrace.{name}", getattr(header, name)) for name in OURS)
    facts.update(pairs_in(os.environ.get(MORE, "")))
    if service := os.environ.get(SERVICE):
        facts["service.name"] = service
    told = tuple(
        (_utf8(name), _utf8(value) if isinstance(value, str) else value)
        for name, value in facts.items()
        if value is not None
    )
    return Resource(told, header.version or __version__)


def _utf8(text: str) -> str:
    """Return a text with marks for the bytes of a variable or a file's name that are no UTF-8."""
    return text.encode("utf-8", "replace").decode()


def pairs_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a variable of OpenTelemetry's: ``key=value,key=value``, values encoded."""
    for pair in text.split(","):
        name, sign, value = pair.partition("=")
        if sign and name.strip():
            yield name.strip(), unquote(value.strip())
