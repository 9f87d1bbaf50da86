//! A forwarder of DNS questions that keeps answers in an evictable cache for as long as they say: each entry has a time to live of
//! its own. The cache has no size, grows into memory that is free, and shrinks when memory is short anywhere on the machine.
//!
//! ```text
//! cargo run --release -p weir-memory --example dns_forwarder -- 127.0.0.1:5353 9.9.9.9:53
//! dig -p 5353 @127.0.0.1 example.org
//! ```
//!
//! Without arguments the program is its own upstream, asks itself, waits until an answer has expired, and asks again.

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use weir::{EvictableCache, Expiry};

#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

/// Bytes of a message's header, and the longest message over UDP that is passed on.
const HEADER: usize = 12;
const LONGEST: usize = 4096;
/// Threads that answer questions.
const THREADS: usize = 16;
/// How long the upstream may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a failure of the upstream counts.
const PAUSE: Duration = Duration::from_secs(1);

/// What came of a question: an answer, or why there is none.
type Outcome = Result<Answer, String>;

/// An answer as the upstream sent it.
struct Answer {
    message: Vec<u8>,
    /// Where the times to live of its records are.
    times: Vec<usize>,
    came: Instant,
}

impl Answer {
    /// `None` if it is no well-formed answer.
    fn new(message: Vec<u8>) -> Option<Self> {
        let records: usize = (6..HEADER).step_by(2).map(|at| usize::from(number(&message, at).unwrap_or(0))).sum();
        let mut at = end_of_question(&message)?;
        let mut times = Vec::new();
        for _ in 0..records {
            at = end_of_name(&message, at)?;
            // The record of options (41) has flags where others have their time.
            if number(&message, at)? != 41 {
                times.push(at + 4);
            }
            at += 10 + usize::from(number(&message, at + 8)?);
        }
        (at <= message.len()).then(|| Self { message, times, came: Instant::now() })
    }

    fn time(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.message[at..at + 4].try_into().expect("four bytes"))
    }

    /// The shortest of its records' times. An answer without records, or that tells of a failure, is not kept.
    fn live(&self) -> Duration {
        let failed = self.message[3] & 0xf != 0;
        let shortest = self.times.iter().map(|&at| self.time(at)).min();
        Duration::from_secs(if failed { 0 } else { shortest.unwrap_or(0).into() })
    }

    /// The answer to a question of this number: what is left of each time, rounded down.
    fn reply(&self, id: [u8; 2]) -> Vec<u8> {
        let mut message = self.message.clone();
        message[..2].copy_from_slice(&id);
        let age = u32::try_from(self.came.elapsed().as_secs()).unwrap_or(u32::MAX);
        for &at in &self.times {
            message[at..at + 4].copy_from_slice(&self.time(at).saturating_sub(age).to_be_bytes());
        }
        message
    }
}

fn number(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?))
}

/// Where a name ends that begins at `at`: after a zero, or after a pointer to the rest of it.
fn end_of_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            192.. => return Some(at + 2),
            _ => return None,
        }
    }
}

/// Where the one question ends.
fn end_of_question(message: &[u8]) -> Option<usize> {
    let end = end_of_name(message, HEADER)? + 4;
    (number(message, 4)? == 1 && end <= message.len()).then_some(end)
}

/// All that an answer depends on: flags, counts, the name, its type, options.
fn key(question: &[u8]) -> Option<Vec<u8>> {
    let end = end_of_question(question)?;
    let mut key = question[2..].to_vec();
    // Names are equal whatever the case of their letters; a length is below any letter.
    key[HEADER - 2..end - 2].make_ascii_lowercase();
    Some(key)
}

struct Forwarder {
    upstream: SocketAddr,
    answers: EvictableCache<Vec<u8>, Outcome>,
}

impl Forwarder {
    fn new(upstream: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let answers = EvictableCache::builder()
            .name("answers")
            .weigher(|key: &Vec<u8>, outcome: &Outcome| {
                let answer = |answer: &Answer| answer.message.capacity() + answer.times.capacity() * 8;
                key.capacity() + outcome.as_ref().map_or_else(String::capacity, answer)
            })
            .expire_after(|_, outcome: &Outcome| {
                let live = outcome.as_ref().map_or(PAUSE, Answer::live);
                Expiry { live: Some(live), ..Expiry::default() }
            })
            .build()?;
        Ok(Self { upstream, answers })
    }

