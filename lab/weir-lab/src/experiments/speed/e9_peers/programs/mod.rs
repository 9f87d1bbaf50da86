//! E9's real programs: servers under load, an interpreter, a database in memory, a compiler.

mod postgres;
mod servers;
mod stage;

use crate::harness::prelude::*;
pub use stage::{Figures, Stage};
use stage::{LIMIT, find};

/// A program.
pub struct Program {
    pub name: &'static str,
    pub about: &'static str,
    /// Programs that have to be here, and their package.
    needs: (&'static [&'static str], &'static str),
    pub run: fn(&Stage, &Allocator) -> Result<Figures>,
}

pub const PROGRAMS: &[Program] = &[
    Program {
        name: "redis",
        about: "redis-benchmark: SET and GET of 512 B, pipelines of 16, 50 clients",
        needs: (&["redis-server", "redis-benchmark"], "redis-server"),
        run: servers::redis,
    },
    Program {
        name: "memcached",
        about: "half set, half get of 16 B to 8 KiB over its text protocol, 2 clients",
        needs: (&["memcached"], "memcached"),
        run: servers::memcached,
    },
    Program {
        name: "postgres",
        about: "pgbench's own transactions, 4 clients, fsync off; peak: anonymous memory of all its processes",
        needs: (&["initdb", "postgres", "pgbench", "pg_isready"], "postgresql postgresql-contrib"),
        run: postgres::run,
    },
    Program {
        name: "python3",
        about: "objects, dictionaries, JSON and sorting, PYTHONMALLOC=malloc",
        needs: (&["python3"], "python3"),
        run: python,
    },
    Program {
        name: "sqlite3",
        about: "inserts, an index, updates and joins in memory",
        needs: (&["sqlite3"], "sqlite3"),
        run: sqlite,
    },
    Program { name: "gcc", about: "gcc -O2 of a generated file of many functions", needs: (&["gcc"], "gcc"), run: gcc },
];

impl Display for Program {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Program {
    /// The programs that are missing, and how to get them.
    pub fn missing(&self) -> Vec<String> {
        let absent = self.needs.0.iter().filter(|program| find(program).is_err());
        absent.map(|program| format!("{program}: apt-get install {}", self.needs.1)).collect()
    }
}

/// Runs a program to its end.
fn batch(command: Command, what: &str) -> Result<Figures> {
    let begin = Instant::now();
    let finished = run_child(command, LIMIT, what)?;
    Ok([begin.elapsed().as_nanos() as f64, finished.peak, finished.minor_faults])
}

fn python(stage: &Stage, allocator: &Allocator) -> Result<Figures> {
    let mut python = under(find("python3")?, allocator);
    python.env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
    python.args(["-c", include_str!("python.py"), stage.pick("12", "1")]);
    batch(python, "python3")
}

fn sqlite(stage: &Stage, allocator: &Allocator) -> Result<Figures> {
    let sql = include_str!("sqlite.sql").replace("ROWS", stage.pick("400000", "10000"));
    let mut sqlite = under(find("sqlite3")?, allocator);
    sqlite.args(["-batch", "-init", "/dev/null", ":memory:", &sql]);
    batch(sqlite, "sqlite3")
}

fn gcc(stage: &Stage, allocator: &Allocator) -> Result<Figures> {
    let source = stage.folder.at("big.c");
    if !source.exists() {
        write_source(&source, stage.pick(600, 100))?;
    }
    let mut gcc = under(find("gcc")?, allocator);
    gcc.args(["-O2", "-c", "-o"]).arg(stage.folder.at("big.o")).arg(&source);
    batch(gcc, "gcc")
}

/// So many functions, each of which calls one before it.
fn write_source(file: &Path, functions: usize) -> Result<()> {
    let function = |n: usize| {
        let other = format!("f{}(p, x + {n})", n.saturating_sub(1 + n % 7));
        let call = if n == 0 { "x" } else { &other };
        let text = include_str!("function.c").replace("NUMBER", &n.to_string()).replace("CALL", call);
        let text = text.replace("SIZE", &(4 + n % 13).to_string()).replace("LAST", &(n % 4).to_string());
        text.replace("NAME", &(8 + n % 50).to_string())
    };
    let text: String = (0..functions).map(function).collect();
    Ok(std::fs::write(file, format!("#include <stdio.h>\n#include <string.h>\n{text}"))?)
}
