"""Hello, world with asyncio: the same verbs, awaited."""

import asyncio

import mqks


async def main() -> None:
    async with mqks.connect() as mq, mq.consume("hellos", ["hello"], delete_queue_when_unused=True) as greetings:
        await mq.publish("hello", {"to": "world"})
        async for message in greetings:
            print(message.event, message.json["to"])
            break


asyncio.run(main())
