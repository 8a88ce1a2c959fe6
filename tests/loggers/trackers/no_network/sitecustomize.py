"""Every program that starts with this on its path has no network but the loopback."""

from __future__ import annotations

import os
import socket

LOCAL = ("127.", "localhost", "::1", "0.0.0.0")  # noqa: S104


def _refuse(what: str, where: object) -> None:
    with open(os.environ["ATTEMPTS"], "a") as attempts:
        attempts.write(f"{what} {where!r}\n")
    raise OSError(101, "the tests have no network")


def _is_local(where: object) -> bool:
    if isinstance(where, str | bytes):  # a Unix socket
        return True
    return isinstance(where, tuple) and str(where[0]).startswith(LOCAL)


class _Socket(socket.socket):
    def connect(self, where):
        return super().connect(where) if _is_local(where) else _refuse("connect", where)

    def connect_ex(self, where):
        return super().connect_ex(where) if _is_local(where) else _refuse("connect_ex", where)

    def sendto(self, data, *more):
        return super().sendto(data, *more) if _is_local(more[-1]) else _refuse("sendto", more[-1])


_getaddrinfo = socket.getaddrinfo


def getaddrinfo(host, *more, **options):
    text = host.decode() if isinstance(host, bytes) else host
    if text is None or text.startswith(LOCAL) or text == socket.gethostname():
        return _getaddrinfo(host, *more, **options)
    return _refuse("getaddrinfo", text)


if "ATTEMPTS" in os.environ:
    socket.socket = _Socket
    socket.getaddrinfo = getaddrinfo
