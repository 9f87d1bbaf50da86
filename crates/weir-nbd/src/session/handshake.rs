//! The handshake: a client's options, until it has chosen an export.

use super::context::{Context, TlsMode};
use super::farewell::farewell;
use crate::buffers::Buffer;
use crate::export::Export;
use crate::protocol::client_option::{BadQueries, ContextRequest, ExportRequest, HEADER, MAX_OPTION, OptionHeader};
use crate::protocol::constants::{DEFAULT_PAYLOAD, MAX_STRING, allocation, handshake_flag, info, option};
use crate::protocol::constants::{option_reply as kind, transmission_flag};
use crate::protocol::{Style, Terms, option_reply};
use crate::transport::{Connection, Input, Writer};
use rustls::ServerConfig;
use std::io::{Error, ErrorKind, Result};
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;

/// Longest option that is skipped, bytes. A longer one is an attack.
const MAX_SKIPPED: u32 = DEFAULT_PAYLOAD;
/// Most options of a handshake. Clients send a handful; one that asks about each of many exports, some for each.
const MAX_OPTIONS: usize = 1024;
/// Blocks that a client should use, bytes: a page of the kernel's cache.
const PREFERRED_BLOCK: u32 = 4096;

/// The terms that client and server have agreed on.
pub struct Agreed {
    /// The export that was chosen.
    pub export: Arc<Export>,
    /// How it is used.
    pub terms: Terms,
    pub input: Input,
    pub writer: Writer,
}

/// A handshake under way.
pub struct Handshake<'a> {
    connection: &'a Rc<Connection>,
    input: Input,
    writer: Writer,
    context: &'a Context,
    tls: TlsMode,
    is_fixed: bool,
    no_zeroes: bool,
    style: Style,
    /// The export for which `base:allocation` was chosen.
    allocation: Option<Arc<Export>>,
}

/// The step that follows an option.
enum Next {
    /// These replies, and another option.
    Reply(Vec<u8>),
    /// These bytes, and requests for an export of so many bytes.
    Transmit(Vec<u8>, Arc<Export>, u64),
    /// These bytes, and all from then on by TLS.
    StartTls(Vec<u8>, Arc<ServerConfig>),
    /// These bytes, and the end.
    End(Vec<u8>),
}

impl<'a> Handshake<'a> {
    /// A handshake with a client that has just connected.
    pub fn new(connection: &'a Rc<Connection>, input: Input, writer: Writer, context: &'a Context) -> Self {
        let (tls, style) = (context.tls(), Style::Simple);
        Self { connection, input, writer, context, tls, is_fixed: false, no_zeroes: false, style, allocation: None }
    }

