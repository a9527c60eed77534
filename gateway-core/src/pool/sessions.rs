//! Which endpoint a session was sent to last.
//!
//! Bounded by keeping two generations: entries go into the young one, a look-up
//! asks both, and when the young one is full or old it becomes the old one, whose
//! entries are dropped. A session in use therefore stays, an idle one lasts between
//! one and two [`LIFETIME`]s, and no entry needs a timer.

use std::collections::HashMap;
use std::time::Duration;

use super::EndpointId;
use crate::time::Time;

/// Time after which a generation is full of age; the session id TTL of llm-d.
const LIFETIME: Duration = Duration::from_mins(5);

/// Sessions per generation; about 1.5 MB when full.
const CAPACITY: usize = 32_768;

/// Sessions and where they live.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    young: HashMap<u64, EndpointId>,
    old: HashMap<u64, EndpointId>,
    turned: Time,
}

impl Sessions {
    pub(crate) fn home(&self, session: u64) -> Option<EndpointId> {
        self.young.get(&session).or_else(|| self.old.get(&session)).copied()
    }

    pub(crate) fn settle(&mut self, session: u64, endpoint: EndpointId, now: Time) {
        if self.young.len() >= CAPACITY || now.since(self.turned) >= LIFETIME {
            self.old = std::mem::take(&mut self.young);
            self.turned = now;
        }
        self.young.insert(session, endpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_session_in_use_stays_and_an_idle_one_goes() {
        let mut sessions = Sessions::default();
        sessions.settle(1, EndpointId(1), at(0));
        sessions.settle(2, EndpointId(2), at(0));
        for minute in 1..60 {
            sessions.settle(2, EndpointId(2), at(minute * 60));
        }
        assert_eq!(sessions.home(2), Some(EndpointId(2)));
        assert_eq!(sessions.home(1), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut sessions = Sessions::default();
        for session in 0..1_000_000 {
            sessions.settle(session, EndpointId(1), at(1));
        }
        assert!(sessions.young.len() + sessions.old.len() <= 2 * CAPACITY);
        assert_eq!(sessions.home(999_999), Some(EndpointId(1)));
    }
}
