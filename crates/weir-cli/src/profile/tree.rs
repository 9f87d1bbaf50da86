//! The call tree of a profile: stacks put together from the outermost function on.

use super::data::Profile;
use super::symbols::Symbols;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, HashMap};

/// Name of what has no stack.
const NO_STACK: &str = "no call stack";

/// A tree, and the names in it: each is written once.
#[derive(Serialize)]
pub struct Tree {
    /// Functions, where each is, and the program or library.
    pub names: Vec<[String; 2]>,
    pub root: Node,
}

/// A function, as called from the functions above it. It is written as an array: name, live bytes, allocated bytes, grown
/// bytes, children; bytes with those of all that it calls.
#[derive(Default)]
pub struct Node {
    pub name: usize,
    pub live: u64,
    pub allocated: u64,
    pub grown: i64,
    pub children: BTreeMap<usize, Node>,
}

impl Tree {
    /// Of all stacks.
    pub fn of(profile: &Profile, symbols: &Symbols) -> Self {
        let mut names = Names::default();
        let mut root = Node { name: names.number("all", ""), ..Node::default() };
        for stack in &profile.stacks {
            let (live, allocated) = (stack.figures.live_bytes, stack.figures.allocated_bytes);
            let mut node = &mut root;
            node.add(live, allocated, stack.grown_bytes);
            let path: Vec<usize> =
                symbols.frames(stack).rev().map(|frame| names.number(&frame.function, &frame.place())).collect();
            let path = if path.is_empty() { vec![names.number(NO_STACK, "")] } else { path };
            for name in path {
                node = node.children.entry(name).or_insert_with(|| Node { name, ..Node::default() });
                node.add(live, allocated, stack.grown_bytes);
            }
        }
        Self { names: names.list, root }
    }
}

impl Node {
    fn add(&mut self, live: u64, allocated: u64, grown: i64) {
        self.live = self.live.saturating_add(live);
        self.allocated = self.allocated.saturating_add(allocated);
        self.grown = self.grown.saturating_add(grown);
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let children: Vec<&Node> = self.children.values().collect();
        (self.name, self.live, self.allocated, self.grown, children).serialize(to)
    }
}

#[derive(Default)]
struct Names {
    list: Vec<[String; 2]>,
    numbers: HashMap<[String; 2], usize>,
}

impl Names {
    fn number(&mut self, function: &str, place: &str) -> usize {
        let name = [function.to_owned(), place.to_owned()];
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.list.push(name.clone());
            self.list.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::data::{Figures, Stack};

    #[test]
    fn stacks_meet_at_the_functions_that_they_share() {
        let stack = |frames: &[u64], live_bytes| Stack {
            frames: frames.to_vec(),
            figures: Figures { live_bytes, allocated_bytes: 10, ..Figures::default() },
            grown_bytes: -1,
        };
        let profile = Profile {
            stacks: vec![stack(&[0x11, 0x101], 5), stack(&[0x21, 0x101], 7), stack(&[], 1)],
            ..Profile::default()
        };
        let symbols = Symbols::for_tests(&[
            (0x11, &[("f", "a.c", 3)]),
            (0x21, &[("f", "a.c", 4)]),
            (0x101, &[("main", "a.c", 20)]),
        ]);
        let json = serde_json::to_value(Tree::of(&profile, &symbols)).unwrap();
        assert_eq!(
            json["root"],
            serde_json::json!([
                0,
                13,
                30,
                -3,
                [[1, 12, 20, -2, [[2, 5, 10, -1, []], [3, 7, 10, -1, []]]], [4, 1, 10, -1, []]]
            ])
        );
        assert_eq!(json["names"][3], serde_json::json!(["f", "a.c:4"]));
        assert_eq!(json["names"][4][0], NO_STACK);
    }
}
