"""What the tests share."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

#: Seconds that only a fault waits for, however slow the machine is.
PATIENCE = 300


def wait_until(what, condition):
    """Waits for an event that is sure to come."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited too long for {what}")
        time.sleep(0.002)


def python(script, *arguments, environment=None):
    """Runs a script as this test runs; what it printed. It must end well, and say nothing on standard error."""
    command = [sys.executable, *arguments, "-c", textwrap.dedent(script)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **(environment or {})}
    )
    assert done.returncode == 0 and not done.stderr, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


class Interrupted(Exception):
    """What the handler of a signal raises."""


@contextlib.contextmanager
def interruptions():
    """A handler of SIGALRM raises."""

    def interrupt(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def in_child(function):
    """Whether a function returns true in a forked child."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if function() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0
