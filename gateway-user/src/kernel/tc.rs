//! Splice programs on an interface.
//!
//! TCX (6.6 and later) has room for several agents: ours go first, because another's
//! verdict may end the chain, and pass on everything that is not theirs. The older
//! hook has one order that all must agree on, so there we stay away from interfaces
//! that have another agent's filters.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::programs::links::{FdLink, LinkOrder, PinnedLink};
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcError};
use aya::programs::{Link as _, ProgramError, SchedClassifier, TcAttachType};

use super::error::AttachError;
use super::netlink::{self, Filter};

/// Programs, and where each goes.
const PROGRAMS: [(&str, TcAttachType); 2] =
    [("splice_in", TcAttachType::Ingress), ("splice_out", TcAttachType::Egress)];
/// ARP hardware types with an Ethernet header.
const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;

/// How programs hang on an interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hook {
    /// Several agents' programs in an order of their choice.
    Tcx,
    /// A filter of the `clsact` queueing discipline.
    Clsact,
}

impl fmt::Display for Hook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

/// An interface with both programs; without them once dropped.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) hook: Hook,
    held: Vec<Held>,
}

/// What keeps a program attached.
#[derive(Debug)]
enum Held {
    Pinned {
        link: Option<PinnedLink>,
        path: PathBuf,
    },
    /// A filter, which goes when it is dropped; what is pinned is the program, for those who
    /// look what is attached where.
    Filter {
        link: Option<SchedClassifierLink>,
        path: PathBuf,
    },
}

impl Interface {
    /// Attaches both programs, or none.
    pub(super) fn attach(bpf: &mut Ebpf, ifindex: u32, links: &Path) -> Result<Self, AttachError> {
        let netlink::Link { name, hardware, .. } = netlink::link(ifindex)
            .map_err(|source| AttachError::NoInterface { ifindex, source })?;
        if hardware != ETHERNET && hardware != LOOPBACK {
            return Err(AttachError::NotEthernet { name, kind: hardware });
        }
        let mut interface = Self { name, hook: Hook::Tcx, held: Vec::new() };
        for (program, direction) in PROGRAMS {
            let classifier = loaded(bpf, program)?;
            let pin = links.join(format!("{program}-{ifindex}"));
            if interface.hook == Hook::Tcx {
                match tcx(classifier, &interface.name, program, direction, pin.clone()) {
                    // Not the first: this kernel has TCX.
                    Err(Failure::NoTcx) if interface.held.is_empty() => {
                        interface.hook = Hook::Clsact;
                    }
                    Err(failure) => return Err(failure.named(program, &interface.name)),
                    Ok(held) => interface.held.push(held),
                }
            }
            if interface.hook == Hook::Clsact {
                interface.held.push(clsact(
                    classifier,
                    ifindex,
                    &interface.name,
                    program,
                    direction,
                    pin,
                )?);
            }
        }
        Ok(interface)
    }

    /// Whether a packet for the other side may skip the way out of this interface: it
    /// leads into another network namespace, and nobody else looks at what leaves here.
    pub(super) fn is_open_door(&self, ifindex: u32) -> bool {
        let is_ours = |name: Option<&str>| name == Some("splice_out");
        let is_alone = || match SchedClassifier::query_tcx(&self.name, TcAttachType::Egress) {
            Ok((_, programs)) => programs.iter().all(|program| is_ours(program.name_as_str())),
            // No TCX: only filters are there.
            Err(_) => self.hook == Hook::Clsact,
        };
        let no_filters = || {
            netlink::filters(ifindex, parent(TcAttachType::Egress))
                .is_ok_and(|filters| filters.iter().all(|filter| is_ours(Some(&filter.name))))
        };
        netlink::link(ifindex).is_ok_and(|link| link.is_door) && no_filters() && is_alone()
    }

