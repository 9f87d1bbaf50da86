//! Which frames of a stack are shown. What says nothing of the program is folded into what called it: functions of the
//! standard libraries of Rust and C++.

use super::object_file::Frame;

/// Paths that functions of Rust's standard library begin with, and those of the tables under it.
const RUST: [&str; 5] = ["std::", "core::", "alloc::", "hashbrown::", "__rustc::"];
/// Paths that functions of C++'s begin with. A program in C++ may have a `core::` of its own.
const CPP: [&str; 2] = ["std::", "__gnu_cxx::"];
/// Functions of both without a path.
const FUNCTIONS: [&str; 4] = ["operator new", "__rust_alloc", "__rust_realloc", "__rdl_"];

/// The frames that are shown, the innermost first, from the program's call on. Of other frames of a library's in a
/// row, the outermost is shown, which is the one that the program called. Where there is nothing else, all.
pub fn folded(frames: Vec<&Frame>) -> Vec<&Frame> {
    let Some(begin) = frames.iter().position(|frame| !is_hidden(frame)) else { return frames };
    let mut shown: Vec<&Frame> = Vec::with_capacity(frames.len() - begin);
    for &frame in &frames[begin..] {
        match shown.last_mut() {
            Some(last) if is_hidden(last) && is_hidden(frame) => *last = frame,
            _ => shown.push(frame),
        }
    }
    shown
}

fn is_hidden(frame: &Frame) -> bool {
    let function = frame.function.as_str();
    let begins = |path: &str, with: &[&str]| with.iter().any(|start| path.starts_with(start));
    if rustc_demangle::try_demangle(&frame.symbol).is_err() {
        return begins(cpp_path(function), &CPP) || begins(function, &FUNCTIONS);
    }
    // `<alloc::vec::Vec<T> as Trait>::f` is the library's where the type and the trait are.
    let Some(inner) = function.strip_prefix('<') else { return begins(function, &RUST) };
    let of_type = inner.trim_start_matches(['<', '&', '*']).trim_start_matches("mut ").trim_start_matches("dyn ");
    let of_trait = outer(inner).find_map(|(at, _)| inner[at..].strip_prefix(" as "));
    begins(of_type, &RUST) && of_trait.is_none_or(|path| begins(path, &RUST))
}

/// The path of C++'s `void std::vector<T>::f(int)`, without the type that it returns.
fn cpp_path(function: &str) -> &str {
    let blanks = outer(function).take_while(|&(_, c)| c != '(').filter(|&(_, c)| c == ' ');
    blanks.last().map_or(function, |(at, _)| &function[at + 1..])
}

/// The characters of a name that are outside of angle brackets, up to the end of those that it is in.
fn outer(name: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut depth, mut last) = (0usize, ' ');
    let places = name.char_indices().map_while(move |(at, c)| {
        match (std::mem::replace(&mut last, c), c) {
            (_, '<') => depth += 1,
            // Of what a function returns.
            ('-', '>') => {}
            (_, '>') => depth = depth.checked_sub(1)?,
            _ => {}
        }
        Some((depth, at, c))
    });
    places.filter(|&(depth, ..)| depth == 0).map(|(_, at, c)| (at, c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of these functions, of which the symbols are like this one.
    fn shown<'a>(symbol: &str, names: &[&'a str]) -> Vec<&'a str> {
        let frame = |&name: &&str| Frame { function: name.into(), symbol: symbol.into(), ..Frame::default() };
        let frames: Vec<Frame> = names.iter().map(frame).collect();
        let shown = folded(frames.iter().collect());
        let place = |it: &Frame| names.iter().find(|&&name| name == it.function).copied().unwrap();
        shown.into_iter().map(place).collect()
    }

    /// Symbols of Rust, in both of its forms, and of C++.
    const OF_RUST: [&str; 2] = ["_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "_RNvC7program4main"];
    const OF_CPP: &str = "_ZN4core4workEi";

    #[test]
    fn what_says_nothing_of_the_program_is_folded() {
        let rust = [
            "__rustc::__rust_alloc",
            "<alloc::raw_vec::RawVecInner<A>>::grow_one",
            "<alloc::vec::Vec<program::T>>::push",
            "<&mut alloc::vec::Vec<fn() -> u8> as core::iter::Extend<<u8 as program::T>::U>>::extend",
            "program::leak",
            "core::ops::function::FnOnce::call_once",
            "std::thread::spawn",
            "<program::T as core::fmt::Debug>::fmt",
            "main",
        ];
        for symbol in OF_RUST {
            assert_eq!(
                shown(symbol, &rust),
                ["program::leak", "std::thread::spawn", "<program::T as core::fmt::Debug>::fmt", "main"]
            );
            assert_eq!(shown(symbol, &["std::a", "core::b"]), ["std::a", "core::b"]);
        }
        let cpp = [
            "operator new(unsigned long)",
            "void std::vector<a::B, std::allocator<a::B> >::_M_realloc_insert<a::B>(int)",
            "std::unique_ptr<int> a::make(int)",
            "(anonymous namespace)::work()",
            "main",
        ];
        assert_eq!(shown(OF_CPP, &cpp), ["std::unique_ptr<int> a::make(int)", "(anonymous namespace)::work()", "main"]);
        assert_eq!(shown("", &["__rust_alloc", "leak"]), ["leak"]);
        assert_eq!((shown("leak", &["leak"]), shown("", &[])), (vec!["leak"], vec![]));
    }

    #[test]
    fn names_of_the_programs_that_are_like_a_librarys_are_shown() {
        for name in
            ["core::work(int)", "bool alloc::operator< <int>(std::pair<int, int>)", "hashbrown::Map<int>::get()"]
        {
            assert_eq!(shown(OF_CPP, &["operator new(unsigned long)", name, "main"]), [name, "main"]);
        }
        for name in [
            "<alloc::vec::Vec<u8> as program::Decode>::decode",
            "<alloc::vec::Vec<fn(<u8 as core::a::B>::C) -> u8> as program::Decode<core::a::B>>::decode::{closure#0}",
        ] {
            assert_eq!(shown(OF_RUST[1], &["__rustc::__rust_alloc", name, "main"]), [name, "main"]);
        }
    }
}
