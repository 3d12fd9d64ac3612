"""Pushing and popping with Queen's client."""

import asyncio
import time
import uuid

from support import acked, data, eventually, pop, popping, push, run, same

PAYLOADS = [
    {"text": "grüße 🐝", "list": [1, 2.5, None, True], "deep": {"a": {"b": []}}},
    {},
    None,
    [],
    "only text",
    0,
    -12.5,
    False,
    {"quote": '"', "slash": "\\", "line": "\n", "zero": "\u0000"},
]


async def configure_echoes_what_was_asked(client, queue):
    options = {"lease_time": 77, "retry_limit": 5, "priority": 4, "retention_seconds": 60}
    answer = await client.queue(queue).namespace("birds").task("count").config(options).create()
    same(answer["configured"], True)
    same([answer["queue"], answer["namespace"], answer["task"]], [queue, "birds", "count"])
    echoed = {key: answer["options"][key] for key in ["leaseTime", "retryLimit", "priority"]}
    same(echoed, {"leaseTime": 77, "retryLimit": 5, "priority": 4})
    same(answer["options"]["retentionSeconds"], 60)
    plain = await client.queue(f"{queue}-plain").create()
    same([plain["options"]["leaseTime"], plain["options"]["retryLimit"]], [300, 3])


async def every_payload_comes_back_as_it_was(client, queue):
    answer = await push(client, queue, PAYLOADS)
    messages = await pop(client, queue)
    same(data(messages), PAYLOADS, "the payloads")
    same([m["id"] for m in messages], [a["message_id"] for a in answer])
    same([m["transactionId"] for m in messages], [a["transaction_id"] for a in answer])
    same({m["partitionId"] for m in messages}, {answer[0]["partition_id"]})
    same({m["partition"] for m in messages}, {"Default"})
    same([a["index"] for a in answer], list(range(len(PAYLOADS))))
    same({a["queueName"] for a in answer}, {queue})
    same(len({m["leaseId"] for m in messages}), 1)
    assert messages[0]["leaseId"] and messages[0]["createdAt"].endswith("Z"), messages[0]
    same(await pop(client, queue), [], "while they are leased others")
    await acked(client, messages)
    same(await pop(client, queue), [], "after they are acknowledged others")


async def a_push_of_one_message_and_its_trace(client, queue):
    trace = str(uuid.uuid4())
    answer = await client.queue(queue).push({"data": {"n": 1}, "traceId": trace})
    same([answer[0]["status"], answer[0]["trace_id"]], ["queued", trace])
    [message] = await pop(client, queue)
    same(message["traceId"], trace)
    answer = await acked(client, message)
    same([answer["transactionId"], answer["queueName"]], [message["transactionId"], queue])
    same([answer["partitionName"], answer["dlq"], answer["error"]], ["Default", False, None])
    again = await acked(client, message)
    same(again.get("noop"), True, "what a second acknowledgement does")


async def a_transaction_id_that_comes_again_is_a_duplicate(client, queue):
    seen = []

    async def duplicates(items, error):
        seen.extend(item["transactionId"] for item in items)

    first = await client.queue(queue).push({"data": 1, "transactionId": "order-1"})
    items = [{"data": 2, "transactionId": t} for t in ["order-1", "order-2", "order-2"]]
    second = await client.queue(queue).push(items).on_duplicate(duplicates)
    same([one["status"] for one in second], ["duplicate", "queued", "duplicate"])
    same(seen, ["order-1", "order-2"])
    same(second[0]["message_id"], first[0]["message_id"])
    same(second[2]["message_id"], second[1]["message_id"])
    elsewhere = await client.queue(queue).partition("other").push(items[:1])
    same(elsewhere[0]["status"], "queued", "in another partition it")
    same(data(await pop(client, queue)) + data(await pop(client, queue)), [1, 2, 2])


async def commit_on_delivery_leaves_nothing_to_acknowledge(client, queue):
    await push(client, queue, [1, 2, 3])
    messages = await popping(client, queue, batch=2).wait(False).commit_on_delivery().pop()
    same(data(messages), [1, 2])
    same({m["leaseId"] for m in messages}, {""})
    same(data(await pop(client, queue)), [3])


async def the_clients_own_buffer_is_flushed(client, queue):
    builder = client.queue(queue).buffer({"message_count": 40, "time_millis": 60_000})
    for number in range(100):
        same((await builder.push({"data": number}))["buffered"], True)
    await client.flush_all_buffers()
    messages = await eventually("all are there", lambda: all_of(client, queue, 100))
    same(data(messages), list(range(100)))


async def all_of(client, queue, count):
    messages = await pop(client, queue)
    if len(messages) == count:
        return messages
    if messages:
        await client.ack(messages, "retry")
    return None


async def a_parked_pop_is_woken_by_the_push(client, queue):
    await client.queue(queue).create()
    began = time.monotonic()
    waiting = asyncio.create_task(popping(client, queue).timeout_millis(20_000).pop())
    # Parked or not yet: it gets the message either way.
    await push(client, queue, ["wake up"])
    same(data(await waiting), ["wake up"])
    assert time.monotonic() - began < 10, "it was not woken"


async def a_pop_that_waits_in_vain_comes_back_in_time(client, queue):
    await client.queue(queue).create()
    began = time.monotonic()
    same(await popping(client, queue).timeout_millis(400).pop(), [])
    took = time.monotonic() - began
    assert 0.3 < took < 10, took


async def names_may_be_anything_that_fits_into_a_path(client, queue):
    strange = f"{queue} ü.x+y:z"
    for partition in ["client 42", "ünïcode", "a.b:c@d", "100%", "+"]:
        await push(client, strange, [partition], partition)
        [message] = await pop(client, strange, partition=partition)
        same([message["data"], message["partition"]], [partition, partition])
        await acked(client, message)


async def a_deleted_queue_is_gone_with_its_messages(client, queue):
    await push(client, queue, [1, 2])
    answer = await client.queue(queue).delete()
    same([answer["deleted"], answer["queue"], answer["existed"]], [True, queue, True])
    same((await client.queue(queue).delete())["existed"], False)
    same(await pop(client, queue), [])
    await push(client, queue, [3])
    same(data(await pop(client, queue)), [3])


async def health_has_the_shape_that_is_read(client, _queue):
    same((await client.admin.health())["status"], "healthy")


run(
    configure_echoes_what_was_asked,
    every_payload_comes_back_as_it_was,
    a_push_of_one_message_and_its_trace,
    a_transaction_id_that_comes_again_is_a_duplicate,
    commit_on_delivery_leaves_nothing_to_acknowledge,
    the_clients_own_buffer_is_flushed,
    a_parked_pop_is_woken_by_the_push,
    a_pop_that_waits_in_vain_comes_back_in_time,
    names_may_be_anything_that_fits_into_a_path,
    a_deleted_queue_is_gone_with_its_messages,
    health_has_the_shape_that_is_read,
)
