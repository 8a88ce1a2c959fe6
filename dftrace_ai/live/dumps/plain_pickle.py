"""Pickles that hold plain values alone, read by a machine that can make nothing else.

`pickle.Unpickler` with a `find_class` that raises runs nothing either, but a few bytes make it take
gigabytes: a place in its memo far away, a length that is never met, keys with one hash. So the
opcodes for dict, list, tuple, text, numbers, booleans and None are done here, each within bounds,
and every other one is refused by its name. The opcodes are those of Python's `pickletools`.
"""

from __future__ import annotations

import pickletools
import struct
from typing import Final, TypeAlias

from dftrace_ai.wording import shortened

MOST_VALUES: Final = 10_000_000
"""Values of one pickle: opcodes that make or refer to one."""
MOST_DEPTH: Final = 64

Plain: TypeAlias = "dict[Plain, Plain] | list[Plain] | tuple[Plain, ...] | str | int | float | None"


class NotPlainError(Exception):
    """A pickle asks for more than plain values, or for too much, or is damaged."""


def plain_pickle(data: bytes, most_values: int = MOST_VALUES) -> Plain:
    """Return the value of a pickle of plain values, of protocol 2 or later.

    Parts that it refers to again are one object, and a list may hold itself: who walks through it
    goes by a known shape. NotPlainError: it asks for a class or anything else that is not plain, is
    larger than the bounds, or is cut or damaged.
    """
    try:
        return _run(data, most_values)
    except (IndexError, struct.error):
        raise NotPlainError("it is cut or damaged") from None
    except UnicodeDecodeError:
        raise NotPlainError("it has text that is not UTF-8") from None


_INT: Final = struct.Struct("<i").unpack_from
_LENGTH: Final = struct.Struct("<I").unpack_from
_LONG_LENGTH: Final = struct.Struct("<Q").unpack_from
_FLOAT: Final = struct.Struct(">d").unpack_from

# As many bytes as an integer of 64 bits with its sign may have.
_LONGEST: Final = 9


