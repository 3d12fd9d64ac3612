"""Failures with Queen's client: retries, their limit, and the dead letters."""

import time

from support import acked, consumed, data, eventually, pop, popping, push, run, same


async def the_last_failure_makes_a_dead_letter(client, queue):
    await client.queue(queue).config({"retry_limit": 2, "retry_delay": 0}).create()
    await push(client, queue, ["poison", "fine"])
    seen = []

    async def handler(message):
        seen.append(message["data"])
        if message["data"] == "poison":
            raise RuntimeError("cannot be swallowed")

    builder = client.queue(queue).group("g").batch(1).each()
    await consumed(builder, handler, lambda: "fine" in seen)
    same(seen, ["poison"] * 3 + ["fine"])
    letters = await client.queue(queue).dlq("g").get()
    same([letters["total"], data(letters["messages"])], [1, ["poison"]])
    [letter] = letters["messages"]
    same([letter["queue"], letter["partition"]], [queue, "Default"])
    same([letter["consumerGroup"], letter["errorMessage"]], ["g", "cannot be swallowed"])
    assert letter["failedAt"] and letter["createdAt"] and letter["transactionId"], letter
    same(await pop(client, queue, group="g"), [])


async def a_verdict_may_send_it_there_at_once(client, queue):
    await push(client, queue, [1, 2, 3])
    messages = await pop(client, queue)
    messages[1]["_status"] = "dlq"
    messages[1]["_error"] = "too even"
    await acked(client, messages)
    letters = await client.queue(queue).dlq().get()
    same([(m["data"], m["errorMessage"]) for m in letters["messages"]], [(2, "too even")])
    same(await pop(client, queue), [])


async def retry_charges_nothing(client, queue):
    await client.queue(queue).config({"retry_limit": 0, "retry_delay": 0}).create()
    await push(client, queue, [1])
    for _ in range(5):
        messages = await eventually("it is there", lambda: pop(client, queue))
        await acked(client, messages, "retry")
    messages = await eventually("it is there", lambda: pop(client, queue))
    await acked(client, messages, False, error="now it counts")
    same((await client.queue(queue).dlq().get())["total"], 1)
    same(await pop(client, queue), [])


async def a_failure_is_not_skipped_by_what_is_acknowledged_after_it(client, queue):
    await client.queue(queue).config({"retry_limit": 3, "retry_delay": 0}).create()
    await push(client, queue, [1, 2, 3])
    messages = await pop(client, queue)
    messages[1]["_status"] = False
    await client.ack(messages)
    same(data(await eventually("the rest is there", lambda: pop(client, queue))), [2, 3])


async def the_retry_delay_is_kept(client, queue):
    await client.queue(queue).config({"retry_limit": 3, "retry_delay": 4_000}).create()
    await push(client, queue, [1])
    messages = await pop(client, queue)
    await acked(client, messages, False)
    began = time.monotonic()
    messages = await popping(client, queue).timeout_millis(30_000).pop()
    same(data(messages), [1])
    # Chance shortens it, though not to nothing.
    took = time.monotonic() - began
    assert took < 15, f"it took {took} s"


async def letters_are_listed_in_parts_and_by_partition_and_group(client, queue):
    for partition in ["a", "b"]:
        await push(client, queue, [f"{partition}{n}" for n in range(5)], partition)
        for group in ["g", "h"]:
            messages = await pop(client, queue, group=group, partition=partition)
            await acked(client, messages, "dlq", group=group)
    everything = await client.queue(queue).dlq().get()
    same([everything["total"], len(everything["messages"])], [20, 20])
    of_group = await client.queue(queue).dlq("g").get()
    same([of_group["total"], {m["consumerGroup"] for m in of_group["messages"]}], [10, {"g"}])
    of_partition = await client.queue(queue).partition("b").dlq("g").get()
    same(sorted(data(of_partition["messages"])), [f"b{n}" for n in range(5)])
    parts = [await client.queue(queue).dlq("h").limit(4).offset(n).get() for n in [0, 4, 8]]
    same([len(part["messages"]) for part in parts], [4, 4, 2])
    ids = {(m["partition"], m["id"]) for part in parts for m in part["messages"]}
    same(len(ids), 10, "the letters of all parts")


run(
    the_last_failure_makes_a_dead_letter,
    a_verdict_may_send_it_there_at_once,
    retry_charges_nothing,
    a_failure_is_not_skipped_by_what_is_acknowledged_after_it,
    the_retry_delay_is_kept,
    letters_are_listed_in_parts_and_by_partition_and_group,
)
