//! What only a simulated server has: failures to order and counters to read.

use serde_json::json;

use super::failure::Failures;
use super::outlet::Whole;
use super::shared::Shared;

/// `POST /admin/failures`
pub(super) fn set_failures(shared: &Shared, body: &[u8]) -> Whole {
    match serde_json::from_slice::<Failures>(body) {
        Ok(failures) => {
            shared.set_failures(failures);
            failures_now(shared)
        }
        Err(error) => Whole::json(400, &json!({ "error": error.to_string() })),
    }
}

/// `GET /admin/failures`
pub(super) fn failures_now(shared: &Shared) -> Whole {
    Whole::json(200, &json!(shared.current_failures()))
}

/// `GET /admin/counters`
pub(super) fn counters(shared: &Shared) -> Whole {
    let engines = shared.driver.read(|load, stats, _| {
        json!({
            "running": load.running, "waiting": load.waiting(), "kv_usage": load.kv_usage(),
            "finished": stats.finished, "aborted": stats.aborted,
            "preemptions": stats.preemptions, "adapter_loads": stats.adapter_loads,
            "generation_tokens": stats.generation_tokens,
            "prefix_queries": stats.prefix_queries, "prefix_hits": stats.prefix_hits,
        })
    });
    Whole::json(200, &json!({ "server": shared.totals.read(), "engines": engines }))
}
