//! Programs that run to their end: an interpreter, a database in memory, a compiler.

use super::stage::{Figures, Stage, find};
use crate::harness::child::{self, command};
use crate::peers::Allocator;
use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(180);

const PYTHON: &str = "
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
";

/// Its own small-object allocator is switched off.
pub fn python(stage: &Stage, allocator: &Allocator) -> Result<Figures, String> {
    let mut python = command(find("python3")?, allocator);
    python.env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
    python.args(["-c", PYTHON, if stage.quick { "1" } else { "12" }]);
    finish(python, "python3")
}

/// One connection, all in memory.
pub fn sqlite(stage: &Stage, allocator: &Allocator) -> Result<Figures, String> {
    let rows = if stage.quick { 10_000 } else { 400_000 };
    let sql = format!(
        "create table a(id integer primary key, k integer, name text, body text);
         create table b(k integer, note text);
         with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})
           insert into a select i, (i * 7919) % 10007, 'name ' || (i * 31 % 65537),
             substr(hex(i * 2654435761) || hex(i * 40503) || hex(i * 9973), 1, 8 + i % 90) from n;
         insert into b select k, group_concat(name) from a group by k;
         create index a_k on a(k); create index a_name on a(name); create index b_k on b(k);
         update a set body = body || name where id % 3 = 0;
         delete from a where id % 5 = 0;
         select count(*), sum(length(body)), sum(length(note)) from a join b using (k);
         select name, count(*) c from a group by name order by c desc, name limit 10;"
    );
    let mut sqlite = command(find("sqlite3")?, allocator);
    sqlite.args(["-batch", "-init", "/dev/null", ":memory:"]).arg(sql);
    finish(sqlite, "sqlite3")
}

/// The compiler proper is a child of gcc; the environment reaches it.
pub fn gcc(stage: &Stage, allocator: &Allocator) -> Result<Figures, String> {
    let source = stage.directory.join("big.c");
    if !source.exists() {
        let functions = if stage.quick { 100 } else { 600 };
        std::fs::write(&source, big_source(functions)).map_err(|why| format!("{}: {why}", source.display()))?;
    }
    let mut gcc = command(find("gcc")?, allocator);
    gcc.args(["-O2", "-c", "-o"]).arg(stage.directory.join("big.o")).arg(&source);
    finish(gcc, "gcc")
}

fn big_source(functions: usize) -> String {
    let mut text = String::from("#include <stdio.h>\n#include <string.h>\n");
    for n in 0..functions {
        let other = n.saturating_sub(1 + n % 7);
        let call = if n == 0 { "x".to_string() } else { format!("f{other}(p, x + {n})") };
        let _ = writeln!(
            text,
            "struct s{n} {{ int a[{size}]; double d; char name[{name}]; }};
long f{n}(struct s0 *p, long x) {{
    struct s{n} here; memset(&here, 0, sizeof here);
    for (int i = 0; i < {size}; i++) {{ here.a[i] = (int)(x * i + {n}); here.d += here.a[i] / 3.0; }}
    switch (x % 5) {{ case 0: x += {call}; break; case 1: x ^= here.a[{last}]; break;
        case 2: snprintf(here.name, sizeof here.name, \"%ld {n}\", x); x += here.name[0]; break; default: x *= {n}; }}
    return x + (long)here.d + p->a[0];
}}",
            size = 4 + n % 13,
            name = 8 + n % 50,
            last = n % 4,
        );
    }
    text
}

fn finish(command: Command, what: &str) -> Result<Figures, String> {
    let begin = Instant::now();
    let finished = child::run(command, LIMIT, what)?;
    let ns = begin.elapsed().as_nanos() as f64;
    Ok(Figures { ns, peak: finished.peak as f64, faults: finished.minor_faults as f64 })
}
