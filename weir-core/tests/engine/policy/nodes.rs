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
    assert_eq!(world.heap.balance_node(1, Cause::Pressure, false), 40 * PAGEBLOCK);
    assert_eq!(world.heap.balance_node(1, Cause::Pressure, false), 0);
    of_node(&mut world, 1, 40);
    free_where(&mut world, |_| true);
    assert!(pressure(&world, Level::Some) >= 80 * PAGEBLOCK);
    // The first node's is the balancer, the third has too little.
    let summoned = world.fake().take_summoned();
    assert!(summoned.contains(&1) && summoned.iter().all(|&node| node == 1), "{summoned:?}");
    world.finish();
}
