//! Replaces the model name in an answer.
