//! A round: the drive gets power, the server serves it, a load runs, power goes; then what must be there is looked for.

use super::drive::{Cut, Drive, SECTOR};
use super::filesystem;
use super::writers::{self, Answers, PART, Parts, WRITERS};
use crate::harness::fio::Fio;
use crate::harness::folder::Folder;
use crate::harness::nbd_servers::Server;
use crate::harness::random::Random;
use std::time::Duration;

/// What the server is loaded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Writers that know what each sector may hold.
    Writers,
    /// fio, with its own check of what it wrote and flushed.
    Fio,
    /// Files on ext4.
    Files,
}

impl Load {
    /// All of them, in the order of the table.
    pub const ALL: [Load; 3] = [Load::Writers, Load::Fio, Load::Files];

    /// As the table has it.
    pub fn name(self) -> &'static str {
        match self {
            Load::Writers => "writers",
            Load::Fio => "fio --verify",
            Load::Files => "files on ext4",
        }
    }

    /// Of a round: 8 of 10 are of writers.
    fn of(round: u32) -> Load {
        match round % 10 {
            4 => Load::Fio,
            9 => Load::Files,
            _ => Load::Writers,
        }
    }
}

/// The server's options: each way to keep data, on each engine.
pub const SERVERS: [&[&str]; 5] = [
    &["--io=uring"],
    &["--io=uring", "--cache=4M", "--write-back"],
    &["--io=threads"],
    &["--io=threads", "--cache=4M", "--write-back"],
    &["--io=uring", "--cache=4M"],
];

/// Bytes of the drive of ext4.
const FILE_SYSTEM: u64 = 64 << 20;
/// fio's jobs. A second part of its own is written without a flush when the power goes.
const FIO: &str = "[global]\nbs=4k\nsize=4M\nrw=randwrite\nverify=crc32c\nrandseed=1\nend_fsync=1\n";

/// What was done in a round.
pub struct Done {
    pub load: Load,
    pub cut: Cut,
    pub server: &'static [&'static str],
    pub answers: Answers,
    /// Sectors, fio's blocks or files that were looked at.
    pub checked: usize,
    /// What was lost, or is wrong.
    pub wrong: Option<String>,
}

/// The drives and what is known of them.
pub struct Stand {
    folder: Folder,
    sectors: Drive,
    files: Drive,
    parts: Parts,
    safe: Vec<u64>,
    random: Random,
}

impl Stand {
    /// New drives.
    pub fn make(seed: u64) -> Result<Stand, String> {
        let folder = Folder::in_memory("power-cut")?;
        let sectors = Drive::make(&folder, "sectors", (WRITERS * PART * SECTOR) as u64)?;
        let files = Drive::make(&folder, "ext4", FILE_SYSTEM)?;
        filesystem::make(&files)?;
        Ok(Stand { folder, sectors, files, parts: Parts::new(), safe: Vec::new(), random: Random(seed | 1) })
    }

    /// One round. An error: it could not be run.
    pub fn round(&mut self, round: u32) -> Result<Done, String> {
        let load = Load::of(round);
        let cut = if self.random.below(2) == 0 { Cut::Kill } else { Cut::Power };
        let server = SERVERS[(round / 10 + round) as usize % SERVERS.len()];
        let mut done = Done { load, cut, server, answers: Answers::default(), checked: 0, wrong: None };
        let options: Vec<String> = server.iter().map(|option| option.to_string()).collect();
        let found = match load {
            Load::Writers => self.writers(&options, cut, &mut done.answers),
            Load::Fio => self.fio(&options, cut),
            Load::Files => self.files(&options, cut, &mut done.answers),
        }?;
        match found {
            Ok(checked) => done.checked = checked,
            Err(why) => done.wrong = Some(why),
        }
        Ok(done)
    }

