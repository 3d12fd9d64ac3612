"""Transactions with Queen's client: push and acknowledge, all of it or nothing."""

from support import acked, data, eventually, pop, push, run, same


async def a_message_moves_from_queue_to_queue(client, queue):
    await push(client, f"{queue}-in", [1, 2])
    messages = await pop(client, f"{queue}-in")
    transaction = client.transaction().ack(messages)
    transaction.queue(f"{queue}-out").partition("p").push([{"data": "a"}, {"data": "b"}])
    transaction.queue(f"{queue}-log").push({"data": "moved"})
    answer = await transaction.commit()
    same([answer["success"], len(answer["results"])], [True, 5])
    assert answer["transactionId"], answer
    same(await pop(client, f"{queue}-in"), [])
    same(data(await pop(client, f"{queue}-out", partition="p")), ["a", "b"])
    same(data(await pop(client, f"{queue}-log")), ["moved"])


async def with_a_lease_that_is_over_nothing_happens(client, queue):
    await client.queue(f"{queue}-in").config({"lease_time": 1}).create()
    await push(client, f"{queue}-in", [1])
    stale = await pop(client, f"{queue}-in")
    fresh = await eventually("the lease ends", lambda: pop(client, f"{queue}-in"))
    transaction = client.transaction().ack(stale)
    transaction.queue(f"{queue}-out").push({"data": "never"})
    error = await refused(transaction)
    assert error, "the error says why"
    same(await pop(client, f"{queue}-out"), [])
    await acked(client, fresh)


async def refused(transaction):
    try:
        answer = await transaction.commit()
    except Exception as error:
        return str(error)
    raise AssertionError(f"it was done: {answer}")


async def an_unknown_message_undoes_the_rest(client, queue):
    await push(client, f"{queue}-in", [1, 2])
    messages = await pop(client, f"{queue}-in")
    unknown = {**messages[1], "transactionId": "nobody-pushed-this"}
    transaction = client.transaction().queue(f"{queue}-out").push({"data": "never"})
    await refused(transaction.ack(messages[0]).ack(unknown))
    same(await pop(client, f"{queue}-out"), [])
    await acked(client, messages)


async def a_transaction_that_comes_again_pushes_once(client, queue):
    await push(client, f"{queue}-in", [1])
    messages = await pop(client, f"{queue}-in")

    def transaction():
        pushed = client.transaction().queue(f"{queue}-out")
        return pushed.push({"data": "once", "transactionId": "job-1"})

    await transaction().ack(messages).commit()
    await transaction().commit()
    same(data(await pop(client, f"{queue}-out")), ["once"])


async def of_a_group_and_with_a_verdict(client, queue):
    await push(client, queue, ["good", "bad"])
    good, bad = await pop(client, queue, group="g")
    transaction = client.transaction().ack(good, "completed", {"consumer_group": "g"})
    await transaction.ack(bad, "dlq", {"consumer_group": "g"}).commit()
    same(await pop(client, queue, group="g"), [])
    letters = await client.queue(queue).dlq("g").get()
    same(data(letters["messages"]), ["bad"])
    same(data(await pop(client, queue)), ["good", "bad"], "another group's messages")


async def over_several_partitions_and_leases(client, queue):
    for partition in ["a", "b", "c"]:
        await push(client, queue, [partition], partition)
    several = await client.queue(queue).batch(10).partitions(2).wait(False).pop()
    one = await client.queue(queue).batch(10).wait(False).pop()
    same(len(several) + len(one), 3)
    assert several[0]["leaseId"] != one[0]["leaseId"]
    transaction = client.transaction().ack(several + one)
    await transaction.queue(f"{queue}-out").push({"data": "all"}).commit()
    same(await client.queue(queue).batch(10).partitions(3).wait(False).pop(), [])
    same(data(await pop(client, f"{queue}-out")), ["all"])


run(
    a_message_moves_from_queue_to_queue,
    with_a_lease_that_is_over_nothing_happens,
    an_unknown_message_undoes_the_rest,
    a_transaction_that_comes_again_pushes_once,
    of_a_group_and_with_a_verdict,
    over_several_partitions_and_leases,
)
