//! The heap profile of a process: which allocation is sampled ([`countdown`]), its call stack ([`stack`], [`unwind`]), the
//! switch that turns it on and off, and the profile as text. And guarded sampling ([`guard`]), which stops a program at a wrong
//! access.

pub mod countdown;
pub mod guard;
pub mod stack;
pub mod switch;
pub mod text;
pub mod unwind;
