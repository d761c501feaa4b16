"""What outlives the process: the queues on disk, the way back from there, history, ids of `--once`."""
