//! The kernel path of a network namespace: programs, hooks and maps, one per process.
//!
//! Interfaces come and go with pods, so they are looked through again and again. A
//! connection whose first packet came before its interface had the programs is not
//! spliced; it works all the same.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use gateway_common::path::PathState;

use super::{Splicer, trial};
use crate::kernel::apart::apart;
use crate::kernel::steer::{Picked, Picks, Steering};
use crate::kernel::{self, AtExit, Kernel};
use crate::sk_msg::{self, Fionread, SkMsg};

/// Nodes of this process, by where their maps are pinned. Several daemons in one
/// process, as tests have them, share one.
static NODES: LazyLock<Mutex<HashMap<PathBuf, Weak<Node>>>> = LazyLock::new(Mutex::default);

/// See the module.
#[derive(Debug)]
pub(crate) struct Node {
    kernel: Mutex<Kernel>,
    splicer: Result<Arc<Splicer>, String>,
    /// What the self-test of the splice has found.
    trial: String,
    steering: OnceLock<Result<Arc<Picks>, String>>,
    sk_msg: OnceLock<Result<(Arc<SkMsg>, Fionread), String>>,
    /// Daemons that have not left.
    users: AtomicUsize,
    /// Interfaces that take no programs, so that each is told once.
    refused: Mutex<BTreeSet<u32>>,
}

impl Node {
    /// The node of the caller's network namespace, with clients at `listeners`.
    ///
    /// # Errors
    ///
    /// What is missing, and how to get it, in one line.
    pub(crate) fn open(listeners: &[SocketAddr]) -> Result<Arc<Self>, String> {
        let root = kernel::root_here(&kernel::root());
        let mut nodes = lock(&NODES);
        if let Some(node) = nodes.get(&root).and_then(Weak::upgrade) {
            node.users.fetch_add(1, Ordering::Relaxed);
            if let Ok(splicer) = &node.splicer {
                splicer.listen(listeners).map_err(|error| whole(&error))?;
            }
            return Ok(node);
        }
        let mut kernel = Kernel::load(&root, AtExit::Detach).map_err(|error| whole(&error))?;
        let splicer = Splicer::new(&kernel.maps(), listeners).map_err(|error| whole(&error));
        let tried = splicer.and_then(|splicer| Ok((tried(&mut kernel, &splicer)?, splicer)));
        let (state, trial) = match &tried {
            Ok((found, _)) => (PathState::ON, found.clone()),
            Err(why) => (PathState::OFF, why.clone()),
        };
        kernel.describe_path(PathState::SPLICE, &PathState::new(state, &trial));
        let node = Arc::new(Self {
            kernel: Mutex::new(kernel),
            splicer: tried.map(|(_, splicer)| splicer),
            trial,
            steering: OnceLock::new(),
            sk_msg: OnceLock::new(),
            users: AtomicUsize::new(1),
            refused: Mutex::default(),
        });
        node.attach();
        nodes.insert(root, Arc::downgrade(&node));
        Ok(node)
    }

    /// A daemon needs it no longer; with the last one, hooks and maps go. Waiting for
    /// whoever else still holds the node would be waiting for the process to end.
    pub(crate) fn leave(&self) {
        let mut nodes = lock(&NODES);
        if self.users.fetch_sub(1, Ordering::Relaxed) == 1 {
            nodes.retain(|_, node| !std::ptr::eq(node.as_ptr(), self));
            lock(&self.kernel).close();
        }
    }

    /// Attaches the programs that steer connections.
    ///
    /// # Errors
    ///
    /// What is missing, in one line.
    pub(crate) fn steer(&self) -> Result<Steering, String> {
        let cgroup = std::env::var_os(kernel::CGROUP_VARIABLE).map(PathBuf::from);
        let mut kernel = lock(&self.kernel);
        let steering = kernel.steer(cgroup.as_deref()).map_err(|error| whole(&error));
        let state = match &steering {
            Ok(_) => PathState::new(PathState::ON, "self-test passed"),
            Err(why) => PathState::new(PathState::OFF, why),
        };
        kernel.describe_path(PathState::STEERING, &state);
        // Of several daemons in one process the first has it.
        let found = steering.as_ref().map(|steering| Arc::clone(steering.picks()));
        let _ = self.steering.set(found.map_err(Clone::clone));
        steering
    }

    /// What came of attaching them; `None` when nobody asked for it.
    pub(crate) fn steering(&self) -> Option<Result<(), &str>> {
        self.steering.get().map(|found| found.as_ref().map(drop).map_err(String::as_str))
    }

    /// Connections that the kernel has sent to each endpoint.
    pub(crate) fn picked(&self) -> Vec<Picked> {
        match self.steering.get() {
            Some(Ok(picks)) => picks.read(),
            Some(Err(_)) | None => Vec::new(),
        }
    }

