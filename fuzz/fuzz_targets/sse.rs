//! What is seen of an answer does not depend on the split.
#![no_main]

use gateway_core::sse::{Completion, Progress, Usage, Watch};
use libfuzzer_sys::fuzz_target;

/// All that a watcher says.
type Seen = (Option<Progress>, Option<Usage>, u64, u64, Completion, bool);

fn watch(mut watch: Watch, pieces: &[&[u8]]) -> Seen {
    let mut progress = None;
    for piece in pieces {
        progress = progress.max(Some(watch.push(piece)));
    }
    assert!(watch.content_events() <= watch.events_seen());
    (
        progress,
        watch.usage(),
        watch.events_seen(),
        watch.content_events(),
        watch.completion(),
        watch.at_event_boundary(),
    )
}

fuzz_target!(|input: &[u8]| {
    let (whole, pieces) = gateway_fuzz::cut(input);
    if whole.is_empty() {
        return;
    }
    for new in [Watch::events, Watch::json] {
        assert_eq!(watch(new(), &pieces), watch(new(), &[whole]));
    }
});
