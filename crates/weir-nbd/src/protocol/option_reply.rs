//! Messages of the server in the handshake.

use super::constants::{INIT_PASSWD, OPTION_MAGIC, OPTION_REPLY_MAGIC, handshake_flag, info, option_reply};

/// The greeting: both magic words and the handshake flags.
pub fn greeting() -> Vec<u8> {
    let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    [&INIT_PASSWD.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &flags.to_be_bytes()].concat()
}

/// Appends one reply to `out`.
pub fn reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

/// Appends an entry of the list of exports.
pub fn server(out: &mut Vec<u8>, option: u32, name: &str, description: &str) {
    let data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), description.as_bytes()].concat();
    reply(out, option, option_reply::SERVER, &data);
}

/// Appends a metadata context.
pub fn context(out: &mut Vec<u8>, option: u32, id: u32, name: &str) {
    reply(out, option, option_reply::META_CONTEXT, &[&id.to_be_bytes()[..], name.as_bytes()].concat());
}

/// Appends the information that every client is told: size and transmission flags.
pub fn export_info(out: &mut Vec<u8>, option: u32, size: u64, flags: u16) {
    let data = [&info::EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
    reply(out, option, option_reply::INFO, &data);
}

/// Appends a name or a description.
pub fn text_info(out: &mut Vec<u8>, option: u32, kind: u16, text: &str) {
    reply(out, option, option_reply::INFO, &[&kind.to_be_bytes()[..], text.as_bytes()].concat());
}

/// Appends the size constraints, bytes.
pub fn block_size_info(out: &mut Vec<u8>, option: u32, minimum: u32, preferred: u32, maximum: u32) {
    let sizes = [minimum, preferred, maximum].map(u32::to_be_bytes).concat();
    reply(out, option, option_reply::INFO, &[&info::BLOCK_SIZE.to_be_bytes()[..], &sizes].concat());
}

/// The answer to EXPORT_NAME, which has no header.
pub fn export_name(size: u64, flags: u16, no_zeroes: bool) -> Vec<u8> {
    let zeroes: &[u8] = if no_zeroes { &[] } else { &[0; 124] };
    [&size.to_be_bytes()[..], &flags.to_be_bytes(), zeroes].concat()
}
