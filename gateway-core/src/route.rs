//! From a model name to a pool.
