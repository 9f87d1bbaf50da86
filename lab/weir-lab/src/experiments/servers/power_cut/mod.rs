//! After the server was killed, what weir-nbd has acknowledged as flushed is there. It is there as well after the drive below
//! it lost power with whatever it had not made safe.
//!
//! The drive has a volatile cache (nbdfuse on nbdkit). `killed`: the server gets SIGKILL, and all that it wrote has reached the
//! drive. `power`: the drive loses power as well, before or after the server, and of what was not flushed any sectors are lost.
//! Then what was answered, and flushed or forced after it, has to be there. Loads: clients that write, zero, read and flush, of
//! which each sector's possible contents are known; fio, which verifies what it wrote; files on ext4. Root.

mod drive;
mod filesystem;
mod model;
mod writers;

use crate::harness::machine::restore::kill;
use crate::harness::nbd::fio::{self, Fio};
use crate::harness::nbd::servers::{Kind, Server};
use crate::harness::prelude::*;
use drive::{Drive, SECTOR};
use writers::{Answers, PART, Parts, WRITERS};

const LOADS: [&str; 3] = ["writers", "fio --verify", "files on ext4"];
const SERVERS: [&[&str]; 5] = [
    &["--io=uring"],
    &["--io=uring", "--cache=4M", "--write-back"],
    &["--io=threads"],
    &["--io=threads", "--cache=4M", "--write-back"],
    &["--io=uring", "--cache=4M"],
];
const FILE_SYSTEM: u64 = 64 << 20;
const FIO: &str = "[global]\nbs=4k\nsize=4M\nrw=randwrite\nverify=crc32c\nrandseed=1\nend_fsync=1\n";

/// A round: its load, its server, whether the drive lost power, what was looked at, and what was lost.
struct Done {
    load: usize,
    server: usize,
    is_power: bool,
    answers: Answers,
    checked: Result<usize, String>,
}

pub fn run(lab: &mut Lab) -> Result<()> {
    let needs =
        [Need::Root, Kind::Weir.need(), Kind::Nbdkit.need(), fio::PROGRAM, Need::Program("e2fsck", "e2fsprogs")];
    if lab.lacks(&[&needs[..], &BLOCK_DEVICE].concat()) {
        return Ok(());
    }
    let plugin = run_system("nbdkit", &["--dump-plugin", "python"]).err();
    if lab.skips(
        "",
        plugin.map(|_| "nbdkit-plugin-python: apt-get install nbdkit-plugin-python".into()).into_iter().collect(),
    ) {
        return Ok(());
    }
    let (mut stand, mut all) = (Stand::make()?, Vec::new());
    for round in 0..lab.args.rounds {
        let done = stand.round(round).with_context(|| format!("round {round}"))?;
        if let Err(why) = &done.checked {
            eprintln!("power-cut, round {round}, {}, {:?}: {why}", LOADS[done.load], SERVERS[done.server]);
            lab.fail(format!("round {round} lost something: {why}"));
        }
        all.push(done);
    }
    let mut rows = Vec::new();
    for (load, name) in LOADS.into_iter().enumerate() {
        for (server, options) in SERVERS.iter().enumerate() {
            let of: Vec<&Done> = all.iter().filter(|done| done.load == load && done.server == server).collect();
            let power = of.iter().filter(|done| done.is_power).count();
            let sum = |value: fn(&Done) -> u64| of.iter().map(|done| value(done)).sum::<u64>().to_string();
            if !of.is_empty() {
                rows.push(vec![
                    format!("{name}; {}", options.join(" ")),
                    (of.len() - power).to_string(),
                    power.to_string(),
                    sum(|done| done.answers.requests),
                    sum(|done| done.answers.flushes),
                    sum(|done| *done.checked.as_ref().unwrap_or(&0) as u64),
                    sum(|done| u64::from(done.checked.is_err())),
                ]);
            }
        }
    }
    println!("{}", table("load; options|killed|power|answers|flushes|looked at|lost".split('|'), rows));
    lab.note("rounds", all.len().into());
    Ok(())
}

/// State that stays from round to round.
struct Stand {
    folder: Folder,
    sectors: Drive,
    files: Drive,
    parts: Parts,
    /// The files that were made safe, in order.
    safe: Vec<u64>,
    random: Random,
}

impl Stand {
    fn make() -> Result<Stand> {
        let folder = Folder::in_memory("power-cut")?;
        let sectors = Drive::make(&folder, "sectors", (WRITERS * PART * SECTOR) as u64)?;
        let files = Drive::make(&folder, "ext4", FILE_SYSTEM)?;
        filesystem::make(&files)?;
        Ok(Stand { folder, sectors, files, parts: Parts::new(), safe: Vec::new(), random: Random::new(0x5eed, 0) })
    }

