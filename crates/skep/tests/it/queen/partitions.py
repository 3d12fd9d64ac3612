"""Partitions with Queen's client: ordered each, and none waits for another."""

from collections import defaultdict

from support import acked, consumed, data, pop, push, run, same


def several(client, queue, batch, partitions):
    return client.queue(queue).batch(batch).partitions(partitions).wait(False)


async def the_batch_is_a_cap_over_all_partitions_of_a_pop(client, queue):
    for partition in "abcde":
        await push(client, queue, [f"{partition}{n}" for n in range(4)], partition)
    messages = await several(client, queue, 10, 5).pop()
    same(len(messages), 10)
    same(len({m["leaseId"] for m in messages}), 1)
    by = defaultdict(list)
    for message in messages:
        by[message["partition"]].append(message["data"])
    for partition, values in by.items():
        same(values, [f"{partition}{n}" for n in range(len(values))])
    await acked(client, messages)
    rest = await several(client, queue, 100, 5).pop()
    same(len(rest), 10)


async def one_partition_has_one_consumer_at_a_time_and_others_go_on(client, queue):
    await push(client, queue, [1, 2], "a")
    await push(client, queue, [3], "b")
    first = await pop(client, queue, batch=1, partition="a")
    same(data(first), [1])
    same(await pop(client, queue, partition="a"), [], "while it is leased others")
    same(data(await pop(client, queue)), [3])
    await acked(client, first)
    same(data(await pop(client, queue, partition="a")), [2])
    same(await pop(client, queue, partition="never-pushed-to"), [])


async def who_waits_longest_is_served_first(client, queue):
    for partition in ["first", "second", "third"]:
        await push(client, queue, [partition, f"{partition} again"], partition)
    served = []
    for _ in range(6):
        [message] = await pop(client, queue, batch=1)
        served.append(message["partition"])
        await acked(client, message)
    same(served[:3], ["first", "second", "third"])
    same(sorted(served[3:]), ["first", "second", "third"])


async def five_hundred_partitions_are_drained_in_order(client, queue):
    names = [f"client-{number}" for number in range(500)]
    for start in range(0, 500, 50):
        some = names[start : start + 50]
        items = [{"data": [name, n]} for name in some for n in range(2)]
        for name in some:
            mine = [item for item in items if item["data"][0] == name]
            await client.queue(queue).partition(name).push(mine)
    seen = defaultdict(list)

    async def handler(messages):
        for message in messages:
            seen[message["partition"]].append(message["data"][1])

    builder = client.queue(queue).batch(60).partitions(40).concurrency(3)
    await consumed(builder, handler, lambda: sum(map(len, seen.values())) == 1_000)
    same(seen, {name: [0, 1] for name in names})


async def a_namespace_or_a_task_is_read_as_one(client, queue):
    namespace, task = f"{queue}-zoo", f"{queue}-feed"
    for name, priority in [("bees", 1), ("bears", 5)]:
        builder = client.queue(f"{queue}-{name}").namespace(namespace).task(task)
        await builder.config({"priority": priority}).create()
        await push(client, f"{queue}-{name}", [name])
    first = await client.queue().namespace(namespace).batch(5).wait(False).pop()
    same(data(first), ["bears"], "by priority the first")
    second = await client.queue().task(task).batch(5).wait(False).pop()
    same(data(second), ["bees"])
    await acked(client, first + second)
    both = client.queue().namespace(namespace).task(task).batch(5).wait(False)
    same(await both.pop(), [])


run(
    the_batch_is_a_cap_over_all_partitions_of_a_pop,
    one_partition_has_one_consumer_at_a_time_and_others_go_on,
    who_waits_longest_is_served_first,
    five_hundred_partitions_are_drained_in_order,
    a_namespace_or_a_task_is_read_as_one,
)
