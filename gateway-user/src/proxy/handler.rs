//! One request, from its head to the start of its answer.
//!
//! The steps, in order: route by path, check the key, read the body, find the
//! pool, wait for room, pick, forward. Each may end the request with a
//! [`ProxyError`]; the answer's bytes are then somebody else's business
//! ([`super::connection`], [`super::http2`]).

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use gateway_core::body::RequestFacts;
use gateway_core::http1::{Fields, RequestHead};
use gateway_core::request::Answer;
use gateway_core::route::Route as ModelRoute;

use super::api::{self, Api, Route};
use super::error::{Dialect, ProxyError};
use super::forward::{self, Plan};
use super::intake::{self, Bounds, Intake};
use super::record::Record;
use super::reply::Reply;
use super::upload::Upload;
use super::worker::{Worker, new_request_id, with_random};
use crate::auth::Identity;
use crate::gateway::Site;
use crate::models;
use crate::pool::flow::Class;
use crate::pool::{Demand, Pool};

/// The flow of requests that name nobody to be fair to.
static DEFAULT_FLOW: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("default-flow"));

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) peer: SocketAddr,
    /// Whether an engine's chunked framing can be passed on as it is.
    pub(crate) verbatim: bool,
    /// The flow in force on its connection; 0 for none.
    pub(crate) flow: u32,
}

/// Answers one request. `None` when the client is gone.
pub(crate) async fn handle(
    worker: &Arc<Worker>,
    head: &RequestHead,
    upload: &mut Upload<'_>,
    caller: Caller,
) -> Option<Reply> {
    let site = worker.gateway.site.load_full();
    let request_id = request_id(&site, head.fields());
    let route = api::route(head.method(), head.path());
    let (name, dialect) = match route {
        Route::Inference(api) => (api.name, api.dialect),
        Route::Models | Route::Model(_) => ("models", Dialect::OpenAi),
        Route::Live => return Some(crate::readiness::live()),
        Route::Ready => return Some(crate::readiness::ready(&worker.gateway)),
        Route::Unknown => ("unknown", Dialect::OpenAi),
    };
    let method = method_name(head.method());
    let mut record = Record::open(Arc::clone(&worker.gateway), method, name, request_id.clone());
    let answered = match route {
        Route::Inference(api) => {
            let request = Request { worker, site: &site, head, api, caller };
            request.answer(record, upload).await
        }
        Route::Models | Route::Model(_) => match list_models(worker, &site, head, route).await {
            Ok(reply) => {
                record.local_ok(0);
                Ok(reply)
            }
            Err(error) => Err((record, error)),
        },
        _ => Err((record, ProxyError::UnknownPath(format!("{} {}", head.method(), head.path())))),
    };
    match answered {
        Ok(reply) => Some(reply),
        Err((mut record, error)) => {
            record.local(&error);
            if matches!(error, ProxyError::ClientGone) {
                return None;
            }
            Some(Reply::error(&error, dialect, &request_id))
        }
    }
}

async fn list_models(
    worker: &Worker,
    site: &Site,
    head: &RequestHead,
    route: Route<'_>,
) -> Result<Reply, ProxyError> {
    let identity = authenticate(site, head.fields())?;
    match route {
        Route::Model(id) => models::one(worker, site, id, identity.as_ref()).await,
        _ => Ok(models::list(worker, site, identity.as_ref()).await),
    }
}

fn authenticate(site: &Site, fields: &Fields) -> Result<Option<Identity>, ProxyError> {
    site.keys.check(fields).map_err(|_| ProxyError::Unauthorized)
}

/// An inference request.
struct Request<'a> {
    worker: &'a Arc<Worker>,
    site: &'a Arc<Site>,
    head: &'a RequestHead,
    api: Api,
    caller: Caller,
}

