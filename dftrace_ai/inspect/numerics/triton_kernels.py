"""The records of tensors on a GPU, in two kernels: rows of parts, and the rows of the wholes.

Loaded late, where Triton is installed. A row is a `record.Record` of fp64 numbers. Nothing here is
compiled before it is launched.
"""

from __future__ import annotations

import triton
import triton.language as tl

ROW = tl.constexpr(17)
# Of a table of tensors: address, count, first row, number of rows, place of the whole's row.
ENTRY = tl.constexpr(5)
# Numbers outside of these bounds are scaled before they are squared in fp32.
LARGE = tl.constexpr(1e15)
SMALL = tl.constexpr(1e-15)
# fp64 numbers beyond the first are multiplied by the second.
WIDE_LARGE = tl.constexpr(2.0**450)
WIDE_FACTOR = tl.constexpr(2.0**-600)


@triton.jit
def merged(n, mean, m2, other_n, other_mean, other_m2):
    """Merge mean and sum of squares of two parts (Chan, Golub, LeVeque 1979)."""
    total = n + other_n
    share = other_n / tl.where(total > 0, total, 1.0)
    distance = other_mean - mean
    # The square of an fp64 number may be infinite, and where one part is empty it counts nothing.
    apart = tl.where((n > 0) & (other_n > 0), distance, 0.0)
    return total, mean + distance * share, m2 + other_m2 + apart * apart * (n * share)


@triton.jit
def power_of_two(amax, WIDE: tl.constexpr):
    """Return what brings a magnitude to between 1 and 2 where it is very large or very small."""
    if WIDE:
        factor = tl.where(amax > WIDE_LARGE, WIDE_FACTOR, 1.0).to(tl.float64)
    else:
        usual = ((amax <= LARGE) & (amax >= SMALL)) | (amax == 0)
        exponent = tl.floor(tl.log2(tl.where(usual, 1.0, amax)))
        bounded = tl.minimum(tl.maximum(exponent, -126.0), 126.0)
        factor = tl.where(usual, 1.0, tl.exp2(-bounded))
    return factor


@triton.jit
def write_part(
    x_ptr,
    row,
    lowest,
    highest,
    n,
    program,
    programs,
    tiles,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    LIMITS: tl.constexpr,
):
    """Write the row of every `programs`-th tile of a tensor, from the `program`-th on."""
    infinity = float("inf")
    number = tl.float64 if WIDE else tl.float32
    nothing = (program * 0).to(tl.float64)
    finite, mean, m2, absolute = nothing, nothing, nothing, nothing
    smallest = tl.full((BLOCK,), infinity, number)
    largest = tl.full((BLOCK,), -infinity, number)
    amin = tl.full((BLOCK,), infinity, number)
    nans = tl.zeros((BLOCK,), tl.int32)
    zeros = tl.zeros((BLOCK,), tl.int32)
    overs = tl.zeros((BLOCK,), tl.int32)
    unders = tl.zeros((BLOCK,), tl.int32)
    total = nothing
    for tile in range(tiles):
        start = (tile * programs + program).to(tl.int64) * BLOCK
        offsets = start + tl.arange(0, BLOCK)
        inside = offsets < n
        x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(number)
        size = tl.abs(x)
        known = inside & (x == x)
        is_finite = inside & (size < infinity)
        is_zero = inside & (x == 0)
        count = tl.sum(is_finite.to(tl.int32), axis=0).to(tl.float64)
        total += tl.sum(inside.to(tl.int32), axis=0).to(tl.float64)
        at_least_one = tl.where(count > 0, count, 1.0)
        factor = power_of_two(tl.max(tl.where(is_finite, size, 0.0), axis=0), WIDE)
        scaled = tl.where(is_finite, x * factor, 0.0)
        first_mean = tl.sum(scaled, axis=0).to(tl.float64) / at_least_one
        middle = first_mean.to(number)
        distance = tl.where(is_finite, scaled - middle, 0.0)
        rest = tl.sum(distance, axis=0).to(tl.float64)
        squares = tl.sum(distance * distance, axis=0).to(tl.float64) - rest * rest / at_least_one
        # Of numbers that lie close together the distances tell the mean best. Otherwise their
        # rounding, which is the same for many numbers of 16 bits, would show in it.
        close = first_mean * first_mean * at_least_one > squares
        best_mean = tl.where(close, middle.to(tl.float64) + rest / at_least_one, first_mean)
        back = 1.0 / factor.to(tl.float64)
        finite, mean, m2 = merged(finite, mean, m2, count, best_mean * back, squares * back * back)
        absolute += tl.sum(tl.abs(scaled), axis=0).to(tl.float64) * back
        smallest = tl.minimum(smallest, tl.where(known, x, infinity))
        largest = tl.maximum(largest, tl.where(known, x, -infinity))
        amin = tl.minimum(amin, tl.where(known & (size > 0), size, infinity))
        nans += (inside & (x != x)).to(tl.int32)
        zeros += is_zero.to(tl.int32)
        if LIMITS > 0:
            narrow = size.to(tl.float32)
            overs += (known & (narrow > highest)).to(tl.int32)
            unders += (known & (narrow <= lowest) & (size > 0)).to(tl.int32)
    low = tl.min(smallest, axis=0).to(tl.float64)
    high = tl.max(largest, axis=0).to(tl.float64)
    nan_count = tl.sum(nans, axis=0).to(tl.float64)
    tl.store(row + 0, finite)
    tl.store(row + 1, mean)
    tl.store(row + 2, tl.where(m2 > 0, m2, 0.0))
    tl.store(row + 3, absolute)
    tl.store(row + 4, low)
    tl.store(row + 5, high)
    tl.store(row + 6, tl.min(amin, axis=0).to(tl.float64))
    # Without any number, low and high are the neutral infinities, and the magnitude is none.
    tl.store(row + 7, tl.where(low <= high, tl.maximum(tl.abs(low), tl.abs(high)), 0.0))
    tl.store(row + 8, nan_count)
    tl.store(row + 9, total - finite - nan_count)
    tl.store(row + 10, tl.sum(zeros, axis=0).to(tl.float64))
    tl.store(row + 11, tl.sum(overs, axis=0).to(tl.float64))
    tl.store(row + 12, tl.sum(unders, axis=0).to(tl.float64))
    tl.store(row + 13, total)


