//! The command from outside: one program, as each one more would be linked with all of the command's library.

mod ctl;
mod doctor;
mod export;
mod frozen;
mod many_processes;
mod profile;
mod report;
mod run;
mod shrink;
mod stat;
mod subject;
mod survey;
mod top;
mod why;
