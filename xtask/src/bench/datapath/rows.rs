//! The rows of `bench datapath`, as measured and as reported: medians over rounds.

use serde::Serialize;

use super::Way;
use crate::bench::figures;

/// Figures of a whole run.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub(super) rows: Vec<Row>,
}

/// A way at a load.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) path: &'static str,
    /// In percent of the machine that the user-space path takes at this rate.
    pub(super) load: u8,
    pub(super) chunk_p50_us: f64,
    pub(super) chunk_p99_us: f64,
    pub(super) chunk_p999_us: f64,
    /// CPU of the whole machine per chunk (client, model server, kernel, daemon), without
    /// that of foreign processes.
    pub(super) cpu_us_total: f64,
    /// CPU of the proxy's process per chunk; zero without one.
    pub(super) cpu_us_daemon: f64,
    /// How busy the bench kept the machine; a column of the table beside the agreed JSON.
    #[serde(skip)]
    pub(super) busy_percent: f64,
    /// How busy others kept it; likewise.
    #[serde(skip)]
    pub(super) foreign_percent: f64,
    /// Chunks that came, of those that were due; likewise.
    #[serde(skip)]
    pub(super) kept_percent: f64,
}

impl Figures {
    /// The median of each figure over the rounds: loads in the order measured, ways in the
    /// order given.
    pub(super) fn medians(ways: &[Way], rows: &[Row]) -> Self {
        let mut loads: Vec<u8> = Vec::new();
        for row in rows {
            if !loads.contains(&row.load) {
                loads.push(row.load);
            }
        }
        let cells = loads.iter().flat_map(|load| ways.iter().map(move |way| (*load, *way)));
        Self { rows: cells.filter_map(|(load, way)| median(load, way, rows)).collect() }
    }

    /// The row of a way at a load.
    pub(super) fn row(&self, way: Way, load: u8) -> Option<&Row> {
        self.rows.iter().find(|row| row.path == way.name() && row.load == load)
    }
}

fn median(load: u8, way: Way, rows: &[Row]) -> Option<Row> {
    let same = || rows.iter().filter(|row| row.path == way.name() && row.load == load);
    let of = |value: fn(&Row) -> f64| figures::median(same().map(value));
    same().next()?;
    Some(Row {
        path: way.name(),
        load,
        chunk_p50_us: figures::tenth(of(|row| row.chunk_p50_us)),
        chunk_p99_us: figures::tenth(of(|row| row.chunk_p99_us)),
        chunk_p999_us: figures::tenth(of(|row| row.chunk_p999_us)),
        cpu_us_total: hundredth(of(|row| row.cpu_us_total)),
        cpu_us_daemon: hundredth(of(|row| row.cpu_us_daemon)),
        busy_percent: of(|row| row.busy_percent),
        foreign_percent: of(|row| row.foreign_percent),
        kept_percent: of(|row| row.kept_percent),
    })
}

/// The daemon's share of a spliced chunk is less than a tenth of a microsecond.
fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