    /// Speaks with the client until it has chosen an export, or left (`None`).
    pub async fn run(mut self) -> Result<Option<Agreed>> {
        let first = async {
            self.send(option_reply::greeting()).await?;
            self.input.message::<4>().await
        };
        let flags = match first.await {
            // One that only looked whether somebody listens: it left before the greeting, or without reading it.
            Err(why) if matches!(why.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => return Ok(None),
            flags => flags?,
        };
        let Some(flags) = flags else { return Ok(None) };
        let flags = u32::from_be_bytes(flags);
        let known = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        if flags & !u32::from(known) != 0 {
            return Err(violation("unknown client flags"));
        }
        self.is_fixed = flags & u32::from(handshake_flag::FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        for _ in 0..MAX_OPTIONS {
            let Some(header) = self.input.message::<HEADER>().await? else { return Ok(None) };
            let header = OptionHeader::parse(&header).ok_or_else(|| violation("no option"))?;
            match self.answer(header).await? {
                Next::Reply(bytes) => self.send(bytes).await?,
                Next::Transmit(bytes, export, size) => {
                    self.send(bytes).await?;
                    return Ok(Some(self.agree(export, size)));
                }
                Next::StartTls(bytes, config) => {
                    self.send(bytes).await?;
                    self = self.secure(config).await?;
                }
                Next::End(bytes) => {
                    // The client may have left without waiting for it: that is in order.
                    let _ = self.send(bytes).await;
                    farewell(self.writer).await;
                    return Ok(None);
                }
            }
        }
        Err(violation("too many options"))
    }

    async fn answer(&mut self, header: OptionHeader) -> Result<Next> {
        let OptionHeader { option, length } = header;
        if !self.is_fixed && option != option::EXPORT_NAME {
            return Err(violation("an option that the client's flags do not allow"));
        }
        if option == option::EXPORT_NAME {
            // This option has no answer but success.
            if length as usize > MAX_STRING {
                return Err(violation("a name that is too long"));
            }
            let data = self.data(length).await?;
            return self.export_name(data.filled()).await;
        }
        if length > MAX_OPTION {
            if length > MAX_SKIPPED {
                return Err(violation("an option that is far too long"));
            }
            self.input.skip(length.into()).await?;
            return Ok(refuse(option, kind::ERR_TOO_BIG, "the option is too long"));
        }
        let data = self.data(length).await?;
        let data = data.filled();
        // What a client may do in any case.
        match option {
            option::ABORT => return Ok(Next::End(reply(option, kind::ACK, b""))),
            _ if self.context.is_stopping() => return Ok(refuse(option, kind::ERR_SHUTDOWN, "the server is stopping")),
            option::STARTTLS => return Ok(self.start_tls(data)),
            _ if self.tls.required && !self.connection.has_tls() => {
                return Ok(refuse(option, kind::ERR_TLS_REQD, "this server needs TLS"));
            }
            _ => {}
        }
        Ok(match option {
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS if !data.is_empty() => {
                refuse(option, kind::ERR_INVALID, "this option has no data")
            }
            option::LIST => self.list(),
            option::STRUCTURED_REPLY if self.style == Style::Extended => {
                refuse(option, kind::ERR_EXT_HEADER_REQD, "extended headers were chosen before")
            }
            option::STRUCTURED_REPLY => self.set_style(option, Style::Structured),
            option::EXTENDED_HEADERS => self.set_style(option, Style::Extended),
            option::INFO | option::GO => self.info(option, data).await,
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(option, data),
            _ => refuse(option, kind::ERR_UNSUP, "unknown option"),
        })
    }

    async fn export_name(&self, name: &[u8]) -> Result<Next> {
        if self.tls.required && !self.connection.has_tls() {
            return Err(violation("no TLS"));
        }
        if self.style == Style::Extended {
            return Err(violation("EXPORT_NAME after extended headers"));
        }
        if self.context.is_stopping() {
            return Err(Error::other("the server is stopping"));
        }
        let found = std::str::from_utf8(name).ok().and_then(|name| self.find(name).ok());
        let export = found.ok_or_else(|| violation("an export that is not there"))?;
        let (flags, size) = (export.transmission_flags(self.style), export.size_now().await);
        Ok(Next::Transmit(option_reply::export_name(size, flags, self.no_zeroes), export, size))
    }

    fn start_tls(&self, data: &[u8]) -> Next {
        let option = option::STARTTLS;
        if !data.is_empty() {
            return refuse(option, kind::ERR_INVALID, "this option has no data");
        }
        if self.connection.has_tls() {
            return refuse(option, kind::ERR_INVALID, "TLS is in use already");
        }
        match self.tls.config.clone() {
            Some(config) => Next::StartTls(reply(option, kind::ACK, b""), config),
            None => refuse(option, kind::ERR_POLICY, "this server has no certificate"),
        }
    }

    /// Starts TLS. What came in the clear does not count: an attacker may have sent it.
    async fn secure(self, config: Arc<ServerConfig>) -> Result<Self> {
        let early = || violation("something was sent along with STARTTLS");
        let reader = self.input.into_reader().ok_or_else(early)?;
        let (reader, writer) = self.connection.start_tls(config, reader, self.writer).await?;
        let input = Input::new(self.connection.clone(), reader)?;
        Ok(Self { input, writer, style: Style::Simple, allocation: None, ..self })
    }

    async fn data(&mut self, length: u32) -> Result<Buffer> {
        let mut data = Buffer::take(length as usize)?;
        self.input.data(&mut data).await?;
        Ok(data)
    }

    fn list(&self) -> Next {
        let mut out = Vec::new();
        for export in self.context.exports().iter().filter(|export| self.may_see(export)) {
            option_reply::server(&mut out, option::LIST, &export.definition.name, &export.definition.description);
        }
        option_reply::reply(&mut out, option::LIST, kind::ACK, b"");
        Next::Reply(out)
    }

    fn set_style(&mut self, option: u32, style: Style) -> Next {
        self.style = style;
        Next::Reply(reply(option, kind::ACK, b""))
    }

    async fn info(&self, option: u32, data: &[u8]) -> Next {
        let Some(request) = ExportRequest::parse(data) else {
            return refuse(option, kind::ERR_INVALID, "malformed data");
        };
        let export = match self.find(request.name) {
            Ok(export) => export,
            Err((kind, message)) => return refuse(option, kind, message),
        };
        let (mut out, definition, size) = (Vec::new(), &export.definition, export.size_now().await);
        option_reply::export_info(&mut out, option, size, export.transmission_flags(self.style));
        let is_wanted = |what: u16| request.wanted.contains(&what);
        if is_wanted(info::NAME) || request.name != definition.name {
            option_reply::text_info(&mut out, option, info::NAME, &definition.name);
        }
        if is_wanted(info::DESCRIPTION) && !definition.description.is_empty() {
            option_reply::text_info(&mut out, option, info::DESCRIPTION, &definition.description);
        }
        if is_wanted(info::BLOCK_SIZE) {
            let most = self.context.limits.request;
            option_reply::block_size_info(&mut out, option, 1, PREFERRED_BLOCK, most);
        }
        option_reply::reply(&mut out, option, kind::ACK, b"");
        if option == option::GO { Next::Transmit(out, export, size) } else { Next::Reply(out) }
    }

    fn contexts(&mut self, option: u32, data: &[u8]) -> Next {
        let is_set = option == option::SET_META_CONTEXT;
        if is_set {
            // It replaces what was chosen before, even if it fails.
            self.allocation = None;
        }
        if self.style == Style::Simple {
            return refuse(option, kind::ERR_INVALID, "structured replies or extended headers come first");
        }
        let request = match ContextRequest::parse(data) {
            Ok(request) => request,
            Err(BadQueries::Malformed) => return refuse(option, kind::ERR_INVALID, "malformed data"),
            Err(BadQueries::TooMany) => return refuse(option, kind::ERR_TOO_BIG, "too many queries"),
        };
        let export = match self.find(request.name) {
            Ok(export) => export,
            Err((kind, message)) => return refuse(option, kind, message),
        };
        let mut out = Vec::new();
        // A list without queries is of all contexts; a namespace stands for all of its own, but only in lists.
        let is_listed = !is_set && (request.queries.is_empty() || request.queries.contains(&allocation::NAMESPACE));
        if is_listed || request.queries.contains(&allocation::NAME) {
            let id = if is_set { ALLOCATION_ID } else { 0 };
            option_reply::context(&mut out, option, id, allocation::NAME);
            self.allocation = is_set.then_some(export).or(self.allocation.take());
        }
        option_reply::reply(&mut out, option, kind::ACK, b"");
        Next::Reply(out)
    }

    /// The export, or the error that hides it.
    fn find(&self, name: &str) -> std::result::Result<Arc<Export>, (u32, &'static str)> {
        match self.context.exports().find(name) {
            Some(export) if self.may_see(export) => Ok(export.clone()),
            Some(_) => Err((kind::ERR_TLS_REQD, "this export needs TLS")),
            None => Err((kind::ERR_UNKNOWN, "there is no export of this name")),
        }
    }

    fn may_see(&self, export: &Export) -> bool {
        self.connection.has_tls() || !export.definition.tls_only
    }

    fn agree(self, export: Arc<Export>, size: u64) -> Agreed {
        let flags = export.transmission_flags(self.style);
        let terms = Terms {
            style: self.style,
            size,
            read_only: flags & transmission_flag::READ_ONLY != 0,
            has_allocation: self.allocation.is_some_and(|chosen| Arc::ptr_eq(&chosen.volume, &export.volume)),
            max_payload: self.context.limits.request,
        };
        Agreed { export, terms, input: self.input, writer: self.writer }
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.writer.write_all(&bytes).await?;
        self.writer.flush().await
    }
}

/// The number of the one metadata context, in status replies.
pub const ALLOCATION_ID: u32 = 1;

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    option_reply::reply(&mut out, option, kind, data);
    out
}

fn refuse(option: u32, kind: u32, why: &str) -> Next {
    Next::Reply(reply(option, kind, why.as_bytes()))
}

/// The client does not follow the protocol, and is disconnected.
fn violation(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}
