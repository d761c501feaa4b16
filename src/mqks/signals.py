"""The signals that stop a program. It imports nothing of mqks."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, and SIGINT unless this process ignores it.

    A shell without job control starts background jobs with SIGINT ignored, so that Ctrl-C ends the foreground job only.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGINT)
