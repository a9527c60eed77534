//! `explain`: where a running gateway would send a request, and why.

use std::collections::BTreeSet;
use std::io::Read;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::ask::ask;
use super::table::{number, table, text};
use crate::args::ExplainFlags;

/// Asks a running gateway about a request. Nothing is sent to an engine.
///
/// # Errors
///
/// The body cannot be read, the gateway cannot be reached or does not know the model.
pub fn explain(flags: &ExplainFlags) -> Result<String> {
    let explanation = ask(&flags.admin.admin, "/debug/explain", Some(body(flags)?))?;
    if flags.admin.json {
        return Ok(serde_json::to_string_pretty(&explanation)? + "\n");
    }
    Ok(render(&explanation))
}

fn body(flags: &ExplainFlags) -> Result<Vec<u8>> {
    match &flags.body {
        Some(path) if path.as_os_str() == "-" => {
            let mut body = Vec::new();
            std::io::stdin().read_to_end(&mut body).context("cannot read standard input")?;
            Ok(body)
        }
        Some(path) => {
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
        }
        None => {
            let messages = json!([{"role": "user", "content": flags.prompt}]);
            Ok(json!({"model": flags.model, "messages": messages}).to_string().into_bytes())
        }
    }
}

fn render(explanation: &Value) -> String {
    let winners: Vec<&str> =
        explanation["winners"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut out = format!(
        "model {} goes to pool {} as {}, policy {}\n{} prompt tokens, {} prefix blocks\n\n",
        text(&explanation["model"]),
        text(&explanation["pool"]),
        text(&explanation["target"]),
        text(&explanation["policy"]),
        number(&explanation["prompt_tokens"], 0),
        number(&explanation["prefix_blocks"], 0)
    );
    let endpoints: Vec<&Value> =
        explanation["endpoints"].as_array().into_iter().flatten().collect();
    let scores: BTreeSet<&str> = endpoints
        .iter()
        .filter_map(|endpoint| endpoint["scores"].as_object())
        .flat_map(|scores| scores.keys().map(String::as_str))
        .collect();
    let mut head: Vec<String> = ["", "ENDPOINT", "TOTAL"].into_iter().map(str::to_owned).collect();
    head.extend(scores.iter().map(|name| name.to_uppercase()));
    head.extend(
        ["CACHED", "IN FLIGHT", "OF PEERS", "WAITING", "DROPPED"].into_iter().map(str::to_owned),
    );
    let mut rows = vec![head];
    rows.extend(endpoints.iter().map(|endpoint| candidate(endpoint, &scores, &winners)));
    out.push_str(&table(&rows));
    if winners.is_empty() {
        out.push_str("\nno endpoint can take it\n");
    }
    out
}

fn candidate(endpoint: &Value, scores: &BTreeSet<&str>, winners: &[&str]) -> Vec<String> {
    let name = text(&endpoint["name"]);
    let mark = if winners.contains(&name.as_str()) { "*" } else { "" };
    let mut row = vec![mark.to_owned(), name, number(&endpoint["total"], 4)];
    row.extend(scores.iter().map(|score| number(&endpoint["scores"][score], 4)));
    row.extend([
        number(&endpoint["cached_tokens"], 0),
        number(&endpoint["in_flight"], 0),
        number(&endpoint["peer_requests"], 0),
        number(&endpoint["waiting"], 0),
        endpoint["dropped"].as_str().unwrap_or_default().to_owned(),
    ]);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_winner_is_marked_and_the_dropped_say_why() {
        let explanation = json!({
            "model": "m", "pool": "p", "target": "m", "policy": "weighted", "prompt_tokens": 12,
            "prefix_blocks": 0, "winners": ["a:1"], "endpoints": [
                {"name": "a:1", "dropped": null, "total": 2.5, "scores": {"queue-scorer": 1.0},
                 "cached_tokens": 16, "in_flight": 1, "peer_requests": 7, "waiting": null},
                {"name": "b:1", "dropped": "stale", "total": null, "scores": {},
                 "cached_tokens": 0, "in_flight": 0, "waiting": 3.0},
            ],
        });
        let text = render(&explanation);
        assert!(text.contains("QUEUE-SCORER"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[4].starts_with("*  a:1"), "{text}");
        let own = lines[4].split_whitespace().rev().take(4).collect::<Vec<_>>();
        assert_eq!(own, ["-", "7", "1", "16"], "{text}");
        assert!(lines[5].ends_with("stale"), "{text}");
    }

    #[test]
    fn nobody_left_is_said() {
        let text = render(&json!({"endpoints": [], "winners": []}));
        assert!(text.ends_with("no endpoint can take it\n"), "{text}");
    }
}