    fn ask(&self, question: &[u8]) -> io::Result<Answer> {
        let socket = UdpSocket::bind(if self.upstream.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect(self.upstream)?;
        socket.send(question)?;
        let mut message = vec![0; LONGEST];
        let length = socket.recv(&mut message)?;
        message.truncate(length);
        message.shrink_to_fit();
        let asked = HEADER..end_of_question(question).unwrap_or(question.len());
        let is_same = |answer: &[u8]| answer.eq_ignore_ascii_case(&question[asked.clone()]);
        if message.get(..2) != question.get(..2) || !message.get(asked.clone()).is_some_and(is_same) {
            return Err(io::Error::other("an answer to another question"));
        }
        Answer::new(message).ok_or_else(|| io::Error::other("an answer that is damaged"))
    }

    /// The answer to a question. The upstream is asked once for all threads that want the same at a time. Where it fails all of
    /// them have that at once, as the failure is a value: an error of the closure would have each ask in turn.
    fn reply(&self, question: &[u8]) -> io::Result<Vec<u8>> {
        let key = key(question).ok_or_else(|| io::Error::other("no question"))?;
        let outcome = self.answers.get_or_insert_with(key, || self.ask(question).map_err(|why| why.to_string()));
        let answer = outcome.as_ref().map_err(|why| io::Error::other(why.as_str()))?;
        Ok(answer.reply([question[0], question[1]]))
    }

    /// Answers that many questions, one after the other.
    fn serve(&self, socket: &UdpSocket, questions: usize) -> io::Result<()> {
        let mut buffer = [0; LONGEST];
        for _ in 0..questions {
            let (length, client) = socket.recv_from(&mut buffer)?;
            if let Err(why) = self.reply(&buffer[..length]).and_then(|reply| socket.send_to(&reply, client)) {
                eprintln!("{client}: {why}");
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [] => demonstrate(),
        [listen, upstream] => {
            let socket = UdpSocket::bind(listen).map_err(|why| format!("{listen}: {why}"))?;
            let upstream = upstream.parse().map_err(|why| format!("{upstream}: {why}; ADDRESS:PORT is wanted"))?;
            println!("answering at {}", socket.local_addr()?);
            let forwarder = Forwarder::new(upstream)?;
            thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..THREADS).map(|_| scope.spawn(|| forwarder.serve(&socket, usize::MAX))).collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("a thread that answers"))
            })?;
            Ok(())
        }
        _ => Err("arguments: LISTEN:PORT UPSTREAM:PORT, or none".into()),
    }
}

// ---- without arguments -----------------------------------------------------------------------------------------------

/// A question for the address of `name`.example.
fn question(id: u8, name: &str) -> Vec<u8> {
    let mut message = vec![0, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in [name, "example"] {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    message
}

/// An upstream until an empty message comes: each name lives a second, and the last byte of its address counts the answers.
fn upstream(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = [0; LONGEST];
    for count in 1.. {
        let (length, client) = socket.recv_from(&mut buffer)?;
        if length == 0 {
            break;
        }
        let mut message = buffer[..length].to_vec();
        message[2] |= 0x80;
        message[7] = 1;
        message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 10, 0, 0, count]);
        socket.send_to(&message, client)?;
    }
    Ok(())
}

/// A socket with a limit to each wait, so that an error ends all threads.
fn socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(2 * PATIENCE))?;
    Ok(socket)
}

/// The counts in the answers to four questions, before the last of which the first's answer expires.
fn ask_all(client: &UdpSocket) -> io::Result<[u8; 4]> {
    let ask = |id: u8, name: &str| {
        client.send(&question(id, name))?;
        let mut reply = [0; LONGEST];
        let length = client.recv(&mut reply)?;
        if reply[..2] == [0, id] { Ok(reply[length - 1]) } else { Err(io::Error::other("a reply to another question")) }
    };
    let soon = [ask(1, "www")?, ask(2, "mail")?, ask(3, "WWW")?];
    thread::sleep(Duration::from_millis(1100));
    Ok([soon[0], soon[1], soon[2], ask(4, "www")?])
}

fn demonstrate() -> Result<(), Box<dyn Error>> {
    let (above, here, client) = (socket()?, socket()?, socket()?);
    client.connect(here.local_addr()?)?;
    let forwarder = Forwarder::new(above.local_addr()?)?;
    let answers = thread::scope(|scope| {
        scope.spawn(|| upstream(&above));
        scope.spawn(|| forwarder.serve(&here, 4));
        let answers = ask_all(&client);
        client.connect(above.local_addr()?)?;
        client.send(&[])?;
        answers
    })?;
    let stats = forwarder.answers.stats();
    println!("answers {answers:?}, {} hits, {} misses, {} expired", stats.hits, stats.misses, stats.expired);
    // On a machine that is very busy the third question, too, may come after the first answer's second.
    let [www, mail, soon, late] = answers;
    if www < mail && (soon == www || soon > mail) && late > mail && late > soon {
        Ok(())
    } else {
        Err("these are not the answers".into())
    }
}
