//! Redis under load with `weir top` beside it, another program that needs memory, and what happens; recorded
//! as an asciicast (--cast FILE) and drawn (--svg FILE).
//!
//! redis-server on Weir in a cgroup: values are written and deleted while one client sets small ones all the time. For the
//! demonstration idle memory is kept for 12 s and more (`idle_ms=12000`), so that pressure alone releases it. Then
//! another program in the cgroup takes memory. Root.

mod drawing;
mod scene;
mod terminal;

use crate::harness::prelude::*;
use scene::Play;

pub fn run(lab: &mut Lab) -> Result<()> {
    let (weir, command) = (lab.weir()?, lab.weir_command()?);
    if lab.lacks(&[Need::Root, Need::Cgroups, Need::Program("redis-server", "redis-server")]) {
        return Ok(());
    }
    let play = lab.pick(Play::FULL, Play::QUICK);
    let told = scene::play(&play, &weir, &command)?;
    for (path, text) in [(&lab.args.cast, told.recording.cast()), (&lab.args.svg, drawing::svg(&told.pictures))] {
        path.as_ref().map_or(Ok(()), |path| std::fs::write(path, text))?;
    }
    let sizes = [play.limit, play.values, play.need].map(|bytes| bytes >> 20);
    println!("## A cgroup of {} MiB, {} MiB of values, {} MiB for the other program\n", sizes[0], sizes[1], sizes[2]);
    let rates = told.sets.each_ref().map(|sample| sample.spread(|sets| short(sets / 1000.0)));
    let [before, after] = told.resident.map(mib);
    let rows = [
        ["1,000 SET a second".to_string()].into_iter().chain(rates).collect(),
        ["redis resident, MiB".into(), before, String::new(), after].into(),
    ];
    println!("{}", table(["", "before the other program", "while it takes memory", "after"], rows));
    println!("Three quarters of what redis had idle were released {} s after the other began.", short(told.released_s));
    lab.note("sets", json!(told.sets.each_ref().map(|sample| sample.json())));
    lab.note("resident", json!(told.resident));
    lab.note("released_s", json!(told.released_s));
    Ok(())
}
