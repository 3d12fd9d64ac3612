"""A producer and a consumer that go on while somebody cuts their connections and kills the node.

Prints a line for every message that was acknowledged to the producer, and for every message that
the consumer has acknowledged; the test looks at the lines.
"""

import asyncio
import sys

from queen import Queen
from support import POLL_MILLIS

MESSAGES = int(sys.argv[2])
QUEUE = "faults"
# Several times the lease: what was not acknowledged has come again by then.
QUIET_SECONDS = 4


async def produce():
    async with Queen(sys.argv[1], timeout_millis=3_000, retry_delay_millis=100) as client:
        for number in range(MESSAGES):
            item = {"data": number, "transactionId": f"message-{number}"}
            while True:
                try:
                    await client.queue(QUEUE).push(item)
                    break
                # What a program does that must not lose anything: the same again.
                except Exception as error:
                    print("push failed:", repr(error))
                    await asyncio.sleep(0.05)
            print("@pushed", number)


async def consume():
    seen = set()
    got = set()
    last = asyncio.get_running_loop().time()
    done = asyncio.Event()

    async def handler(message):
        nonlocal last
        last = asyncio.get_running_loop().time()
        got.add(message["data"])
        print("@got", message["data"])
        try:
            answer = await client.ack(message)
        except Exception:
            print("@unsure", message["data"])
            raise
        if answer["success"]:
            seen.add(message["data"])
            print("@acked", message["data"])
        else:
            print("@unsure", message["data"])
            print("ack refused:", answer)
        if len(seen) == MESSAGES:
            done.set()

    async def watch():
        """An acknowledgement whose answer was lost is not seen: then nothing comes any more."""
        while not done.is_set():
            await asyncio.sleep(0.1)
            quiet = asyncio.get_running_loop().time() - last
            if len(got) == MESSAGES and quiet > QUIET_SECONDS:
                done.set()

    async with Queen(sys.argv[1], timeout_millis=3_000, retry_delay_millis=100) as client:
        watching = asyncio.create_task(watch())
        while not done.is_set():
            builder = client.queue(QUEUE).batch(7).each().auto_ack(False)
            try:
                await builder.timeout_millis(POLL_MILLIS).consume(handler, signal=done)
            except Exception as error:
                print("consume failed:", repr(error))
                await asyncio.sleep(0.05)
        await watching


async def main():
    async with Queen(sys.argv[1]) as client:
        await client.queue(QUEUE).config({"lease_time": 1, "retry_limit": 1_000}).create()
    print("@begins")
    await asyncio.gather(produce(), consume())
    print("@done")


asyncio.run(main())
