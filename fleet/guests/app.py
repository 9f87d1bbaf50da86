"""A service that holds some records, peaks, and is idle then. Once its limit was lowered it grows, up to what it may have.

Its last words, which Kubernetes keeps, say what the kernel charged and allowed meanwhile.
"""

import json
import time

MIB = 1 << 20
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
    return number("max")


told = {"first": number("max")}
base = records(24)
burst = records(160)
# The peak replaced some of what stays, so that its memory is not all in one piece.
for place in range(0, len(base), 4):
    base[place], burst[place * 6] = burst[place * 6], base[place]
told["peak"] = number("current")
del burst
while lived(1) == told["first"]:
    pass
told["lowered"], told["used"] = number("max"), number("current")
with open("/dev/termination-log", "w") as log:
    json.dump(told, log)
grown = []
while lived(1) == told["lowered"]:
    # Slowly, as looks are seconds apart; and it does not go over its limit, however long the answer takes.
    if int(number("current")) < int(told["lowered"]) * 97 // 100 - MIB:
        grown.append(bytearray(MIB))
told["raised"], told["grown"] = number("max"), number("current")
with open("/dev/termination-log", "w") as log:
    json.dump(told, log)