    /// Leaves the programs where they are. Filters and pins stay by themselves.
    pub(super) fn leave(mut self) {
        for held in &mut self.held {
            match held {
                Held::Pinned { link, .. } => drop(link.take()),
                Held::Filter { link, .. } => std::mem::forget(link.take()),
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Self::Pinned { link: Some(_), path } | Self::Filter { link: Some(_), path } = self {
            // Gone already when somebody has cleaned up by hand.
            let _ = fs::remove_file(path);
        }
    }
}

/// Why TCX did not do.
enum Failure {
    /// The kernel does not know it.
    NoTcx,
    Other(Box<dyn std::error::Error + Send + Sync>),
    NotThere,
}

impl Failure {
    fn named(self, program: &'static str, place: &str) -> AttachError {
        match self {
            Self::NoTcx => {
                AttachError::hook(program, place, &io::Error::from_raw_os_error(libc::EINVAL))
            }
            Self::Other(error) => AttachError::hook(program, place, &*error),
            Self::NotThere => AttachError::NotThere { program, place: place.to_owned() },
        }
    }
}

/// The program, in the kernel.
fn loaded<'a>(
    bpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, AttachError> {
    let missing = || AttachError::Refused { program: name, why: "not in the object".to_owned() };
    let program = bpf.program_mut(name).ok_or_else(missing)?;
    let program: &mut SchedClassifier =
        program.try_into().map_err(|error| AttachError::refused(name, &error))?;
    if program.fd().is_err() {
        program.load().map_err(|error| AttachError::refused(name, &error))?;
    }
    Ok(program)
}

fn tcx(
    program: &mut SchedClassifier,
    interface: &str,
    name: &str,
    direction: TcAttachType,
    pin: PathBuf,
) -> Result<Held, Failure> {
    let first = TcAttachOptions::TcxOrder(LinkOrder::first());
    let id = program.attach_with_options(interface, direction, first).map_err(|error| {
        if os_code(&error) == Some(libc::EINVAL) { Failure::NoTcx } else { other(error) }
    })?;
    let link: FdLink = program.take_link(id).map_err(other)?.try_into().map_err(other)?;
    let link = link.pin(&pin).map_err(other)?;
    let held = Held::Pinned { link: Some(link), path: pin };
    // Naming programs needs a right that attaching them does not.
    match SchedClassifier::query_tcx(interface, direction) {
        Ok((_, programs)) if !programs.iter().any(|found| found.name_as_str() == Some(name)) => {
            Err(Failure::NotThere)
        }
        Ok(_) | Err(_) => Ok(held),
    }
}

fn clsact(
    program: &mut SchedClassifier,
    ifindex: u32,
    interface: &str,
    name: &'static str,
    direction: TcAttachType,
    pin: PathBuf,
) -> Result<Held, AttachError> {
    let failed =
        |error: &(dyn std::error::Error + 'static)| AttachError::hook(name, interface, error);
    let filters = || netlink::filters(ifindex, parent(direction)).map_err(|error| failed(&error));
    let ours = |filter: &Filter| PROGRAMS.iter().any(|(program, _)| *program == filter.name);
    let there = filters()?;
    if let Some(filter) = there.iter().find(|filter| !ours(filter)) {
        let filter = filter.name.clone();
        return Err(AttachError::Foreign { name: interface.to_owned(), filter });
    }
    let priority = priority(&pin);
    let is_mine = |filter: &&Filter| filter.priority == priority;
    // A dead predecessor's; those of another priority are of a daemon with another root.
    for Filter { handle, .. } in there.iter().filter(is_mine) {
        let link =
            SchedClassifierLink::attached(interface, direction, priority, (*handle).into(), None);
        link.map_err(|error| failed(&error))?.detach().map_err(|error| failed(&error))?;
    }
    // It stays when we go: another agent may be using it by then.
    match tc::qdisc_add_clsact(interface) {
        Ok(()) | Err(TcError::AlreadyAttached) => {}
        Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(libc::EEXIST) => {}
        Err(error) => return Err(failed(&error)),
    }
    let options = TcAttachOptions::Netlink(NlOptions { priority, ..NlOptions::default() });
    let id = program
        .attach_with_options(interface, direction, options)
        .map_err(|error| failed(&error))?;
    let link = program.take_link(id).map_err(|error| failed(&error))?;
    program.pin(&pin).map_err(|error| failed(&error))?;
    let held = Held::Filter { link: Some(link), path: pin };
    if !filters()?.iter().any(|filter| filter.name == name && is_mine(&filter)) {
        return Err(AttachError::NotThere { program: name, place: interface.to_owned() });
    }
    Ok(held)
}

/// The priority of a daemon's filters, by where it pins: FNV-1a of the directory, folded into
/// the 4096 priorities from the kernel's own choice on.
fn priority(pin: &Path) -> u16 {
    let root = pin.parent().unwrap_or(pin).as_os_str().as_encoded_bytes();
    let hash = root
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    0xc000 | ((hash ^ (hash >> 12)) & 0xfff) as u16
}

/// Where filters of a direction hang; `tc(8)` calls them `ffff:fff2` and `ffff:fff3`.
fn parent(direction: TcAttachType) -> u32 {
    match direction {
        TcAttachType::Ingress => 0xffff_fff2,
        TcAttachType::Egress => 0xffff_fff3,
        TcAttachType::Custom(parent) => parent,
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::Other(Box::new(error))
}

/// The system's code of a refused call.
fn os_code(error: &ProgramError) -> Option<i32> {
    match error {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    }
}
