//! The heap grows around what others mapped behind it.

use weir_core::platform::Run;

use crate::fake::Fake;
use crate::held::World;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

#[test]
fn somebody_elses_mapping_is_left_alone_however_long_it_is() {
    let mut fake = Fake::new();
    fake.window = 64 * GIB;
    let mut world = World::new(fake);
    for len in [2 * MIB, 300 * MIB, 5 * GIB] {
        let first = world.alloc(MIB).expect("there is room");
        let foreign = world.fake().put_behind(world.held[first].addr, len);
        for _ in 0..200 {
            let block = world.alloc(MIB).expect("there is room behind it");
            let addr = world.held[block].addr;
            assert!(addr + MIB <= foreign.addr || addr >= foreign.addr + foreign.len);
        }
        let behind = world.held.iter().filter(|block| block.addr > foreign.addr).count();
        assert!(behind > 0, "the heap did not grow past {foreign:x?}");
    }
    world.finish();
}
