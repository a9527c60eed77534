//! Who carries a streamed answer, besides the daemon.

use std::sync::Arc;

use crate::sk_msg::{self, SkMsg};
use crate::splice::{self, Splicer};

/// What of the kernel a pool's answers may use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carriers {
    /// For packets of connections.
    pub(crate) splicer: Option<Arc<Splicer>>,
    /// For send calls of endpoints on this node; comes first.
    pub(crate) sk_msg: Option<Arc<SkMsg>>,
}

impl Carriers {
    /// Whether there is any.
    pub(crate) fn any(&self) -> bool {
        self.splicer.is_some() || self.sk_msg.is_some()
    }
}

/// An answer that the kernel may carry; dropping it takes it back.
#[derive(Debug)]
pub(crate) enum Carried {
    SkMsg(sk_msg::Armed),
    Splice(splice::Armed),
}

impl Carried {
    /// Bytes moved so far.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::SkMsg(armed) => armed.bytes(),
            Self::Splice(armed) => armed.bytes(),
        }
    }
}
