"""Hello, world: one message through a queue. The broker is at MQKS_URL, or on this machine.

A queue stays when its consumers go, unless it is told otherwise.
"""

import mqks

with mqks.connect() as mq, mq.consume("greetings", ["hello"], delete_queue_when_unused=True) as greetings:
    mq.publish("hello", "world")
    for message in greetings:
        print(message.event, message.data)
        break
