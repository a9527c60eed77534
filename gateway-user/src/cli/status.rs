//! `status`: the pools and endpoints of a running gateway.

use std::fmt::Write;

use anyhow::Result;
use serde_json::Value;

use super::ask::ask;
use super::table::{number, table, text};
use crate::args::StatusFlags;

/// Asks a running gateway how it is.
///
/// # Errors
///
/// It cannot be reached, or does not answer as one of ours does.
pub fn status(flags: &StatusFlags) -> Result<String> {
    let status = ask(&flags.admin.admin, "/status.json", None)?;
    if flags.admin.json {
        return Ok(serde_json::to_string_pretty(&status)? + "\n");
    }
    Ok(render(&status))
}

fn render(status: &Value) -> String {
    let ready = if status["ready"] == true { "ready" } else { "not ready" };
    let uptime = number(&status["uptime_seconds"], 0);
    let mut out = format!(
        "inference-gateway {}, {}, {ready}, up {uptime} s\n",
        text(&status["version"]),
        text(&status["phase"])
    );
    let peers: Vec<String> = status["peers"].as_array().into_iter().flatten().map(peer).collect();
    if !peers.is_empty() {
        let _ = writeln!(out, "peers: {}", peers.join(", "));
    }
    for pool in status["pools"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "\npool {} ({}), policy {}, {} queued, {} deferred",
            text(&pool["name"]),
            pool["model"].as_str().unwrap_or("any model"),
            text(&pool["policy"]),
            number(&pool["queued"], 0),
            number(&pool["deferred"], 0)
        );
        let head = [
            "ENDPOINT",
            "STATE",
            "IN FLIGHT",
            "OF PEERS",
            "WAITING",
            "RUNNING",
            "KV %",
            "GPU %",
            "PICKS",
            "PREFILL TOK/S",
            "AGE MS",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(pool["endpoints"].as_array().into_iter().flatten().map(endpoint));
        out.push_str(&table(&rows));
    }
    out
}

/// Another gateway, how it is, and how long ago it last told of its requests.
fn peer(peer: &Value) -> String {
    let state = format!("{} {}", text(&peer["address"]), text(&peer["state"]));
    match peer["report_age_seconds"].as_f64() {
        Some(seconds) => format!("{state} ({:.0} ms ago)", seconds * 1e3),
        None => state,
    }
}

fn endpoint(endpoint: &Value) -> Vec<String> {
    let scaled = |key: &str, factor: f64| {
        number(&endpoint[key].as_f64().map(|value| value * factor).into(), 0)
    };
    let state = match endpoint["returns_in_seconds"].as_f64() {
        Some(seconds) => format!("{} {seconds:.0} s", text(&endpoint["state"])),
        None => text(&endpoint["state"]),
    };
    vec![
        text(&endpoint["name"]),
        state,
        number(&endpoint["in_flight"], 0),
        number(&endpoint["peer_requests"], 0),
        number(&endpoint["waiting"], 0),
        number(&endpoint["running"], 0),
        scaled("kv_usage", 100.0),
        scaled("gpu_utilization", 100.0),
        number(&endpoint["picks"], 0),
        number(&endpoint["prefill_tokens_per_second"], 0),
        scaled("signal_age_seconds", 1000.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn endpoints_are_rows_and_what_is_missing_is_a_dash() {
        let status = json!({
            "version": "1.2.3", "phase": "serving", "ready": true, "uptime_seconds": 61.2,
            "peers": [{"address": "10.0.0.2:9901", "state": "up", "report_age_seconds": 0.021},
                      {"address": "10.0.0.3:9901", "state": "down", "report_age_seconds": null}],
            "pools": [{"name": "p", "model": null, "policy": "predicted", "queued": 3,
                "deferred": 1, "endpoints": [
                {"name": "a:1", "state": "serving", "in_flight": 2,
                 "peer_requests": 5, "kv_usage": 0.25, "picks": 7,
                 "signal_age_seconds": 0.04},
                {"name": "b:1", "state": "ejected", "returns_in_seconds": 9.6, "in_flight": 0},
            ]}],
        });
        let text = render(&status);
        assert!(text.starts_with("inference-gateway 1.2.3, serving, ready, up 61 s\n"), "{text}");
        assert!(
            text.contains("pool p (any model), policy predicted, 3 queued, 1 deferred"),
            "{text}"
        );
        assert!(
            text.contains("\npeers: 10.0.0.2:9901 up (21 ms ago), 10.0.0.3:9901 down\n"),
            "{text}"
        );
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("a:1"), ["a:1", "serving", "2", "5", "-", "-", "25", "-", "7", "-", "40"]);
        assert_eq!(row("b:1")[1..4], ["ejected", "10", "s"]);
    }
}