    /// Attaches the programs that move answers from socket to socket, and tries them;
    /// once, by whichever daemon asks first.
    pub(crate) fn start_sk_msg(&self) {
        self.sk_msg.get_or_init(|| {
            let start = Instant::now();
            let mut kernel = lock(&self.kernel);
            let started = start_sk_msg(&mut kernel);
            let spent = start.elapsed().as_millis();
            let state = match &started {
                Ok((_, Fionread::Right)) => {
                    PathState::new(PathState::ON, &format!("self-test passed in {spent} ms"))
                }
                Ok((_, Fionread::Wrong)) => PathState::new(
                    PathState::ON,
                    &format!("bytes are right ({spent} ms), FIONREAD is wrong: only for pools that accept it"),
                ),
                Err(why) => PathState::new(PathState::OFF, why),
            };
            kernel.describe_path(PathState::SK_MSG, &state);
            started
        });
    }

    /// What came of it; `None` when nobody asked for it.
    pub(crate) fn sk_msg(&self) -> Option<Result<(&Arc<SkMsg>, Fionread), &str>> {
        let started = self.sk_msg.get()?;
        Some(started.as_ref().map(|(maps, fionread)| (maps, *fionread)).map_err(String::as_str))
    }

    /// The maps of moving from socket to socket, for a pool that does or does not accept
    /// that enrolled sockets are told nothing by `FIONREAD`.
    pub(crate) fn sk_msg_for(&self, accepts: bool) -> Option<&Arc<SkMsg>> {
        let (maps, fionread) = self.sk_msg()?.ok()?;
        (accepts || fionread == Fionread::Right).then_some(maps)
    }

    /// The maps of splicing, if the programs have them.
    pub(crate) fn splicer(&self) -> Option<&Arc<Splicer>> {
        self.splicer.as_ref().ok()
    }

    /// Why there is no splicing.
    pub(crate) fn no_splice(&self) -> Option<&str> {
        self.splicer.as_ref().err().map(String::as_str)
    }

    /// What the self-test of the splice has found, or why there is no splicing.
    pub(crate) fn trial(&self) -> &str {
        &self.trial
    }

    /// Puts the programs on interfaces that have none yet, and looks who else is on them.
    pub(crate) fn attach(&self) {
        let Ok(splicer) = &self.splicer else { return };
        let mut refused = lock(&self.refused);
        for ifindex in interfaces() {
            if refused.contains(&ifindex) {
                continue;
            }
            if let Err(error) = lock(&self.kernel).attach_tc(ifindex) {
                tracing::info!(ifindex, error = whole(&error), "no splicing on this interface");
                refused.insert(ifindex);
            }
        }
        splicer.set_doors(lock(&self.kernel).doors());
    }
}

/// Attaches and tries what moves answers from socket to socket.
fn start_sk_msg(kernel: &mut Kernel) -> Result<(Arc<SkMsg>, Fionread), String> {
    let cgroup = std::env::var_os(kernel::CGROUP_VARIABLE).map(PathBuf::from);
    kernel.attach_sk_msg(cgroup.as_deref()).map_err(|error| whole(&error))?;
    let maps = SkMsg::new(&kernel.maps()).map_err(|error| whole(&error))?;
    match sk_msg::trial::run(&maps) {
        Ok(fionread) => Ok((maps, fionread)),
        Err(error) => {
            kernel.detach_sk_msg();
            Err(format!("self-test failed: {error}"))
        }
    }
}

/// Tries the splice before anybody needs it, in a network namespace of its own. Where there
/// can be none the splice is used untried.
fn tried(kernel: &mut Kernel, splicer: &Arc<Splicer>) -> Result<String, String> {
    let start = Instant::now();
    let found = match apart(|| kernel.tried_on_loopback(|| trial::run(splicer))) {
        Ok(Ok(Ok(()))) => format!("self-test passed in {} ms", start.elapsed().as_millis()),
        Ok(Ok(Err(error))) => return Err(format!("self-test failed: {error}")),
        Ok(Err(error)) => return Err(whole(&error)),
        Err(error) => format!("no self-test: cannot make a network namespace: {error}"),
    };
    Ok(found)
}

/// Indexes of the interfaces of the caller's network namespace.
fn interfaces() -> Vec<u32> {
    // SAFETY: a list that ends with an index of 0, and is freed below.
    let list = unsafe { libc::if_nameindex() };
    let mut found = Vec::new();
    if list.is_null() {
        return found;
    }
    // SAFETY: as above.
    unsafe {
        let mut at = list;
        while (*at).if_index != 0 {
            found.push((*at).if_index);
            at = at.add(1);
        }
        libc::if_freenameindex(list);
    }
    found
}

fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
