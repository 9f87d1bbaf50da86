//! `weir export`: what it says and serves, and whether the files in docs/deploy fit that.

mod metrics_files;
mod served;
