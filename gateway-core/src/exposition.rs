//! A reader of the Prometheus text format that looks only for the families it was asked for.
