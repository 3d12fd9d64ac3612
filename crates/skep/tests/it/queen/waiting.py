"""Options that upstream has, some of which it does not enforce, with Queen's client."""

import asyncio
import sys
import time

import httpx
from queen import Queen
from support import acked, data, eventually, pop, popping, push, run, same


async def a_delayed_message_is_not_there_before_its_time(client, queue):
    await client.queue(queue).config({"delayed_processing": 2}).create()
    began = time.monotonic()
    await push(client, queue, [1])
    same(await pop(client, queue), [], "at once messages")
    messages = await popping(client, queue).timeout_millis(20_000).pop()
    took = time.monotonic() - began
    same(data(messages), [1])
    assert 1.9 < took < 15, f"it took {took} s"


async def a_window_holds_a_partition_back_until_it_is_calm(client, queue):
    await client.queue(queue).config({"window_buffer": 1}).create()
    for number in range(4):
        await push(client, queue, [number])
        last = time.monotonic()
        same(await pop(client, queue), [], "in the window messages")
        await asyncio.sleep(0.3)
    messages = await popping(client, queue).timeout_millis(20_000).pop()
    same(data(messages), [0, 1, 2, 3])
    took = time.monotonic() - last
    assert took > 0.9, f"it took only {took} s"


async def a_full_queue_says_so_and_when_to_come_again(client, queue):
    await client.queue(queue).config({"max_size": 3}).create()
    await push(client, queue, [1, 2, 3])
    async with Queen(sys.argv[1], retry_429={"max_attempts": 1}) as hasty:
        try:
            answer = await hasty.queue(queue).push({"data": 4})
        except httpx.HTTPStatusError as error:
            same(error.response.status_code, 429)
            assert error.retry_after_seconds > 0, error
            assert "maxSize" in str(error), error
        else:
            raise AssertionError(f"it was taken: {answer}")
    # A client with patience gets it in once somebody has consumed.
    waiting = asyncio.create_task(push(client, queue, [4]))
    await acked(client, await pop(client, queue))
    await waiting
    same(data(await pop(client, queue)), [4])


async def what_is_too_old_is_not_handed_out(client, queue):
    await client.queue(queue).config({"ttl": 1}).create()
    await push(client, queue, ["old"])

    async def expired():
        messages = await pop(client, queue, group="late")
        if messages:
            await acked(client, messages, "retry", group="late")
        return not messages

    await eventually("it is too old", expired)
    await push(client, queue, ["young"])
    same(data(await pop(client, queue, group="later")), ["young"])


async def an_encrypted_queue_is_read_as_any_other(client, queue):
    await client.queue(queue).config({"encryption_enabled": True}).create()
    secret = {"card": "4242", "list": [None, "ü"]}
    await push(client, queue, [secret, None, {}])
    messages = await pop(client, queue)
    same(data(messages), [secret, None, {}])
    await acked(client, messages, "dlq")
    letters = await client.queue(queue).dlq().get()
    same(data(letters["messages"])[0] in [secret, None, {}], True)


run(
    a_delayed_message_is_not_there_before_its_time,
    a_window_holds_a_partition_back_until_it_is_calm,
    a_full_queue_says_so_and_when_to_come_again,
    what_is_too_old_is_not_handed_out,
    an_encrypted_queue_is_read_as_any_other,
)
