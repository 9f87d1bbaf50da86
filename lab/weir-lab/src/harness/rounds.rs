//! The order of measurements: in each round every allocator has a turn, and the order shifts by one from round to round,
//! so that none always runs after the same other.

/// The turns of `rounds` rounds of `count` allocators: each the number of a round and of an allocator.
pub fn of(rounds: u32, count: usize) -> impl Iterator<Item = (u32, usize)> {
    (0..rounds).flat_map(move |round| (0..count).map(move |turn| (round, (round as usize + turn) % count)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_has_a_turn_a_round_and_the_order_shifts() {
        let turns: Vec<_> = super::of(2, 3).collect();
        assert_eq!(turns, [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 0)]);
    }
}
