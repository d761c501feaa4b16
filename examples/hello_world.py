"""Hello, world: one message through a queue. The broker is at MQKS_URL, or on this machine."""

import mqks

with mqks.connect() as mq, mq.consume("greetings", ["hello"]) as greetings:
    mq.publish("hello", "world")
    for message in greetings:
        print(message.event, message.data)
        break
