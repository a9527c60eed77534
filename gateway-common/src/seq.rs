//! Arithmetic on TCP sequence numbers, which wrap at 2^32 (RFC 9293, section 3.4).
//!
//! Two numbers are comparable while they are less than 2^31 apart.

/// Whether `a` comes before `b`.
#[must_use]
#[inline(always)]
pub const fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// How far `to` lies behind `from`; 0 when it lies before it.
#[must_use]
#[inline(always)]
pub const fn distance(from: u32, to: u32) -> u32 {
    if before(to, from) { 0 } else { to.wrapping_sub(from) }
}

/// The later of two.
#[must_use]
#[inline(always)]
pub const fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}

/// The earlier of two.
#[must_use]
#[inline(always)]
pub const fn earlier(a: u32, b: u32) -> u32 {
    if before(a, b) { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        assert!(before(u32::MAX, 3) && !before(3, u32::MAX) && !before(7, 7));
        assert_eq!(distance(u32::MAX, 3), 4);
        assert_eq!(distance(3, u32::MAX), 0);
        assert_eq!((later(u32::MAX, 3), earlier(u32::MAX, 3)), (3, u32::MAX));
    }
}
