//! Files beyond what a descriptor's own calls are: paths, text, sockets, sets of descriptors, files without a name.

pub mod descriptor_table;
pub mod epoll;
pub mod memfd;
pub mod own;
pub mod path;
pub mod ring;
pub mod socket;
pub mod text;
