//! A pool of endpoints: what is known of each, and who gets the next request.

/// Names an endpoint of a pool for as long as the process lives; never reused.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EndpointId(pub u32);