# One loop, since a call for each opcode takes twice the time.
def _run(data: bytes, most_values: int) -> Plain:  # noqa: C901, PLR0912, PLR0915
    stack: list[Plain] = []
    marked: list[list[Plain]] = []  # the stacks below each mark
    memo: dict[int, Plain] = {}
    at, left = 0, most_values
    while True:
        code = data[at]
        at += 1
        # The most frequent of a dump come first.
        if code == 0x68:  # BINGET
            stack.append(_remembered(memo, data[at]))
            at += 1
        elif code == 0x71:  # BINPUT
            memo[data[at]] = stack[-1]
            at += 1
            continue
        elif code == 0x58:  # BINUNICODE
            text, at = _text(data, at + 4, _LENGTH(data, at)[0])
            stack.append(text)
        elif code == 0x4B:  # BININT1
            stack.append(data[at])
            at += 1
        elif code == 0x6A:  # LONG_BINGET
            stack.append(_remembered(memo, _LENGTH(data, at)[0]))
            at += 4
        elif code == 0x72:  # LONG_BINPUT
            memo[_LENGTH(data, at)[0]] = stack[-1]
            at += 4
            continue
        elif code == 0x28:  # MARK
            marked.append(stack)
            if len(marked) > MOST_DEPTH:
                raise NotPlainError(f"it is nested deeper than {MOST_DEPTH}")
            stack = []
            continue
        elif code == 0x75:  # SETITEMS
            items, stack = stack, marked.pop()
            _set(stack[-1], items)
            continue
        elif code == 0x65:  # APPENDS
            items, stack = stack, marked.pop()
            _extend(stack[-1], items)
            continue
        elif code == 0x7D:  # EMPTY_DICT
            stack.append({})
        elif code == 0x5D:  # EMPTY_LIST
            stack.append([])
        elif code == 0x4D:  # BININT2
            stack.append(data[at] | data[at + 1] << 8)
            at += 2
        elif code == 0x4A:  # BININT
            stack.append(_INT(data, at)[0])
            at += 4
        elif code == 0x4E:  # NONE
            stack.append(None)
        elif code in (0x88, 0x89):  # NEWTRUE, NEWFALSE
            stack.append(code == 0x88)
        elif code == 0x8A:  # LONG1
            size = data[at]
            if size > _LONGEST:
                raise NotPlainError("it has a number of more than 64 bits")
            stack.append(int.from_bytes(_taken(data, at + 1, size), "little", signed=True))
            at += 1 + size
        elif code == 0x8C:  # SHORT_BINUNICODE
            text, at = _text(data, at + 1, data[at])
            stack.append(text)
        elif code == 0x47:  # BINFLOAT
            stack.append(_FLOAT(data, at)[0])
            at += 8
        elif code in (0x85, 0x86, 0x87):  # TUPLE1, TUPLE2, TUPLE3
            size = code - 0x84
            if len(stack) < size:
                raise NotPlainError("it is cut or damaged")
            stack[-size:] = [tuple(stack[-size:])]
        elif code == 0x29:  # EMPTY_TUPLE
            stack.append(())
        elif code == 0x74:  # TUPLE
            items, stack = stack, marked.pop()
            stack.append(tuple(items))
        elif code == 0x61:  # APPEND
            item = stack.pop()
            _extend(stack[-1], [item])
            continue
        elif code == 0x73:  # SETITEM
            items = stack[-2:]
            del stack[-2:]
            _set(stack[-1], items)
            continue
        elif code == 0x94:  # MEMOIZE
            memo[len(memo)] = stack[-1]
            continue
        elif code == 0x80:  # PROTO
            if data[at] > 5:
                raise NotPlainError(f"its protocol {data[at]} is not known")
            at += 1
            continue
        elif code == 0x95:  # FRAME
            _LONG_LENGTH(data, at)
            at += 8
            continue
        elif code == 0x2E:  # STOP
            if marked or len(stack) != 1:
                raise NotPlainError("it is cut or damaged")
            return stack[0]
        else:
            raise NotPlainError(_refused(data, at, code, stack[-2:]))
        left -= 1
        if left < 0:
            raise NotPlainError(f"it has more than {most_values:,} values")


def _remembered(memo: dict[int, Plain], number: int) -> Plain:
    try:
        return memo[number]
    except KeyError:
        raise NotPlainError("it is cut or damaged") from None


def _taken(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise NotPlainError("it is cut or damaged")
    return data[at : at + size]


def _text(data: bytes, at: int, size: int) -> tuple[str, int]:
    return _taken(data, at, size).decode("utf-8", "surrogatepass"), at + size


def _set(into: Plain, items: list[Plain]) -> None:
    if not isinstance(into, dict) or len(items) % 2:
        raise NotPlainError("it is cut or damaged")
    for key in items[::2]:
        # Numbers can be chosen to have one hash, and take hours then; those of a dump are small.
        if not isinstance(key, str) and not (type(key) is int and -(2**32) < key < 2**32):
            raise NotPlainError("it has a key that is neither text nor a small number")
    into.update(zip(items[::2], items[1::2], strict=True))


def _extend(into: Plain, items: list[Plain]) -> None:
    if not isinstance(into, list):
        raise NotPlainError("it is cut or damaged")
    into += items


def _refused(data: bytes, at: int, code: int, top: list[Plain]) -> str:
    """What is said of an opcode that makes no plain value; of a class with its name."""
    known = next((one for one in pickletools.opcodes if ord(one.code) == code), None)
    if known is None:
        return "it is cut or damaged"
    if known.name == "GLOBAL":
        module, _, rest = data[at : at + 512].partition(b"\n")
        name = b".".join((module, rest.partition(b"\n")[0])).decode("utf-8", "replace")
    elif known.name == "STACK_GLOBAL" and all(isinstance(one, str) for one in top):
        name = ".".join(map(str, top))
    else:
        return f"it uses {known.name}, which plain values do not need"
    return f"it asks for {shortened(name, 100)}, which plain values do not need"
