//! Reclaim on a machine of several nodes.

use super::*;

#[test]
fn further_nodes_with_much_to_give_get_workers_under_pressure() {
    let fake = Fake::new();
    fake.node_count.store(3, Relaxed);
    let mut world = World::new(fake);
    let of_node = |world: &mut World, node, blocks| {
        run_on_node(node);
        runs(world, blocks * PAGEBLOCK / RUN);
    };
    of_node(&mut world, 0, 40);
    of_node(&mut world, 1, 40);
    of_node(&mut world, 2, 2);
    free_where(&mut world, |_| true);
    calm(&world);
    assert_eq!(world.fake().take_summoned(), []);
    // A worker's part is its node's alone.
    assert_eq!(world.heap.reclaim().balance_node(1, Cause::Pressure, false), 40 * PAGEBLOCK);
    assert_eq!(world.heap.reclaim().balance_node(1, Cause::Pressure, false), 0);
    of_node(&mut world, 1, 40);
    free_where(&mut world, |_| true);
    assert!(pressure(&world, Level::Some) >= 80 * PAGEBLOCK);
    // The first node's is the balancer, the third has too little.
    let summoned = world.fake().take_summoned();
    assert!(summoned.contains(&1) && summoned.iter().all(|&node| node == 1), "{summoned:?}");
}

/// A thread of its own on a part of the balancer's NUMA node releases nothing sooner, and above `memory.high` it takes long to
/// make one.
#[test]
fn a_numa_node_of_several_parts_has_one_worker_for_all_of_them() {
    for numa_nodes in [1, 2] {
        let fake = Fake::new();
        fake.node_count.store(4, Relaxed);
        fake.numa_nodes.store(numa_nodes, Relaxed);
        let mut world = World::new(fake);
        let fill = |world: &mut World| {
            for node in 0..4 {
                run_on_node(node);
                let before = world.held.len();
                (0..20 * PAGEBLOCK / RUN).for_each(|_| assert!(world.alloc(RUN).is_some()));
                assert!(world.held.len() > before);
            }
        };
        fill(&mut world);
        free_where(&mut world, |_| true);
        if numa_nodes == 2 {
            let bytes = world.heap.reclaim().balance_node(1, Cause::Pressure, false);
            assert!((35 * PAGEBLOCK..45 * PAGEBLOCK).contains(&bytes), "{bytes} bytes of two parts");
            fill(&mut world);
            free_where(&mut world, |_| true);
        }
        world.fake().take_released();
        assert!(pressure(&world, Level::Some) >= 70 * PAGEBLOCK);
        let summoned = world.fake().take_summoned();
        assert!(summoned.iter().all(|&node| node == 1) && summoned.is_empty() == (numa_nodes == 1), "{summoned:?}");
    }
}

#[test]
fn nodes_take_turns_in_what_is_released_for_a_block() {
    let fake = Fake::new();
    fake.node_count.store(2, Relaxed);
    let mut world = World::new(fake);
    let mut nodes = [Vec::new(), Vec::new()];
    for (node, addresses) in nodes.iter_mut().enumerate() {
        run_on_node(node);
        runs(&mut world, 40 * PAGEBLOCK / RUN);
        let before = world.held.len() - 40 * PAGEBLOCK / RUN;
        addresses.extend(world.held[before..].iter().map(|block| block.addr));
    }
    free_where(&mut world, |_| true);
    run_on_node(0);
    world.fake().take_released();
    // Each block is given three idle pageblocks in exchange: either node alone has enough for all of them.
    (0..10).for_each(|_| assert!(world.alloc(3 * PAGEBLOCK).is_some()));
    let gone = released(&world);
    let is_of = |node: usize, run: &Run| nodes[node].iter().any(|&addr| run.addr <= addr && addr < run.addr + run.len);
    for node in 0..2 {
        assert!(gone.iter().any(|run| is_of(node, run)), "node {node} gave nothing: {gone:x?}");
    }
}
