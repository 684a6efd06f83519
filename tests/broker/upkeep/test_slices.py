"""Slices of an event loop's time: one per iteration, for all requesters in turn."""

import asyncio
import gc
from collections.abc import Generator

from jumpmq.broker.upkeep.slices import Slices

ROUNDS = 5


async def rounds(count: list[int]) -> None:
    """Counts the rounds of the loop."""
    while True:
        count[0] += 1
        await asyncio.sleep(0)


def test_there_is_one_slice_in_a_round_whoever_asks() -> None:
    async def run() -> list[tuple[int, int]]:
        slices, count, taken = Slices(), [0], list[tuple[int, int]]()

        async def work(name: int) -> None:
            for _ in range(ROUNDS):
                await slices.next()
                taken.append((count[0], name))

        counting = asyncio.create_task(rounds(count))
        await asyncio.gather(*map(work, range(4)))
        counting.cancel()
        return taken

    taken = asyncio.run(run())
    assert len({at for at, _ in taken}) == len(taken) == 4 * ROUNDS
    assert [name for _, name in taken] == [*range(4)] * ROUNDS


def test_who_gives_up_costs_the_others_no_slice() -> None:
    async def run() -> list[int]:
        slices, taken = Slices(), list[int]()

        async def work(name: int) -> None:
            await slices.next()
            taken.append(name)

        tasks = [asyncio.create_task(work(name)) for name in range(4)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await work(4)
        return taken

    assert asyncio.run(run()) == [1, 3, 4]


def test_items_come_in_order_and_all_of_them() -> None:
    async def run() -> list[int]:
        return [one async for one in Slices().through(range(10_000))]

    assert asyncio.run(run()) == list(range(10_000))


def test_what_is_made_in_slices_is_looked_through_soon_though_as_much_goes() -> None:
    """Objects made in slices are scanned in time: the garbage collector counts allocations minus frees."""
    kept: list[list[int]] = [[] for _ in range(50_000)]
    gc.collect()

    async def run() -> int:
        slices, most = Slices(), 0
        for start in range(0, len(kept), 500):
            for place in range(start, start + 500):
                kept[place] = [place]
            most = max(most, len(gc.get_objects(generation=0)))
            await slices.next()
        return most

    assert asyncio.run(run()) < 10_000


def test_steps_have_a_slice_between_any_two_and_what_they_return_is_returned() -> None:
    def steps(count: list[int], at: list[int]) -> Generator[None, None, str]:
        for _ in range(ROUNDS):
            at.append(count[0])
            yield
        return "done"

    async def run() -> tuple[str, list[int]]:
        count, at = [0], list[int]()
        counting = asyncio.create_task(rounds(count))
        found = await Slices().between(steps(count, at))
        counting.cancel()
        return found, at

    found, at = asyncio.run(run())
    assert found == "done"
    assert len(set(at)) == len(at) == ROUNDS
