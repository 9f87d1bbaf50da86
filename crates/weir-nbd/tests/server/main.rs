//! The block server from outside: one program, as each one more would be linked with all that the server needs.

mod cache;
mod clients;
mod fuzz;
mod handshake;
mod integrity;
mod life;
mod limits;
mod locked;
mod locks;
mod pools;
mod requests;
mod storage;
mod support;
mod tls;