impl Request<'_> {
    async fn answer(
        &self,
        mut record: Record,
        upload: &mut Upload<'_>,
    ) -> Result<Reply, (Record, ProxyError)> {
        match self.prepare(&mut record, upload).await {
            Ok(plan) => forward::forward(self.worker, plan, record, upload).await,
            Err(error) => Err((record, error)),
        }
    }

    /// Everything up to the pool.
    async fn prepare(
        &self,
        record: &mut Record,
        upload: &mut Upload<'_>,
    ) -> Result<Plan<'_>, ProxyError> {
        let identity = authenticate(self.site, self.head.fields())?;
        record.key = identity.as_ref().map(|identity| Arc::clone(&identity.name));
        let bounds = Bounds {
            largest: self.site.largest_body(),
            shared: Arc::clone(&self.worker.gateway.buffers),
        };
        let has_body = intake::has_body(self.head, upload);
        let mut intake = intake::read(self.head, upload, &bounds).await?;
        let whole = intake.body.len() as u64 + upload.remaining().unwrap_or(0);
        record.request_bytes = whole;
        let header = self.head.fields().text_of("x-gateway-model-name");
        let asked: Option<Arc<str>> = intake.facts.model.as_deref().or(header).map(Arc::from);
        if let (Some(identity), Some(model)) = (&identity, &asked)
            && !identity.may_use(model)
        {
            return Err(ProxyError::Forbidden(model.to_string()));
        }
        let route = match self.resolve(asked.as_deref()).await {
            // Where a body should have been, its absence is the better complaint.
            Err(ProxyError::ModelMissing) if whole == 0 && self.head.method() == "POST" => {
                return Err(ProxyError::BadBody("it is empty".to_owned()));
            }
            route => route?,
        };
        let pool = Arc::clone(&self.site.pools[route.pool]);
        if whole > pool.config.max_request_body_bytes {
            return Err(ProxyError::TooLarge { limit: pool.config.max_request_body_bytes });
        }
        let class = self.class(&pool, identity.as_ref(), &intake);
        let target = route.target.clone();
        let model = asked.unwrap_or_else(|| Arc::clone(&target));
        let metrics =
            pool.model_metrics(&self.worker.gateway.metrics, &model, &target, class.priority);
        record.routed(Arc::clone(pool.name()), Arc::clone(&model), metrics);
        let demand = demand(&intake, &route, &pool, self.head.fields());
        if route.rename {
            intake.rename_model(&target);
        }
        Ok(Plan {
            head: self.head,
            api: self.api,
            caller: self.caller,
            authenticated: identity.is_some(),
            rename: route.rename.then_some((model, target)),
            pool,
            class,
            demand,
            intake,
            has_body,
        })
    }

    /// Finds the pool; asks the engines once more about a name that nobody lists, for
    /// an adapter may have been loaded a moment ago.
    async fn resolve(&self, asked: Option<&str>) -> Result<ModelRoute, ProxyError> {
        let Site { routes, catalogue, .. } = &**self.site;
        if let Some(name) = asked
            && !routes.knows(name, &catalogue.discovered())
        {
            models::refresh_for_unknown(self.worker, self.site).await;
        }
        let discovered = catalogue.discovered();
        with_random(|random| routes.resolve(asked, &discovered, random)).map_err(|_| match asked {
            Some(name) => ProxyError::UnknownModel(name.to_owned()),
            None => ProxyError::ModelMissing,
        })
    }

    /// Priority, fairness key and cost, for flow control.
    fn class(&self, pool: &Pool, identity: Option<&Identity>, intake: &Intake) -> Class {
        let fields = self.head.fields();
        let objective = fields
            .text_of("x-gateway-inference-objective")
            .or_else(|| fields.text_of("x-llm-d-inference-objective"));
        let fairness = fields
            .text_of("x-gateway-inference-fairness-id")
            .or_else(|| fields.text_of("x-llm-d-inference-fairness-id"));
        let flow = match (fairness, identity) {
            (Some(id), _) => Arc::from(id),
            (None, Some(identity)) => Arc::clone(&identity.name),
            (None, None) => Arc::clone(&DEFAULT_FLOW),
        };
        let prompt = u64::from(intake.facts.prompt_tokens);
        let answer = intake.facts.max_output_tokens;
        Class {
            priority: objective.map_or(0, |name| self.site.config.priority_of(name)),
            flow,
            prompt_tokens: prompt,
            tokens: prompt + u64::from(answer.unwrap_or(pool.config.assumed_output_tokens())),
            bytes: intake.body.len() as u64,
        }
    }
}

/// What the request asks of its pool.
fn demand(intake: &Intake, route: &ModelRoute, pool: &Pool, fields: &Fields) -> Demand {
    let facts = &intake.facts;
    Demand {
        adapter: route.adapter.clone(),
        prompt_tokens: facts.prompt_tokens,
        max_output_tokens: facts.max_output_tokens,
        blocks: pool.blocks(facts, route),
        session: session(pool, fields, facts),
        tried: Vec::new(),
        answer: if facts.stream { Answer::Streamed } else { Answer::Whole },
    }
}

/// Hash of the session key, where the pool wants affinity. Header names are
/// compared without regard to `-` and `_`, as clients spell them either way.
fn session(pool: &Pool, fields: &Fields, facts: &RequestFacts) -> Option<u64> {
    let wanted = pool.config.session_header.as_deref()?;
    let same = |name: &str| {
        name.len() == wanted.len()
            && name.bytes().zip(wanted.bytes()).all(|(a, b)| {
                a.eq_ignore_ascii_case(&b) || (matches!(a, b'-' | b'_') && matches!(b, b'-' | b'_'))
            })
    };
    let header = fields.iter().find(|(name, _)| same(name)).map(|(_, value)| value);
    header
        .or_else(|| facts.session_id.as_deref().map(str::as_bytes))
        .map(gateway_core::request::session_hash)
}

/// The client's id for this request, or a new one.
fn request_id(site: &Site, fields: &Fields) -> Box<str> {
    site.config
        .request_id_headers
        .iter()
        .find_map(|name| fields.text_of(name))
        .filter(|id| !id.is_empty() && id.len() <= 256)
        .map_or_else(new_request_id, Box::from)
}

/// Bounded names for logs and metrics.
fn method_name(method: &str) -> &'static str {
    match method {
        "POST" => "POST",
        "GET" => "GET",
        "DELETE" => "DELETE",
        "PUT" => "PUT",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}
