//! `session-affinity-scorer`: 1 for the endpoint that the session was sent to last.

pub(crate) const NAME: &str = "session-affinity-scorer";

/// Rates the endpoint at `slot`; `home` is the session's, if it has one.
pub(crate) fn score(home: Option<u32>, slot: u32) -> f64 {
    if home == Some(slot) { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sessions_endpoint_scores() {
        assert_eq!(score(Some(3), 3), 1.0);
        assert_eq!(score(Some(3), 4), 0.0);
        assert_eq!(score(None, 3), 0.0);
    }
}
