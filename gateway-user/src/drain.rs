//! Shutting down without cutting anybody off.
//!
//! A [`Watcher`] is held by whatever must finish first: every connection, every
//! listener. The [`Trigger`] says when to begin, and knows when the last watcher
//! is gone. A second signal, after the deadline, tells what is left to stop at once.

use tokio::sync::watch;

/// How far the shutdown has come.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Phase {
    /// Business as usual.
    #[default]
    Serving,
    /// Not ready any more, but new connections are still answered: those who
    /// balance over us need a moment to notice.
    Settling,
    /// No new connections; what runs may finish.
    Draining,
    /// Time is up.
    Stopping,
}

/// Moves the shutdown along.
#[derive(Debug)]
pub struct Trigger(watch::Sender<Phase>);

/// Follows the shutdown, and holds it up while it lives.
#[derive(Clone, Debug)]
pub struct Watcher(watch::Receiver<Phase>);

/// A connected pair, in [`Phase::Serving`].
#[must_use]
pub fn channel() -> (Trigger, Watcher) {
    let (sender, receiver) = watch::channel(Phase::Serving);
    (Trigger(sender), Watcher(receiver))
}

impl Trigger {
    /// Tells every watcher that `phase` has come. Phases never go back.
    pub fn enter(&self, phase: Phase) {
        self.0.send_if_modified(|current| {
            let forward = phase > *current;
            *current = phase.max(*current);
            forward
        });
    }

    /// Completes when the last watcher is gone.
    pub async fn finished(&self) {
        self.0.closed().await;
    }

    /// A new watcher.
    #[must_use]
    pub fn watch(&self) -> Watcher {
        Watcher(self.0.subscribe())
    }
}

impl Watcher {
    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Completes when `phase` (or a later one) has come.
    pub async fn reached(&mut self, phase: Phase) {
        // A trigger that is gone has nobody to wait for: treat it as reached.
        let _ = self.0.wait_for(|current| *current >= phase).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn finishes_when_the_last_watcher_is_gone() {
        let (trigger, mut watcher) = channel();
        let held = watcher.clone();
        trigger.enter(Phase::Draining);
        watcher.reached(Phase::Settling).await;
        assert_eq!(held.phase(), Phase::Draining);
        drop(watcher);
        drop(held);
        trigger.finished().await;
    }

    #[test]
    fn phases_never_go_back() {
        let (trigger, watcher) = channel();
        trigger.enter(Phase::Stopping);
        trigger.enter(Phase::Settling);
        assert_eq!(watcher.phase(), Phase::Stopping);
    }
}
