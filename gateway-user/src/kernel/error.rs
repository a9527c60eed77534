//! Why the kernel does not help. Each is one line for a log, a table and a status page.

use std::io;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::pin::PinError;
use aya::programs::ProgramError;

/// Why this daemon has nothing in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum Off {
    /// Built without.
    #[error("this build has no kernel programs; run `cargo xtask build-ebpf` before `cargo build`")]
    NoObject,
    /// Not allowed to.
    #[error(
        "the process lacks {missing}; grant CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or run as root"
    )]
    Capability {
        /// Name of the first one that is missing.
        missing: &'static str,
    },
    /// Nowhere to pin.
    #[error(
        "no bpf file system at {path}: {why}; run `mount -t bpf bpf {path}` on the node and \
         share it with the container",
        path = path.display()
    )]
    NoBpffs {
        /// Where it should be mounted.
        path: PathBuf,
        /// What came of mounting it.
        why: io::Error,
    },
    /// Another one is there.
    #[error(
        "another daemon uses {root}; stop it, or give this one a root of its own in {variable}",
        root = root.display(),
        variable = super::ROOT_VARIABLE
    )]
    Busy {
        /// The root.
        root: PathBuf,
    },
    /// The directory cannot be set up.
    #[error("cannot set up {}: {source}", path.display())]
    Pins {
        /// What could not be made or removed.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A map cannot be pinned.
    #[error("cannot pin {}: {source}", path.display())]
    Pin {
        /// Where.
        path: PathBuf,
        /// Why.
        source: Box<PinError>,
    },
    /// The kernel does not take the maps.
    #[error("the kernel refuses the maps: {0}")]
    Load(Box<EbpfError>),
    /// Not in the object.
    #[error("the kernel programs have no map {name}; `cargo xtask build-ebpf` renews them")]
    Map {
        /// Its name.
        name: &'static str,
    },
    /// A map is not what it should be, or is full.
    #[error("cannot use a map: {0}")]
    UseMap(Box<MapError>),
    /// Only the first version of cgroups, or none.
    #[error("no second version of cgroups; boot with `systemd.unified_cgroup_hierarchy=1`")]
    NoCgroup,
    /// A container's view.
    #[error(
        "{} is not the root of the node's cgroups (its id is {id}); \
         run in the node's cgroup namespace or mount the node's hierarchy there",
        path.display()
    )]
    WrongCgroup {
        /// Where the hierarchy is mounted.
        path: PathBuf,
        /// Id of what is there; 1 is the root.
        id: u64,
    },
    /// The self-test.
    #[error("steering is attached and does not work: {0}")]
    Trial(io::Error),
    /// The kernel does not take a program, or it cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Why a program is not where it should be.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No such interface.
    #[error("cannot look at interface {ifindex}: {source}")]
    NoInterface {
        /// Its index.
        ifindex: u32,
        /// Why.
        source: io::Error,
    },
    /// The programs read Ethernet headers.
    #[error("interface {name} is of type {kind}; the splice needs Ethernet (1) or loopback (772)")]
    NotEthernet {
        /// The interface.
        name: String,
        /// ARP hardware type.
        kind: u16,
    },
    /// Without TCX, whoever comes first on a hook may end the chain.
    #[error(
        "interface {name} has the filter {filter} of another agent, and the kernel is older than 6.6"
    )]
    Foreign {
        /// The interface.
        name: String,
        /// The other's filter.
        filter: String,
    },
    /// Refused by the verifier, or for want of a right.
    #[error("the kernel refuses {program}: {why}")]
    Refused {
        /// The program.
        program: &'static str,
        /// In one line.
        why: String,
    },
    /// A hook could not be taken or pinned.
    #[error("cannot attach {program} to {place}: {why}")]
    Hook {
        /// The program.
        program: &'static str,
        /// Interface or cgroup.
        place: String,
        /// In one line.
        why: String,
    },
    /// The kernel said yes, and yet.
    #[error("{program} was attached to {place} and is not there")]
    NotThere {
        /// The program.
        program: &'static str,
        /// Interface or cgroup.
        place: String,
    },
}

impl AttachError {
    /// A refusal, with what the verifier objected to instead of everything it said.
    pub(super) fn refused(program: &'static str, error: &ProgramError) -> Self {
        let why = if let ProgramError::LoadError { io_error, verifier_log } = error {
            format!("{io_error}: {}", objection(&verifier_log.to_string()))
        } else {
            chain(error)
        };
        Self::Refused { program, why }
    }

    pub(super) fn hook(
        program: &'static str,
        place: &str,
        error: &(dyn std::error::Error + 'static),
    ) -> Self {
        Self::Hook { program, place: place.to_owned(), why: chain(error) }
    }
}

/// The last two lines of a verifier's log, an instruction and what is wrong with it, without
/// the account of its work that follows them.
fn objection(log: &str) -> String {
    let is_account = |line: &&str| {
        ["verification time ", "stack depth ", "processed "].iter().any(|is| line.starts_with(is))
    };
    let mut last = log.lines().rev().filter(|line| !line.is_empty() && !is_account(line));
    match (last.next(), last.next()) {
        (Some(wrong), Some(place)) => format!("{place}; {wrong}"),
        (Some(wrong), None) => wrong.to_owned(),
        _ => "its verifier does not say why".to_owned(),
    }
}

/// An error with its causes: what failed is often only in the last one.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::objection;

    #[test]
    fn what_the_verifier_objects_to_stands_before_its_account() {
        let account = "verification time 7939 usec\nstack depth 40\nprocessed 170 insns (limit \
                       1000000) max_states_per_insn 0\n";
        let log = format!("0: R1=ctx\n7: (61) r0 = *(u32 *)(r9 +0)\nR9 invalid mem\n{account}\n");
        assert_eq!(objection(&log), "7: (61) r0 = *(u32 *)(r9 +0); R9 invalid mem");
        assert_eq!(objection(account), "its verifier does not say why");
    }
}
