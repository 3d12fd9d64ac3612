"""Leases with Queen's client: they end, they are renewed, and a stale one counts for nothing."""

import asyncio
import time
import uuid

from support import acked, consumed, data, eventually, pop, push, run, same


async def what_is_not_acknowledged_in_time_comes_again(client, queue):
    await client.queue(queue).config({"lease_time": 1}).create()
    await push(client, queue, [1, 2])
    stale = await pop(client, queue)
    same(await pop(client, queue), [], "while they are leased others")
    fresh = await eventually("the lease ends", lambda: pop(client, queue))
    same(data(fresh), [1, 2])
    assert fresh[0]["leaseId"] != stale[0]["leaseId"]
    answer = await client.ack(stale[0])
    same([answer["success"], answer["error"]], [False, "Invalid or expired lease"])
    answer = await client.ack(stale)
    same([answer["success"], len(answer["results"])], [False, 2])
    await acked(client, fresh)
    same(await pop(client, queue), [])


async def a_renewed_lease_holds_on(client, queue):
    await client.queue(queue).config({"lease_time": 1}).create()
    await push(client, queue, [1])
    [message] = await pop(client, queue)
    answer = await client.renew(message)
    same([answer["success"], answer["leaseId"]], [True, message["leaseId"]])
    assert answer["newExpiresAt"], answer
    # Far beyond the time it had at first.
    end = time.monotonic() + 2
    while time.monotonic() < end:
        same(await pop(client, queue), [], "while it is renewed others")
        await asyncio.sleep(0.1)
    await acked(client, message)


async def one_renewal_is_for_all_partitions_of_a_pop(client, queue):
    await client.queue(queue).config({"lease_time": 1}).create()
    for partition in ["a", "b", "c"]:
        await push(client, queue, [partition], partition)
    messages = await client.queue(queue).batch(10).partitions(3).wait(False).pop()
    same(len({m["leaseId"] for m in messages}), 1)
    [answer] = await client.renew(messages)
    same([answer["success"], answer["leaseId"]], [True, messages[0]["leaseId"]])
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        again = await client.queue(queue).batch(10).partitions(3).wait(False).pop()
        same(again, [], "while they are renewed others")
        await asyncio.sleep(0.1)
    await acked(client, messages)


async def what_does_not_hold_cannot_be_renewed(client, queue):
    await client.queue(queue).create()
    await push(client, queue, [1])
    [message] = await pop(client, queue)
    await acked(client, message)
    same((await client.renew(message))["success"], False, "a lease that was given back")
    same((await client.renew(str(uuid.uuid4())))["success"], False, "a lease that never was")


async def a_consumer_renews_while_its_handler_works(client, queue):
    await client.queue(queue).config({"lease_time": 1}).create()
    await push(client, queue, [1, 2])
    seen = []

    async def handler(messages):
        seen.append(data(messages))
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            same(await pop(client, queue, group="g"), [], "meanwhile others")
            await asyncio.sleep(0.1)

    builder = client.queue(queue).group("g").batch(5).renew_lease(True, 200)
    await consumed(builder, handler, lambda: True)
    same(seen, [[1, 2]])
    same(await pop(client, queue, group="g"), [])


async def without_a_lease_only_who_takes_it_from_nobody_may_acknowledge(client, queue):
    await push(client, queue, [1])
    [message] = await pop(client, queue)
    bare = {key: message[key] for key in ["transactionId", "partitionId"]}
    same((await client.ack(bare))["success"], False, "without the lease that is held")
    await acked(client, message, "retry")
    await acked(client, bare)
    same(await pop(client, queue), [])


run(
    what_is_not_acknowledged_in_time_comes_again,
    a_renewed_lease_holds_on,
    one_renewal_is_for_all_partitions_of_a_pop,
    what_does_not_hold_cannot_be_renewed,
    a_consumer_renews_while_its_handler_works,
    without_a_lease_only_who_takes_it_from_nobody_may_acknowledge,
)
