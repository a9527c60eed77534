//! Unix signals as futures.

use tokio::signal::unix::{SignalKind, signal};

/// Completes at the next SIGTERM or SIGINT.
pub(crate) async fn stop() {
    let (Ok(mut term), Ok(mut int)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("cannot listen for signals; stop with SIGKILL");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

/// Completes at the next SIGHUP, which asks for the configuration to be read again.
pub(crate) async fn reload() {
    match signal(SignalKind::hangup()) {
        Ok(mut hangup) => {
            hangup.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}
