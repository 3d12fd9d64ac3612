"""Consumer groups with Queen's client: each sees everything, from where it wants."""

from datetime import datetime, timedelta, timezone

from support import acked, data, pop, popping, push, run, same


async def all_now(client, queue, group, mode=None, start=None):
    builder = popping(client, queue, group=group).partitions(20).wait(False)
    if mode:
        builder.subscription_mode(mode)
    if start:
        builder.subscription_from(start)
    messages = await builder.pop()
    if messages:
        await acked(client, messages, group=group)
    return data(messages)


async def every_group_sees_every_message_and_so_does_who_has_none(client, queue):
    await push(client, queue, [1, 2, 3])
    same(await all_now(client, queue, "a"), [1, 2, 3])
    same(await all_now(client, queue, "b"), [1, 2, 3])
    same(data(await pop(client, queue)), [1, 2, 3])
    await push(client, queue, [4])
    same(await all_now(client, queue, "a"), [4])
    same(await all_now(client, queue, "a"), [])
    [message] = await popping(client, queue, group="b").wait(False).pop()
    same([message["data"], message["consumerGroup"]], [4, "b"])


async def a_lease_of_one_group_is_none_of_anothers(client, queue):
    await push(client, queue, [1])
    mine = await pop(client, queue, group="a")
    same(data(await pop(client, queue, group="b")), [1])
    answer = await client.ack(mine[0], True, {"group": "b"})
    same(answer["success"], False, "a lease of another group")
    await acked(client, mine, group="a")


async def a_group_may_begin_now_or_at_a_time(client, queue):
    await push(client, queue, ["old"])
    before = datetime.now(timezone.utc)
    same(await all_now(client, queue, "new", mode="new"), [])
    same(await all_now(client, queue, "new-only", mode="new-only"), [])
    same(await all_now(client, queue, "now", start="now"), [])
    later = (before + timedelta(hours=1)).isoformat()
    earlier = (before - timedelta(hours=1)).isoformat()
    same(await all_now(client, queue, "later", start=later), [])
    await push(client, queue, ["young"])
    for group in ["new", "new-only", "now"]:
        same(await all_now(client, queue, group, mode="new"), ["young"], f"{group}'s messages")
    same(await all_now(client, queue, "earlier", start=earlier), ["old", "young"])
    same(await all_now(client, queue, "all", mode="all"), ["old", "young"])
    same(await all_now(client, queue, "odd", mode="whatever"), ["old", "young"])


async def the_beginning_counts_only_the_first_time(client, queue):
    await push(client, queue, [1])
    same(await all_now(client, queue, "g", mode="all"), [1])
    await push(client, queue, [2])
    same(await all_now(client, queue, "g", mode="new"), [2])


async def a_deleted_group_reads_again(client, queue):
    await push(client, queue, [1, 2])
    same(await all_now(client, queue, f"{queue}-g"), [1, 2])
    same((await client.delete_consumer_group(f"{queue}-g"))["success"], True)
    same(await all_now(client, queue, f"{queue}-g"), [1, 2])
    answer = await client.admin.delete_consumer_group_for_queue(f"{queue}-g", queue)
    same(answer["success"], True)
    same(await all_now(client, queue, f"{queue}-g"), [1, 2])


async def a_group_can_be_moved(client, queue):
    for number in range(6):
        await push(client, queue, [number], f"p{number % 3}")
    answer = await client.admin.seek_consumer_group("fresh", queue, {"toEnd": True})
    same(answer["success"], True)
    same(await all_now(client, queue, "fresh"), [], "at the end the messages")
    same(sorted(await all_now(client, queue, "g")), list(range(6)))
    hour_ago = (datetime.now(timezone.utc) - timedelta(hours=1)).isoformat()
    answer = await client.admin.seek_consumer_group("g", queue, {"timestamp": hour_ago})
    same(answer["success"], True)
    same(sorted(await all_now(client, queue, "g")), list(range(6)), "an hour back the messages")
    await push(client, queue, ["last"])
    same(await all_now(client, queue, "fresh"), ["last"])


async def a_hundred_groups_read_the_same(client, queue):
    await push(client, queue, [1, 2, 3])
    for number in range(100):
        same(await all_now(client, queue, f"g{number}"), [1, 2, 3])


run(
    every_group_sees_every_message_and_so_does_who_has_none,
    a_lease_of_one_group_is_none_of_anothers,
    a_group_may_begin_now_or_at_a_time,
    the_beginning_counts_only_the_first_time,
    a_deleted_group_reads_again,
    a_group_can_be_moved,
    a_hundred_groups_read_the_same,
)
