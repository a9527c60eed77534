//! The maps of the splice programs.

use aya_ebpf::btf_maps::{Array, HashMap, LruHashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use gateway_common::address::{IpAddress, SocketAddress};
use gateway_common::frames::Tails;
use gateway_common::splice::{
    Conn, Counters, FLOWS, Flow, Handshake, Mark, SLOTS, Seam, Slot, Stop, Tuple,
};

pub use crate::atomic::{exchange, load};

/// `BPF_F_MMAPABLE`: the daemon reads and writes single fields.
const MMAPABLE: usize = 1 << 10;

/// Where clients are listened to. Written by the daemon.
#[btf_map(name = "listeners")]
static LISTENERS: HashMap<SocketAddress, u32, 64> = HashMap::new();
/// How connections were opened. Written here, read by the daemon.
#[btf_map(name = "handshakes")]
static HANDSHAKES: LruHashMap<Tuple, Handshake, 16384> = LruHashMap::new();
/// Connections that are looked after. Written by the daemon; taken out here when a
/// new connection has the same addresses.
#[btf_map(name = "conns")]
static CONNS: HashMap<Tuple, Conn, { SLOTS as usize }> = HashMap::new();
/// Their states. Written here, but for the flow in force.
#[btf_map(name = "slots")]
static SLOT_OF: Array<Slot, { SLOTS as usize }, MMAPABLE> = Array::new();
/// Splices. Entered by the daemon, counted here.
#[btf_map(name = "flows")]
static FLOW_OF: Array<Flow, { FLOWS as usize }, MMAPABLE> = Array::new();
/// Last chunks of each flow. Written here, read by the daemon.
#[btf_map(name = "tails")]
static TAILS_OF: Array<Tails, { FLOWS as usize }, MMAPABLE> = Array::new();
/// What was done. Written here.
#[btf_map(name = "splice_counts")]
static COUNTERS: PerCpuArray<Counters, 1> = PerCpuArray::new();

/// The connection with these addresses, if it is looked after.
#[inline(always)]
pub fn conn(tuple: &Tuple) -> Option<Conn> {
    // SAFETY: entries are small and written as a whole; a torn one would name a slot
    // of another connection only if the daemon reused an entry in place, which it does not.
    unsafe { CONNS.get(tuple) }.copied()
}

/// Forgets a connection: another one has its addresses now.
#[inline(always)]
pub fn forget(tuple: &Tuple) {
    // Not there, most of the time.
    let _ = CONNS.remove(tuple);
}

/// Whether the gateway listens there, or at `any` address of that family.
#[inline(always)]
pub fn is_listener(tuple: &Tuple, any: IpAddress) -> bool {
    let exact = SocketAddress { ip: tuple.local, port_be: tuple.local_port_be, reserved: 0 };
    let any = SocketAddress { ip: any, ..exact };
    LISTENERS.get_ptr(exact).is_some() || LISTENERS.get_ptr(any).is_some()
}

/// What is known of a connection's opening.
#[inline(always)]
pub fn handshake(tuple: &Tuple) -> Option<Handshake> {
    // SAFETY: copied at once; the packets of a handshake come one after the other.
    unsafe { HANDSHAKES.get(tuple) }.copied()
}

/// Notes how a connection was opened.
#[inline(always)]
pub fn note_handshake(tuple: &Tuple, handshake: &Handshake) {
    // Full of newer ones: then this connection is not spliced.
    let _ = HANDSHAKES.insert(tuple, handshake, 0);
}

/// A connection's state.
#[inline(always)]
pub fn slot(index: u32) -> Option<&'static mut Slot> {
    // SAFETY: elements of an array map live as long as the program. Other CPUs may
    // write single fields meanwhile, which every reader here allows for.
    SLOT_OF.get_ptr_mut(index).map(|slot| unsafe { &mut *slot })
}

/// A splice; entry 0 moves nothing and translates nothing.
#[inline(always)]
pub fn flow(index: u32) -> Option<&'static mut Flow> {
    // SAFETY: as in `slot`.
    FLOW_OF.get_ptr_mut(index).map(|flow| unsafe { &mut *flow })
}

/// A splice's last chunks.
#[inline(always)]
pub fn tails(index: u32) -> Option<&'static mut Tails> {
    // SAFETY: as in `slot`.
    TAILS_OF.get_ptr_mut(index).map(|tails| unsafe { &mut *tails })
}

/// Counts something on this CPU.
#[inline(always)]
pub fn count(with: impl FnOnce(&mut Counters)) {
    if let Some(counters) = COUNTERS.get_ptr_mut(0) {
        // SAFETY: per CPU, and this program is not interrupted by another on its CPU.
        with(unsafe { &mut *counters });
    }
}

/// The seam of `flow`, when its endpoint's connection has come to `mark`.
#[inline(always)]
pub fn seam(flow: &Flow, mark: Mark) -> Seam {
    let length =
        if flow.frozen != 0 { flow.length } else { mark.moved.wrapping_sub(flow.up_shift) };
    Seam {
        up_wire: flow.up_wire,
        down_wire: flow.down_wire,
        up_shift: flow.up_shift,
        down_shift: flow.down_shift,
        length,
        settled: flow.settled != 0,
    }
}

/// Counts and notes why a packet was not moved.
#[inline(always)]
pub fn stopped(flow: &mut Flow, why: Stop) {
    flow.stop = why as u32;
    count(|counters| {
        if let Some(stops) = counters.stops.get_mut(why as usize) {
            *stops += 1;
        }
    });
}
