//! A tokio runtime whose sockets are in a namespace.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::Namespace;

/// A namespace with a runtime whose threads live in it.
///
/// A socket stays in the namespace of the thread that made it. So what a spawned task
/// connects or binds is here, and may be awaited or used by tasks anywhere.
#[derive(Debug)]
pub struct Room {
    namespace: Namespace,
    /// Gone only while the room is being dropped.
    runtime: Option<Runtime>,
}

impl Room {
    /// Starts a runtime with this many threads.
    ///
    /// # Errors
    ///
    /// When a thread cannot be started.
    pub fn new(namespace: &Namespace, threads: usize) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads).thread_name(namespace.name()).enable_all();
        // Threads start where the thread is that starts them. Those that tokio adds later,
        // to block in, are started by the first.
        let runtime = namespace.run(|| builder.build())?;
        Ok(Self { namespace: namespace.clone(), runtime: Some(runtime) })
    }

    /// Where the threads are.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Runs a task here; its handle can be awaited anywhere.
    pub fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime().spawn(task)
    }

    /// Runs a future here and blocks the calling thread until it is done.
    ///
    /// # Panics
    ///
    /// When the future does, or inside another runtime.
    pub fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        self.namespace.run(|| self.runtime().block_on(future))
    }

    fn runtime(&self) -> &Runtime {
        // Taken only by `drop`.
        self.runtime.as_ref().expect("a room has its runtime until it is dropped")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Waiting for it would not be allowed inside another runtime, as in tests.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
