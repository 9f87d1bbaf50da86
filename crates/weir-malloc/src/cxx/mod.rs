//! C++ `operator new` and `operator delete`, by their mangled names; which form calls which.

mod delete;
mod new;
mod throw;
