//! The `http_*` families of vLLM's web framework.

use std::time::Duration;

use super::super::http::Head;
use super::super::outlet::Whole;
use super::super::route;
use super::exposition::{created, header, histogram, series};
use crate::histogram::Histogram;

const FINE: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
    7.5, 10.0, 30.0, 60.0,
];
const COARSE: &[f64] = &[0.1, 0.5, 1.0];

/// Paths that the framework is told not to count.
const UNCOUNTED: [&str; 6] = ["/metrics", "/health", "/load", "/ping", "/version", "/server_info"];

/// One request and its answer, for the count.
#[derive(Clone, Debug)]
pub(in super::super) struct Exchange {
    handler: String,
    method: String,
    status: u16,
    request_bytes: usize,
    response_bytes: usize,
}

impl Exchange {
    pub(in super::super) fn new(head: &Head, request_bytes: usize) -> Self {
        Self {
            handler: head.path().to_owned(),
            method: head.method.clone(),
            status: 200,
            request_bytes,
            response_bytes: 0,
        }
    }

    /// The answer had a known length; of streams the framework knows none.
    pub(in super::super) fn answered(&mut self, whole: &Whole) {
        self.status = whole.status;
        self.response_bytes = whole.body.len();
        if whole.status == 404 && !route::is_inference(&self.handler) {
            "none".clone_into(&mut self.handler);
        }
    }
}

/// Counts by handler, in order of first appearance.
#[derive(Debug, Default)]
pub(in super::super) struct HttpStats {
    handlers: Vec<Handler>,
    all: Option<Histogram>,
}

#[derive(Debug)]
struct Handler {
    name: String,
    method: String,
    /// Status class such as `2xx`, and how often.
    statuses: Vec<(String, u64)>,
    request_bytes: u64,
    response_bytes: u64,
    duration: Histogram,
    created: Duration,
}

impl HttpStats {
    pub(in super::super) fn count(
        &mut self,
        exchange: &Exchange,
        took: Duration,
        started: Duration,
    ) {
        if UNCOUNTED.contains(&exchange.handler.as_str()) || exchange.handler.starts_with("/admin")
        {
            return;
        }
        let seconds = took.as_secs_f64();
        self.all.get_or_insert_with(|| Histogram::new(FINE)).observe(seconds);
        let handler = self.handler(exchange, started);
        handler.duration.observe(seconds);
        handler.request_bytes += exchange.request_bytes as u64;
        handler.response_bytes += exchange.response_bytes as u64;
        let class = format!("{}xx", exchange.status / 100);
        match handler.statuses.iter_mut().find(|(known, _)| *known == class) {
            Some((_, times)) => *times += 1,
            None => handler.statuses.push((class, 1)),
        }
    }

    fn handler(&mut self, exchange: &Exchange, created: Duration) -> &mut Handler {
        let same = |handler: &Handler| {
            handler.name == exchange.handler && handler.method == exchange.method
        };
        let index = self.handlers.iter().position(same).unwrap_or_else(|| {
            self.handlers.push(Handler {
                name: exchange.handler.clone(),
                method: exchange.method.clone(),
                statuses: Vec::new(),
                request_bytes: 0,
                response_bytes: 0,
                duration: Histogram::new(COARSE),
                created,
            });
            self.handlers.len() - 1
        });
        &mut self.handlers[index]
    }

    /// The series of one family, and of the family that tells when they began.
    pub(super) fn family(&self, page: &mut String, name: &str, help: &str, started: Duration) {
        match name {
            "http_requests_total" => self.requests(page, name, help),
            "http_request_size_bytes" => self.summary(page, name, help, |h| h.request_bytes),
            "http_response_size_bytes" => self.summary(page, name, help, |h| h.response_bytes),
            "http_request_duration_highr_seconds" => {
                let empty = Histogram::new(FINE);
                histogram(page, name, ("", ""), self.all.as_ref().unwrap_or(&empty));
                created(page, name, help, &[String::new()], started);
            }
            _ => self.durations(page, name, help),
        }
    }

    fn requests(&self, page: &mut String, name: &str, help: &str) {
        let labelled = self.handlers.iter().flat_map(|handler| {
            handler.statuses.iter().map(move |(class, times)| {
                let (name, method) = (&handler.name, &handler.method);
                let labels = format!("handler=\"{name}\",method=\"{method}\",status=\"{class}\"");
                (labels, *times, handler.created)
            })
        });
        let labelled: Vec<(String, u64, Duration)> = labelled.collect();
        for (labels, times, _) in &labelled {
            series(page, name, labels, *times as f64);
        }
        header(page, "http_requests_created", help, "gauge");
        for (labels, _, at) in &labelled {
            series(page, "http_requests_created", labels, at.as_secs_f64());
        }
    }

    fn summary(&self, page: &mut String, name: &str, help: &str, bytes: fn(&Handler) -> u64) {
        for handler in &self.handlers {
            let labels = format!("handler=\"{}\"", handler.name);
            let count = handler.duration.count() as f64;
            series(page, &format!("{name}_count"), &labels, count);
            series(page, &format!("{name}_sum"), &labels, bytes(handler) as f64);
        }
        let name = format!("{name}_created");
        header(page, &name, help, "gauge");
        for handler in &self.handlers {
            let labels = format!("handler=\"{}\"", handler.name);
            series(page, &name, &labels, handler.created.as_secs_f64());
        }
    }

    fn durations(&self, page: &mut String, name: &str, help: &str) {
        for handler in &self.handlers {
            let before = format!("handler=\"{}\"", handler.name);
            let after = format!("method=\"{}\"", handler.method);
            histogram(page, name, (&before, &after), &handler.duration);
        }
        let name = format!("{name}_created");
        header(page, &name, help, "gauge");
        for handler in &self.handlers {
            let labels = format!("handler=\"{}\",method=\"{}\"", handler.name, handler.method);
            series(page, &name, &labels, handler.created.as_secs_f64());
        }
    }
}
