"""Hello, world with asyncio: the same verbs, awaited."""

import asyncio

import mqks


async def main() -> None:
    async with mqks.connect() as mq, mq.consume("async-greetings", ["hello"]) as greetings:
        await mq.publish("hello", {"to": "world"})
        async for message in greetings:
            print(message.event, message.json["to"])
            break


asyncio.run(main())
