//! The API of Kubernetes: the pods of this node, and what is changed of them.

pub mod autoscaler;
pub mod patch;
pub mod pod;
pub mod pods;
