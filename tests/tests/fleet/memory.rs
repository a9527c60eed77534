//! Memory levels off under traffic that never repeats itself.

use std::process::Command;

use anyhow::Result;
use gateway_tests::client::RawClient;
use gateway_tests::engine::Settings;
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{LogDetail, Options, Simulated};

use super::ask::chat_with;

/// What a request may leave behind, bytes: noise of the allocator, and nothing else.
const PER_REQUEST: u64 = 1024;

// M1, in small.
#[test]
fn memory_levels_off_under_unique_prompts() -> Result<()> {
    // In a process of its own: others would be measured with it.
    let child = Command::new(std::env::current_exe()?)
        .args(["--exact", "memory::unique_prompts", "--ignored", "--nocapture"])
        .output()?;
    let written = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{written}\n{errors}");
    Ok(())
}

#[tokio::test]
#[ignore = "run by the test above in a process of its own"]
async fn unique_prompts() -> Result<()> {
    const WARM_UP: usize = 1500;
    const MEASURED: usize = 4000;
    let engine = Settings { kv_blocks: Some(2000), ..Settings::default() };
    let options = Options { log: LogDetail::Off, engine, ..Options::fast("e") };
    let engine = Simulated::start(options).await?;
    let small = "  sessionAffinity: {}\n  prefix: { capacityBlocks: 2000 }\n";
    let gateway = Gateway::over(&[&engine], small).await?;
    let mut client = RawClient::connect(gateway.addr()).await?;
    let mut before = 0;
    for number in 0..WARM_UP + MEASURED {
        if number == WARM_UP {
            before = resident_bytes()?;
        }
        let id = number.to_string();
        let headers = [("x-session-id", &*id), ("x-gateway-inference-fairness-id", &*id)];
        let request = chat_with(&headers, &format!("{number} ").repeat(1500));
        assert_eq!(client.exchange(&request).await?.head.status, 200);
    }
    let grown = resident_bytes()?.saturating_sub(before);
    println!("{before} bytes after the warm-up, {grown} more after {MEASURED} requests");
    assert!(grown < MEASURED as u64 * PER_REQUEST, "grown by {grown} bytes");
    gateway.idle().await;
    Ok(())
}

/// `proc_pid_statm(5)`: the second field, in pages.
fn resident_bytes() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).unwrap_or_default().parse()?;
    Ok(pages * 4096)
}
