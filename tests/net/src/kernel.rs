//! The kernel under the test.

use std::fs;

/// Whether several agents can have programs on an interface in an order of their choice, as
/// they can since Linux 6.6.
#[must_use]
pub fn has_tcx() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    version(&release) >= (6, 6)
}

/// Major and minor number of a release, such as `6.1.0-57-cloud-amd64`.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_in_the_order_of_their_numbers() {
        assert_eq!(version("6.1.0-57-cloud-amd64"), (6, 1));
        assert!(version("6.12.74\n") > version("6.6.0") && version("6.6.0-rc1") < version("7.0"));
    }
}
