//! Recorded traffic on an equal fleet, at the speed that makes the load.
//!
//! Each seed plays another stretch of the trace. Without the public files the
//! generated samples are played, over and over.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use fastrand::Rng;
use gateway_core::Time;

use super::announced::equal_8b;
use super::{Entry, USUAL, plain};
use crate::lab::request::LabRequest;
use crate::lab::scenario::Session;
use crate::lab::trace::{DIRECTORY_VARIABLE, KNOWN, Trace};

const BASE: Entry = Entry {
    name: "",
    about: "",
    fleet: equal_8b,
    sessions: |rate, length, rng| replay(0, rate, length, rng),
    target: Duration::from_secs(5),
    loads: USUAL,
    twist: plain,
};

/// In the order of [`KNOWN`].
pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "trace_azure_code_8b",
        about: "code completion at Azure, 2023: long prompts, short answers",
        ..BASE
    },
    Entry {
        name: "trace_azure_conversation_8b",
        about: "conversations at Azure, 2023",
        sessions: |rate, length, rng| replay(1, rate, length, rng),
        ..BASE
    },
    Entry {
        name: "trace_mooncake_conversation_8b",
        about: "long conversations at Kimi, with what their prompts share",
        sessions: |rate, length, rng| replay(2, rate, length, rng),
        target: Duration::from_secs(15),
        ..BASE
    },
    Entry {
        name: "trace_mooncake_synthetic_8b",
        about: "Mooncake's synthetic mix of long shared documents",
        sessions: |rate, length, rng| replay(3, rate, length, rng),
        target: Duration::from_secs(15),
        ..BASE
    },
];

/// Longest request that is played: what fits into the smallest KV cache with room to spare.
const MOST_TOKENS: u32 = 100_000;

fn replay(number: usize, rate: f64, length: Duration, rng: &mut Rng) -> Vec<Session> {
    static TRACES: [OnceLock<Trace>; KNOWN.len()] = [const { OnceLock::new() }; KNOWN.len()];
    let trace = TRACES[number].get_or_init(|| load(number));
    let speed = rate / trace.rate().max(f64::MIN_POSITIVE);
    let count = trace.entries.len();
    let span = trace.entries.last().map_or(Duration::ZERO, |last| last.at);
    let first = rng.usize(..count);
    let start = trace.entries[first].at;
    let mut sessions = Vec::new();
    for number in first.. {
        let (entry, rounds) = (&trace.entries[number % count], (number / count) as u32);
        let at = (entry.at + span * rounds).saturating_sub(start).div_f64(speed);
        if at >= length {
            break;
        }
        let request = LabRequest { engine: entry.request(), ..LabRequest::default() };
        sessions.push(Session::single(Time::from_origin(at), request));
    }
    sessions
}

fn load(number: usize) -> Trace {
    let directory = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from);
    let (trace, _) = KNOWN[number]
        .load(directory.as_deref())
        // A file that is named but broken must not be taken for the sample.
        .unwrap_or_else(|error| panic!("{error}"));
    trace.fitting(MOST_TOKENS)
}
