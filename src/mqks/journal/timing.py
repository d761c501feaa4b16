"""How long something takes, told without keeping each time: for whoever shows or scrapes it. It touches nothing."""

from bisect import bisect_left

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    def __init__(self, buckets: tuple[float, ...] = BUCKETS) -> None:
        self.buckets = buckets  # seconds, each the most that counts for it, rising
        self.counts = [0] * (len(buckets) + 1)  # times in each bucket; in the last one those beyond all
        self.sum = 0.0
        self.count = 0
        self.last: float | None = None  # when the last one ended, in seconds since 1970

    def add(self, seconds: float, ended: float) -> None:
        self.counts[bisect_left(self.buckets, seconds)] += 1
        self.sum += seconds
        self.count += 1
        self.last = ended
