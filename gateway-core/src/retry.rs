//! What may be retried, how often, and when.