    /// Serves a drive for a time while `load` runs beside; the power goes, the server is killed, or both in any order.
    fn serve<T: Send>(
        &mut self,
        drive: fn(&Self) -> &Drive,
        options: &[String],
        cut: Cut,
        time: Option<Duration>,
        load: impl FnOnce(&Stand, &Server) -> T + Send,
    ) -> Result<T, String> {
        let mut powered = drive(self).power()?;
        let export = format!("drive={}", powered.path().display());
        let server = Server::weir(&self.folder.at("socket"), &[&export], options)?;
        let drive_first = cut == Cut::Power && self.random.below(2) == 0;
        let this = &*self;
        let result = std::thread::scope(|scope| {
            let (pid, drive_pid) = (server.pid(), powered.pid());
            let killer = time.map(|time| {
                scope.spawn(move || {
                    std::thread::sleep(time);
                    let order = if drive_first { [drive_pid, pid] } else { [pid, drive_pid] };
                    kill(order[0]);
                    if cut == Cut::Power {
                        std::thread::sleep(Duration::from_millis(5));
                        kill(order[1]);
                    }
                })
            });
            let result = load(this, &server);
            killer.map(|killer| killer.join());
            result
        });
        drop(server);
        powered.cut()?;
        drop(powered);
        let mut random = Random(self.random.next() | 1);
        drive(self).settle(cut, &mut random)?;
        Ok(result)
    }

    fn some_time(&mut self) -> Duration {
        Duration::from_millis(20 + self.random.below(300))
    }

    fn writers(&mut self, options: &[String], cut: Cut, sum: &mut Answers) -> Result<Result<usize, String>, String> {
        let seeds: Vec<u64> = (0..WRITERS).map(|_| self.random.next() | 1).collect();
        let time = self.some_time();
        let answers = self.serve(
            |this| &this.sectors,
            options,
            cut,
            Some(time),
            |this, server| {
                std::thread::scope(|scope| {
                    let writer = |(own, &seed): (usize, &u64)| {
                        scope.spawn(move || writers::write(&this.parts, own, server.socket(), &mut Random(seed)))
                    };
                    let writers: Vec<_> = seeds.iter().enumerate().map(writer).collect();
                    writers
                        .into_iter()
                        .map(|writer| writer.join().map_err(|_| "a writer panicked".to_string())?)
                        .collect::<Vec<_>>()
                })
            },
        )?;
        let image = self.read(&self.sectors)?;
        let read = answers.into_iter().try_for_each(|answers| {
            let answers = answers?;
            sum.requests += answers.requests;
            sum.flushes += answers.flushes;
            Ok(())
        });
        let settled = self.parts.settle(&image);
        Ok(read.and(settled).map(|()| WRITERS * PART))
    }

    /// fio writes and flushes; then power goes at once, and fio looks for what it wrote in the image.
    fn fio(&mut self, options: &[String], cut: Cut) -> Result<Result<usize, String>, String> {
        let jobs = self.folder.at("jobs");
        let name = "[job]\n";
        let drive = Drive::make(&self.folder, "fio", 8 << 20)?;
        let image = drive.image().clone();
        let mut powered = drive.power()?;
        let export = format!("drive={}", powered.path().display());
        let server = Server::weir(&self.folder.at("socket"), &[&export], options)?;
        let text = format!("{FIO}ioengine=nbd\nthread=1\nuri={}\niodepth=16\ndo_verify=0\n{name}", server.uri("drive"));
        Fio::start(&jobs, &text)?.outcome()?;
        drop(server);
        powered.cut()?;
        drop(powered);
        drive.settle(cut, &mut self.random)?;
        let text = format!("{FIO}ioengine=psync\nfilename={}\nverify_only=1\n{name}", image.display());
        Ok(Fio::start(&jobs, &text)?.outcome().map(|_| 1024))
    }

    fn files(&mut self, options: &[String], cut: Cut, sum: &mut Answers) -> Result<Result<usize, String>, String> {
        let time = self.some_time() * 3;
        let next = self.safe.last().map_or(0, |last| last + 1);
        let written = self.serve(
            |this| &this.files,
            options,
            cut,
            Some(time),
            |this, server| {
                let mounted = filesystem::mount(&this.folder, &server.uri("drive"))?;
                Ok(mounted.write(next))
            },
        )?;
        // The power may have gone while it was mounted.
        let written: Vec<u64> = written.unwrap_or_else(|_: String| Vec::new());
        sum.requests += written.len() as u64;
        sum.flushes += 2 * written.len() as u64;
        self.safe.extend(written);
        Ok(filesystem::check(&self.files, &self.folder, &self.safe))
    }

    fn read(&self, drive: &Drive) -> Result<Vec<u8>, String> {
        std::fs::read(drive.image()).map_err(|why| format!("cannot read {}: {why}", drive.image().display()))
    }
}

fn kill(pid: u32) {
    // SAFETY: a signal to a child that is not waited for before the thread that calls this has ended.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}
