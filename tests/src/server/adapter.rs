//! `LoRA` adapters and `/v1/models`.

use serde_json::{Value, json};

use super::error::Refusal;
use super::options::Adapter;
use super::outlet::Whole;
use super::shared::{Shared, lock};
use crate::engine::AdapterId;

/// The adapters of a server; numbers are never used twice.
#[derive(Debug)]
pub(super) struct Adapters {
    known: Vec<(AdapterId, Adapter)>,
    /// Names by number, also of adapters that are gone.
    names: Vec<String>,
}

/// What a model's name stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Served {
    Adapter(AdapterId),
    Base,
}

impl Adapters {
    pub(super) fn new(adapters: &[Adapter]) -> Self {
        let mut table = Self { known: Vec::new(), names: Vec::new() };
        for adapter in adapters {
            table.add(adapter.clone());
        }
        table
    }

    /// Names of adapters by their numbers.
    pub(super) fn names(&self, ids: &[AdapterId]) -> String {
        let names = ids.iter().filter_map(|id| self.names.get(id.0 as usize));
        names.map(String::as_str).collect::<Vec<_>>().join(",")
    }

    /// Whether the server has no adapters at all.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.names.is_empty()
    }

    fn add(&mut self, adapter: Adapter) {
        let id = AdapterId(self.names.len() as u32);
        self.names.push(adapter.name.clone());
        self.known.push((id, adapter));
    }

    fn find(&self, name: &str) -> Option<AdapterId> {
        self.known.iter().find(|(_, adapter)| adapter.name == name).map(|(id, _)| *id)
    }
}

/// What `model` stands for; an empty name is the base model, as in vLLM.
pub(super) fn resolve(shared: &Shared, model: &str) -> Result<Served, Refusal> {
    let served = &shared.options.models;
    if model.is_empty() || served.iter().any(|name| name == model) {
        return Ok(Served::Base);
    }
    let adapter = lock(&shared.adapters).find(model);
    adapter.map(Served::Adapter).ok_or_else(|| Refusal::unknown_model(model, served))
}

/// `POST /v1/load_lora_adapter`
pub(super) async fn load(shared: &Shared, body: &Value) -> Result<Whole, Refusal> {
    let (Some(name), Some(path)) = (body["lora_name"].as_str(), body["lora_path"].as_str()) else {
        let message = "Both 'lora_name' and 'lora_path' must be provided.";
        return Err(Refusal::new(400, "InvalidUserInput", message));
    };
    let in_place = body["load_inplace"].as_bool() == Some(true);
    let is_known = |shared: &Shared| lock(&shared.adapters).find(name).is_some();
    if is_known(shared) && !in_place {
        return Err(already_loaded(name));
    }
    tokio::time::sleep(shared.options.profile.adapter_load.div_f64(shared.options.time_scale))
        .await;
    let mut adapters = lock(&shared.adapters);
    if adapters.find(name).is_some() && !in_place {
        return Err(already_loaded(name)); // by another request meanwhile
    }
    adapters.known.retain(|(_, adapter)| adapter.name != name);
    adapters.add(Adapter { name: name.to_owned(), path: path.to_owned() });
    Ok(Whole::bare(200, format!("Success: LoRA adapter '{name}' added successfully.")))
}

/// `POST /v1/unload_lora_adapter`
pub(super) fn unload(shared: &Shared, body: &Value) -> Result<Whole, Refusal> {
    let Some(name) = body["lora_name"].as_str() else {
        let message = "'lora_name' needs to be provided to unload a LoRA adapter.";
        return Err(Refusal::new(400, "InvalidUserInput", message));
    };
    let mut adapters = lock(&shared.adapters);
    if adapters.find(name).is_none() {
        let message = format!("The lora adapter '{name}' cannot be found.");
        return Err(Refusal::new(404, "NotFoundError", message));
    }
    adapters.known.retain(|(_, adapter)| adapter.name != name);
    Ok(Whole::bare(200, format!("Success: LoRA adapter '{name}' removed successfully.")))
}

/// `GET /v1/models`
pub(super) fn models(shared: &Shared) -> Whole {
    let options = &shared.options;
    let first = options.models.first().map(String::as_str).unwrap_or_default();
    let root = format!("/models/{first}");
    let base = options.models.iter();
    let base = base.map(|name| card(shared, name, &root, None));
    let adapters = lock(&shared.adapters);
    let added = adapters.known.iter();
    let added = added.map(|(_, adapter)| card(shared, &adapter.name, &adapter.path, Some(first)));
    let cards: Vec<Value> = base.chain(added).collect();
    Whole::json(200, &json!({ "object": "list", "data": cards }))
}

fn card(shared: &Shared, name: &str, root: &str, parent: Option<&str>) -> Value {
    let created = super::unix_time().as_secs();
    let context = parent.is_none().then(|| shared.options.context_length());
    json!({
        "id": name, "object": "model", "created": created, "owned_by": "vllm", "root": root,
        "parent": parent, "max_model_len": context,
        "permission": [{
            "id": format!("modelperm-{}", shared.hex_id()), "object": "model_permission",
            "created": created, "allow_create_engine": false, "allow_sampling": true,
            "allow_logprobs": true, "allow_search_indices": false, "allow_view": true,
            "allow_fine_tuning": false, "organization": "*", "group": null, "is_blocking": false,
        }],
    })
}

fn already_loaded(name: &str) -> Refusal {
    let message = format!(
        "The lora adapter '{name}' has already been loaded. If you want to load the adapter in \
         place, set 'load_inplace' to True."
    );
    Refusal::new(400, "InvalidUserInput", message)
}
