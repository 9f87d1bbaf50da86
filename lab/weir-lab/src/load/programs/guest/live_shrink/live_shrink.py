# A server's data in Python: records in a list. "load", "peak" and "work" come by lines; each is answered by "ok".
import sys
import gc
import os  # The interpreter looks for this file to find its library.

LIMIT = int(sys.argv[1])
base = []
held = 0
seed = 0x5eed


def random(limit):
    global seed
    seed = (seed * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
    return (seed >> 33) * limit >> 31


def size_of(number):
    # 16 B to 16 KiB, each doubling as likely as every other.
    mixed = number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    size = 16 << (mixed >> 56) % 10
    return size + (mixed >> 32) % size


def record(number):
    return {"id": number, "name": "user-%d" % number, "body": "x" * size_of(number), "tags": [number, number + 1]}


def load():
    global held
    while held < LIMIT:
        base.append(record(len(base)))
        held += size_of(len(base) - 1) + 400  # The record without its body.


def peak():
    burst = []
    needed = 0
    while needed < 3 * LIMIT:
        burst.append(record(len(burst)))
        needed += size_of(len(burst) - 1) + 400
        if len(burst) % 100 == 0:
            place = random(len(base))
            base[place] = record(place)
    burst.clear()
    gc.collect()


def work():
    total = 0
    for _ in range(2000):
        entry = base[random(len(base))]
        if len(entry["body"]) != size_of(entry["id"]):
            raise SystemExit("a record is damaged")
        copy = dict(entry)
        copy["body"] = entry["body"].upper()
        total += len(copy["body"]) + entry["tags"][1]
    return total


for line in sys.stdin:
    {"load": load, "peak": peak, "work": work}[line.strip()]()
    sys.stdout.write("ok\n")
    sys.stdout.flush()
