"""Coroutines, async blocks and async loops: each task has a track of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


@ai.data.item
async def load(index: int) -> int:  # one event, from the first step to the return
    await asyncio.sleep(0)
    with ai.data.preprocess:
        return index


async def stream(length: int) -> AsyncIterator[int]:
    for index in range(length):
        await asyncio.sleep(0)
        yield index


async def train() -> None:
    async with ai.pipeline.train:
        async for _batch in ai.dataloader.fetch.aiter(stream(2)):
            await asyncio.gather(load(1), load(2))


with dftrace_ai.tracing(log_file=OUT / "async_tasks"):
    asyncio.run(train())
