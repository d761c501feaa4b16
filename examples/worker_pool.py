"""Three workers share the queue `jobs`. A job that fails is tried again; after the third time it is parked.

A worker acks a job when it is done. One that dies in the middle acks nothing, and the job goes to another worker.
"""

import threading
from queue import SimpleQueue

import mqks

TRIES = 3
JOBS = ["resize cat.jpg", "resize dog.jpg", "resize not-an-image.txt", "resize bird.jpg"]

reports: SimpleQueue[str] = SimpleQueue()


def do(job: str) -> None:
    if not job.endswith(".jpg"):
        raise ValueError("not an image")


def work(mq: mqks.Client, jobs: mqks.Consumer) -> None:
    for message in jobs:
        try:
            do(message.data)
            outcome = "done"
        except ValueError as error:
            if message.retry + 1 < TRIES:
                message.reject()  # to the tail of the queue, with retry + 1
                continue
            mq.publish("job.failed", {"job": message.data, "error": str(error)}, confirm=True)
            outcome = "parked"
        message.ack()  # last, so that the job is never nowhere
        reports.put(f"{outcome}: {message.data}")


def main() -> None:
    with mqks.connect() as mq:
        mq.rebind("jobs", ["job"])
        mq.rebind("parked", ["job.failed"])  # nobody consumes it: it keeps them until somebody looks
        mq.publish_many(("job", job) for job in JOBS)
        consumers = [mq.consume("jobs", manual_ack=True, prefetch=1) for _ in range(3)]
        workers = [threading.Thread(target=work, args=(mq, jobs)) for jobs in consumers]
        for worker in workers:
            worker.start()
        for _ in JOBS:
            print(reports.get())
        with mq.consume("parked") as parked:
            print("to look at:", next(parked).data)
        for queue in ("jobs", "parked"):  # an example leaves nothing behind; a service would keep them
            mq.delete_queue(queue)
        for worker in workers:
            worker.join()  # without the queue their loops have ended


if __name__ == "__main__":
    main()
