//! The daemon: listens, scrapes, forwards; every decision is made in `gateway-core`.
