# Objects, dictionaries, JSON and sorting; as many rounds as it is told.
import json, sys
rounds = int(sys.argv[1])
class Node:
    def __init__(self, key, children):
        self.key, self.children, self.tags = key, children, {'a': key, 'b': str(key) * 3}
kept = []
for round in range(rounds):
    nodes = [Node(i, []) for i in range(20000)]
    for i in range(1, len(nodes)):
        nodes[(i * 7919) % i].children.append(nodes[i])
    text = json.dumps([{'key': n.key, 'name': 'node %d' % n.key, 'tags': n.tags} for n in nodes])
    back = json.loads(text)
    back.sort(key=lambda entry: entry['name'][::-1])
    words = {}
    for entry in back:
        for part in entry['name'].split() + [entry['tags']['b']]:
            words.setdefault(part, []).append(entry['key'])
    kept.append(words)
    if len(kept) > 5:
        del kept[round % 5]
