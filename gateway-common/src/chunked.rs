//! Tracks the boundaries of an HTTP/1.1 chunked body.
