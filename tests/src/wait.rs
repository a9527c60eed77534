//! Waiting for something to become true.

use std::future::Future;
use std::time::Duration;

/// How long anything is waited for: far longer than it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `condition` holds.
///
/// # Panics
///
/// When it does not hold within [`PATIENCE`].
#[track_caller]
pub fn eventually(mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let waited = async {
            while !condition() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, waited).await;
        assert!(outcome.is_ok(), "still not true after {PATIENCE:?}: condition at {caller}");
    }
}

/// Waits until a condition holds that takes asking, such as a request.
///
/// # Errors
///
/// What the condition fails with.
///
/// # Panics
///
/// When it does not hold within [`PATIENCE`].
#[track_caller]
pub fn until<E>(
    mut condition: impl AsyncFnMut() -> Result<bool, E>,
) -> impl Future<Output = Result<(), E>> {
    let caller = std::panic::Location::caller();
    async move {
        let waited = async {
            while !condition().await? {
                tokio::time::sleep(PAUSE).await;
            }
            Ok(())
        };
        let outcome = tokio::time::timeout(PATIENCE, waited).await;
        outcome
            .unwrap_or_else(|_| panic!("still not true after {PATIENCE:?}: condition at {caller}"))
    }
}

/// Waits for a future that must not take long.
///
/// # Panics
///
/// When it takes longer than [`PATIENCE`].
#[track_caller]
pub fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        let outcome = tokio::time::timeout(PATIENCE, future).await;
        outcome.unwrap_or_else(|_| panic!("not done after {PATIENCE:?}: future at {caller}"))
    }
}
