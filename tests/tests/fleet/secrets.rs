//! No prompt, no answer and no credential in anything that is written down.

use std::process::Command;

use anyhow::Result;
use gateway_tests::client::{get, once, post, post_with};
use gateway_tests::gateway::{Gateway, pool_config};
use gateway_tests::server::{AnswerFault, Failures, Options, Simulated};
use inference_gateway::config::Config;
use inference_gateway::telemetry;
use serde_json::json;

use super::ask::{CHAT, ask, chat_body, fail, send, stream_body};

const PROMPT: &str = "my-medical-record";
const CLIENT_KEY: &str = "sk-client-0123456789";
const WRONG_KEY: &str = "sk-wrong-9876543210";
const ENGINE_KEY: &str = "sk-engine-5555555555";

// O7
#[test]
fn logs_and_pages_carry_no_prompt_and_no_credential() -> Result<()> {
    let child = Command::new(std::env::current_exe()?)
        .args(["--exact", "secrets::traffic_under_full_tracing", "--ignored", "--nocapture"])
        .output()?;
    let mut written = String::from_utf8_lossy(&child.stdout).into_owned();
    written.push_str(&String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{written}");
    for expected in
        ["\"request_id\":\"the-request\"", "attempt failed", "inference_gateway_build_info"]
    {
        assert!(
            written.contains(expected),
            "`{expected}` is missing, so nothing was looked at:\n{written}"
        );
    }
    for secret in [PROMPT, CLIENT_KEY, WRONG_KEY, ENGINE_KEY] {
        let line = written.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
    Ok(())
}

/// Writes all there is to standard output and standard error.
#[tokio::test]
#[ignore = "run by the test above in a process of its own"]
async fn traffic_under_full_tracing() -> Result<()> {
    let options = Options { api_key: Some(ENGINE_KEY.into()), ..Options::fast("e") };
    let engines = [Simulated::start(options.clone()).await?, Simulated::start(options).await?];
    let auth = format!("auth: {{ apiKeys: [{{ name: app, key: {CLIENT_KEY} }}] }}\n");
    let yaml =
        pool_config(&[&engines[0], &engines[1]], &format!("  apiKey: {{ key: {ENGINE_KEY} }}\n"))
            .replace("auth: none\n", &auth)
            .replace("log: { access: off }", "log: { access: on, level: trace }");
    telemetry::start(&Config::parse(&yaml)?.log);
    let gateway = Gateway::start(&yaml)?;
    gateway.serving(2).await;
    let bearer = format!("Bearer {CLIENT_KEY}");
    let headers = [("authorization", &*bearer), ("x-request-id", "the-request")];
    let with_key = |path: &str, body: &str| post_with(path, &headers, body);
    let chat = with_key(CHAT, &chat_body("tiny", PROMPT));
    assert_eq!(ask(&gateway, &chat).await?.head.status, 200);
    assert_eq!(ask(&gateway, &with_key(CHAT, &stream_body(PROMPT, 20))).await?.head.status, 200);
    let wrong = [("authorization", &*format!("Bearer {WRONG_KEY}"))];
    assert_eq!(ask(&gateway, &post_with(CHAT, &wrong, PROMPT)).await?.head.status, 401);
    let broken = format!("{{\"model\":\"tiny\",\"messages\":[{PROMPT}");
    assert_eq!(ask(&gateway, &with_key(CHAT, &broken)).await?.head.status, 400);
    let unknown = json!({ "model": ["tiny"], "prompt": PROMPT }).to_string();
    ask(&gateway, &with_key("/v1/completions", &unknown)).await?;
    ask(&gateway, &get(&format!("/nowhere?key={CLIENT_KEY}"))).await?;
    for fault in [AnswerFault::CloseBeforeHead, AnswerFault::Garbage] {
        engines.iter().for_each(|engine| fail(engine, fault.clone()));
        assert_eq!(ask(&gateway, &chat).await?.head.status, 502);
    }
    let cut = AnswerFault::CloseAfterChunks { chunks: 1, within_chunk: true };
    engines.iter().for_each(|engine| fail(engine, cut.clone()));
    let mut client = send(&gateway, &with_key(CHAT, &stream_body(PROMPT, 20))).await?;
    client.closed().await;
    engines[0].set_failures(Failures { refuse_connections: true, ..Failures::default() });
    // Whole answers break off, too; what matters is what is written about it.
    let _ = ask(&gateway, &chat).await;
    let explain = post("/debug/explain", &chat_body("tiny", PROMPT));
    println!("{}", once(gateway.admin(), &explain).await?.text());
    for page in ["/metrics", "/config", "/status.json", "/readyz?verbose"] {
        println!("{}", gateway.ask(page).await?.text());
    }
    gateway.idle().await;
    Ok(())
}
