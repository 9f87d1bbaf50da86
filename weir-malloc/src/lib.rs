//! Weir as a drop-in malloc.
