//! The kernel's part of the data path: what is embedded, loaded and attached.

/// The compiled programs; empty in a build without them (see `build.rs`).
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/gateway.bpf.o"));

/// The kernel programs in this executable, as an ELF file, if it was built with them.
#[must_use]
pub fn object() -> Option<&'static [u8]> {
    (!OBJECT.is_empty()).then_some(OBJECT)
}
