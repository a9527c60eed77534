//! Policies: how an endpoint is picked.
