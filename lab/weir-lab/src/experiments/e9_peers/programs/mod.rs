//! E9's real programs: servers under load, an interpreter, a database in memory, a compiler.

mod batches;
mod postgres;
mod servers;
mod stage;

use crate::peers::Allocator;
use stage::find;
pub use stage::{Figures, Stage};

/// One program and its load.
pub struct Program {
    /// Its name in the table.
    pub name: &'static str,
    /// What is done with it.
    pub about: &'static str,
    /// The programs that it takes, and how to get them.
    pub needs: (&'static [&'static str], &'static str),
    /// One measurement.
    pub run: fn(&Stage, &Allocator) -> Result<Figures, String>,
}

/// All of them, in the order of the report.
pub const PROGRAMS: &[Program] = &[
    Program {
        name: "redis",
        about: "redis-benchmark: SET and GET of 512 B, pipelines of 16, 50 clients",
        needs: (&["redis-server", "redis-benchmark"], "apt-get install redis-server"),
        run: servers::redis,
    },
    Program {
        name: "memcached",
        about: "half set, half get of 16 B to 8 KiB over its text protocol, 2 clients",
        needs: (&["memcached"], "apt-get install memcached"),
        run: servers::memcached,
    },
    Program {
        name: "postgres",
        about: "pgbench's own transactions, 4 clients, fsync off; peak: anonymous memory of all its processes",
        needs: (&["initdb", "postgres", "pgbench", "pg_isready"], "apt-get install postgresql postgresql-contrib"),
        run: postgres::run,
    },
    Program {
        name: "python3",
        about: "objects, dictionaries, JSON and sorting, PYTHONMALLOC=malloc",
        needs: (&["python3"], "apt-get install python3"),
        run: batches::python,
    },
    Program {
        name: "sqlite3",
        about: "inserts, an index, updates and joins in memory",
        needs: (&["sqlite3"], "apt-get install sqlite3"),
        run: batches::sqlite,
    },
    Program {
        name: "gcc",
        about: "gcc -O2 of a generated file of many functions",
        needs: (&["gcc"], "apt-get install gcc"),
        run: batches::gcc,
    },
];

impl Program {
    /// Whether everything it takes is here, or how to get it.
    pub fn here(&self) -> Result<(), String> {
        let (programs, how) = self.needs;
        let missing: Vec<&str> = programs.iter().copied().filter(|program| find(program).is_err()).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("no {} here: {how}", missing.join(", "))) }
    }
}
