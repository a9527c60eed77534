//! `vllm:lora_requests_info`, whose value is a time and whose labels are the news.
//!
//! Every new pair of label values is a new series, old ones stay for ever: a
//! reader must take the series with the newest value. A waiting adapter is listed
//! among the running ones too. Both are vLLM's ways.

use std::time::Duration;

use super::super::adapter::Adapters;
use super::exposition::series;
use crate::engine::{AdapterId, Load};

/// Every pair of label values so far, with the time when it was last true.
#[derive(Debug, Default)]
pub(in super::super) struct LoraSeries(Vec<(String, String, Duration)>);

impl LoraSeries {
    /// Notes which adapters are in use at `now` (Unix time).
    pub(in super::super) fn note<'a>(
        &mut self,
        loads: impl Iterator<Item = &'a Load>,
        names: &Adapters,
        now: Duration,
    ) {
        let (mut running, mut waiting): (Vec<AdapterId>, Vec<AdapterId>) = (Vec::new(), Vec::new());
        for load in loads {
            add(&mut running, &load.running_adapters);
            add(&mut running, &load.waiting_adapters);
            add(&mut waiting, &load.waiting_adapters);
        }
        if self.0.is_empty() && running.is_empty() {
            return;
        }
        let (running, waiting) = (names.names(&running), names.names(&waiting));
        let same = |(r, w, _): &&mut (String, String, Duration)| *r == running && *w == waiting;
        match self.0.iter_mut().find(same) {
            Some((_, _, time)) => *time = now,
            None => self.0.push((running, waiting, now)),
        }
    }

    pub(super) fn write(&self, page: &mut String, name: &str, max_loras: usize) {
        for (running, waiting, time) in &self.0 {
            let labels = format!(
                "max_lora=\"{max_loras}\",running_lora_adapters=\"{running}\",\
                 waiting_lora_adapters=\"{waiting}\""
            );
            series(page, name, &labels, time.as_secs_f64());
        }
    }
}

fn add(all: &mut Vec<AdapterId>, some: &[AdapterId]) {
    for adapter in some {
        if !all.contains(adapter) {
            all.push(*adapter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::options::Adapter;
    use super::*;

    #[test]
    fn old_series_stay_and_the_newest_is_true() {
        let names = Adapters::new(&[Adapter::new("a"), Adapter::new("b")]);
        let load = |running: &[u32], waiting: &[u32]| Load {
            running_adapters: running.iter().map(|id| AdapterId(*id)).collect(),
            waiting_adapters: waiting.iter().map(|id| AdapterId(*id)).collect(),
            ..Load::default()
        };
        let mut lora = LoraSeries::default();
        lora.note([load(&[], &[])].iter(), &names, Duration::from_secs(1));
        lora.note([load(&[1], &[0])].iter(), &names, Duration::from_secs(2));
        lora.note([load(&[], &[])].iter(), &names, Duration::from_secs(3));
        let mut page = String::new();
        lora.write(&mut page, "x", 2);
        assert_eq!(
            page,
            "x{max_lora=\"2\",running_lora_adapters=\"b,a\",waiting_lora_adapters=\"a\"} 2.0\n\
             x{max_lora=\"2\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} 3.0\n"
        );
    }
}
