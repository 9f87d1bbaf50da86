//! A client's messages: made of options and requests that are right or nearly so, and of any bytes.

use crate::{REQUEST, SIZE};
use arbitrary::{Result, Unstructured};
use std::ops::Range;
use std::sync::OnceLock;

/// Options and requests of a script at most.
const MESSAGES: usize = 60;
/// Bytes of a script at most: of a longer one no more is made.
const LONGEST: usize = 512 << 10;
/// Bytes of a payload that is longer than what may be sent, as far as it is sent.
const MOST_PAYLOAD: u64 = 300 << 10;

/// See the module.
#[derive(Default)]
pub struct Script {
    pub bytes: Vec<u8>,
    /// Where the client waits until all that it has asked for was answered, if the model finds a request there.
    pub waits: Vec<usize>,
    /// Made by the model.
    pub pieces: Vec<Piece>,
    /// Where it is cut.
    pub cuts: Vec<usize>,
}

/// Bytes that are sent at once.
pub struct Piece {
    pub range: Range<usize>,
    /// Not before so many requests were answered.
    pub after: usize,
    /// The next piece is not sent before the server had time to read it.
    pub is_read_alone: bool,
}

impl Script {
    pub fn of(u: &mut Unstructured) -> Result<Self> {
        let mut script = Self::default();
        script.bytes.extend(u32::from(u.int_in_range(0..=40u8)?.min(3)).to_be_bytes());
        let style = u.int_in_range(0..=3u8)?;
        // What gets most scripts as far as requests.
        match style {
            0 => {}
            1 => script.option(8, b""),
            2 => script.option(11, b""),
            _ => {
                script.option(8, b"");
                script.option(10, &[&named(b"m")[..], &1u32.to_be_bytes(), &named(b"base:allocation")].concat());
            }
        }
        if style == 2 && u.arbitrary()? {
            script.option(10, &[&named(b"")[..], &1u32.to_be_bytes(), &named(b"base:allocation")].concat());
        }
        for _ in 0..u.int_in_range(0..=6)? {
            script.any_option(u)?;
        }
        match u.int_in_range(0..=15u8)? {
            0 => script.option(1, b"m"),
            1 => {}
            _ => script.option(7, &[&named(b"m")[..], &[0, 0]].concat()),
        }
        for _ in 0..MESSAGES {
            if u.is_empty() || script.bytes.len() > LONGEST {
                break;
            }
            if u.arbitrary()? {
                script.waits.push(script.bytes.len());
            }
            script.request(u, style == 2)?;
        }
        let most = script.bytes.len();
        for _ in 0..u.int_in_range(0..=20)? {
            script.cuts.push(u.int_in_range(0..=most)?);
        }
        Ok(script)
    }

    fn option(&mut self, option: u32, data: &[u8]) {
        self.bytes.extend(b"IHAVEOPT");
        self.bytes.extend(option.to_be_bytes());
        self.bytes.extend((data.len() as u32).to_be_bytes());
        self.bytes.extend(data);
    }

    fn any_option(&mut self, u: &mut Unstructured) -> Result<()> {
        let option = match u.int_in_range(0..=20u32)? {
            // These end the handshake.
            1 | 2 | 7 if u.ratio(3, 4)? => 6,
            option => option,
        };
        let name = *u.choose(&[&b"m"[..], b"", b"other", b"\xff", b"a\0"])?;
        let mut data = match u.int_in_range(0..=4u8)? {
            0 => Vec::new(),
            1 => {
                let wanted: Vec<u8> = (0..u.int_in_range(0..=5u16)?).flat_map(|kind| kind.to_be_bytes()).collect();
                [&named(name)[..], &(wanted.len() as u16 / 2).to_be_bytes(), &wanted].concat()
            }
            2 => {
                let count: u32 = u.int_in_range(0..=3)?;
                let mut data = [&named(name)[..], &count.to_be_bytes()].concat();
                for _ in 0..count {
                    data.extend(named(u.choose(&[&b"base:allocation"[..], b"base:", b"x:y", b"none", b""])?));
                }
                data
            }
            3 => vec![u.arbitrary()?; *u.choose(&[4096, 65_536, 65_537, 200_000])?],
            _ => any_bytes(u, 40)?,
        };
        if u.ratio(1, 4)? && !data.is_empty() {
            let at = u.choose_index(data.len())?;
            data[at] = u.arbitrary()?;
        }
        self.option(option, &data);
        if u.ratio(1, 30)? {
            self.bytes.extend(any_bytes(u, 20)?);
        }
        Ok(())
    }

    fn request(&mut self, u: &mut Unstructured, is_extended: bool) -> Result<()> {
        if u.ratio(1, 60)? {
            self.bytes.extend(any_bytes(u, 40)?);
            return Ok(());
        }
        let kind = u.int_in_range(0..=9u16)?;
        let kind = if kind == 2 && u.ratio(7, 8)? { 1 } else { kind };
        let mut flags: u16 = if u.ratio(1, 3)? { 1 << u.int_in_range(0..=7)? } else { 0 };
        let (offset, length) = (edge(u)?, edge(u)?);
        let length = if u.ratio(1, 3)? { length } else { length % 70_000 };
        if is_extended && kind == 1 && u.ratio(7, 8)? {
            flags |= 32;
        }
        let has_payload = if is_extended { flags & 32 != 0 } else { kind == 1 };
        let magic: u32 = if is_extended { 0x21e4_1c71 } else { 0x2560_9513 };
        self.bytes.extend(magic.to_be_bytes());
        self.bytes.extend(flags.to_be_bytes());
        self.bytes.extend(kind.to_be_bytes());
        // The model puts a number here.
        self.bytes.extend([0; 8]);
        self.bytes.extend(offset.to_be_bytes());
        self.bytes.extend(&length.to_be_bytes()[if is_extended { 0 } else { 4 }..]);
        if has_payload {
            let length = if is_extended { length } else { length & u64::from(u32::MAX) };
            let from = 1000 * usize::from(u.arbitrary::<u8>()?);
            self.bytes.extend(&data()[from..from + length.min(MOST_PAYLOAD) as usize]);
        }
        Ok(())
    }
}

/// Bytes of which no two near each other are the same, nor two pages.
fn data() -> &'static [u8] {
    static DATA: OnceLock<Vec<u8>> = OnceLock::new();
    DATA.get_or_init(|| (0..256_000 + MOST_PAYLOAD).map(|at| (at % 251 + at / 4096) as u8).collect())
}

fn named(name: &[u8]) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes()[..], name].concat()
}

fn any_bytes(u: &mut Unstructured, most: usize) -> Result<Vec<u8>> {
    let length = u.int_in_range(0..=most)?;
    Ok(u.bytes(length.min(u.len()))?.into())
}

/// A number at the edge of something, or any.
fn edge(u: &mut Unstructured) -> Result<u64> {
    let request = u64::from(REQUEST);
    let edges = [0, 1, 511, 512, 4095, 4096, 65_535, 65_536, 256 << 10, request, SIZE - 1, SIZE, 32 << 20];
    let huge = [u64::from(u32::MAX), 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX];
    Ok(match u.int_in_range(0..=7u8)? {
        0 => *u.choose(&huge)?,
        1..=3 => *u.choose(&edges)? + u64::from(u.int_in_range(0..=2u8)?),
        _ => u.int_in_range(0..=SIZE)?,
    })
}
