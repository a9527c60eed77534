//! The `inference-gateway` command.

fn main() {}
