//! Clients that each send their next request as soon as their last one is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;
use gateway_tests::client::{once, post};
use gateway_tests::gateway::Gateway;
use gateway_tests::wait::soon;
use tokio::task::JoinHandle;

use super::ask::CHAT;

/// The clients, until they are stopped.
pub(crate) struct Crowd {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// So many clients. `body` makes the body of a client's next request, a streamed one, from
    /// its number and how many it has sent.
    pub(crate) fn start(
        gateway: &Gateway,
        clients: usize,
        body: impl Fn(usize, usize) -> String + Clone + Send + 'static,
    ) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let client = |number: usize| {
            let (addr, body) = (gateway.addr(), body.clone());
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    let request = post(CHAT, &body(number, sent));
                    sent += 1;
                    let answer = soon(once(addr, &request)).await.unwrap();
                    assert_eq!(answer.head.status, 200, "{}", answer.text());
                    assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let clients = (0..clients).map(client).collect();
        Self { stop, answered, clients }
    }

    /// Requests that were answered.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits for the last answers; they were all whole.
    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await?;
        }
        Ok(())
    }
}
