//! The balloon of this machine.

use weir_guest::balloon::Balloon;
use weir_guest::pci;
use weir_guest::reporter::Reporter;
use weir_guest::virtio_pci::{BALLOON, Layout, PciDevice, VENDOR};
use weir_guest::virtqueue::Ring;

use super::console::say;
use super::ports::ConfigPorts;
use super::{clock, paging};

static RING: Ring = Ring::new();

/// Finds and starts the balloon; says why where there is none to report to.
pub fn reporter() -> Option<Reporter<PciDevice>> {
    let Some(function) = pci::find(&ConfigPorts, VENDOR, &BALLOON) else {
        say!("balloon=none why=\"no virtio-balloon on the PCI bus: start QEMU with -device virtio-balloon-pci\"");
        return None;
    };
    pci::enable(&ConfigPorts, function);
    let layout = Layout::read(&ConfigPorts, function).inspect_err(|why| say!("balloon=unusable why=\"{why}\"")).ok()?;
    if !layout.blocks().into_iter().all(paging::cover) {
        say!("balloon=unusable why=\"its registers are out of reach: use a smaller guest\"");
        return None;
    }
    // SAFETY: the bus says these are the device's registers, and they are mapped; nobody else looks for them.
    let device = unsafe { PciDevice::new(layout) };
    // SAFETY: the ring and the device are this function's alone, which is called once.
    let balloon = unsafe { Balloon::start(device, &RING) };
    let balloon = balloon.inspect_err(|why| say!("balloon=refused why=\"{why}\"")).ok()?;
    let (queue, entries) = (balloon.queue_index(), balloon.capacity());
    let reporter = Reporter::new(balloon, clock::now);
    say!("balloon=reporting queue={queue} entries={entries} contents={:?}", reporter.contents());
    Some(reporter)
}
