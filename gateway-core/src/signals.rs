//! What an endpoint tells of itself.
//!
//! A signal that is missing is `None`, never zero: an engine that does not
//! export its queue must not look idle.

/// One reading of an engine's metrics page. Series of one family are already
/// combined: queues are sums over data-parallel ranks, ratios are means.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals {
    /// Requests waiting in the engine's queue.
    pub waiting: Option<f64>,
    /// Requests in the running batch.
    pub running: Option<f64>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_usage: Option<f64>,
    /// LoRA adapters, when the engine tells.
    pub adapters: Option<Adapters>,
    /// Tokens per KV-cache block.
    pub block_size: Option<u32>,
    /// KV-cache blocks, summed over ranks.
    pub blocks: Option<u32>,
    /// Preemptions since the engine started.
    pub preemptions: Option<f64>,
}

/// LoRA adapters of an endpoint.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Adapters {
    /// Adapters that can be resident at once.
    pub max: u32,
    /// Names of adapters in use or resident, sorted, without duplicates.
    pub running: Vec<String>,
    /// Names of adapters that requests wait for, sorted, without duplicates.
    pub waiting: Vec<String>,
}

/// GPU figures of an endpoint, combined over its GPUs (worst GPU counts).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuSignals {
    /// Utilisation of the busiest GPU, 0 to 1.
    pub utilization: Option<f64>,
    /// Share of memory in use on the fullest GPU, 0 to 1.
    pub memory_usage: Option<f64>,
    /// Code of the last XID error of any GPU; 0 is none.
    pub xid: Option<u32>,
    /// Whether any GPU is throttled (thermal, power brake or hardware slowdown).
    pub throttled: Option<bool>,
}
