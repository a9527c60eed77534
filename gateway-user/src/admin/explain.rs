//! Why a request would go where it would go, without sending it.

use std::sync::Arc;

use gateway_core::body::{ScanSettings, Scanner};
use gateway_core::pool::Verdict;
use gateway_core::request::Answer;
use serde::Serialize;

use crate::gateway::Gateway;
use crate::pool::Demand;
use crate::proxy::error::ProxyError;
use crate::proxy::worker::with_random;

/// One decision, taken apart.
#[derive(Debug, Serialize)]
pub(crate) struct Explained {
    model: Option<String>,
    pool: String,
    target: String,
    adapter: Option<String>,
    policy: &'static str,
    prompt_tokens: u32,
    prefix_blocks: usize,
    /// Endpoints that tie for the best rating; a pick takes one at random.
    winners: Vec<String>,
    endpoints: Vec<Candidate>,
}

#[derive(Debug, Serialize)]
struct Candidate {
    name: String,
    /// Why it was not a candidate.
    dropped: Option<&'static str>,
    total: Option<f64>,
    scores: serde_json::Map<String, serde_json::Value>,
    cached_tokens: u32,
    in_flight: u32,
    /// Requests of other gateways there, as they tell.
    peer_requests: u32,
    waiting: Option<f64>,
    running: Option<f64>,
    kv_usage: Option<f64>,
}

/// Explains what would happen to a request with this body now.
pub(crate) fn explain(gateway: &Gateway, body: &[u8]) -> Result<Explained, ProxyError> {
    let bad = |error: gateway_core::body::ScanError| ProxyError::BadBody(error.to_string());
    let mut scanner = Scanner::json(ScanSettings::default());
    scanner.push(body).map_err(bad)?;
    let facts = scanner.finish().map_err(bad)?;
    let site = gateway.site.load();
    let discovered = site.catalogue.discovered();
    let route =
        with_random(|random| site.routes.resolve(facts.model.as_deref(), &discovered, random))
            .map_err(|_| match &facts.model {
                Some(model) => ProxyError::UnknownModel(model.clone()),
                None => ProxyError::ModelMissing,
            })?;
    let pool = &site.pools[route.pool];
    let blocks = pool.blocks(&facts, &route);
    let demand = Demand {
        adapter: route.adapter.clone(),
        prompt_tokens: facts.prompt_tokens,
        max_output_tokens: facts.max_output_tokens,
        blocks: Arc::clone(&blocks),
        answer: if facts.stream { Answer::Streamed } else { Answer::Whole },
        ..Demand::default()
    };
    let explanation = pool.explain(&demand.view());
    let endpoints: Vec<Candidate> = explanation
        .endpoints
        .iter()
        .map(|endpoint| {
            let (dropped, total, scores) = match &endpoint.verdict {
                Verdict::Dropped(reason) => (Some(*reason), None, serde_json::Map::new()),
                Verdict::Rated { scores, total } => {
                    let scores =
                        scores.iter().map(|(name, score)| ((*name).to_owned(), (*score).into()));
                    (None, Some(*total), scores.collect())
                }
            };
            Candidate {
                name: endpoint.name.to_string(),
                dropped,
                total,
                scores,
                cached_tokens: endpoint.cached_tokens,
                in_flight: endpoint.in_flight_requests,
                peer_requests: endpoint.peer_requests,
                waiting: endpoint.signals.waiting,
                running: endpoint.signals.running,
                kv_usage: endpoint.signals.kv_usage,
            }
        })
        .collect();
    let name_of =
        |id| explanation.endpoints.iter().find(|e| e.id == id).map(|e| e.name.to_string());
    Ok(Explained {
        pool: pool.name().to_string(),
        target: route.target.to_string(),
        adapter: route.adapter.as_deref().map(str::to_owned),
        policy: explanation.policy,
        prompt_tokens: facts.prompt_tokens,
        prefix_blocks: blocks.len(),
        winners: explanation.winners.iter().filter_map(|id| name_of(*id)).collect(),
        endpoints,
        model: facts.model,
    })
}
