"""What commands share that serve a page on this machine: their options, and how they tell where."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from dftrace_ai.cli.shared_options import json_option
from dftrace_ai.cli.terminal import complain, open_in_browser, write_out

Browser = Annotated[bool, typer.Option(help="Open a browser, or only print the address.")]

Port = Annotated[
    int | None,
    typer.Option(
        min=1, max=65535, metavar="PORT", help="Port on 127.0.0.1; by default one that is free."
    ),
]

AddressAsJson = Annotated[
    bool, json_option("Print JSON, a line with the address, instead of the address alone.")
]


def announce(address: str, port: int, says: str, *, line: str = "", browser: bool) -> None:
    """Print where a page is served, or a line that says it, and what of; open a browser there."""
    from dftrace_ai.ui.local_server import forwarding_told

    write_out(f"{line or address}\n")
    for each in (*forwarding_told(port), says):
        complain(each)
    if browser:
        # A browser of the terminal, such as w3m, keeps its caller until it is left.
        threading.Thread(target=open_in_browser, args=(address,), daemon=True).start()
