"""What the programs that drive Queen's client share."""

import asyncio
import sys
import time

from queen import Queen

# A pop that waits comes back so often, to see whether its consumer shall go on.
POLL_MILLIS = 500
PATIENCE_SECONDS = 40


def run(*scenarios):
    """Runs each scenario with a client and a name of its own; the first to fail ends all."""
    url = sys.argv[1]

    async def main():
        for scenario in scenarios:
            name = scenario.__name__.replace("_", "-")
            print("begins", name)
            async with Queen(url) as client:
                await asyncio.wait_for(scenario(client, name), PATIENCE_SECONDS)
            print("passed", name)

    asyncio.run(main())


def same(found, expected, what="they"):
    told = f"{what} are not the same:\n found    {found!r}\n expected {expected!r}"
    assert found == expected, told


def data(messages):
    return [message["data"] for message in messages]


async def push(client, queue, values, partition="Default"):
    """Pushes values, all of them new, and returns what the server says of each."""
    answer = await client.queue(queue).partition(partition).push([{"data": v} for v in values])
    same([one["status"] for one in answer], ["queued"] * len(values), "the statuses")
    return answer


async def pop(client, queue, batch=100, group=None, partition="Default"):
    """What is there now."""
    return await popping(client, queue, batch, group, partition).wait(False).pop()


def popping(client, queue, batch=100, group=None, partition="Default"):
    builder = client.queue(queue).partition(partition).batch(batch)
    return builder.group(group) if group else builder


async def acked(client, messages, status=True, group=None, error=None):
    """Acknowledges messages, each of which the server must take."""
    context = {"group": group, "error": error}
    answer = await client.ack(messages, status, context)
    assert answer["success"], answer
    return answer


async def eventually(what, look):
    """Looks again and again until there is something."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = await look()
        if found:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"it never happened: {what}")


async def consumed(builder, handler, enough):
    """Consumes until `enough` says so."""
    done = asyncio.Event()

    async def handled(message):
        try:
            return await handler(message)
        finally:
            if enough():
                done.set()

    await builder.timeout_millis(POLL_MILLIS).consume(handled, signal=done)
