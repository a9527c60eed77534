//! The engines we know, and where each keeps its signals.
