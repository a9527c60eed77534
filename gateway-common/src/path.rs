//! What has become of each path through the kernel, for people.
//!
//! Written by the daemon, read by `bpf status` and bpftool, in the map `paths`.

/// Paths there are; the numbers are their places in the map.
pub const PATHS: usize = 3;
/// Room for the reason, in bytes.
pub const WHY_BYTES: usize = 248;

/// A path's state.
#[repr(C)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PathState {
    /// [`PathState::UNASKED`] and so on.
    pub state: u32,
    /// Length of `why`, in bytes.
    pub length: u32,
    /// What the self-test found, or why the path is off; UTF-8, cut where the room ends.
    pub why: [u8; WHY_BYTES],
}

impl PathState {
    /// Place of the splice.
    pub const SPLICE: u32 = 0;
    /// Place of steering.
    pub const STEERING: u32 = 1;
    /// Place of `sk_msg`.
    pub const SK_MSG: u32 = 2;

    /// No pool asks for it.
    pub const UNASKED: u32 = 0;
    /// In use.
    pub const ON: u32 = 1;
    /// Asked for, and not in use.
    pub const OFF: u32 = 2;

    /// A state with its reason.
    #[must_use]
    pub fn new(state: u32, why: &str) -> Self {
        let mut length = why.len().min(WHY_BYTES);
        while !why.is_char_boundary(length) {
            length -= 1;
        }
        let mut bytes = [0; WHY_BYTES];
        for (to, from) in bytes.iter_mut().zip(&why.as_bytes()[..length]) {
            *to = *from;
        }
        Self { state, length: length as u32, why: bytes }
    }

    /// The reason; empty when it is not text.
    #[must_use]
    pub fn why(&self) -> &str {
        let bytes = self.why.get(..self.length as usize).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

const _: () = assert!(size_of::<PathState>() == 256);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_reason_is_kept_as_far_as_there_is_room(why in ".{0,300}") {
            let state = PathState::new(PathState::OFF, &why);
            prop_assert!(why.starts_with(state.why()));
            prop_assert!(state.why().len() + 4 > why.len().min(WHY_BYTES));
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_no_reason() {
        let state = PathState { length: u32::MAX, ..PathState::new(PathState::ON, "passed") };
        assert_eq!(state.why(), "");
    }
}
