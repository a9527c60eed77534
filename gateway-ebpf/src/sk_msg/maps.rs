//! The maps of the `sk_msg` programs.

use aya_ebpf::bindings::{BPF_NOEXIST, BPF_SK_STORAGE_GET_F_CREATE, bpf_sock, sk_msg_md};
use aya_ebpf::btf_maps::{Array, HashMap, LruHashMap, PerCpuArray, SkStorage, SockHash};
use aya_ebpf::helpers::generated::{
    bpf_msg_redirect_hash, bpf_sk_storage_get, bpf_sock_hash_update,
};
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::{SkMsgContext, SockOpsContext};
use gateway_common::frames::Tails;
use gateway_common::sk_msg::{Counters, Owner, Pair, SOCKETS, STREAMS, Stream};

use crate::atomic::load;

/// `BPF_F_MMAPABLE`: the daemon reads and writes single fields.
const MMAPABLE: usize = 1 << 10;
/// Result of a redirect that will be done.
const REDIRECTED: i64 = 1;

/// Numbers of streams by the cookie of a gateway's socket that is about to connect.
/// Written by the daemon; taken out here.
#[btf_map(name = "msg_wanted")]
static WANTED: HashMap<u64, u32, { STREAMS as usize }> = HashMap::new();
/// Connections of which the gateway's end has been seen, and the endpoint's not.
#[btf_map(name = "msg_pairs")]
static PAIRS: LruHashMap<Pair, Owner, { STREAMS as usize }> = LruHashMap::new();
/// Whose stream an endpoint's socket is. Gone with the socket.
#[btf_map(name = "msg_owners")]
static OWNERS: SkStorage<Owner> = SkStorage::new();
/// Endpoints' sockets, by the cookie of the gateway's; `sk_msg_move` is on this map. Gone
/// when they are closed.
#[btf_map(name = "msg_endpoints")]
static ENDPOINTS: SockHash<u64, { SOCKETS as usize }> = SockHash::new();
/// Clients' sockets, by their cookie. Written by the daemon; gone when they are closed.
#[btf_map(name = "msg_clients")]
static CLIENTS: SockHash<u64, { SOCKETS as usize }> = SockHash::new();
/// Streams. Written by both; see the type.
#[btf_map(name = "msg_streams")]
static STREAM_OF: Array<Stream, { STREAMS as usize }, MMAPABLE> = Array::new();
/// Last chunks of each stream. Written here, read by the daemon.
#[btf_map(name = "msg_tails")]
static TAILS_OF: Array<Tails, { STREAMS as usize }, MMAPABLE> = Array::new();
/// What was done. Written here.
#[btf_map(name = "msg_counts")]
static COUNTERS: PerCpuArray<Counters, 1> = PerCpuArray::new();

/// The stream that a gateway's socket is to be, if it is to be one. Asked once.
#[inline(always)]
pub fn wanted(cookie: u64) -> Option<u32> {
    // SAFETY: copied at once; nobody changes an entry.
    let stream = unsafe { WANTED.get(cookie) }.copied()?;
    // The daemon may have given up meanwhile.
    let _ = WANTED.remove(cookie);
    Some(stream)
}

/// Notes the gateway's end of a connection.
#[inline(always)]
pub fn note_pair(pair: &Pair, owner: &Owner) {
    // The oldest entry makes room, so that this does not fail.
    let _ = PAIRS.insert(pair, owner, 0);
}

/// Whose a connection is whose endpoint's end is this. Asked once.
#[inline(always)]
pub fn take_pair(pair: &Pair) -> Option<Owner> {
    // SAFETY: copied at once; nobody changes an entry.
    let owner = unsafe { PAIRS.get(pair) }.copied()?;
    // Pushed out by newer ones, perhaps.
    let _ = PAIRS.remove(pair);
    Some(owner)
}

/// Puts an endpoint's socket under `sk_msg_move`; the kernel's error, if it will not.
#[inline(always)]
pub fn enrol(ctx: &SockOpsContext, sk: *mut bpf_sock, owner: &mut Owner) -> Result<(), u32> {
    const NO_MEMORY: u32 = 12;
    let create = u64::from(BPF_SK_STORAGE_GET_F_CREATE);
    let map = (&raw const OWNERS).cast_mut().cast();
    // SAFETY: the kernel gave us the socket; the value is of the map's type.
    let kept = unsafe { bpf_sk_storage_get(map, sk.cast(), (&raw mut *owner).cast(), create) };
    if kept.is_null() {
        return Err(NO_MEMORY);
    }
    let map = (&raw const ENDPOINTS).cast_mut().cast();
    let key = (&raw mut owner.cookie).cast();
    // SAFETY: the key is of the map's type.
    match unsafe { bpf_sock_hash_update(ctx.ops, map, key, u64::from(BPF_NOEXIST)) } {
        0 => Ok(()),
        error => Err(error.unsigned_abs() as u32),
    }
}

/// The stream that a sending socket is the end of, if it still is.
#[inline(always)]
pub fn stream_of(ctx: &SkMsgContext) -> Option<&'static mut Stream> {
    let owner = owner(ctx.msg)?;
    let stream = stream(owner.stream)?;
    // Another connection may have the entry by now.
    (load(&stream.cookie) == owner.cookie).then_some(stream)
}

#[inline(always)]
fn owner(msg: *mut sk_msg_md) -> Option<&'static Owner> {
    let map = (&raw const OWNERS).cast_mut().cast();
    // SAFETY: the kernel gave us the message, and its socket; nothing is created.
    let owner = unsafe {
        let sk = (*msg).__bindgen_anon_3.sk;
        bpf_sk_storage_get(map, sk.cast(), core::ptr::null_mut(), 0)
    };
    // SAFETY: lives as long as the socket, and is not changed.
    unsafe { owner.cast::<Owner>().as_ref() }
}

/// A stream.
#[inline(always)]
pub fn stream(index: u32) -> Option<&'static mut Stream> {
    // SAFETY: elements of an array map live as long as the program. The daemon writes
    // single fields meanwhile, which every reader here allows for.
    STREAM_OF.get_ptr_mut(index).map(|stream| unsafe { &mut *stream })
}

/// The last chunks of the stream that a sending socket is the end of.
#[inline(always)]
pub fn tails_of(msg: *mut sk_msg_md) -> Option<&'static mut Tails> {
    let owner = owner(msg)?;
    // SAFETY: as in `stream`.
    TAILS_OF.get_ptr_mut(owner.stream).map(|tails| unsafe { &mut *tails })
}

/// Sends the call's bytes into the client's socket; false when that is not there.
#[inline(always)]
pub fn redirect(ctx: &SkMsgContext, mut client: u64) -> bool {
    let map = (&raw const CLIENTS).cast_mut().cast();
    let key = (&raw mut client).cast();
    // SAFETY: the key is of the map's type.
    unsafe { bpf_msg_redirect_hash(ctx.msg, map, key, 0) == REDIRECTED }
}

/// Counts something on this CPU.
#[inline(always)]
pub fn count(with: impl FnOnce(&mut Counters)) {
    if let Some(counters) = COUNTERS.get_ptr_mut(0) {
        // SAFETY: per CPU; a program that interrupts this one at worst loses a count.
        with(unsafe { &mut *counters });
    }
}
