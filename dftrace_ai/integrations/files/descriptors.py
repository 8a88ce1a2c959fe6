"""What `os` does with files by their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.built_in.stand_ins import stand_in
from dftrace_ai.integrations.files.operations import bytes_of, place_of

if TYPE_CHECKING:
    from dftrace_ai.integrations.files.known_files import KnownFiles
    from dftrace_ai.integrations.files.operations import Name

__all__ = ["OF_NUMBERS", "recorded_number", "recorded_os_open"]

# By name: what it is, and which argument behind the number says where; None where the file knows.
OF_NUMBERS: dict[str, tuple[Name, int | None]] = {
    "read": ("read", None),
    "readv": ("read", None),
    "pread": ("read", 1),
    "preadv": ("read", 1),
    "write": ("write", None),
    "writev": ("write", None),
    "pwrite": ("write", 1),
    "pwritev": ("write", 1),
    "sendfile": ("write", None),
    "fsync": ("sync", None),
    "fdatasync": ("sync", None),
    "close": ("close", None),
}


def recorded_os_open(original: Any, files: KnownFiles) -> Any:
    """Return a function in the place of `os.open`."""
    operations = files.operations

    def before(path: Any = None, *_: Any, dir_fd: Any = None, **__: Any) -> Any:
        # What lies below a folder that is open is known by its number alone.
        meant, shown = files.meant(path if dir_fd is None else None)
        return (None, operations.opens(shown)) if meant else None

    def after(begun: Any, result: Any, error: Any) -> None:
        opening = begun[1]
        if error is not None:
            operations.failed(opening, error)
        else:
            file = None
            try:
                file = files.opened(result, opening)
            finally:
                operations.opened(opening, file)

    return stand_in(original, "posix", before, after)


def recorded_number(name: str, original: Any, files: KnownFiles) -> Any:
    """Return a function in the place of one of `OF_NUMBERS`.

    Args:
        name: of it.
        original: the function.
        files: those that are looked at.
    """
    operations = files.operations
    kind, place = OF_NUMBERS[name]

    def before(number: int, *given: Any, **_: Any) -> Any:
        file = files.of(number)
        if file is None:
            return None
        if kind == "close":
            files.pop(number, None)
        begun = operations.begin(kind, file)
        return None if begun is None else (None, begun, number, given)

    def after(token: Any, result: Any, error: Any) -> None:
        _, begun, number, given = token
        if kind in ("close", "sync"):
            operations.end(begun, error)
            return
        count = 0 if error else bytes_of(result)
        offset = given[place] if place is not None else max(0, place_of(number) - count)
        operations.end(begun, error, {"bytes": count, "offset": offset})

    return stand_in(original, "posix", before, after, files)
