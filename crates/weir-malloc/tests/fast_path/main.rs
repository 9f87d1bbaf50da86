//! What only the finished library shows: the instructions of its fast path, the stack that it uses, and its symbols.

#[path = "../common/mod.rs"]
mod common;
mod disassembly;
mod instructions;
mod stack_use;
