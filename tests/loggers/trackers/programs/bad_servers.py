"""Trains beside trackers whose servers misbehave: `python -m bad_servers MODES`, JSON by tracker.

Prints the modes of those servers that were asked, by tracker.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STEPS = 20
LIMIT_S = 3.0
PATIENCE_S = 100
BEGINNING = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"'

KEPT: list[socket.socket] = []
ASKED: set[str] = set()


def address_of(name: str, mode: str) -> str:
    """A server of a tracker, which hangs, refuses, answers 500, or dies while it answers."""
    if mode == "answers 500":
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(name))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"127.0.0.1:{server.server_address[1]}"
    door = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{door.getsockname()[1]}"
    if mode == "refuses":
        ASKED.add(name)
        door.close()
    else:
        threading.Thread(target=serve, args=(name, door, mode), daemon=True).start()
    return address


def serve(name: str, door: socket.socket, mode: str) -> None:
    while True:
        line, _ = door.accept()
        KEPT.append(line)
        if mode == "dies":
            line.recv(1 << 16)
            line.sendall(BEGINNING)
            door.close()
            line.close()
        ASKED.add(name)
        if mode == "dies":
            return


def handler_for(name: str) -> type[BaseHTTPRequestHandler]:
    class Failing(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_error(500)
            ASKED.add(name)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = answer

        def log_message(self, *_: Any) -> None:
            pass

    return Failing


def reached(name: str, address: str) -> dict[str, Any]:
    """Have a tracker ask a server: its options, and what it finds in the environment."""
    url = f"http://{address}"
    token = base64.b64encode(json.dumps({"api_address": url, "api_url": url}).encode()).decode()
    environment, options = {
        "wandb": ({"WANDB_BASE_URL": url, "WANDB_API_KEY": "0" * 40}, {}),
        "mlflow": ({}, {"tracking_uri": url}),
        "comet": ({"COMET_URL_OVERRIDE": f"{url}/clientlib/", "COMET_API_KEY": "0" * 25}, {}),
        "aim": ({}, {"repo": f"aim://{address}"}),
        "neptune": ({}, {"mode": "async", "api_token": token, "project": "a/project"}),
        "trackio": ({}, {"server_url": f"{url}/?write_token=none"}),
        "swanlab": ({"SWANLAB_API_HOST": url, "SWANLAB_API_KEY": "0" * 20}, {}),
    }[name]
    os.environ.update(environment)
    return options


def main() -> None:
    from dftrace_ai.loggers import make_loggers

    config = {"run_name": "run", "limit_s": LIMIT_S, "system_metrics_s": None, "status_line": False}
    entries: dict[str, Any] = {"local": {"config": config}}
    for name, mode in json.loads(sys.argv[1]).items():
        options = reached(name, address_of(name, mode))
        entries[name] = {"config": {**config, "options": options}}
    loggers = make_loggers(entries)
    for step in range(STEPS):
        loggers.log_iter({"loss": float(step)})
    loggers.log_epoch()
    until = time.monotonic() + PATIENCE_S
    while len(ASKED) < len(entries) - 1 and time.monotonic() < until:
        time.sleep(0.02)
    print(json.dumps(sorted(ASKED)))


if __name__ == "__main__":
    main()
