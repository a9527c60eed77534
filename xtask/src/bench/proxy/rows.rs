//! The rows of `bench proxy`, as measured and as reported: medians over rounds.

use clap::ValueEnum;
use serde::{Serialize, Serializer};

use crate::bench::figures;
use crate::bench::message::Pacing;
use crate::bench::path::Path;

/// Size of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Body {
    #[value(name = "0.1")]
    Short,
    #[value(name = "8")]
    Medium,
    #[value(name = "128")]
    Long,
}

impl Body {
    pub(super) const ALL: [Self; 3] = [Self::Short, Self::Medium, Self::Long];

    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Short => 100,
            Self::Medium => 8 * 1024,
            Self::Long => 128 * 1024,
        }
    }

    /// As named in tables and in JSON.
    pub(super) fn kilobytes(self) -> f64 {
        match self {
            Self::Short => 0.1,
            Self::Medium => 8.0,
            Self::Long => 128.0,
        }
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.kilobytes())
    }
}

/// Figures of a whole run.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figures {
    pub(super) requests: Vec<RequestRow>,
    /// Paced by engine steps.
    pub(super) streams: Vec<StreamRow>,
    /// Evenly paced; a table beside the agreed JSON.
    #[serde(skip)]
    pub(super) even_streams: Vec<StreamRow>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct RequestRow {
    pub(super) path: &'static str,
    pub(super) body_kb: Body,
    pub(super) concurrency: usize,
    pub(super) rps: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// CPU of the proxy process per request; zero on the direct path.
    pub(super) cpu_us: f64,
}

impl RequestRow {
    /// Whether `other` was measured with the same body and connections.
    pub(super) fn is_same_cell(&self, other: &Self) -> bool {
        (self.body_kb, self.concurrency) == (other.body_kb, other.concurrency)
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct StreamRow {
    pub(super) path: &'static str,
    pub(super) chunk_p50_us: f64,
    pub(super) chunk_p99_us: f64,
    /// CPU of the proxy process per chunk; zero on the direct path.
    pub(super) cpu_us: f64,
}

impl Figures {
    /// The rows of one pacing.
    pub(super) fn streams_of(&mut self, pacing: Pacing) -> &mut Vec<StreamRow> {
        match pacing {
            Pacing::Even => &mut self.even_streams,
            Pacing::Steps => &mut self.streams,
        }
    }

    /// The median of each figure over the rounds, paths in the order given.
    pub(super) fn medians(paths: &[Path], rounds: &[Self]) -> Self {
        let Some(first) = rounds.first() else { return Self::default() };
        let requests = first.requests.iter().map(|cell| request_median(cell, rounds)).collect();
        let streams = |of: fn(&Self) -> &Vec<StreamRow>| {
            let rows: Vec<&StreamRow> = rounds.iter().flat_map(of).collect();
            paths.iter().filter_map(|path| stream_median(*path, &rows)).collect()
        };
        Self {
            requests,
            streams: streams(|round| &round.streams),
            even_streams: streams(|round| &round.even_streams),
        }
    }
}

fn request_median(cell: &RequestRow, rounds: &[Figures]) -> RequestRow {
    let same = |row: &&RequestRow| row.is_same_cell(cell) && row.path == cell.path;
    let of = |value: fn(&RequestRow) -> f64| {
        let rows = rounds.iter().flat_map(|round| round.requests.iter().filter(same));
        figures::tenth(figures::median(rows.map(value)))
    };
    RequestRow {
        rps: of(|row| row.rps),
        p50_us: of(|row| row.p50_us),
        p99_us: of(|row| row.p99_us),
        cpu_us: of(|row| row.cpu_us),
        ..cell.clone()
    }
}

fn stream_median(path: Path, rows: &[&StreamRow]) -> Option<StreamRow> {
    let same = || rows.iter().filter(|row| row.path == path.name());
    let of = |value: fn(&StreamRow) -> f64| {
        figures::tenth(figures::median(same().map(|row| value(row))))
    };
    same().next()?;
    Some(StreamRow {
        path: path.name(),
        chunk_p50_us: of(|row| row.chunk_p50_us),
        chunk_p99_us: of(|row| row.chunk_p99_us),
        cpu_us: of(|row| row.cpu_us),
    })
}
