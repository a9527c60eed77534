//! Reads GPU figures from a DCGM exporter's page.