@triton.jit
def partial_rows(
    x_ptr,
    rows_ptr,
    limits_ptr,
    under,
    over,
    n,
    tiles,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    LIMITS: tl.constexpr,
):
    """Write the rows of a tensor's parts. LIMITS: 0 none, 1 given, 2 at limits_ptr."""
    if LIMITS == 2:
        lowest = tl.load(limits_ptr)
        highest = tl.load(limits_ptr + 1)
    else:
        lowest = under
        highest = over
    program = tl.program_id(0)
    row = rows_ptr + program * ROW
    programs = tl.num_programs(0)
    write_part(x_ptr, row, lowest, highest, n, program, programs, tiles, BLOCK, WIDE, LIMITS)


@triton.jit
def partial_table(
    table_ptr,
    owners_ptr,
    rows_ptr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    ELEMENT: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Write the rows of the parts of all tensors of a table, whose owner each program looks up."""
    program = tl.program_id(0)
    entry = table_ptr + tl.load(owners_ptr + program) * ENTRY
    x_ptr = tl.load(entry).to(tl.pointer_type(ELEMENT))
    n = tl.load(entry + 1)
    if ALIGNED:
        x_ptr = tl.multiple_of(x_ptr, 16)
        n = tl.multiple_of(n, 16)
    programs = tl.load(entry + 3)
    tiles = tl.cdiv(tl.cdiv(n, BLOCK), programs)
    part = program - tl.load(entry + 2)
    write_part(x_ptr, rows_ptr + program * ROW, 0.0, 0.0, n, part, programs, tiles, BLOCK, WIDE, 0)


@triton.jit
def write_whole(rows_ptr, out_ptr, used, programs, PADDED: tl.constexpr):
    """Write the row of the whole, from the rows of all parts in their order."""
    index = tl.arange(0, PADDED)
    there = index < programs
    row = rows_ptr + index * ROW
    infinity = float("inf")
    n = tl.load(row, mask=there, other=0.0)
    means = tl.load(row + 1, mask=there, other=0.0)
    squares = tl.load(row + 2, mask=there, other=0.0)
    finite = tl.sum(n, axis=0)
    at_least_one = tl.where(finite > 0, finite, 1.0)
    mean = tl.sum(n / at_least_one * means, axis=0)
    distance = tl.where(n > 0, means - mean, 0.0)
    m2 = tl.sum(tl.where(there, squares + n * distance * distance, 0.0), axis=0)
    tl.store(out_ptr + 0, finite)
    tl.store(out_ptr + 1, mean)
    tl.store(out_ptr + 2, m2)
    tl.store(out_ptr + 3, tl.sum(tl.load(row + 3, mask=there, other=0.0), axis=0))
    tl.store(out_ptr + 4, tl.min(tl.load(row + 4, mask=there, other=infinity), axis=0))
    tl.store(out_ptr + 5, tl.max(tl.load(row + 5, mask=there, other=-infinity), axis=0))
    tl.store(out_ptr + 6, tl.min(tl.load(row + 6, mask=there, other=infinity), axis=0))
    tl.store(out_ptr + 7, tl.max(tl.load(row + 7, mask=there, other=0.0), axis=0))
    for field in tl.static_range(8, 14):
        tl.store(out_ptr + field, tl.sum(tl.load(row + field, mask=there, other=0.0), axis=0))
    tl.store(out_ptr + 14, finite * 0)
    tl.store(out_ptr + 15, used)
    tl.store(out_ptr + 16, used)


@triton.jit
def finish_row(
    rows_ptr,
    out_ptr,
    limits_ptr,
    scale,
    programs,
    PADDED: tl.constexpr,
    LIMITS: tl.constexpr,
):
    """Write the row of a tensor."""
    nothing = (tl.program_id(0) * 0).to(tl.float64)
    if LIMITS == 2:
        used = tl.load(limits_ptr + 2).to(tl.float64)
    elif LIMITS == 1:
        used = nothing + scale
    else:
        used = nothing + float("nan")
    write_whole(rows_ptr, out_ptr, used, programs, PADDED)


@triton.jit
def finish_table(table_ptr, rows_ptr, out_ptr, PADDED: tl.constexpr):
    """Write the rows of all tensors of a table."""
    entry = table_ptr + tl.program_id(0) * ENTRY
    first = tl.load(entry + 2)
    programs = tl.load(entry + 3)
    out = out_ptr + tl.load(entry + 4) * ROW
    write_whole(rows_ptr + first * ROW, out, float("nan"), programs, PADDED)


@triton.jit
def write_values(row_ptr, out_ptr):
    """Write all statistics of a record, in the order of `VALUES` and by the formulas beside it."""
    infinity = float("inf")
    unknown = float("nan")
    finite = tl.load(row_ptr)
    mean = tl.load(row_ptr + 1)
    m2 = tl.load(row_ptr + 2)
    absolute = tl.load(row_ptr + 3)
    low = tl.load(row_ptr + 4)
    high = tl.load(row_ptr + 5)
    amin = tl.load(row_ptr + 6)
    amax = tl.load(row_ptr + 7)
    has_none = (tl.load(row_ptr + 8) > 0) | (tl.load(row_ptr + 13) == 0)
    is_infinite = tl.load(row_ptr + 9) > 0
    below = tl.where(high == infinity, unknown, -infinity)
    infinite_mean = tl.where(low > -infinity, infinity, below)
    spread = tl.sqrt(m2 / tl.where(finite > 2, finite - 1, 1.0))
    deviation = tl.where(is_infinite | (finite <= 1), unknown, spread)
    length = tl.sqrt(m2 + finite * mean * mean)
    # Zero has no logarithm; nothing is left of it where it would be taken.
    largest = tl.log2(tl.where(amax > 0, amax, 1.0))
    smallest = tl.log2(tl.where(amin > 0, amin, 1.0))
    decades = tl.where(amax == 0, 0.0, largest - smallest)
    infinite_range = tl.where(amin == infinity, unknown, infinity)
    decades = tl.where(is_infinite, infinite_range, decades)
    tl.store(out_ptr + 0, tl.where(has_none, unknown, low))
    tl.store(out_ptr + 1, tl.where(has_none, unknown, high))
    tl.store(out_ptr + 2, tl.where(has_none, unknown, tl.where(is_infinite, infinite_mean, mean)))
    tl.store(out_ptr + 3, tl.where(has_none, unknown, deviation))
    tl.store(out_ptr + 4, tl.where(has_none, unknown, tl.where(is_infinite, infinity, absolute)))
    tl.store(out_ptr + 5, tl.where(has_none, unknown, tl.where(is_infinite, infinity, length)))
    tl.store(out_ptr + 6, tl.where(has_none, unknown, amax))
    tl.store(out_ptr + 7, tl.where(has_none | (amin != amin), unknown, decades))
