//! HTTP/1.1 heads and body framing, without IO.
