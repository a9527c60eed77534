//! Finds the other end of the gateway's connections.
//!
//! The end that connects is established first: it answers the other's SYN, and the other
//! waits for that answer. So the gateway's end is always noted before the endpoint's.

use aya_ebpf::bindings::bpf_sock;
use aya_ebpf::helpers::generated::bpf_get_socket_cookie;
use aya_ebpf::programs::SockOpsContext;
use gateway_common::sk_msg::{Owner, Pair, Stream};
use gateway_common::splice::MARK_UPSTREAM;

use super::maps;

const AF_INET6: u32 = 10;
/// Before an IPv4 address in its IPv6 form.
const MAPPED_BE: u32 = 0xffff_u32.to_be();

/// A connection that was opened from here, perhaps by the gateway.
#[inline(always)]
pub fn gateway(ctx: &SockOpsContext) {
    let Some(sk) = socket(ctx) else { return };
    // SAFETY: the kernel gave us the socket.
    if unsafe { (*sk).mark } != MARK_UPSTREAM {
        return;
    }
    // SAFETY: the helper takes the context of this program.
    let cookie = unsafe { bpf_get_socket_cookie(ctx.ops.cast()) };
    let Some(stream) = maps::wanted(cookie) else { return };
    let [local, remote] = ends(ctx);
    maps::note_pair(&pair(local, remote), &Owner { cookie, stream, reserved: 0 });
}

/// A connection that was opened to here, perhaps by the gateway.
#[inline(always)]
pub fn endpoint(ctx: &SockOpsContext) {
    let Some(sk) = socket(ctx) else { return };
    let [local, remote] = ends(ctx);
    let Some(mut owner) = maps::take_pair(&pair(remote, local)) else { return };
    let Some(stream) = maps::stream(owner.stream) else { return };
    if stream.cookie != owner.cookie {
        return;
    }
    match maps::enrol(ctx, sk, &mut owner) {
        Ok(()) => {
            stream.state = Stream::ENROLLED;
            maps::count(|counters| counters.enrolled += 1);
        }
        Err(error) => {
            stream.error = error;
            stream.state = Stream::REFUSED;
            maps::count(|counters| counters.refused += 1);
        }
    }
}

#[inline(always)]
fn socket(ctx: &SockOpsContext) -> Option<*mut bpf_sock> {
    // SAFETY: the context is the kernel's.
    let sk = unsafe { (*ctx.ops).__bindgen_anon_2.sk };
    (!sk.is_null()).then_some(sk)
}

/// One end of a connection.
#[derive(Clone, Copy)]
struct End {
    ip_be: [u32; 4],
    port: u32,
    /// Sequence number of the first byte from this end.
    next: u32,
}

#[inline(always)]
fn pair(gateway: End, endpoint: End) -> Pair {
    Pair {
        gateway_ip_be: gateway.ip_be,
        endpoint_ip_be: endpoint.ip_be,
        gateway_port: gateway.port,
        endpoint_port: endpoint.port,
        gateway_next: gateway.next,
        endpoint_next: endpoint.next,
    }
}

/// This end and the other, of a connection on which nothing was sent yet.
#[inline(always)]
fn ends(ctx: &SockOpsContext) -> [End; 2] {
    let ops = ctx.ops;
    // SAFETY: the context is the kernel's. Each field is read by itself, as its checks want.
    unsafe {
        let (local, remote) = if (*ops).family == AF_INET6 {
            let local = (&raw const (*ops).local_ip6).cast::<u32>();
            let remote = (&raw const (*ops).remote_ip6).cast::<u32>();
            (words(local), words(remote))
        } else {
            let mapped = |ip| [0, 0, MAPPED_BE, ip];
            (mapped((*ops).local_ip4), mapped((*ops).remote_ip4))
        };
        // The one port is in host byte order, the other is not.
        let remote_port = u32::from_be((*ops).remote_port);
        [
            End { ip_be: local, port: (*ops).local_port, next: (*ops).snd_nxt },
            End { ip_be: remote, port: remote_port, next: (*ops).rcv_nxt },
        ]
    }
}

/// Four words of the context, one at a time.
///
/// # Safety
///
/// `at` must be an address in the context.
#[inline(always)]
unsafe fn words(at: *const u32) -> [u32; 4] {
    // SAFETY: by the caller's promise.
    unsafe {
        [
            at.read_volatile(),
            at.add(1).read_volatile(),
            at.add(2).read_volatile(),
            at.add(3).read_volatile(),
        ]
    }
}
