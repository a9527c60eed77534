//! The maps of the steering programs.

use aya_ebpf::btf_maps::{Array, HashMap, LruHashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use gateway_common::address::SocketAddress;
use gateway_common::path::{PATHS, PathState};
use gateway_common::steer::{Beat, Counters, ENDPOINTS, Endpoint, ORIGINS, Origin, POOLS, Pool};

/// `BPF_F_NO_PREALLOC`: a replaced pool is another piece of memory, and whoever still
/// reads the old one reads it whole.
const NO_PREALLOC: usize = 1;

/// Pools by virtual address. Written by the daemon.
#[btf_map(name = "pools")]
static POOL_OF: HashMap<SocketAddress, Pool, POOLS, NO_PREALLOC> = HashMap::new();
/// Endpoints, for people. Written by the daemon, read by `bpf status` and bpftool.
#[btf_map(name = "endpoints")]
static ENDPOINT_OF: Array<Endpoint, { ENDPOINTS as usize }> = Array::new();
/// What has become of each path, for people. Written by the daemon.
#[btf_map(name = "paths")]
static PATH_OF: Array<PathState, PATHS> = Array::new();
/// Connections that were sent to each endpoint. Written here.
#[btf_map(name = "picks")]
static PICKS: Array<u64, { ENDPOINTS as usize }> = Array::new();
/// Virtual addresses that sockets asked for, by cookie. Written here.
#[btf_map(name = "origins")]
static ORIGIN_OF: LruHashMap<u64, Origin, ORIGINS> = LruHashMap::new();
/// The daemon's sign of life. Written by the daemon.
#[btf_map(name = "heartbeat")]
static HEARTBEAT: Array<Beat, 1> = Array::new();
/// What was done. Written here.
#[btf_map(name = "steer_counts")]
static COUNTERS: PerCpuArray<Counters, 1> = PerCpuArray::new();

/// The pool behind a virtual address.
#[inline(always)]
pub fn pool(vip: &SocketAddress) -> Option<&'static Pool> {
    // SAFETY: elements are replaced, never changed, and live until the program ends.
    POOL_OF.get_ptr(vip).map(|pool| unsafe { &*pool })
}

/// When the daemon last gave a sign of life; 0 for never.
#[inline(always)]
pub fn beat() -> u64 {
    // Keeps the daemon's maps in the object that no program reads.
    let _ = (&ENDPOINT_OF, &PATH_OF);
    // SAFETY: one aligned word of an array's element.
    HEARTBEAT.get_ptr(0).map_or(0, |beat| unsafe { (&raw const (*beat).at_ns).read_volatile() })
}

/// Picks of an endpoint, modulo 2^32.
#[inline(always)]
pub fn picks(endpoint: u32) -> u32 {
    // SAFETY: one aligned word of an array's element.
    PICKS.get_ptr(endpoint).map_or(0, |picks| unsafe { picks.read_volatile() } as u32)
}

/// Counts a pick.
#[inline(always)]
pub fn count_pick(endpoint: u32) {
    use core::intrinsics::{AtomicOrdering, atomic_xadd};
    if let Some(picks) = PICKS.get_ptr_mut(endpoint) {
        // SAFETY: an aligned word that is only ever changed atomically.
        unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(picks, 1) };
    }
}

/// Remembers what a socket asked for.
#[inline(always)]
pub fn note_origin(cookie: u64, origin: &Origin) {
    // Without it the peer is called by its own address, which is no harm.
    let _ = ORIGIN_OF.insert(cookie, origin, 0);
}

/// What a socket asked for.
#[inline(always)]
pub fn origin(cookie: u64) -> Option<Origin> {
    // SAFETY: copied at once; only the socket's own connect() writes it.
    unsafe { ORIGIN_OF.get(cookie) }.copied()
}

/// Counts something on this CPU.
#[inline(always)]
pub fn count(with: impl FnOnce(&mut Counters)) {
    if let Some(counters) = COUNTERS.get_ptr_mut(0) {
        // SAFETY: per CPU; a program that interrupts this one at worst loses a count.
        with(unsafe { &mut *counters });
    }
}
