# A service that parsed many records, and keeps one in a few: phases as `weir-lab-load sparse` has them.
import json
import random
import sys
import time


def phase(**said):
    print(json.dumps(said), flush=True)
    sys.stdin.readline()


def text(number):
    return json.dumps({"id": number, "name": "n" * (20 + number % 80), "tags": [f"tag{number}-{i}" for i in range(6)]})


def size(record):
    parts = [record, *record.keys(), *record.values(), *record["tags"]]
    return sum(sys.getsizeof(part) for part in parts)


count, keep = int(sys.argv[1]), int(sys.argv[2])
choice = random.Random(3)
phase(phase="start")
records = [json.loads(text(number)) for number in range(count)]
phase(phase="peak")
records = [record for record in records if choice.randrange(keep) == 0]
phase(phase="freed", live=sum(map(size, records)))
times = []
for record in records:
    if choice.randrange(10) == 0:
        begin = time.perf_counter()
        record["name"] = "w" * len(record["name"])
        record["tags"][0] = f"new{record['id']}"
        times.append((time.perf_counter() - begin) * 1e6)
times.sort()


def is_wrong(record):
    number = record["id"]
    return record["tags"][1:] != [f"tag{number}-{i}" for i in range(1, 6)] or len(record["name"]) != 20 + number % 80


wrong = sum(map(is_wrong, records))
phase(wrong=wrong, p50_us=times[len(times) // 2], p999_us=times[min(len(times) - 1, len(times) * 999 // 1000)])
