//! A small HTTP server of files that keeps what is asked for in an evictable cache. The cache has no size of its own. It
//! grows into memory that is free, and shrinks when memory is short anywhere on the machine.
//!
//! ```text
//! cargo run --release -p weir-memory --example http_file_cache -- --listen 127.0.0.1:8080 DIRECTORY
//! curl http://127.0.0.1:8080/some/file
//! curl http://127.0.0.1:8080/-/cache      # the cache's figures
//! ```
//!
//! `--limit SIZE` sets a budget for the whole process. Without a directory the program makes one, sends itself requests,
//! takes half of the cache away as pressure would, and prints the figures.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs, process, thread};

use tiny_http::{Header, Method, Request, Response, Server};
use weir::{Entry, EvictableCache};

#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

/// Threads that answer requests.
const THREADS: usize = 4;

/// A file as it was read.
#[derive(Debug)]
struct File {
    changed: SystemTime,
    body: Vec<u8>,
}

impl File {
    fn read(path: &Path) -> io::Result<Self> {
        // The time first: a file that changes while it is read is read again at the next request.
        Ok(Self { changed: fs::metadata(path)?.modified()?, body: fs::read(path)? })
    }
}

/// The files below a directory, and those of them that are in memory.
struct Files {
    root: PathBuf,
    cache: EvictableCache<PathBuf, File>,
}

impl Files {
    fn new(root: PathBuf) -> Result<Self, Box<dyn Error>> {
        let cache = EvictableCache::builder()
            .name("files")
            .weigher(|path: &PathBuf, file: &File| path.capacity() + file.body.capacity())
            .build()?;
        Ok(Self { root, cache })
    }

    /// The file that a URL names; `None` if it leads out of the directory.
    fn path_of(&self, url: &str) -> Option<PathBuf> {
        let path = Path::new(url.split('?').next().unwrap_or_default().trim_start_matches('/'));
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
        is_below.then(|| self.root.join(path))
    }

    /// A file from the cache, read if it is not there or has changed since. Of several requests for a file that is not
    /// there one reads it, and the others wait.
    fn get(&self, path: &Path) -> io::Result<Entry<'_, PathBuf, File>> {
        let changed = fs::metadata(path)?.modified()?;
        match self.cache.get(path) {
            Some(file) if file.changed == changed => return Ok(file),
            Some(_) => drop(self.cache.remove(path)),
            None => {}
        }
        self.cache.try_get_or_insert_with(path.to_path_buf(), || File::read(path))
    }

    fn answer(&self, request: Request) -> io::Result<()> {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return refuse(request, 405, "GET and HEAD alone");
        }
        if request.url() == "/-/cache" {
            return request.respond(Response::from_string(self.figures()));
        }
        let Some(path) = self.path_of(request.url()) else { return refuse(request, 404, "no such file") };
        match self.get(&path) {
            // The guard keeps the file in memory until it is sent, also where the cache has no room for it.
            Ok(file) => send(request, &file.body),
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => refuse(request, 403, "not readable"),
            Err(_) => refuse(request, 404, "no such file"),
        }
    }

    fn figures(&self) -> String {
        let stats = self.cache.stats();
        format!(
            "{{\"files\":{},\"bytes\":{},\"hits\":{},\"misses\":{}}}\n",
            self.cache.len(),
            self.cache.bytes(),
            stats.hits,
            stats.misses
        )
    }

    /// Answers requests until the server is unblocked.
    fn serve(&self, server: &Server) {
        for request in server.incoming_requests() {
            if let Err(why) = self.answer(request) {
                eprintln!("a client went away: {why}");
            }
        }
    }
}

fn send(request: Request, body: &[u8]) -> io::Result<()> {
    let kind = Header::from_bytes("Content-Type", "application/octet-stream").expect("a well-formed header");
    let response = Response::new(200.into(), vec![kind], body, Some(body.len()), None);
    request.respond(response.with_chunked_threshold(usize::MAX))
}

fn refuse(request: Request, status: u16, why: &str) -> io::Result<()> {
    request.respond(Response::from_string(format!("{why}\n")).with_status_code(status))
}

/// Options of the command line.
struct Options {
    listen: String,
    root: Option<PathBuf>,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { listen: "127.0.0.1:8080".into(), root: None };
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg}: a value is missing"));
        match arg.as_str() {
            "--listen" => options.listen = value()?,
            "--limit" => {
                weir::settings::set("limit", &value()?)?;
            }
            _ if arg.starts_with('-') => {
                return Err(format!("{arg}: unknown; [--listen ADDRESS] [--limit SIZE] [DIRECTORY]").into());
            }
            _ => options.root = Some(arg.into()),
        }
    }
    Ok(options)
}

fn start(address: &str) -> Result<Server, Box<dyn Error>> {
    Server::http(address).map_err(|why| format!("{address}: {why}").into())
}

fn main() -> Result<(), Box<dyn Error>> {
    let Options { listen, root } = options()?;
    let Some(root) = root else { return demonstrate() };
    let files = Files::new(root.canonicalize().map_err(|why| format!("{}: {why}", root.display()))?)?;
    let server = start(&listen)?;
    println!("serving {} at http://{}", root.display(), server.server_addr());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| files.serve(&server));
        }
    });
    Ok(())
}

// ---- without a directory -------------------------------------------------------------------------------------------

/// Files of the demonstration, and their length.
const FILES: usize = 200;
const LENGTH: usize = 64 << 10;
const REQUESTS: usize = 2_000;

fn demonstrate() -> Result<(), Box<dyn Error>> {
    let root = env::temp_dir().join(format!("weir-http-{}", process::id()));
    fs::create_dir(&root)?;
    let done = (0..FILES)
        .try_for_each(|number| fs::write(root.join(number.to_string()), vec![number as u8; LENGTH]))
        .map_err(Box::from)
        .and_then(|()| request_all(&root));
    fs::remove_dir_all(&root)?;
    done
}

fn request_all(root: &Path) -> Result<(), Box<dyn Error>> {
    let files = Files::new(root.to_path_buf())?;
    let server = start("127.0.0.1:0")?;
    let address = server.server_addr().to_ip().ok_or("no address")?;
    let figures = thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| files.serve(&server));
        }
        let asked = ask(address, &files);
        (0..THREADS).for_each(|_| server.unblock());
        asked
    })?;
    print!("{figures}");
    Ok(())
}

/// Small numbers more often than large ones; in the middle half of the cache goes, as under pressure.
fn ask(address: SocketAddr, files: &Files) -> Result<String, Box<dyn Error>> {
    for number in 0..REQUESTS {
        let file = number * number % FILES * (number % 7) / 7;
        let (status, body) = get(address, &file.to_string())?;
        if status != 200 || body.len() != LENGTH || body.iter().any(|&byte| byte != file as u8) {
            return Err(format!("file {file}: status {status}, {} bytes", body.len()).into());
        }
        if number == REQUESTS / 2 {
            println!("{} bytes held, {} evicted", files.cache.bytes(), files.cache.evict(files.cache.bytes() / 2));
        }
    }
    let refused = get(address, "../etc/passwd")?.0;
    if refused != 404 {
        return Err(format!("a path out of the directory: status {refused}").into());
    }
    Ok(String::from_utf8(get(address, "-/cache")?.1)?)
}

fn get(address: SocketAddr, path: &str) -> Result<(u16, Vec<u8>), Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no head")?;
    let status = str::from_utf8(answer.get(9..12).ok_or("a short head")?)?.parse()?;
    Ok((status, answer.split_off(end + 4)))
}
