//! Watches an answer go by: first token, usage, end.
