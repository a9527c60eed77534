//! Steering: a `connect()` to a pool's virtual address goes to the gateway or to an
//! endpoint, and the socket goes on to call its peer by the virtual address.
//!
//! Programs of the root cgroup, so every socket of the node comes by. What is not for a
//! virtual address is let go at the first look-up, and nothing is ever refused: in any
//! doubt a connection goes where it says.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::bpf_sock_addr;
use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_get_socket_cookie, bpf_ktime_get_ns};
use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;
use gateway_common::address::{IpAddress, SocketAddress};
use gateway_common::splice::MARK_UPSTREAM;
use gateway_common::steer::{BEAT_LASTS_NS, Origin, Pool};

mod maps;

/// The connection, or the answer, is let through. The only verdict there is.
const ALLOW: i32 = 1;
const TCP: u32 = 6;

#[cgroup_sock_addr(connect4)]
pub fn steer_connect4(ctx: SockAddrContext) -> i32 {
    if let Some(to) = steer(&ctx, asked(&ctx, ip4(&ctx))) {
        set_ip4(&ctx, to.ip);
        set_port(&ctx, to.port_be);
    }
    ALLOW
}

#[cgroup_sock_addr(connect6)]
pub fn steer_connect6(ctx: SockAddrContext) -> i32 {
    if let Some(to) = steer(&ctx, asked(&ctx, ip6(&ctx))) {
        set_ip6(&ctx, to.ip);
        set_port(&ctx, to.port_be);
    }
    ALLOW
}

#[cgroup_sock_addr(getpeername4)]
pub fn steer_peername4(ctx: SockAddrContext) -> i32 {
    if let Some(name) = name(&ctx, ip4(&ctx)) {
        set_ip4(&ctx, name.ip);
        set_port(&ctx, name.port_be);
    }
    ALLOW
}

#[cgroup_sock_addr(getpeername6)]
pub fn steer_peername6(ctx: SockAddrContext) -> i32 {
    if let Some(name) = name(&ctx, ip6(&ctx)) {
        set_ip6(&ctx, name.ip);
        set_port(&ctx, name.port_be);
    }
    ALLOW
}

/// Where a connection goes instead, if it goes elsewhere.
#[inline(always)]
fn steer(ctx: &SockAddrContext, asked: SocketAddress) -> Option<SocketAddress> {
    if protocol(ctx) != TCP {
        return None;
    }
    let pool = maps::pool(&asked)?;
    if mark(ctx) == MARK_UPSTREAM {
        maps::count(|counters| counters.own += 1);
        return None;
    }
    let beat = maps::beat();
    // SAFETY: takes nothing and always answers.
    let now = unsafe { bpf_ktime_get_ns() };
    if beat == 0 || now.wrapping_sub(beat) > BEAT_LASTS_NS && now > beat {
        maps::count(|counters| counters.stale += 1);
        return None;
    }
    let went = destination(pool)?;
    if went.ip.is_v4() != asked.ip.is_v4() {
        // No socket of the one family reaches the other for certain.
        return None;
    }
    // SAFETY: the context is the program's own.
    let cookie = unsafe { bpf_get_socket_cookie(ctx.as_ptr()) };
    maps::note_origin(cookie, &Origin { asked, went });
    Some(went)
}

#[inline(always)]
fn destination(pool: &Pool) -> Option<SocketAddress> {
    if pool.mode == Pool::REQUEST {
        maps::count(|counters| counters.to_gateway += 1);
        return Some(pool.gateway);
    }
    // SAFETY: takes nothing and always answers.
    let random = unsafe { [bpf_get_prandom_u32(), bpf_get_prandom_u32()] };
    let Some(choice) = pool.choose(random, maps::picks) else {
        maps::count(|counters| counters.empty += 1);
        return None;
    };
    maps::count_pick(choice.endpoint);
    maps::count(|counters| counters.to_endpoint += 1);
    Some(choice.address)
}

/// The virtual address of a peer, if the socket asked for one and still is where that led.
#[inline(always)]
fn name(ctx: &SockAddrContext, ip: IpAddress) -> Option<SocketAddress> {
    // SAFETY: the context is the program's own.
    let cookie = unsafe { bpf_get_socket_cookie(ctx.as_ptr()) };
    let origin = maps::origin(cookie)?;
    if origin.went != asked(ctx, ip) {
        return None;
    }
    maps::count(|counters| counters.named += 1);
    Some(origin.asked)
}

#[inline(always)]
fn asked(ctx: &SockAddrContext, ip: IpAddress) -> SocketAddress {
    SocketAddress { ip, port_be: port(ctx), reserved: 0 }
}

/// A field of the context. Each is read and written alone and as wide as it is, because
/// the verifier rewrites these accesses one by one. Safe to use because the kernel hands
/// out a valid context.
macro_rules! at {
    ($ctx:expr, $($field:tt)+) => {{
        let context: *mut bpf_sock_addr = $ctx.sock_addr;
        &raw mut (*context).$($field)+
    }};
}

#[inline(always)]
fn ip4(ctx: &SockAddrContext) -> IpAddress {
    // SAFETY: see `at`.
    IpAddress::v4(unsafe { at!(ctx, user_ip4).read_volatile() })
}

#[inline(always)]
fn set_ip4(ctx: &SockAddrContext, ip: IpAddress) {
    // SAFETY: see `at`.
    unsafe { at!(ctx, user_ip4).write_volatile(ip.words_be[3]) }
}

/// An address of IPv6, or a mapped one of IPv4.
#[inline(always)]
fn ip6(ctx: &SockAddrContext) -> IpAddress {
    // SAFETY: see `at`.
    let words_be = unsafe {
        [
            at!(ctx, user_ip6[0]).read_volatile(),
            at!(ctx, user_ip6[1]).read_volatile(),
            at!(ctx, user_ip6[2]).read_volatile(),
            at!(ctx, user_ip6[3]).read_volatile(),
        ]
    };
    IpAddress { words_be }
}

#[inline(always)]
fn set_ip6(ctx: &SockAddrContext, ip: IpAddress) {
    // SAFETY: see `at`.
    unsafe {
        at!(ctx, user_ip6[0]).write_volatile(ip.words_be[0]);
        at!(ctx, user_ip6[1]).write_volatile(ip.words_be[1]);
        at!(ctx, user_ip6[2]).write_volatile(ip.words_be[2]);
        at!(ctx, user_ip6[3]).write_volatile(ip.words_be[3]);
    }
}

#[inline(always)]
fn port(ctx: &SockAddrContext) -> u16 {
    // SAFETY: see `at`.
    (unsafe { at!(ctx, user_port).read_volatile() }) as u16
}

#[inline(always)]
fn set_port(ctx: &SockAddrContext, port_be: u16) {
    // SAFETY: see `at`.
    unsafe { at!(ctx, user_port).write_volatile(port_be as u32) }
}

#[inline(always)]
fn protocol(ctx: &SockAddrContext) -> u32 {
    // SAFETY: see `at`.
    unsafe { at!(ctx, protocol).read_volatile() }
}

/// The socket's mark.
#[inline(always)]
fn mark(ctx: &SockAddrContext) -> u32 {
    // SAFETY: see `at`; a `connect()` always has a socket, whose fields may be read.
    unsafe { (&raw const (*at!(ctx, __bindgen_anon_1.sk).read_volatile()).mark).read_volatile() }
}
