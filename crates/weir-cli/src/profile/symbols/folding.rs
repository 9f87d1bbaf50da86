//! Which frames of a stack are shown. What says nothing of the program is folded into what called it: functions of the
//! standard libraries of Rust and C++.

use super::object_file::Frame;

/// Paths that the standard libraries' functions begin with, and those of the tables under Rust's.
const LIBRARIES: [&str; 6] = ["std::", "core::", "alloc::", "hashbrown::", "__gnu_cxx::", "__rustc::"];
/// Their functions without a path.
const FUNCTIONS: [&str; 4] = ["operator new", "__rust_alloc", "__rust_realloc", "__rdl_"];

/// The frames that are shown, the innermost first, from the program's call on. Of other frames of a library's in a
/// row, the outermost is shown, which is the one that the program called. Where there is nothing else, all.
pub fn folded(frames: Vec<&Frame>) -> Vec<&Frame> {
    let Some(begin) = frames.iter().position(|frame| !is_hidden(&frame.function)) else { return frames };
    let mut shown: Vec<&Frame> = Vec::with_capacity(frames.len() - begin);
    for &frame in &frames[begin..] {
        match shown.last_mut() {
            Some(last) if is_hidden(&last.function) && is_hidden(&frame.function) => *last = frame,
            _ => shown.push(frame),
        }
    }
    shown
}

fn is_hidden(function: &str) -> bool {
    let path = path(function);
    LIBRARIES.iter().any(|start| path.starts_with(start)) || FUNCTIONS.iter().any(|start| function.starts_with(start))
}

/// The function's path: of Rust's `<alloc::vec::Vec<T> as Trait>::f` without what is before it; of C++'s
/// `void std::vector<T>::f(int)` without the type that it returns.
fn path(function: &str) -> &str {
    if let Some(inner) = function.strip_prefix('<') {
        return inner.trim_start_matches(['<', '&', '*']).trim_start_matches("mut ").trim_start_matches("dyn ");
    }
    let (mut depth, mut begin) = (0usize, 0);
    for (at, c) in function.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 => break,
            ' ' if depth == 0 => begin = at + 1,
            _ => {}
        }
    }
    &function[begin..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(names: &[&str]) -> Vec<String> {
        let frames: Vec<Frame> =
            names.iter().map(|&name| Frame { function: name.into(), ..Frame::default() }).collect();
        folded(frames.iter().collect()).iter().map(|frame| frame.function.clone()).collect()
    }

    #[test]
    fn what_says_nothing_of_the_program_is_folded() {
        let rust = [
            "__rustc::__rust_alloc",
            "<alloc::raw_vec::RawVecInner<A>>::grow_one",
            "<alloc::vec::Vec<program::T>>::push",
            "program::leak",
            "core::ops::function::FnOnce::call_once",
            "std::thread::spawn",
            "<program::T as core::fmt::Debug>::fmt",
            "main",
        ];
        assert_eq!(
            shown(&rust),
            ["program::leak", "std::thread::spawn", "<program::T as core::fmt::Debug>::fmt", "main"]
        );
        let cpp = [
            "operator new(unsigned long)",
            "void std::vector<a::B, std::allocator<a::B> >::_M_realloc_insert<a::B>(int)",
            "std::unique_ptr<int> a::make(int)",
            "(anonymous namespace)::work()",
            "main",
        ];
        assert_eq!(shown(&cpp), ["std::unique_ptr<int> a::make(int)", "(anonymous namespace)::work()", "main"]);
        assert_eq!(shown(&["std::a", "core::b"]), ["std::a", "core::b"]);
        assert_eq!((shown(&["leak"]), shown(&[])), (vec!["leak".into()], Vec::<String>::new()));
    }
}
