"""A service that holds some records, peaks, and is idle then. Once its limit was lowered it grows, up to what it may have.

Its last words, which Kubernetes keeps, say what the kernel charged and allowed meanwhile.
"""

import time

MIB = 1 << 20
# What stays and the interpreter need half of it.
LOW = 96 * MIB
GROUP = "/sys/fs/cgroup/memory."


def number(file):
    with open(GROUP + file) as text:
        return text.read().strip()


def records(mib):
    """Some of 1 to 8 KiB each."""
    held, bytes_held = [], 0
    while bytes_held < mib * MIB:
        size = 1024 + len(held) * 2654435761 % 7168
        held.append({"number": len(held), "body": bytearray(size)})
        bytes_held += size + 400
    return held


def lived(seconds):
    """What the limit is after that time."""
    time.sleep(seconds)
    return int(number("max"))


def tell():
    with open("/dev/termination-log", "w") as log:
        log.write(repr(told).replace("'", '"'))


told = {"first": lived(0)}
base = records(24)
burst = records(160)
# The peak replaced some of what stays, so that its memory is not all in one piece.
for place in range(0, len(base), 4):
    base[place], burst[place * 6] = burst[place * 6], base[place]
told["peak"] = int(number("current"))
del burst
open("/tmp/started", "w").close()
while lived(1) > LOW:
    pass
told["lowered"], told["used"] = lived(0), int(number("current"))
tell()
grown = []
while lived(1) <= told["lowered"]:
    # Slowly, as looks are seconds apart; and it does not go over its limit, however long the answer takes.
    if int(number("current")) < told["lowered"] * 97 // 100 - MIB:
        grown.append(bytearray(MIB))
told["raised"], told["grown"] = lived(0), int(number("current"))
tell()
