//! Session affinity by header.

use std::collections::BTreeSet;

use super::ask::{Stopped, ask, becomes, chat_with, endpoint, engines, over, start_again, stop};
use anyhow::Result;

// R25
#[tokio::test]
async fn a_session_stays_at_its_endpoint() -> Result<()> {
    let engines = engines(4).await?;
    for policy in ["predicted", "weighted\n  weights: { sessionAffinity: 1 }"] {
        let extra = format!("  policy: {policy}\n  sessionAffinity: {{}}\n");
        let gateway = over(&engines, &extra).await?;
        let mut homes = BTreeSet::new();
        for session in 0..12 {
            let id = format!("session {session}");
            let mut used = BTreeSet::new();
            for turn in 0..6 {
                let request = chat_with(&[("x-session-id", &id)], &format!("{session} {turn}"));
                used.insert(endpoint(&ask(&gateway, &request).await?).to_owned());
            }
            assert_eq!(used.len(), 1, "{policy}: session {session} was at {used:?}");
            homes.extend(used);
        }
        // One after the other on an idle fleet, `predicted` may well send all of them to
        // the endpoint that has answered fastest; `weighted` sees no difference.
        if policy.starts_with("weighted") {
            assert!(homes.len() > 1, "{policy}: sessions are spread");
        }
        gateway.idle().await;
    }
    Ok(())
}

#[tokio::test]
async fn the_header_is_the_operators_choice_and_is_read_with_either_dash() -> Result<()> {
    let engines = engines(4).await?;
    let gateway = over(&engines, "  sessionAffinity: { header: x-conversation-id }\n").await?;
    let mut used = BTreeSet::new();
    for turn in 0..6 {
        for name in ["X-Conversation-Id", "x_conversation_id"] {
            let request = chat_with(&[(name, "c1")], &format!("{name} {turn}"));
            used.insert(endpoint(&ask(&gateway, &request).await?).to_owned());
        }
    }
    assert_eq!(used.len(), 1, "{used:?}");
    gateway.idle().await;
    Ok(())
}

// B17
#[tokio::test]
async fn the_engine_sees_the_session_header() -> Result<()> {
    let engines = engines(1).await?;
    let gateway = over(&engines, "  sessionAffinity: {}\n").await?;
    ask(&gateway, &chat_with(&[("x-session-id", "s-1")], "hi")).await?;
    assert_eq!(engines[0].inference_requests()[0].head.text("x-session-id"), "s-1");
    Ok(())
}

#[tokio::test]
async fn a_session_moves_when_its_endpoint_is_gone_and_stays_where_it_went() -> Result<()> {
    let engines = engines(3).await?;
    let gateway = over(&engines, "  sessionAffinity: {}\n").await?;
    let mut turn = 0;
    let mut next = async || {
        turn += 1;
        let request = chat_with(&[("x-session-id", "s")], &format!("turn {turn}"));
        let answer = ask(&gateway, &request).await?;
        assert_eq!(answer.head.status, 200, "{}", answer.text());
        anyhow::Ok(endpoint(&answer).to_owned())
    };
    let first = next().await?;
    let home = engines.iter().position(|engine| engine.addr().to_string() == first).unwrap();
    let Stopped { addr, others: _others } = stop(engines, home);
    let second = next().await?;
    assert_ne!(second, first);
    becomes(&gateway, addr, "stale").await?;
    let _again = start_again(addr).await;
    becomes(&gateway, addr, "serving").await?;
    for _ in 0..5 {
        assert_eq!(next().await?, second);
    }
    gateway.idle().await;
    Ok(())
}
