"""Consuming with Queen's client: who acknowledges, one at a time or many, several at once."""

import asyncio
from collections import defaultdict

from support import acked, consumed, data, pop, push, run, same


async def batches_are_acknowledged_by_themselves(client, queue):
    await push(client, queue, list(range(25)))
    batches = []

    async def handler(messages):
        batches.append(data(messages))

    await client.queue(queue).batch(10).limit(25).timeout_millis(2_000).consume(handler)
    same(batches, [list(range(10)), list(range(10, 20)), list(range(20, 25))])
    same(await pop(client, queue), [])


async def without_a_batch_the_server_chooses_and_nothing_is_lost(client, queue):
    await push(client, queue, list(range(30)))
    seen = []

    async def handler(messages):
        seen.extend(data(messages))

    await consumed(client.queue(queue), handler, lambda: len(seen) == 30)
    same(seen, list(range(30)))
    same(await pop(client, queue), [])


async def each_hands_over_one_message_at_a_time(client, queue):
    await push(client, queue, list(range(12)))
    seen = []

    async def handler(message):
        seen.append(message["data"])

    await client.queue(queue).batch(5).each().limit(12).timeout_millis(2_000).consume(handler)
    same(seen, list(range(12)))
    same(await pop(client, queue), [])


async def a_batch_of_one_is_handed_over_bare(client, queue):
    await push(client, queue, ["a", "b"])
    seen = []

    async def handler(message):
        seen.append(message["data"])

    await client.queue(queue).batch(1).limit(2).timeout_millis(2_000).consume(handler)
    same(seen, ["a", "b"])


async def what_fails_comes_again_and_what_follows_it_waits(client, queue):
    await client.queue(queue).config({"retry_limit": 5, "retry_delay": 0}).create()
    await push(client, queue, [1, 2, 3, 4])
    seen = []

    async def handler(message):
        seen.append(message["data"])
        if message["data"] == 2 and seen.count(2) < 3:
            raise RuntimeError("not yet")

    await consumed(client.queue(queue).batch(4).each(), handler, lambda: 4 in seen)
    same(seen, [1, 2, 2, 2, 3, 4])
    same(await pop(client, queue), [])


async def a_failed_batch_comes_again_as_a_whole(client, queue):
    await client.queue(queue).config({"retry_limit": 5, "retry_delay": 0}).create()
    await push(client, queue, [1, 2, 3])
    seen = []

    async def handler(messages):
        seen.append(data(messages))
        if len(seen) == 1:
            raise RuntimeError("not yet")

    await consumed(client.queue(queue).batch(10), handler, lambda: len(seen) == 2)
    same(seen, [[1, 2, 3], [1, 2, 3]])
    same(await pop(client, queue), [])


async def without_auto_ack_the_handler_acknowledges(client, queue):
    await push(client, queue, [1, 2])
    seen = []

    async def handler(messages):
        seen.extend(data(messages))
        await acked(client, messages, group="careful")

    builder = client.queue(queue).group("careful").batch(2).auto_ack(False)
    await consumed(builder, handler, lambda: len(seen) == 2)
    same(await pop(client, queue, group="careful"), [])


async def callbacks_say_what_became_of_it(client, queue):
    await push(client, queue, ["good", "bad"])
    told = []

    async def handler(message):
        if message["data"] == "bad":
            raise RuntimeError("bad")

    async def on_success(message, _result):
        told.append(("success", message["data"]))
        await acked(client, message)

    async def on_error(message, error):
        told.append(("error", message["data"]))
        await acked(client, message, "dlq", error=str(error))

    builder = client.queue(queue).batch(1).limit(2).timeout_millis(2_000)
    await builder.consume(handler).on_success(on_success).on_error(on_error)
    same(told, [("success", "good"), ("error", "bad")])
    letters = await client.queue(queue).dlq().get()
    same([m["data"] for m in letters["messages"]], ["bad"])


async def many_workers_share_the_partitions_and_keep_their_order(client, queue):
    partitions = [f"p{number}" for number in range(20)]
    for start in [0, 10]:
        for partition in partitions:
            await push(client, queue, [[partition, n] for n in range(start, start + 10)], partition)
    seen = defaultdict(list)
    busy = set()

    async def handler(messages):
        mine = {message["partition"] for message in messages}
        assert not mine & busy, f"two workers have {mine & busy}"
        busy.update(mine)
        await asyncio.sleep(0)
        for message in messages:
            seen[message["partition"]].append(message["data"])
        busy.difference_update(mine)

    builder = client.queue(queue).concurrency(6).batch(7).partitions(3)
    await consumed(builder, handler, lambda: sum(map(len, seen.values())) == 400)
    same(seen, {p: [[p, n] for n in range(20)] for p in partitions})
    same(await pop(client, queue), [])


async def a_trace_never_harms_a_consumer(client, queue):
    await push(client, queue, [1])

    async def handler(message):
        assert "success" in await message["trace"]({"data": {"step": "begun"}})

    await client.queue(queue).batch(1).limit(1).timeout_millis(2_000).consume(handler)
    same(await pop(client, queue), [])


run(
    batches_are_acknowledged_by_themselves,
    without_a_batch_the_server_chooses_and_nothing_is_lost,
    each_hands_over_one_message_at_a_time,
    a_batch_of_one_is_handed_over_bare,
    what_fails_comes_again_and_what_follows_it_waits,
    a_failed_batch_comes_again_as_a_whole,
    without_auto_ack_the_handler_acknowledges,
    callbacks_say_what_became_of_it,
    many_workers_share_the_partitions_and_keep_their_order,
    a_trace_never_harms_a_consumer,
)
