"""Commands that have a Perfetto UI show processes in their order which does not do so by itself."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dftrace_ai.analysis.process_order import ShownProcess

__all__ = ["ordering_commands", "orders_by_commands"]

# It takes commands by its address, and puts processes with more spans first. Later ones go by
# what stands in the trace, earlier ones take no commands.
BY_COMMANDS: Final = "v52."

# So many a person looks through.
MOST_PROCESSES: Final = 256

# The track on which tensor inspection puts it.
FIRST_NONFINITE: Final = "first non-finite value"

WORKSPACE: Final = "By rank"
SPECIAL: Final = re.compile(r"[\\^$.*+?()\[\]{}|/]")


def orders_by_commands(ui: Path) -> bool:
    """Return whether an offline UI takes commands, and needs them for the order.

    Args:
        ui: its directory, which has a folder for its version.
    """
    return any(folder.name.startswith(BY_COMMANDS) for folder in ui.iterdir())


def ordering_commands(processes: Sequence[ShownProcess]) -> str:
    """Return commands for a Perfetto UI as JSON.

    They make a workspace in the order of the processes, unfold the first one, and pin the track of
    the first value that is not finite, if there is one, above all others.

    Args:
        processes: in their order.

    Returns:
        The commands; empty where nothing is known of the processes.
    """
    if not processes:
        return ""
    # As the UI calls the tracks of processes.
    names = [SPECIAL.sub(r"\\\g<0>", f"{one.name} {one.pid}") for one in processes]
    commands = []
    if 2 <= len(names) <= MOST_PROCESSES:
        commands += [
            _command("CopyTracksToWorkspaceByRegex", f"^{name}$", WORKSPACE) for name in names
        ]
        commands.append(_command("SwitchWorkspace", WORKSPACE))
    commands.append(_command("ExpandTracksByRegex", f"^{names[0]}$"))
    commands.append(_command("PinTracksByRegex", f"^{FIRST_NONFINITE}( |$)"))
    return json.dumps(commands, ensure_ascii=False)


def _command(name: str, *args: str) -> dict[str, object]:
    return {"id": f"dev.perfetto.{name}", "args": args}
