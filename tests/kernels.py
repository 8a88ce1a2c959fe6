"""A kernel of Jupyter, as a notebook has one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from conftest import clean_environment

LIMIT_S = 300

Message = tuple[str, dict[str, Any]]


class Kernel:
    """A kernel that works in a directory, with what it needs on its path."""

    def __init__(self, folder: Path, *paths: Path) -> None:
        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.manager import KernelManager

        self.folder = folder
        self.manager = KernelManager(transport="ipc", ip=str(folder / "kernel"))
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self.manager._kernel_spec = KernelSpec(argv=command, language="python")
        environment = clean_environment()
        found = [*map(str, paths), *filter(None, [environment.get("PYTHONPATH")])]
        environment |= {"IPYTHONDIR": str(folder / "ipython"), "PYTHONPATH": ":".join(found)}
        self.manager.start_kernel(cwd=str(folder), env=environment)
        self.client = self.manager.client()
        self.client.start_channels()
        self.wait_for_ready()

    def wait_for_ready(self) -> None:
        """Wait until it answers, also when it was started again."""
        self.client.wait_for_ready(timeout=LIMIT_S)

    def begin(self, code: str) -> str:
        """Begin to run a cell."""
        number: str = self.client.execute(code)
        return number

    def messages(self, number: str) -> list[Message]:
        """Wait for the end of a cell; returns what it has shown, and the kernel's reply as the last."""
        said: list[Message] = []
        while True:
            message = self.client.get_iopub_msg(timeout=LIMIT_S)
            if message["parent_header"].get("msg_id") != number:
                continue
            if message["content"].get("execution_state") == "idle":
                break
            if message["msg_type"] != "status":
                said.append((message["msg_type"], message["content"]))
        while True:
            reply = self.client.get_shell_msg(timeout=LIMIT_S)
            if reply["parent_header"].get("msg_id") == number:
                return [*said, (reply["msg_type"], reply["content"])]

    def run(self, code: str) -> list[Message]:
        """Run a cell."""
        return self.messages(self.begin(code))

    def close(self) -> None:
        """End it at once."""
        self.client.stop_channels()
        if self.manager.is_alive():
            self.manager.shutdown_kernel(now=True)
