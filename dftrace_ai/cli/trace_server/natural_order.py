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

WORKSPACE: Final = "By rank"
SPECIAL: Final = re.compile(r"[\\^$.*+?()\[\]{}|/]")


def orders_by_commands(ui: Path) -> bool:
    """Return whether an offline UI takes commands, and needs them for the order.

    Args:
        ui: its directory, which has a folder for its version.
    """
    return any(folder.name.startswith(BY_COMMANDS) for folder in ui.iterdir())


def ordering_commands(processes: Sequence[ShownProcess]) -> str:
    """Return commands for a Perfetto UI as JSON: a workspace in the order, the first one unfolded.

    Args:
        processes: in their order.

    Returns:
        The commands; empty where there is nothing to be put into an order.
    """
    if not 2 <= len(processes) <= MOST_PROCESSES:
        return ""
    # As the UI calls the tracks of processes.
    names = [SPECIAL.sub(r"\\\g<0>", f"{one.name} {one.pid}") for one in processes]
    copied = [
        {"id": "dev.perfetto.CopyTracksToWorkspaceByRegex", "args": [f"^{name}$", WORKSPACE]}
        for name in names
    ]
    shown = [
        {"id": "dev.perfetto.SwitchWorkspace", "args": [WORKSPACE]},
        {"id": "dev.perfetto.ExpandTracksByRegex", "args": [f"^{names[0]}$"]},
    ]
    return json.dumps([*copied, *shown], ensure_ascii=False)
