//! Finds what routing needs in a request body, as it arrives.
