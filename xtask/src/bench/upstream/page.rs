//! The metrics page of the mock model servers.
//!
//! A page that vLLM 0.32 wrote (50 KB, 600 lines), with two places kept alive: no
//! two pages are equal, and the engine reports a running request while a stream
//! is open, as a real one would.

/// As saved from the engine, nothing trimmed.
const SAVED: &[u8] = include_bytes!("../../../fixtures/vllm-metrics.txt");

/// A whole HTTP response with the page.
#[derive(Debug)]
pub(super) struct Page {
    response: Vec<u8>,
    cpu_seconds_at: usize,
    running_at: usize,
    served: u64,
}

impl Page {
    pub(super) fn new() -> Self {
        let response = super::whole("text/plain; version=0.0.4; charset=utf-8", SAVED);
        let after = |line: &[u8]| {
            // The page is compiled in and a test reads both lines.
            let at = memchr::memmem::find(&response, line).expect("the saved page has the line");
            at + line.len()
        };
        let cpu_seconds_at = after(b"\nprocess_cpu_seconds_total ");
        let running_at = after(b"\nvllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} ");
        Self { response, cpu_seconds_at, running_at, served: 0 }
    }

    /// The page for an engine that has work or not.
    pub(super) fn render(&mut self, running: bool) -> &[u8] {
        self.served += 1;
        let digit = |power: u64| b'0' + (self.served / power % 10) as u8;
        let changing = [digit(100), b'.', digit(10), digit(1)];
        self.response[self.cpu_seconds_at..self.cpu_seconds_at + changing.len()]
            .copy_from_slice(&changing);
        self.response[self.running_at] = if running { b'1' } else { b'0' };
        &self.response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(page: &[u8], name: &str) -> f64 {
        let text = std::str::from_utf8(page).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    #[test]
    fn pages_differ_and_tell_whether_the_engine_works() {
        let mut page = Page::new();
        let (idle, busy) = (page.render(false).to_vec(), page.render(true).to_vec());
        assert!(idle.len() > 50_000 && idle.len() == busy.len());
        assert_eq!((value(&idle, "process_cpu"), value(&busy, "process_cpu")), (0.01, 0.02));
        let running = "vllm:num_requests_running{";
        assert_eq!((value(&idle, running), value(&busy, running)), (0.0, 1.0));
    }
}
