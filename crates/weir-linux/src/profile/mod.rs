//! The heap profile of a process: which allocation is sampled ([`countdown`]), and its call stack ([`stack`],
//! [`unwind`]). The switch that turns it on and off, and the profile as text, are here too. Guarded sampling
//! ([`guard`]) stops a program at a wrong access.

pub mod countdown;
pub mod guard;
pub mod stack;
pub mod switch;
pub mod text;
pub mod unwind;
