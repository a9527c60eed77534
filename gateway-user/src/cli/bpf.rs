//! `bpf status`: what is in the kernel, read from the pinned maps.
//!
//! Works without a daemon, because that is when people ask.

use anyhow::Result;

use crate::args::BpfStatusFlags;
use crate::kernel;

mod flows;
mod report;
mod show;
mod sk_msg;

/// Describes the kernel's part on this node.
///
/// # Errors
///
/// The pinned maps cannot be read, for want of a right or because they are another
/// version's.
pub fn bpf_status(flags: &BpfStatusFlags) -> Result<String> {
    let here = kernel::root_here(&flags.root);
    let root = if here.is_dir() { &here } else { &flags.root };
    let report = report::read(root, flags.flows)?;
    if flags.json {
        return Ok(serde_json::to_string_pretty(&report)? + "\n");
    }
    Ok(show::show(&report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_own_network_namespace_is_looked_at_first() {
        let name = format!("gateway-bpf-status-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let here = kernel::root_here(&root);
        std::fs::create_dir(&here).unwrap();
        let text = bpf_status(&BpfStatusFlags { root, flows: 20, json: false });
        std::fs::remove_dir(&here).unwrap();
        let place = format!("at {}/v", here.display());
        assert!(text.as_ref().unwrap().contains(&place), "{text:?}");
    }

    #[test]
    fn without_maps_the_needs_are_shown_all_the_same() {
        let flags = |json| BpfStatusFlags { root: "/nowhere".into(), flows: 20, json };
        let text = bpf_status(&flags(false)).unwrap();
        assert!(text.starts_with("NEEDED"), "{text}");
        assert!(text.contains("no maps of this version at /nowhere/v"), "{text}");
        let report: serde_json::Value =
            serde_json::from_str(&bpf_status(&flags(true)).unwrap()).unwrap();
        assert_eq!(report["needs"].as_array().unwrap().len(), 4);
        assert!(report["kernel"].is_null(), "{report}");
    }
}
