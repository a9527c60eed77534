//! The registry, and what is in it: families without a value yet are on no page, but they
//! can be told.

use std::fmt::Write as _;

use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Error, Registry};

/// Registers families and remembers what they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Registrar {
    registry: Registry,
    families: Vec<Family>,
}

/// A family of the page.
#[derive(Clone, Debug)]
struct Family {
    name: String,
    kind: &'static str,
    labels: Vec<String>,
    help: String,
}

impl Registrar {
    pub(super) fn add<C: Collector + Clone + 'static>(&mut self, metric: C) -> Result<C, Error> {
        // The type of a family stands in what it collects, even if that is nothing yet.
        let kind = metric.collect().first().map_or("untyped", kind);
        self.families.extend(metric.desc().into_iter().map(|description| Family {
            name: description.fq_name.clone(),
            kind,
            labels: description.variable_labels.clone(),
            help: description.help.clone(),
        }));
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// A Markdown table of the families, by name.
    pub(super) fn describe(&self) -> String {
        let mut families: Vec<&Family> = self.families.iter().collect();
        families.sort_by(|a, b| a.name.cmp(&b.name));
        let mut table = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
        for Family { name, kind, labels, help } in families {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(table, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
        }
        table
    }
}

fn kind(family: &MetricFamily) -> &'static str {
    match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    }
}
