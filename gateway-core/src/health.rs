//! Ejects endpoints that keep failing and lets them return.
