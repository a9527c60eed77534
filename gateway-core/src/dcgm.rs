//! Reads GPU figures from a DCGM exporter's page.
//!
//! One exporter serves a whole node, so rows are filtered by pod or GPU. Of
//! several GPUs the worst counts: a tensor-parallel engine is as fast as its
//! slowest part.

use crate::exposition::{Families, Row};
use crate::signals::GpuSignals;

/// Which GPUs of a page count. What is `None` does not restrict.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Filter<'a> {
    /// Label `pod`.
    pub pod: Option<&'a str>,
    /// Label `namespace`.
    pub namespace: Option<&'a str>,
    /// Label `gpu` (an index) or `UUID`, any of these; empty is all.
    pub gpus: &'a [String],
}

/// Reads DCGM exporter pages; build it once.
#[derive(Clone, Debug)]
pub struct Reader {
    families: Families,
}

/// Families in the order of the constants below. DCGM 4 renamed the throttle
/// reasons.
const FAMILIES: [&str; 6] = [
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
];
const UTILIZATION: usize = 0;
const MEMORY_USED: usize = 1;
const MEMORY_FREE: usize = 2;
const XID: usize = 3;

/// NVML's clock event reasons that mean trouble: hardware slowdown, software and
/// hardware thermal slowdown, hardware power brake (nvml.h,
/// `nvmlClocksEventReason*`). Idle, a power cap and application clocks are normal.
const TROUBLE: u64 = 0x8 | 0x20 | 0x40 | 0x80;

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// A reader.
    #[must_use]
    pub fn new() -> Self {
        Self { families: Families::new(&FAMILIES) }
    }

    /// Reads a page.
    #[must_use]
    pub fn read(&self, page: &[u8], filter: &Filter) -> GpuSignals {
        let mut signals = GpuSignals::default();
        // Used and free memory stand in different rows of the same GPU.
        let mut memory: Vec<Memory> = Vec::new();
        self.families.read(page, |row| {
            if !row.value.is_finite() || row.value < 0.0 || !filter.takes(&row) {
                return;
            }
            match row.family {
                UTILIZATION => worst(&mut signals.utilization, (row.value / 100.0).min(1.0)),
                MEMORY_USED => memory_of(&mut memory, &row).used = Some(row.value),
                MEMORY_FREE => memory_of(&mut memory, &row).free = Some(row.value),
                XID => {
                    // No order among codes; any error outweighs none.
                    signals.xid = Some(signals.xid.unwrap_or(0).max(row.value as u32));
                }
                _ => {
                    let is_troubled = row.value as u64 & TROUBLE != 0;
                    signals.throttled = Some(signals.throttled.unwrap_or(false) | is_troubled);
                }
            }
        });
        for share in memory.iter().filter_map(Memory::share) {
            worst(&mut signals.memory_usage, share);
        }
        signals
    }
}

/// Reads one page; see [`Reader`].
#[must_use]
pub fn read(page: &[u8], filter: &Filter) -> GpuSignals {
    Reader::new().read(page, filter)
}

impl Filter<'_> {
    fn takes(&self, row: &Row) -> bool {
        let is = |label: &str, wanted: Option<&str>| wanted.is_none_or(|w| row.labels.is(label, w));
        is("pod", self.pod)
            && is("namespace", self.namespace)
            && (self.gpus.is_empty()
                || self.gpus.iter().any(|g| row.labels.is("gpu", g) || row.labels.is("UUID", g)))
    }
}

/// Memory of one GPU, in MiB.
struct Memory {
    gpu: Option<String>,
    used: Option<f64>,
    free: Option<f64>,
}

impl Memory {
    fn share(&self) -> Option<f64> {
        let (used, free) = (self.used?, self.free?);
        (used + free > 0.0).then(|| used / (used + free))
    }
}

fn memory_of<'a>(memory: &'a mut Vec<Memory>, row: &Row) -> &'a mut Memory {
    // A MIG slice has its GPU's UUID but memory of its own.
    let slice = row.labels.value("GPU_I_ID").unwrap_or_default();
    let gpu = row.labels.value("UUID").or_else(|| row.labels.value("gpu"));
    let gpu = gpu.map(|gpu| gpu + "/" + &slice);
    let place = memory.iter().position(|m| m.gpu == gpu).unwrap_or_else(|| {
        memory.push(Memory { gpu, used: None, free: None });
        memory.len() - 1
    });
    &mut memory[place]
}

fn worst(signal: &mut Option<f64>, value: f64) {
    *signal = Some(signal.map_or(value, |worst| worst.max(value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",pod="p1",namespace="n"} 40
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",device="nvidia1",pod="p1",namespace="n"} 90
DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-c",device="nvidia2",pod="p2",namespace="n"} 99
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",pod="p1",namespace="n"} 30000
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-a",pod="p1",namespace="n"} 10000
DCGM_FI_DEV_FB_FREE{gpu="1",UUID="GPU-b",pod="p1",namespace="n"} 20000
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",pod="p1",namespace="n"} 20000
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",pod="p1",namespace="n"} 0
DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-b",pod="p1",namespace="n"} 79
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="0",UUID="GPU-a",pod="p1",namespace="n"} 4
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="2",UUID="GPU-c",pod="p2",namespace="n"} 64
"#;

    fn pod(name: &str) -> GpuSignals {
        read(PAGE.as_bytes(), &Filter { pod: Some(name), ..Filter::default() })
    }

    #[test]
    fn the_worst_gpu_of_a_pod_counts() {
        let signals = pod("p1");
        assert_eq!(signals.utilization, Some(0.9));
        assert_eq!(signals.memory_usage, Some(0.75));
        assert_eq!(signals.xid, Some(79));
        assert_eq!(signals.throttled, Some(false), "a power cap is normal");
    }

    #[test]
    fn what_is_not_told_is_missing() {
        let signals = pod("p2");
        assert_eq!((signals.memory_usage, signals.xid), (None, None));
        assert_eq!(signals.throttled, Some(true));
        assert_eq!(pod("p3"), GpuSignals::default());
    }

    #[test]
    fn gpus_are_chosen_by_index_or_uuid() {
        for gpu in ["0", "GPU-a"] {
            let gpus = [gpu.to_owned()];
            let signals = read(PAGE.as_bytes(), &Filter { gpus: &gpus, ..Filter::default() });
            assert_eq!((signals.utilization, signals.xid), (Some(0.4), Some(0)), "{gpu}");
        }
    }

    #[test]
    fn the_new_name_of_throttle_reasons_is_known() {
        let page = b"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu=\"0\"} 128\nDCGM_FI_DEV_GPU_UTIL NaN\n";
        let signals = read(page, &Filter::default());
        assert_eq!((signals.throttled, signals.utilization), (Some(true), None));
    }
}