    fn round(&mut self, round: u32) -> Result<Done> {
        let load = [0, 0, 0, 0, 1, 0, 0, 0, 0, 2][round as usize % 10];
        let server = (round / 10 + round) as usize % SERVERS.len();
        let is_power = self.random.below(2) == 1;
        let options: Vec<String> = SERVERS[server].iter().map(|option| option.to_string()).collect();
        let mut answers = Answers::default();
        let checked = match load {
            0 => self.writers(&options, is_power, &mut answers)?,
            1 => self.fio(&options, is_power)?,
            _ => self.files(&options, is_power, &mut answers)?,
        };
        Ok(Done { load, server, is_power, answers, checked })
    }

    /// Serves a drive under a load until both are cut, after a time or at the load's end; then the drive settles.
    fn serve<T>(
        random: &mut Random,
        folder: &Folder,
        drive: &Drive,
        options: &[String],
        (is_power, time): (bool, Option<u64>),
        load: impl FnOnce(&Server) -> T,
    ) -> Result<T> {
        let mut powered = drive.power()?;
        let export = format!("drive={}", powered.file.path.display());
        let server = Server::weir(&folder.at("socket"), &[export], options)?;
        let mut order = [server.child.pid(), powered.server.pid()];
        if is_power && random.below(2) == 0 {
            order.reverse();
        }
        let result = std::thread::scope(|scope| {
            if let Some(ms) = time {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(ms));
                    kill(order[0]);
                    if is_power {
                        std::thread::sleep(Duration::from_millis(5));
                        kill(order[1]);
                    }
                });
            }
            load(&server)
        });
        drop(server);
        powered.cut()?;
        drop(powered);
        drive.settle(is_power, random)?;
        Ok(result)
    }

    fn writers(&mut self, options: &[String], is_power: bool, sum: &mut Answers) -> Result<Result<usize, String>> {
        let (seed, time) = (self.random.next(), 20 + self.random.below(300) as u64);
        let (parts, how) = (&self.parts, (is_power, Some(time)));
        let answers = Stand::serve(&mut self.random, &self.folder, &self.sectors, options, how, |server| {
            std::thread::scope(|scope| {
                let write =
                    |own| scope.spawn(move || writers::write(parts, own, &server.socket, &mut Random::new(seed, own)));
                let writers: Vec<_> = (0..WRITERS).map(write).collect();
                writers.into_iter().map(|writer| writer.join()).collect::<Vec<_>>()
            })
        })?;
        let image = std::fs::read(&self.sectors.image)?;
        let mut wrong = None;
        for answers in answers {
            match answers.map_err(|_| anyhow!("a writer panicked"))? {
                Ok(answers) => {
                    sum.requests += answers.requests;
                    sum.flushes += answers.flushes;
                }
                Err(why) => wrong = Some(why),
            }
        }
        let settled = self.parts.settle(&image);
        Ok(wrong.map_or(Ok(()), Err).and(settled).map(|()| WRITERS * PART))
    }

    fn fio(&mut self, options: &[String], is_power: bool) -> Result<Result<usize, String>> {
        let (jobs, drive) = (self.folder.at("jobs"), Drive::make(&self.folder, "fio", 8 << 20)?);
        Stand::serve(&mut self.random, &self.folder, &drive, options, (is_power, None), |server| {
            let uri = server.uri("drive");
            let text = format!("{FIO}ioengine=nbd\nthread=1\nuri={uri}\niodepth=16\ndo_verify=0\n[job]\n");
            Fio::start(&jobs, &text)?.outcome()
        })??;
        // On the image itself: what is there is what the drive kept.
        let text = format!("{FIO}ioengine=psync\nfilename={}\nverify_only=1\n[job]\n", drive.image.display());
        Ok(Fio::start(&jobs, &text)?.outcome().map(|_| 1024).map_err(|why| format!("{why:#}")))
    }

    fn files(&mut self, options: &[String], is_power: bool, sum: &mut Answers) -> Result<Result<usize, String>> {
        // Mounting takes its time.
        let (time, next) = (500 + 3 * self.random.below(300) as u64, self.safe.last().map_or(0, |last| last + 1));
        let (folder, how) = (&self.folder, (is_power, Some(time)));
        let written = Stand::serve(&mut self.random, folder, &self.files, options, how, |server| {
            filesystem::write(folder, &server.uri("drive"), next)
        })?;
        // Power may have gone before the file system was mounted.
        let written = written.unwrap_or_default();
        sum.requests += written.len() as u64;
        sum.flushes += 2 * written.len() as u64;
        self.safe.extend(written);
        Ok(filesystem::check(&self.files, &self.folder, &self.safe).map_err(|why| format!("{why:#}")))
    }
}
